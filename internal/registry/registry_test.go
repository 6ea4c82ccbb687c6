// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// maker makes providers that say what happens to them.
type maker struct {
	mu    sync.Mutex
	file  *config.File
	err   error
	said  []string
	fails map[string]bool // entries that cannot be made
}

func (m *maker) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, fmt.Sprintf(format, args...))
}

// heard is what was said since the last time.
func (m *maker) heard() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	said := m.said
	m.said = nil
	return said
}

func (m *maker) write(file *config.File, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.file, m.err = file, err
}

func (m *maker) load() (*config.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.file, m.err
}

func (m *maker) InForce(_ *config.File, entries []string) { m.say("in force %v", entries) }

func (m *maker) Refused(_ *config.File, err error) { m.say("refused: %v", err) }

type made struct {
	provider.Provider
	m    *maker
	name string
}

func (p *made) Watch(ctx context.Context, notify func(string)) error {
	notify("uid")
	<-ctx.Done()
	return nil
}

func (p *made) Close() { p.m.say("close %s", p.name) }

func (m *maker) make(_ *config.File, entry config.Entry) (provider.Provider, error) {
	if m.fails[entry.Name] {
		return nil, errors.New("no such address")
	}
	m.say("make %s", entry.Name)
	return &made{m: m, name: entry.Name}, nil
}

func file(entries ...config.Entry) *config.File { return &config.File{Version: 1, Entries: entries} }

func entry(name string, hosts ...string) config.Entry {
	e := config.Entry{Name: name, Type: config.TypeKVM2}
	for _, h := range hosts {
		e.Hosts = append(e.Hosts, config.Host{Name: h})
	}
	return e
}

type rig struct {
	*Registry
	*maker
	changed chan struct{}
}

// start runs a registry until the test ends, in a bubble.
func start(t *testing.T, first *config.File) *rig {
	m := &maker{file: first, fails: map[string]bool{}}
	changed := make(chan struct{})
	r := &rig{maker: m, changed: changed, Registry: New(Options{
		File: first, Load: m.load, Changed: changed, Make: m.make, Report: m, Log: slog.New(slog.DiscardHandler),
		Wake: func(entry, uid string) { m.say("wake %s/%s", entry, uid) },
	})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	r.Current()
	synctest.Wait()
	return r
}

func (r *rig) tell() {
	r.changed <- struct{}{}
	time.Sleep(settle)
	synctest.Wait()
}

func (r *rig) wants(t *testing.T, want ...string) {
	t.Helper()
	got := r.heard()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyEntriesThatChangedAreMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := file(entry("a", "1"), entry("b", "2"), entry("c", "3"))
		r := start(t, first)
		r.wants(t, "make a", "make b", "make c", "wake a/uid", "wake b/uid", "wake c/uid")
		before := r.Current()
		r.write(file(entry("a", "1"), entry("b", "2", "4"), entry("d", "5")), nil)
		r.tell()
		r.wants(t, "close b", "close c", "make b", "make d", "wake b/uid", "wake d/uid", "in force [b c d]", "wake a/", "wake b/", "wake c/", "wake d/")
		after := r.Current()
		if after.Providers["a"] != before.Providers["a"] || after.Providers["b"] == before.Providers["b"] || after.Providers["c"] != nil || after.File == first {
			t.Errorf("%+v", after)
		}
		r.tell() // nothing changed
		r.wants(t)
	})
}

func TestOtherReflectorsConcernEveryProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, file(entry("a", "1")))
		r.heard()
		other := file(entry("a", "1"))
		other.Reflectors = []config.Reflector{{URL: "http://192.0.2.1/"}}
		r.write(other, nil)
		r.tell()
		r.wants(t, "close a", "make a", "wake a/uid", "in force [a]", "wake a/")
	})
}

func TestAFileThatCannotBeUsedLeavesTheOneBeforeInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := file(entry("a", "1"))
		r := start(t, first)
		r.heard()
		r.write(nil, errors.New("line 3: no"))
		r.tell()
		r.wants(t) // it may be half written
		time.Sleep(again)
		synctest.Wait()
		r.wants(t, "refused: line 3: no")
		time.Sleep(10 * checkEvery)
		synctest.Wait()
		r.wants(t) // once
		if r.Current().File != first {
			t.Error("the file before is not in force")
		}
		r.write(first, nil)
		r.tell()
		r.wants(t, "in force []")
	})
}

func TestAFileIsReadThoughNobodyTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, file())
		r.write(file(entry("a", "1")), nil)
		time.Sleep(checkEvery)
		synctest.Wait()
		r.wants(t, "make a", "wake a/uid", "in force [a]", "wake a/")
	})
}

func TestAProviderThatCannotBeMadeLeavesTheFileBeforeInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := file(entry("a", "1"))
		r := start(t, first)
		r.heard()
		r.fails["b"] = true
		r.write(file(entry("a", "2"), entry("b", "1")), nil)
		r.tell()
		time.Sleep(again)
		synctest.Wait()
		got := strings.Join(r.heard(), "\n")
		if !strings.Contains(got, "refused: entry b: no such address") {
			t.Error(got)
		}
		if set := r.Current(); set.File != first || set.Providers["a"] == nil || len(set.Providers) != 1 {
			t.Errorf("%+v", set)
		}
	})
}

func TestTheFirstProvidersMustBeMade(t *testing.T) {
	m := &maker{fails: map[string]bool{"b": true}}
	r := New(Options{File: file(entry("a", "1"), entry("b", "1")), Make: m.make, Wake: func(string, string) {}, Log: slog.New(slog.DiscardHandler)})
	if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "entry b: no such address") {
		t.Error(err)
	}
	if said := m.heard(); !slices.Contains(said, "close a") {
		t.Errorf("%q", said)
	}
	if set := r.Current(); len(set.Providers) != 0 || set.File == nil {
		t.Errorf("%+v", set)
	}
}

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "providers.yaml")
	mount := func(version string) {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "providers.yaml"), []byte(version), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, at string) {
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	mount("..1")
	mount("..2")
	link("..1", filepath.Join(dir, "..data"))
	link("..data/providers.yaml", path)
	ctx, cancel := context.WithCancel(t.Context())
	changed, wait := Watch(ctx, path, slog.New(slog.DiscardHandler))
	defer wait()
	defer cancel()
	link("..2", filepath.Join(dir, "..data_tmp"))
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil { // as a kubelet does
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(30 * time.Second):
		t.Error("nothing was told")
	}
}

func TestAFolderThatIsNotThereIsNotWatched(t *testing.T) {
	_, wait := Watch(t.Context(), "/nowhere/providers.yaml", slog.New(slog.DiscardHandler))
	wait()
}
