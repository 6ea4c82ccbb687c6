// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/certs"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/etcd"
)

const program = "egress-standalone test"

func TestBackupAndRestore(t *testing.T) {
	from := filepath.Join(t.TempDir(), "from")
	original := open(t, from)
	bundle, err := certs.Ensure(original.PKI(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{original.Providers(): "version: 1\n", original.Port(): "6443\n"} {
		if err := datadir.WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "running.tar.gz")
	t.Run("while the database runs", func(t *testing.T) {
		withDatabase(t, original, func(client *clientv3.Client) {
			if _, err := client.Put(t.Context(), "/key", "value"); err != nil {
				t.Fatal(err)
			}
			summary, err := Write(t.Context(), Source{Paths: resolve(t, from), Program: program}, file)
			if err != nil {
				t.Fatal(err)
			}
			if summary.Keys != 1 || summary.Size == 0 {
				t.Errorf("%+v", summary)
			}
		})
	})
	if err := original.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("an existing file is left alone", func(t *testing.T) {
		if _, err := Write(t.Context(), Source{Paths: resolve(t, from), Program: program}, file); err == nil || !strings.Contains(err.Error(), "exists: name a new file") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("while the database does not run", func(t *testing.T) {
		stopped := filepath.Join(t.TempDir(), "stopped.tar.gz")
		if _, err := Write(t.Context(), Source{Paths: resolve(t, from), Program: program}, stopped); err != nil {
			t.Fatal(err)
		}
		checkRestored(t, stopped, bundle)
	})
	t.Run("nothing but the file is left", func(t *testing.T) {
		entries, err := os.ReadDir(filepath.Dir(file))
		if err != nil || len(entries) != 1 {
			t.Errorf("%v, %v", entries, err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
	checkRestored(t, file, bundle)
	checkRefusals(t, file)
}

func checkRestored(t *testing.T, file string, bundle *certs.Bundle) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "deep", "to")
	if err := Restore(t.Context(), file, resolve(t, to), program); err != nil {
		t.Fatal(err)
	}
	restored := open(t, to)
	defer func() { _ = restored.Close() }()
	for path, want := range map[string]string{restored.Providers(): "version: 1\n", restored.Port(): "6443\n"} {
		if content, err := os.ReadFile(path); err != nil || string(content) != want {
			t.Errorf("%s: %q, %v", path, content, err)
		}
	}
	if ca, err := os.ReadFile(filepath.Join(restored.PKI(), filepath.Base(bundle.CAFile))); err != nil || !bytes.Equal(ca, bundle.CA) {
		t.Errorf("another authority (%v)", err)
	}
	withDatabase(t, restored, func(client *clientv3.Client) {
		answer, err := client.Get(t.Context(), "/key")
		if err != nil || len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != "value" {
			t.Errorf("%v, %v", answer, err)
		}
	})
}

func checkRefusals(t *testing.T, file string) {
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	newer := filepath.Join(t.TempDir(), "newer.tar.gz")
	database := filepath.Join(t.TempDir(), databaseName)
	if err := os.WriteFile(database, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := packManifest(newer, manifest{Format: datadir.Format + 1, Program: "egress-standalone v9.0.0"}, []content{{databaseName, database}}); err != nil {
		t.Fatal(err)
	}
	newerContent, err := os.ReadFile(newer)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"a file that is cut", good[:len(good)-100], "is damaged"},
		{"a file with a bit that is not as it was", flipped, "is damaged"},
		{"something else", []byte("hello"), "is no backup of egress-standalone"},
		{"a newer format", newerContent, "has format 2, written by egress-standalone v9.0.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad.tar.gz")
			if err := os.WriteFile(bad, tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(t.TempDir(), "to")
			if err := Restore(t.Context(), bad, resolve(t, to), program); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			if _, err := os.Stat(to); !os.IsNotExist(err) {
				t.Errorf("it left a data directory (%v)", err)
			}
		})
	}
	t.Run("a directory that is not empty", func(t *testing.T) {
		to := t.TempDir()
		if err := os.WriteFile(filepath.Join(to, "mine"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Restore(t.Context(), file, resolve(t, to), program); err == nil || !strings.Contains(err.Error(), "is not empty (it has mine)") {
			t.Errorf("error %v", err)
		}
	})
}

func TestNothingToBackUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	_, err := Write(t.Context(), Source{Paths: resolve(t, dir), Program: program}, filepath.Join(t.TempDir(), "file"))
	if err == nil || !strings.Contains(err.Error(), "holds no data to back up") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("it made the directory (%v)", err)
	}
}

func resolve(t *testing.T, path string) datadir.Paths {
	t.Helper()
	paths, err := datadir.Resolve(path)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func open(t *testing.T, path string) *datadir.Dir {
	t.Helper()
	dir, err := datadir.Open(path, program)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// withDatabase runs the directory's database for as long as use works with it.
func withDatabase(t *testing.T, dir *datadir.Dir, use func(*clientv3.Client)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := etcd.Start(ctx, dir.Etcd(), dir.Sockets())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{store.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	use(client)
}
