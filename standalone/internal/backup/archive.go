// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
)

const (
	manifestName     = "manifest.json"
	maxManifestBytes = 1 << 20
)

// manifest says what an archive holds.
type manifest struct {
	// Format of the data, as the data directory counts it.
	Format  int       `json:"format"`
	Program string    `json:"program"`
	Created time.Time `json:"created"`
	Files   []file    `json:"files"`
}

type file struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// content is a file to be put into an archive.
type content struct{ name, path string }

// pack writes an archive of mode 0600.
func pack(to, program string, contents []content) error {
	return packManifest(to, manifest{Format: datadir.Format, Program: program, Created: time.Now().UTC().Truncate(time.Second)}, contents)
}

func packManifest(to string, m manifest, contents []content) error {
	for _, c := range contents {
		f, err := measure(c)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
	}
	head, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	header := func(name string, size int64) error {
		return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: m.Created})
	}
	err = header(manifestName, int64(len(head)))
	if err == nil {
		_, err = archive.Write(head)
	}
	for i, c := range contents {
		if err != nil {
			break
		}
		if err = header(c.name, m.Files[i].Size); err == nil {
			err = copyFrom(archive, c.path)
		}
	}
	return errors.Join(err, archive.Close(), compressed.Close(), out.Sync(), out.Close())
}

func measure(c content) (file, error) {
	digest := sha256.New()
	counted := &counter{to: digest}
	if err := copyFrom(counted, c.path); err != nil {
		return file{}, err
	}
	return file{Name: c.name, Size: counted.n, SHA256: hex.EncodeToString(digest.Sum(nil))}, nil
}

func copyFrom(to io.Writer, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	_, err = io.Copy(to, in)
	return err
}

type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.to.Write(b)
}

// unpack checks an archive as a whole. Where place is given, it writes each file to the path that place returns for its name.
func unpack(from, program string, place func(name string) string) ([]file, error) {
	in, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	compressed, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("is no backup of egress-standalone: %w", err)
	}
	archive := tar.NewReader(compressed)
	m, err := readManifest(archive, program)
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		to := ""
		if place != nil {
			to = place(f.Name)
		}
		if err := readFile(archive, f, to); err != nil {
			return nil, fmt.Errorf("is damaged: %s: %w", f.Name, err)
		}
	}
	// What follows is read too: the compression's own checksum stands at the end.
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		return nil, errors.Join(errors.New("is damaged: it does not end where its manifest does"), err)
	}
	if _, err := io.Copy(io.Discard, compressed); err != nil {
		return nil, fmt.Errorf("is damaged: %w", err)
	}
	return m.Files, nil
}

func readManifest(archive *tar.Reader, program string) (manifest, error) {
	var m manifest
	header, err := archive.Next()
	if err != nil || header.Name != manifestName {
		return m, errors.New("is no backup of egress-standalone: it does not begin with " + manifestName)
	}
	if err := json.NewDecoder(io.LimitReader(archive, maxManifestBytes)).Decode(&m); err != nil || m.Format < 1 {
		return m, fmt.Errorf("is damaged: %s cannot be read (%w)", manifestName, err)
	}
	if err := datadir.CheckFormat(m.Format, m.Program, program); err != nil {
		return m, err
	}
	database := false
	for _, f := range m.Files {
		database = database || f.Name == databaseName
		dir, base := path.Split(f.Name)
		known := dir == pkiPrefix && base != "" && base != "." && base != ".." ||
			f.Name == databaseName || f.Name == providersName || f.Name == portName
		if !known {
			return m, fmt.Errorf("is damaged: it holds a file %q, which no backup has", f.Name)
		}
	}
	if !database {
		return m, errors.New("is damaged: it holds no database")
	}
	return m, nil
}

// readFile reads the next file of an archive, which must be this one, into a new file, or nowhere.
func readFile(archive *tar.Reader, f file, to string) error {
	header, err := archive.Next()
	if err != nil {
		return err
	}
	if header.Name != f.Name || header.Typeflag != tar.TypeReg || header.Size != f.Size {
		return errors.New("it is not what the manifest says")
	}
	digest := sha256.New()
	if to == "" {
		_, err = io.Copy(digest, archive)
	} else {
		err = writeFile(to, io.TeeReader(archive, digest))
	}
	if err != nil {
		return err
	}
	if hex.EncodeToString(digest.Sum(nil)) != f.SHA256 {
		return errors.New("its hash is not the manifest's")
	}
	return nil
}

func writeFile(to string, from io.Reader) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Sync(), out.Close())
}
