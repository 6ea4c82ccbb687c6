// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

func kept(t *testing.T, r *rig) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.Console(t.Context(), r.ref(), false, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (r *rig) say(t *testing.T, text string) {
	t.Helper()
	synctest.Wait()
	if !r.daemon.Say(r.domain(), text) {
		t.Errorf("nobody heard %q", text)
	}
}

// screen is a writer that may be looked at meanwhile.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestConsole(t *testing.T) {
	t.Run("what a guest says is kept until it is released, and after", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			farm(t, r, 1)
			want(t, r.Console(t.Context(), r.ref(), false, &screen{}), provider.Transient, "follow it")
			r.HoldConsole(r.ref())
			r.HoldConsole(r.ref())
			r.say(t, "booting\n")
			r.say(t, strings.Repeat("x", 70_000))
			if got := kept(t, r); len(got) != 64<<10 {
				t.Errorf("%d bytes are kept", len(got))
			}
			r.say(t, "panic\n")
			r.ReleaseConsole(r.ref())
			synctest.Wait()
			if r.daemon.Say(r.domain(), "more") {
				t.Error("it is read on")
			}
			if got := kept(t, r); !strings.HasSuffix(got, "panic\n") {
				t.Errorf("kept: ...%q", got[max(len(got)-20, 0):])
			}
			r.ReleaseConsole(r.ref())
		})
	})
	t.Run("it is read again after a restart of the guest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			farm(t, r, 1)
			r.HoldConsole(r.ref())
			r.say(t, "one ")
			b := r.daemon.Backend()
			if err := b.Destroy(t.Context(), r.domain()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := b.Start(t.Context(), r.domain()); err != nil {
				t.Fatal(err)
			}
			r.say(t, "two")
			if got := kept(t, r); got != "one two" {
				t.Errorf("kept %q", got)
			}
		})
	})
	t.Run("a guest that is deleted is forgotten", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			farm(t, r, 1)
			r.HoldConsole(r.ref())
			r.say(t, "secret")
			if err := r.Delete(t.Context(), r.ref()); err != nil {
				t.Fatal(err)
			}
			want(t, r.Console(t.Context(), r.ref(), false, &screen{}), provider.Transient)
		})
	})
	t.Run("one that follows sees what was kept and what comes, and holds it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			farm(t, r, 1)
			r.HoldConsole(r.ref())
			r.say(t, "one ")
			r.ReleaseConsole(r.ref())
			ctx, cancel := context.WithCancel(t.Context())
			out, ended := &screen{}, make(chan error, 1)
			go func() { ended <- r.Console(ctx, r.ref(), true, out) }()
			r.say(t, "two ")
			r.say(t, "three")
			synctest.Wait()
			if got := out.String(); got != "one two three" {
				t.Errorf("seen %q", got)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			synctest.Wait()
			if r.daemon.Say(r.domain(), "more") {
				t.Error("it is read on")
			}
		})
	})
	t.Run("a console that is not ours is not read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			r.daemon.AddDomain(r.domain(), "", true)
			r.HoldConsole(r.ref())
			time.Sleep(time.Minute)
			synctest.Wait()
			if r.daemon.Say(r.domain(), "somebody's secret") {
				t.Error("it is read")
			}
			want(t, r.Console(t.Context(), r.ref(), true, &screen{}), provider.Conflict)
		})
	})
	t.Run("there is a connection for consoles only while one is read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			refs := farm(t, r, 3)
			before := count(r.daemon.Calls(), "Dedicated")
			for _, ref := range refs {
				r.HoldConsole(ref)
				synctest.Wait()
			}
			if n := count(r.daemon.Calls(), "Dedicated") - before; n != 1 {
				t.Errorf("%d connections for three consoles", n)
			}
			for _, ref := range refs {
				r.ReleaseConsole(ref)
			}
			synctest.Wait()
			r.HoldConsole(refs[0])
			synctest.Wait()
			if n := count(r.daemon.Calls(), "Dedicated") - before; n != 2 {
				t.Errorf("%d connections in all", n)
			}
		})
	})
}
