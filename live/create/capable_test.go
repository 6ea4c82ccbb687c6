// SPDX-License-Identifier: Apache-2.0

//go:build live

package create

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

func TestIncapable(t *testing.T) {
	h := theHost(t)
	holds := func(t *testing.T) lab.Holdings {
		t.Helper()
		held, err := lab.Hold(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	before := holds(t)
	for name, test := range map[string]struct {
		change func(*config.Entry)
		lacks  string
	}{
		"KVM": {func(e *config.Entry) { e.AllowEmulation = false }, "lacks KVM (load the module"},
		"QEMU for the architecture": {func(e *config.Entry) {
			i := e.Images[imageKey]
			i.Arch = config.ArchAArch64
			e.Images = map[string]config.Image{imageKey: i}
		}, "architecture aarch64"},
		"the network":         {func(e *config.Entry) { e.Hosts[0].Network = "nowhere" }, "lacks the network nowhere"},
		"the pool":            {func(e *config.Entry) { e.Hosts[0].Pool = "nosuchpool" }, `lacks the pool "nosuchpool"`},
		"more than one thing": {func(e *config.Entry) { e.Hosts[0].Network, e.AllowEmulation = "nowhere", false }, "lacks the network nowhere; and KVM"},
	} {
		t.Run("M7: a host that lacks "+name+" is found before anything is made, and is not ready for the same reason", func(t *testing.T) {
			var made atomic.Int32
			m := newMaker(t, h, func(o *libvirt.Options) {
				test.change(&o.Entry)
				hook(o, func(context.Context, string, string) error {
					made.Add(1)
					return nil
				})
			})
			_, err := m.create(spec(newUID(), 1))
			wantError(t, err, provider.Permanent, test.lacks)
			if n := made.Load(); n != 0 {
				t.Errorf("%d calls would have made something", n)
			}
			if now := holds(t); !slices.Equal(now.Domains, before.Domains) || !slices.Equal(now.Volumes, before.Volumes) {
				t.Errorf("the host holds %+v, and held %+v", now, before)
			}
			var state provider.HostState
			seen := lab.Until(t.Context(), seenWithin, "the host to be seen", func(context.Context) (bool, error) {
				state = m.Hosts()[0]
				return state.Reason != provider.HostUnknown, nil
			})
			if seen != nil || state.Ready || state.Reason != provider.HostIncapable || !strings.Contains(state.Message, test.lacks) {
				t.Errorf("the host is %+v, %v", state, seen)
			}
		})
	}
	t.Run("M7: it emulates where the entry allows that, and only there", func(t *testing.T) {
		m := newMaker(t, h, nil)
		uid := newUID()
		m.mustCreate(spec(uid, 1))
		if text, err := m.hand.LiveXML(t.Context(), m.names.Domain(uid)); err != nil || !strings.Contains(text, "<domain type='qemu'") {
			t.Errorf("%v: %s", err, text)
		}
		m.delete(uid)
	})
}
