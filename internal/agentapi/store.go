// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// stateVersion is the version of the state file.
const stateVersion = 1

// state is what the state file holds.
type state struct {
	Version      int          `json:"version"`
	ConfigDigest string       `json:"configDigest"`
	Credentials  []Credential `json:"credentials"`
}

// Store keeps the credentials that came by control request, beside the
// configuration file; the package comment says what outlives what.
type Store struct {
	path   string
	digest string
}

// OpenStore returns the store of a configuration file and the credentials
// that are in force: the stored ones if they belong to this configuration,
// otherwise the configuration's own.
func OpenStore(configPath string, config Config) (*Store, []Credential, error) {
	digest, err := config.digest()
	if err != nil {
		return nil, nil, err
	}
	store := &Store{path: configPath + ".state", digest: digest}
	data, err := os.ReadFile(store.path)
	if errors.Is(err, fs.ErrNotExist) {
		return store, config.Credentials, nil
	}
	if err != nil {
		return nil, nil, err
	}
	stored, err := parseState(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w; remove the file to go back to the configuration's credentials", store.path, err)
	}
	if stored.ConfigDigest == digest {
		return store, stored.Credentials, nil
	}
	if err := os.Remove(store.path); err != nil {
		return nil, nil, fmt.Errorf("removing the state of an older configuration: %w", err)
	}
	return store, config.Credentials, nil
}

func parseState(data []byte) (state, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return state{}, fmt.Errorf("not a state file: %w", describeJSON(err))
	}
	if head.Version != stateVersion {
		return state{}, fmt.Errorf("state version %d is not known to this agent (%d)", head.Version, stateVersion)
	}
	var s state
	if err := decodeStrict(data, &s); err != nil {
		return state{}, err
	}
	return s, ValidateCredentials(s.Credentials)
}

// Save keeps a set; after it returned nil the set outlives a power cut.
func (s *Store) Save(credentials []Credential) error {
	data, err := json.Marshal(state{Version: stateVersion, ConfigDigest: s.digest, Credentials: credentials})
	if err != nil {
		return err
	}
	return writeFileAtomically(s.path, append(data, '\n'))
}

// writeFileAtomically leaves the old content or the new, mode 0600.
func writeFileAtomically(path string, data []byte) (err error) {
	// CreateTemp's files have mode 0600.
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = temporary.Close()
			_ = os.Remove(temporary.Name())
		}
	}()
	if _, err := temporary.Write(data); err != nil {
		return err
	}
	if err := temporary.Sync(); err != nil {
		return err
	}
	if err := temporary.Close(); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
