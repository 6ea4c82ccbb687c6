// SPDX-License-Identifier: Apache-2.0

//go:build live

package create

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/drills"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// The environment of a process that makes an instance and dies by SIGKILL: at the step of this number, from 1, "before" or "after" it took effect.
const (
	dieAt      = "EGRESS_TEST_DIE_AT"
	dieWhen    = "EGRESS_TEST_DIE_WHEN"
	dieCluster = "EGRESS_TEST_CLUSTER"
	dieImage   = "EGRESS_TEST_IMAGE"
	dieUID     = "EGRESS_TEST_UID"
)

// mortal is a Backend whose process dies at one of the calls by which Create changes the host.
type mortal struct {
	libvirt.Backend
	steps atomic.Int32
	at    int32
	after bool
}

func (m *mortal) step(call func() error) error {
	n := m.steps.Add(1)
	if n == m.at && !m.after {
		die()
	}
	err := call()
	if n == m.at && m.after {
		die()
	}
	return err
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (m *mortal) CreateVolume(ctx context.Context, xml string) error {
	return m.step(func() error { return m.Backend.CreateVolume(ctx, xml) })
}

func (m *mortal) Upload(ctx context.Context, name string, r io.Reader, length int64) error {
	return m.step(func() error { return m.Backend.Upload(ctx, name, r, length) })
}

func (m *mortal) Define(ctx context.Context, xml string) error {
	return m.step(func() error { return m.Backend.Define(ctx, xml) })
}

func (m *mortal) Start(ctx context.Context, name string) error {
	return m.step(func() error { return m.Backend.Start(ctx, name) })
}

// dying is such a process. It exits with 0 when it made the instance before its step came. Its image is on the host already.
func dying() int {
	at, err := strconv.Atoi(os.Getenv(dieAt))
	if err != nil {
		return failed(err)
	}
	ctx := context.Background()
	host, err := kvmhost.Start(ctx, createHost)
	if err != nil {
		return failed(err)
	}
	o, depot, err := options(host, os.Getenv(dieCluster), os.Getenv(dieImage), "")
	if err != nil {
		return failed(err)
	}
	defer depot.Close()
	connect := o.Backend
	o.Backend = func(h config.Host) libvirt.Backend {
		return &mortal{Backend: connect(h), at: int32(at), after: os.Getenv(dieWhen) == "after"}
	}
	p, err := libvirt.New(o)
	if err != nil {
		return failed(err)
	}
	defer p.Close()
	if _, err := create(ctx, p, spec(os.Getenv(dieUID), 1)); err != nil {
		return failed(err)
	}
	return 0
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// killed runs a Create in a process that dies at a step; false where it came to its end first.
func killed(t *testing.T, m *maker, uid string, at int, when string) bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, _, empty := kvmhost.Images(t)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), dieAt+"="+strconv.Itoa(at), dieWhen+"="+when, dieCluster+"="+m.names.Cluster(), dieImage+"="+empty, dieUID+"="+uid)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return true
	}
	t.Fatalf("step %d: %v\n%s", at, err, strings.TrimSpace(string(out)))
	return false
}

func TestDrillKilledCreates(t *testing.T) {
	m := newMaker(t, theHost(t), nil)
	first := newUID()
	m.mustCreate(spec(first, 1)) // the image is on the host from here on
	m.delete(first)
	whens := []string{"after"} // what was made before a step is what was made after the last
	if drills.Full() {
		whens = []string{"before", "after"}
	}
	steps, reached, left := 0, 0, 0
	for at := 1; ; at++ {
		died := false
		for _, when := range whens {
			uid := newUID()
			if !killed(t, m, uid, at, when) {
				m.delete(uid)
				continue
			}
			died = true
			steps++
			reach, how := (*maker).delete, "Delete"
			if steps%2 == 0 {
				reach, how = (*maker).reclaim, "the collector"
			}
			t.Run(fmt.Sprintf("M3: killed %s step %d, %s reaches all that was made", when, at, how), func(t *testing.T) {
				m := m.in(t)
				t.Logf("made: %q", m.found(uid))
				reach(m, uid)
				if !t.Failed() {
					reached++
				}
				left += len(m.own(uid))
			})
		}
		if !died {
			break
		}
	}
	fmt.Printf("create crash: %d steps, %d reached whole, %d left\n", steps, reached, left)
	if steps < 5*len(whens) || reached != steps {
		t.Errorf("%d steps, %d reached whole", steps, reached)
	}
}

// found are the files and the domain of an instance that the host has. The collector has to find them all.
func (m *maker) found(uid string) []string {
	m.t.Helper()
	leftovers := m.leftovers(uid)
	all := m.own(uid)
	if _, err := m.hand.Domain(m.t.Context(), m.names.Domain(uid)); err == nil {
		all = append(all, m.names.Domain(uid))
		if len(leftovers) != 1 || leftovers[0].Kind != provider.LeftoverInstance {
			m.t.Errorf("the collector finds %+v", leftovers)
		}
		return all
	}
	for _, file := range all {
		if !slices.ContainsFunc(leftovers, func(l provider.Leftover) bool { return l.Kind == provider.LeftoverDisk && l.Object == file }) {
			m.t.Errorf("the collector does not find %s: %+v", file, leftovers)
		}
	}
	return all
}

func (m *maker) leftovers(uid string) []provider.Leftover {
	m.t.Helper()
	all, err := m.Leftovers(m.t.Context(), ref(uid).Host)
	if err != nil {
		m.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(l provider.Leftover) bool { return l.UID != provider.CompactUID(uid) })
}

// reclaim removes an instance as the collector does.
func (m *maker) reclaim(uid string) {
	m.t.Helper()
	results, err := m.Reclaim(m.t.Context(), ref(uid).Host, m.leftovers(uid), false)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, r := range results {
		if !r.Removed {
			m.t.Errorf("%s is kept: %s", r.Object, r.Kept)
		}
	}
	m.nothing(uid)
}

func TestWhatAKilledTestLeaves(t *testing.T) {
	h := theHost(t)
	m := newMaker(t, h, nil)
	foreign, err := lab.Plant(t.Context(), h, []string{"somebodys-vm"}, []string{"somebodys-disk.raw"})
	defer func() {
		if err := foreign.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	before, err := foreign.Fingerprint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.mustCreate(spec(newUID(), 1)) // and nobody deletes it
	t.Run("M19: instances, disks and bases that are left on a host go by their prefix, and nothing else does", func(t *testing.T) {
		if held, err := lab.Hold(t.Context(), h); err != nil || len(held.Instances()) != 1 || len(held.Loose()) != 2 || len(held.Volumes) < 5 {
			t.Fatalf("the host holds %+v, %v", held, err)
		}
		if err := lab.Wipe(t.Context(), h); err != nil {
			t.Error(err)
		}
		if held, err := lab.Hold(t.Context(), h); err != nil || !slices.Equal(held.Domains, []string{"somebodys-vm"}) || !slices.Equal(held.Volumes, []string{"somebodys-disk.raw"}) {
			t.Errorf("the host holds %+v, %v", held, err)
		}
		if after, err := foreign.Fingerprint(t.Context()); err != nil || after != before {
			t.Errorf("what is not ours is %s, %v; it was %s", after, err, before)
		}
	})
	t.Run("M19: a wait ends by its own time, and names its step", func(t *testing.T) {
		err := lab.Until(t.Context(), time.Millisecond, "the moon to fall", func(context.Context) (bool, error) { return false, nil })
		if err == nil || !strings.Contains(err.Error(), "1ms in vain for the moon to fall") {
			t.Errorf("got %v", err)
		}
	})
}

func TestRefusedDefine(t *testing.T) {
	h := theHost(t)
	m := newMaker(t, h, nil)
	uid := newUID()
	const other = "somebodys-vm"
	xml := fmt.Sprintf("<domain type='qemu'><name>%s</name><uuid>%s</uuid><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os></domain>",
		other, m.names.DomainUUID(uid))
	if err := m.hand.Define(t.Context(), xml); err != nil {
		t.Fatal(err)
	}
	isThere := true
	undefine := func() {
		if !isThere {
			return
		}
		isThere = false
		if err := m.hand.Undefine(context.WithoutCancel(t.Context()), other); err != nil {
			t.Error(err)
		}
	}
	defer undefine()
	t.Run("M3: a define that the daemon refuses leaves no volume", func(t *testing.T) {
		_, err := m.create(spec(uid, 1))
		wantError(t, err, provider.Conflict, other, m.names.DomainUUID(uid))
		if own := m.own(uid); len(own) > 0 {
			t.Errorf("left: %q", own)
		}
		if _, err := m.hand.Domain(t.Context(), other); err != nil {
			t.Errorf("the other domain: %v", err)
		}
	})
	undefine()
	m.mustCreate(spec(uid, 1))
	m.delete(uid)
}
