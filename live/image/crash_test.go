// SPDX-License-Identifier: Apache-2.0

//go:build live

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/test/drills"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// The environment of a process that fetches and dies by SIGKILL: at the step of this number, from 1, "before" or "after" it took effect.
const (
	dieAt      = "EGRESS_TEST_DIE_AT"
	dieWhen    = "EGRESS_TEST_DIE_WHEN"
	dieCluster = "EGRESS_TEST_CLUSTER"
	dieImage   = "EGRESS_TEST_IMAGE"
	dieHost    = "EGRESS_TEST_HOST"
)

// mortal is a Backend whose process dies at one of the calls that change the host or read what a fetch decides by. In mid-upload counts as one.
type mortal struct {
	libvirt.Backend
	steps *atomic.Int32
	at    int32
	after bool
	own   bool // a connection of one fetch's own
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

func (m *mortal) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	var own libvirt.Backend
	err := m.step(func() (err error) {
		own, err = m.Backend.Dedicated(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &mortal{own, m.steps, m.at, m.after, true}, nil
}

func (m *mortal) CreateVolume(ctx context.Context, xml string) error {
	return m.step(func() error { return m.Backend.CreateVolume(ctx, xml) })
}

func (m *mortal) Upload(ctx context.Context, name string, r io.Reader, length int64) error {
	return m.step(func() error { return m.Backend.Upload(ctx, name, &mortalReader{r, m, length / 2}, length) })
}

func (m *mortal) Volume(ctx context.Context, name string) (info libvirt.VolumeInfo, err error) {
	if !m.own { // looks from time to time
		return m.Backend.Volume(ctx, name)
	}
	err = m.step(func() (err error) {
		info, err = m.Backend.Volume(ctx, name)
		return err
	})
	return info, err
}

// mortalReader has a step of its own when half was read.
type mortalReader struct {
	io.Reader
	m    *mortal
	left int64
}

func (r *mortalReader) Read(p []byte) (n int, err error) {
	half := r.left > 0 && r.left <= int64(len(p))
	read := func() error {
		n, err = r.Reader.Read(p)
		r.left -= int64(n)
		return err
	}
	if half {
		err = r.m.step(read)
	} else {
		err = read()
	}
	return n, err
}

// dying is such a process. It exits with 0 when it made the instance before its step came.
func dying() int {
	number, _ := strconv.Atoi(os.Getenv(dieHost))
	at, _ := strconv.Atoi(os.Getenv(dieAt))
	ctx := context.Background()
	host, err := kvmhost.Start(ctx, number)
	if err != nil {
		return failed(err)
	}
	dir, err := os.MkdirTemp("", "egress-live-")
	if err != nil {
		return failed(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o, depot, err := options(host, os.Getenv(dieCluster), config.Image{URL: "file://" + os.Getenv(dieImage)}, dir)
	if err != nil {
		return failed(err)
	}
	defer depot.Close()
	o.Entry.PrePull = []string{key}
	backend, steps := o.Backend, &atomic.Int32{}
	o.Backend = func(h config.Host) libvirt.Backend {
		return &mortal{backend(h), steps, int32(at), os.Getenv(dieWhen) == "after", false}
	}
	p, err := libvirt.New(o)
	if err != nil {
		return failed(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(ctx, madeWithin)
	defer cancel()
	for {
		err := p.PrePull(ctx, hostName)
		if err == nil {
			return 0
		}
		if provider.KindOf(err) != provider.InProgress || !rest(ctx) {
			return failed(err)
		}
	}
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func TestDrillKilledFetches(t *testing.T) {
	host := kvmhost.Up(t, imageHost)
	_, _, empty := kvmhost.Images(t)
	path := filepath.Join(t.TempDir(), "image")
	qemuImg(t, "convert", "-O", "raw", empty, path)
	if err := os.Truncate(path, 4<<20); err != nil { // long enough for a middle
		t.Fatal(err)
	}
	content := read(t, path)
	steps, converged, hollow, left := 0, 0, 0, 0
	for at, ended := 1, false; !ended; at++ {
		for i, when := range []string{"before", "after"} {
			if !drills.Full() && (at+i)%3 != 0 {
				continue
			}
			cluster := newCluster(t, host)
			if ended = !killed(t, cluster, path, at, when); ended {
				break
			}
			steps++
			t.Run(fmt.Sprintf("H4b: killed %s step %d", when, at), func(t *testing.T) {
				o := operate(t, host, cluster, config.Image{URL: "file://" + path}, nil)
				uid := newUID()
				o.mustMake(uid)
				base := o.backing(uid)
				if o.sum(base) != digestOf(content) {
					hollow++
					t.Errorf("the guest is on base %s, which is not the image", base)
				}
				if o.runs(uid) {
					converged++
				}
				o.remove(uid)
				o.collect(1)
				if unfinished := o.unfinished(); len(unfinished) > 0 {
					left += len(unfinished)
					t.Errorf("after the grace period there are %q", unfinished)
				}
			})
		}
	}
	fmt.Printf("figure: fetch crash: %d steps, %d converged, %d hollow bases used, %d left after the grace period\n", steps, converged, hollow, left)
	if steps < 4 || converged != steps {
		t.Errorf("%d steps, %d converged", steps, converged)
	}
}

// killed runs a fetch in a process that dies at a step; false where it came to its end first.
func killed(t *testing.T, cluster, path string, at int, when string) bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), dieAt+"="+strconv.Itoa(at), dieWhen+"="+when, dieCluster+"="+cluster, dieImage+"="+path, dieHost+"="+strconv.Itoa(imageHost))
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
