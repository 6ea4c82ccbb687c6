// SPDX-License-Identifier: Apache-2.0

//go:build live

package image

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/test/drills"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
	"github.com/egress-proxies/egress-proxies-operator/test/leak"
)

const (
	failingBytes = 4 << 20
	// smallPool is a pool on a file system that is soon filled, with room for two images at once as the provider counts.
	smallPool, smallPoolDir, smallPoolBytes = "small", "/var/lib/egress-small", 24 << 20
)

// noise is an image that nothing can shorten.
func noise() []byte {
	content := make([]byte, failingBytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
	return content
}

// failing is a mirror whose images fail in one way each.
type failing struct {
	content []byte
	// full makes the pool full when half of an image is there.
	full func(ctx context.Context)
}

func (f *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := strings.Split(r.URL.Path, "/")[1]
	w.Header().Set("Content-Length", strconv.Itoa(len(f.content)))
	half, rest := f.content[:len(f.content)/2], f.content[len(f.content)/2:]
	_, _ = w.Write(half)
	_ = http.NewResponseController(w).Flush()
	switch kind {
	case "truncated":
		panic(http.ErrAbortHandler)
	case "stalled":
		<-r.Context().Done()
	case "full":
		rest = f.dripWhileFilling(w, r, rest)
		fallthrough
	default:
		_, _ = w.Write(rest)
	}
}

// dripWhileFilling sends a little now and then, so that nothing stalls, until the pool is full; it returns what is to be sent still.
func (f *failing) dripWhileFilling(w http.ResponseWriter, r *http.Request, rest []byte) []byte {
	full := make(chan struct{})
	go func() { defer close(full); f.full(r.Context()) }()
	drip := time.NewTicker(200 * time.Millisecond)
	defer drip.Stop()
	for {
		select {
		case <-full:
			return rest
		case <-drip.C:
			n, _ := w.Write(rest[:min(16, len(rest))])
			_ = http.NewResponseController(w).Flush()
			rest = rest[n:]
		}
	}
}

// The kinds of failure, with what the error is and says.
var kinds = map[string]struct {
	kind provider.Kind
	says string
}{
	"truncated": {provider.Transient, "bytes the body ended"},
	"stalled":   {provider.Transient, "the server sent nothing for 1s"},
	"full":      {provider.Capacity, "No space left"},
	"mistyped":  {provider.Permanent, "expected sha256"},
}

// uploads is a Backend that sees to it that a volume's own connection is closed before the volume is deleted.
type uploads struct {
	libvirt.Backend
	open  *sync.Map // volume to its connection
	early *atomic.Int32
	own   bool
}

func (u *uploads) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	own, err := u.Backend.Dedicated(ctx)
	if err != nil {
		return nil, err
	}
	return &uploads{own, u.open, u.early, true}, nil
}

func (u *uploads) Upload(ctx context.Context, name string, r io.Reader, length int64) error {
	u.open.Store(name, u)
	return u.Backend.Upload(ctx, name, r, length)
}

func (u *uploads) Close() {
	u.open.Range(func(name, conn any) bool {
		if u.own && conn == u {
			u.open.Delete(name)
		}
		return true
	})
	u.Backend.Close()
}

func (u *uploads) DeleteVolume(ctx context.Context, name string) error {
	if _, open := u.open.Load(name); open {
		u.early.Add(1)
	}
	return u.Backend.DeleteVolume(ctx, name)
}

func TestDrillFailedUploads(t *testing.T) {
	host := kvmhost.Up(t, imageHost)
	each := drills.Count(100, 4)
	makeSmallPool(t, host)
	mirror := &failing{content: noise()}
	server := httptest.NewServer(mirror)
	t.Cleanup(server.Close)

	digest := digestOf(mirror.content)
	const warmUp = "warm-up"
	images := map[string]config.Image{
		warmUp: {URL: server.URL + "/full/" + warmUp, SHA256: digest, Arch: config.ArchX8664, Firmware: config.FirmwareBIOS},
	}
	for kind := range kinds {
		for n := range each {
			i := config.Image{URL: fmt.Sprintf("%s/%s/%d", server.URL, kind, n), SHA256: digest, Arch: config.ArchX8664, Firmware: config.FirmwareBIOS}
			if kind == "mistyped" {
				i.SHA256 = strings.Repeat("0", 64)
			}
			images[fmt.Sprintf("%s-%d", kind, n)] = i
		}
	}
	var early atomic.Int32
	// Of two images at once one goes through the spool, and one past it.
	depot, err := image.NewDepot(image.DepotOptions{SpoolDir: t.TempDir(), SpoolBytes: failingBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(depot.Close)
	cluster := newCluster(t, host)
	start := func(stall time.Duration) *operator {
		return operate(t, host, cluster, config.Image{}, func(o *libvirt.Options) {
			backend := o.Backend
			o.Backend = func(h config.Host) libvirt.Backend { return &uploads{backend(h), &sync.Map{}, &early, false} }
			o.Images, o.Depot = image.Opener{StallTimeout: stall}, depot
			o.Entry.Images, o.Entry.DefaultImage, o.Entry.Hosts[0].Pool = images, warmUp, smallPool
		})
	}
	// A second is long enough for what shall stall, and too short on a busy machine for what shall not.
	o, hasty := start(image.DefaultStallTimeout), start(time.Second)
	mirror.full = func(ctx context.Context) {
		// What is on the disk counts: the volume's file has its full length from the start.
		arrived := fmt.Sprintf("stat -c %%b %s/*.img | awk '$1 > 1024 { found = 1 } END { exit !found }'", smallPoolDir)
		for {
			if _, err := host.Exec(ctx, "sh", "-c", arrived); err == nil || !rest(ctx) {
				break
			}
		}
		_, _ = host.Exec(ctx, "sh", "-c", "cat /dev/zero >"+smallPoolDir+"/filler") // fails when it is full
	}
	// What is made once is made, and the spool keeps one image.
	_, err = o.makeOf(newUID(), warmUp)
	wantError(t, err, kinds["full"].kind, kinds["full"].says)
	o.mustExec("rm", "-f", smallPoolDir+"/filler")

	t.Run(fmt.Sprintf("H2: %d failures of each of %d kinds leave nothing", each, len(kinds)), func(t *testing.T) {
		goroutines, descriptors := leak.Goroutines(t), leak.OpenFiles(t)
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			if kind == "stalled" {
				hasty.fail(t, kind, each)
				continue
			}
			o.fail(t, kind, each)
		}
		left := o.smallVolumes()
		g, d := leak.Goroutines(t)-goroutines, leak.OpenFiles(t)-descriptors
		fmt.Printf("figure: failed uploads: %d of each of %d kinds, %d volumes, %d goroutines, %d descriptors above start\n", each, len(kinds), len(left), max(0, g), max(0, d))
		if len(left) > 0 || g > 2 || d > 2 {
			t.Errorf("left are volumes %q, %d goroutines, %d descriptors", left, g, d)
		}
		if n := early.Load(); n > 0 {
			t.Errorf("%d volumes were deleted while their own connections were open", n)
		}
	})
}

// fail makes as many fetches fail as there are images of the kind: two at once, but for those that fill the pool.
func (o *operator) fail(t *testing.T, kind string, each int) {
	t.Helper()
	turns := make(chan struct{}, 2)
	if kind == "full" {
		turns = make(chan struct{}, 1)
	}
	var all sync.WaitGroup
	for n := range each {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			uid := newUID()
			_, err := o.makeOf(uid, fmt.Sprintf("%s-%d", kind, n))
			wantError(t, err, kinds[kind].kind, kinds[kind].says)
			if kind == "full" {
				_, _ = o.host.Exec(t.Context(), "rm", "-f", smallPoolDir+"/filler") // there may be none
			}
		})
	}
	all.Wait()
}

func (o *operator) mustExec(command ...string) {
	o.t.Helper()
	if out, err := o.host.Exec(o.t.Context(), command...); err != nil {
		o.t.Fatalf("%q: %v\n%s", command, err, out)
	}
}

// smallVolumes are the cluster's in the small pool, as its folder has them.
func (o *operator) smallVolumes() []string {
	out, err := o.host.Exec(o.t.Context(), "ls", smallPoolDir)
	if err != nil {
		o.t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(out), func(v string) bool {
		return !strings.HasPrefix(v, libvirt.Prefix+"-"+o.cluster+"-") || strings.Contains(v, "-agent-")
	})
}

// makeSmallPool makes the small pool, until the test ends.
func makeSmallPool(t *testing.T, h *kvmhost.Host) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), sweepTime)
		defer cancel()
		for _, step := range []string{"pool-destroy " + smallPool, "pool-undefine " + smallPool} {
			_, _ = h.Virsh(ctx, step) // it may not be there
		}
		_, _ = h.Exec(ctx, "umount", smallPoolDir)
	})
	for _, step := range [][]string{
		{"mkdir", "-p", smallPoolDir},
		{"mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", smallPoolBytes), "tmpfs", smallPoolDir},
		{"virsh", "-q", "-c", "qemu:///system", "pool-define-as", smallPool, "dir", "--target", smallPoolDir},
		{"virsh", "-q", "-c", "qemu:///system", "pool-start", smallPool},
	} {
		if out, err := h.Exec(t.Context(), step...); err != nil {
			t.Fatalf("%q: %v\n%s", step, err, out)
		}
	}
}
