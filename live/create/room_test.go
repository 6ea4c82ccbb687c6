// SPDX-License-Identifier: Apache-2.0

//go:build live

package create

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

const (
	mib = 1 << 20
	gib = 1 << 30
	// firstBoot is what Create counts for an instance until it runs.
	firstBoot = 257 * mib
)

// resizePool gives the roomy pool's file system so many bytes beyond what it holds. The daemon is not told.
func resizePool(ctx context.Context, h *kvmhost.Host, free int64) error {
	out, err := h.Exec(ctx, "sh", "-c", fmt.Sprintf("mount -o remount,size=$(( $(df -B1 --output=used %[1]s | tail -n 1) + %[2]d )) %[1]s", roomyDir, free))
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func makeRoomyPool(ctx context.Context, h *kvmhost.Host) error {
	for _, step := range [][]string{
		{"mkdir", "-p", roomyDir},
		{"mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", 5*gib+gib/2), "tmpfs", roomyDir},
		{"virsh", "-q", "-c", "qemu:///system", "pool-define-as", roomyPool, "dir", "--target", roomyDir},
		{"virsh", "-q", "-c", "qemu:///system", "pool-start", roomyPool},
	} {
		if out, err := h.Exec(ctx, step...); err != nil {
			return fmt.Errorf("%q: %w: %s", step, err, out)
		}
	}
	return nil
}

func removeRoomyPool(ctx context.Context, h *kvmhost.Host) {
	for _, step := range []string{"pool-destroy " + roomyPool, "pool-undefine " + roomyPool} {
		_, _ = h.Virsh(ctx, step) // it may not be there
	}
	_, _ = h.Exec(ctx, "umount", roomyDir) // see above
}

// roomy starts a provider over a pool of its own, of which the entry keeps 1 GiB.
func roomy(t *testing.T, h *kvmhost.Host, before func(ctx context.Context, method, object string) error) *maker {
	t.Helper()
	removeRoomyPool(t.Context(), h)
	if err := makeRoomyPool(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		removeRoomyPool(ctx, h)
	})
	return newMaker(t, h, func(o *libvirt.Options) {
		reserve := int64(1)
		o.Entry.Hosts[0].Pool, o.Entry.PoolReserveGiB = roomyPool, &reserve
		hook(o, before)
	})
}

func TestRoom(t *testing.T) {
	h := theHost(t)
	stand, held := make(chan struct{}), make(chan struct{})
	waits := newUID()
	var names libvirt.Names
	m := roomy(t, h, func(ctx context.Context, method, object string) error {
		if method == "Define" && strings.Contains(object, names.Domain(waits)) {
			close(stand)
			select {
			case <-held:
			case <-ctx.Done():
			}
		}
		return nil
	})
	names = m.names
	cached := func(t *testing.T) int64 {
		t.Helper()
		pool, err := m.hand.Pool(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return pool.Available
	}
	room := func(t *testing.T, free int64) {
		t.Helper()
		if err := resizePool(t.Context(), h, free); err != nil {
			t.Fatal(err)
		}
	}
	first := newUID()
	if _, err := m.create(spec(first, 1)); err != nil { // the image is on the host from here on
		t.Fatal(err)
	}

	t.Run("M4: the entry's hosts tell what is free beyond the reserve, and when that was seen", func(t *testing.T) {
		if _, err := m.hand.Pool(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		want := (cached(t) - gib) / gib
		if want != 4 {
			t.Fatalf("a pool of 5.5 GiB that holds next to nothing has %d bytes free", cached(t))
		}
		var state provider.HostState
		err := lab.Until(t.Context(), seenWithin, "the host to be seen", func(context.Context) (bool, error) {
			state = m.Hosts()[0]
			return state.PoolAvailableGiB == want, nil
		})
		if err != nil || state.PoolSeen.IsZero() {
			t.Errorf("%v: %+v", err, state)
		}
		before := state.PoolSeen
		room(t, gib/2)
		err = lab.Until(t.Context(), seenWithin, "the host to be seen again", func(context.Context) (bool, error) {
			state = m.Hosts()[0]
			return state.PoolSeen.After(before), nil
		})
		if err != nil || state.PoolAvailableGiB != want {
			t.Errorf("a look at the host refreshed the pool: %v, %+v", err, state)
		}
	})
	t.Run("M4: the pool is looked at anew right before, and its reserve is kept", func(t *testing.T) {
		m, uid := m.in(t), newUID()
		room(t, gib+firstBoot-17*mib)
		if known := cached(t); known < 3*gib {
			t.Fatalf("the daemon knows already: %d bytes", known)
		}
		_, err := m.create(spec(uid, 1))
		wantError(t, err, provider.Capacity, "pool "+roomyPool, "1.2 GiB free", "1.0 GiB are kept in reserve", "257.0 MiB are needed")
		if left := m.own(uid); len(left) > 0 {
			t.Errorf("made all the same: %q", left)
		}
		room(t, gib+firstBoot+8*mib)
		if _, err := m.create(spec(uid, 1)); err != nil {
			t.Errorf("there is room now: %v", err)
		}
		m.delete(uid)
	})
	t.Run("M4: what Creates in flight will need is kept, until they have it", func(t *testing.T) {
		m := m.in(t)
		room(t, gib+firstBoot+100*mib)
		done := make(chan error, 1)
		go func() {
			_, err := create(t.Context(), m.Provider, spec(waits, 1))
			done <- err
		}()
		select {
		case <-stand:
		case err := <-done:
			t.Fatalf("the first: %v", err)
		}
		uid := newUID()
		_, err := m.create(spec(uid, 1))
		wantError(t, err, provider.Capacity, "257.0 MiB are promised to work in flight")
		close(held)
		if err := <-done; err != nil {
			t.Errorf("the first: %v", err)
		}
		if _, err := m.create(spec(uid, 1)); err != nil {
			t.Errorf("nothing is in flight any more: %v", err)
		}
		m.delete(uid)
		m.delete(waits)
	})
	m.delete(first)
}
