// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openDescriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// eventually polls a condition that another goroutine makes true.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestIdleTunnelHasTwoDescriptors(t *testing.T) {
	const tunnels = 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tunneler := Tunneler{MaxIdlePipes: -1}
	before := openDescriptors(t)
	var rigs []*rig
	for range tunnels {
		r := newRig(ctx, t, &tunneler, "127.0.0.1:0", plain, nil)
		// Both directions have moved something: no tunnel is merely new.
		write(t, r.client, "ping")
		_, _ = io.ReadFull(r.origin, make([]byte, 4))
		write(t, r.origin, "pong")
		_, _ = io.ReadFull(r.client, make([]byte, 4))
		rigs = append(rigs, r)
	}
	// The test's own ends are two more for each tunnel.
	eventually(t, "2 descriptors an idle tunnel", func() bool { return openDescriptors(t)-before-2*tunnels == 2*tunnels })
	t.Logf("idle tunnel: %d descriptors", (openDescriptors(t)-before-2*tunnels)/tunnels)
	cancel()
	for _, r := range rigs {
		r.wait(t)
		_ = r.client.Close()
		_ = r.origin.Close()
	}
	eventually(t, "no descriptor is left", func() bool { return openDescriptors(t) == before })
}

func TestPipesAreReusedAndBounded(t *testing.T) {
	var tunneler Tunneler
	before := openDescriptors(t)
	for range 20 {
		r := newRig(t.Context(), t, &tunneler, "127.0.0.1:0", plain, nil)
		write(t, r.client, "x")
		_ = r.client.CloseWrite()
		readAll(t, r.origin)
		_ = r.origin.Close()
		readAll(t, r.client)
		r.wait(t)
		_ = r.client.Close()
	}
	if pipes := (openDescriptors(t) - before) / 2; pipes > 2 {
		t.Errorf("%d pipes are kept after tunnels that ran one at a time", pipes)
	}
	tunneler.Close()
	if left := openDescriptors(t) - before; left != 0 {
		t.Errorf("%d descriptors are left after Close", left)
	}
}

// A pipe with bytes of one tunnel in it must never come to another.
func TestPipeOfBrokenTunnelIsNotReused(t *testing.T) {
	var tunneler Tunneler
	defer tunneler.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r := newRig(ctx, t, &tunneler, "127.0.0.1:0", plain, nil)
	secret := make([]byte, 1<<20)
	for i := range secret {
		secret[i] = 's'
	}
	// Nobody reads at the origin: it goes on until everything is full, a
	// pipe included.
	_ = r.client.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	for {
		if _, err := r.client.Write(secret); err != nil {
			break
		}
	}
	cancel()
	r.wait(t)

	next := newRig(t.Context(), t, &tunneler, "127.0.0.1:0", plain, nil)
	write(t, next.client, "mine")
	_ = next.client.CloseWrite()
	if got := readAll(t, next.origin); got != "mine" {
		t.Errorf("the next tunnel carried %d bytes of another one", len(got)-4)
	}
	_ = next.origin.Close()
	next.wait(t)
}

func TestOutOfDescriptorsBytesAreCopied(t *testing.T) {
	tunneler := Tunneler{MaxIdlePipes: -1}
	r := newRig(t.Context(), t, &tunneler, "127.0.0.1:0", plain, nil)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// No descriptor above this one can be made; those that are open stay.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	write(t, r.client, "through buffers")
	_ = r.client.CloseWrite()
	if got := readAll(t, r.origin); got != "through buffers" {
		t.Errorf("the origin got %q", got)
	}
	_ = r.origin.Close()
	if res := r.wait(t); res.err != nil {
		t.Error(res.err)
	}
}
