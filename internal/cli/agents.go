// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// agentFiles are the agent's binaries by the architecture of the guests, as images name it.
var agentFiles = map[string]string{
	"x86_64":  "egress-agent-linux-amd64",
	"aarch64": "egress-agent-linux-arm64",
}

// agentsIn gives the agents in a folder: next to the executable where none is named. They belong to the operator's own version.
func agentsIn(dir string) (libvirt.AgentSource, error) {
	if dir == "" {
		executable, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the agents next to the executable: %w", err)
		}
		dir = filepath.Dir(executable)
	}
	store := &agentStore{dir: dir, known: map[string]libvirt.AgentFile{}}
	return store.agent, nil
}

// agentStore remembers the digest of each agent: it is asked for with every instance.
type agentStore struct {
	dir   string
	mu    sync.Mutex
	known map[string]libvirt.AgentFile
}

func (s *agentStore) agent(arch string) (libvirt.AgentFile, error) {
	name, ok := agentFiles[arch]
	if !ok {
		return libvirt.AgentFile{}, fmt.Errorf("there is no agent for the architecture %q", arch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if file, ok := s.known[arch]; ok {
		return file, nil
	}
	path := filepath.Join(s.dir, name)
	content, err := os.ReadFile(path)
	if err != nil {
		return libvirt.AgentFile{}, fmt.Errorf("the agent: %w; --agent-dir must name the folder with %s", err, name)
	}
	digest := sha256.Sum256(content)
	file := libvirt.AgentFile{
		Version: version(), SHA256: hex.EncodeToString(digest[:]), Read: func() ([]byte, error) { return os.ReadFile(path) },
	}
	s.known[arch] = file
	return file, nil
}
