// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

// crash lets n calls through; the next one fails, before its effect or after it, and all that follow: the operator died there.
type crash struct {
	mu     sync.Mutex
	left   int
	struck bool
}

func (c *crash) passes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		c.struck = true
		return false
	}
	c.left--
	return true
}

func (c *crash) install(d *libvirttest.Daemon, after bool) {
	strike := func(context.Context, string, string) error {
		if c.passes() {
			return nil
		}
		return errLink
	}
	dead := func(context.Context, string, string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.struck {
			return errLink
		}
		return nil
	}
	if after {
		d.SetFaults(dead, strike)
	} else {
		d.SetFaults(strike, nil)
	}
}

func (c *crash) happened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.struck
}

// eachCrash runs f with a crash at each call, before and after its effect, until a run ends without one.
func eachCrash(t *testing.T, f func(t *testing.T, c *crash, after bool)) {
	t.Helper()
	for _, after := range []bool{false, true} {
		for n := 0; ; n++ {
			c := &crash{left: n}
			if !t.Run(fmt.Sprintf("call %d, after its effect %t", n, after), func(t *testing.T) { f(t, c, after) }) {
				return
			}
			if !c.happened() {
				if n < 10 {
					t.Errorf("only %d calls were made", n)
				}
				break
			}
		}
	}
}

// converges goes on with a fresh provider, and expects one instance, and then nothing.
func converges(t *testing.T, d *libvirttest.Daemon, o libvirt.Options, uid string) {
	t.Helper()
	d.SetFaults(nil, nil)
	r := rigOver(t, d, o)
	r.uid = uid
	r.mustMake(t)
	if got := r.ours(); len(got) != 3 {
		t.Errorf("one instance is a domain and two volumes: %q", got)
	}
	if all, err := r.List(t.Context()); err != nil || len(all) != 1 || all[0].State != provider.StateRunning {
		t.Errorf("list: %+v, %v", all, err)
	}
	vanishes(t, r)
}

func vanishes(t *testing.T, r *rig) {
	t.Helper()
	for range 3 {
		if err := r.Delete(t.Context(), r.ref()); provider.IsNotFound(err) {
			if left := r.ours(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			return
		} else if err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	t.Error("delete does not come to an end")
}

func TestFaultMatrix(t *testing.T) {
	t.Run("X7: a Create that dies at any call is gone on with, to one instance", func(t *testing.T) {
		eachCrash(t, func(t *testing.T, c *crash, after bool) {
			d := libvirttest.New(libvirttest.Config{})
			o := options(t, d)
			uid := uuid.NewString()
			func() {
				p, err := libvirt.New(o)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				c.install(d, after)
				names, _ := libvirt.NewNames(cluster)
				r := &rig{p, d, names, uid}
				if _, err := r.settle(t.Context(), r.spec()); err != nil && (provider.IsNotFound(err) || provider.KindOf(err) != provider.Transient) {
					t.Errorf("the crash shows as %v: %v", provider.KindOf(err), err)
				}
			}()
			converges(t, d, o, uid)
		})
	})
	// The row M3 needs the real host as well.
	t.Run("a Create that dies at any call is deleted whole", func(t *testing.T) {
		eachCrash(t, func(t *testing.T, c *crash, after bool) {
			d := libvirttest.New(libvirttest.Config{})
			o := options(t, d)
			r := rigOver(t, d, o)
			c.install(d, after)
			_, _ = r.settle(t.Context(), r.spec()) // the crash is the point
			d.SetFaults(nil, nil)
			vanishes(t, r)
		})
	})
	t.Run("a Delete that dies at any call is gone on with", func(t *testing.T) {
		d := libvirttest.New(libvirttest.Config{})
		o := options(t, d)
		r := rigOver(t, d, o)
		for _, after := range []bool{false, true} {
			for n, struck := 0, true; struck; n++ {
				r.mustMake(t)
				c := &crash{left: n}
				c.install(d, after)
				if err := r.Delete(t.Context(), r.ref()); provider.IsNotFound(err) {
					t.Errorf("call %d, after %t: NotFound", n, after)
				}
				d.SetFaults(nil, nil)
				struck = c.happened()
				vanishes(t, r)
			}
		}
	})
}

func TestFailedFetches(t *testing.T) {
	// The row H2 is proven on the real host; this is its clean-up.
	for _, method := range []string{"Upload", "UploadDone"} {
		t.Run("no room in mid-upload: "+method, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			r.daemon.SetFaults(func(_ context.Context, m, object string) error {
				if m == method && strings.Contains(object, "-base-") {
					return &libvirt.DaemonError{Code: libvirt.CodeSystemError, Message: "cannot write to stream: No space left on device"}
				}
				return nil
			}, nil)
			_, err := r.settle(t.Context(), r.spec())
			want(t, err, provider.Capacity, "host "+hostName, "No space left")
			_, err = r.Create(t.Context(), r.spec())
			want(t, err, provider.Capacity)
			if n := count(r.daemon.Calls(), "Upload "); n != 1 {
				t.Errorf("%d uploads: a fetch that failed is not tried again at once", n)
			}
			if left := r.daemon.VolumeNames(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
	t.Run("a wrong digest is Permanent and leaves nothing", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) {
			i := o.Entry.Images["debian"]
			i.SHA256 = strings.Repeat("0", 64)
			o.Entry.Images["debian"] = i
		})
		_, err := r.settle(t.Context(), r.spec())
		want(t, err, provider.Permanent, strings.Repeat("0", 64), "image debian")
		if left := r.daemon.VolumeNames(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	t.Run("an image that names a backing file is refused before anything is made", func(t *testing.T) {
		bad := qcow2(1 << 30)
		bad[15], bad[19] = 200, 11
		r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) { o.Entry.Images["debian"] = config.Image{URL: imageFile(t, bad)} })
		_, err := r.settle(t.Context(), r.spec())
		want(t, err, provider.Permanent, "backing file")
		if slices.ContainsFunc(r.daemon.Calls(), func(c string) bool { return strings.HasPrefix(c, "CreateVolume") }) {
			t.Error("a volume was made")
		}
	})
	// Of C5, which is about snapshots and the providers file too.
	t.Run("a newer marker is left alone, and said", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		vanishes(t, r)
		for _, v := range r.daemon.VolumeNames() {
			if strings.Contains(v, "-base-") && strings.HasSuffix(v, ".img") {
				r.daemon.AddVolume(v+".v2.blake3-00", "")
			}
		}
		before := r.daemon.VolumeNames()
		_, err := r.settle(t.Context(), r.spec())
		want(t, err, provider.Permanent, "newer version", ".v2.")
		if got := r.daemon.VolumeNames(); !slices.Equal(before, got) {
			t.Errorf("volumes %q, were %q", got, before)
		}
	})
}

func count(calls []string, prefix string) (n int) {
	for _, c := range calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// brittle is a shared connection that breaks for writing; those of its own do not.
type brittle struct {
	libvirt.Backend
	broken atomic.Bool
	opened func(libvirt.Backend) libvirt.Backend
}

func (b *brittle) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	conn, err := b.Backend.Dedicated(ctx)
	return b.opened(conn), err
}

func (b *brittle) CreateVolume(ctx context.Context, xml string) error {
	if b.broken.Load() {
		return errLink
	}
	return b.Backend.CreateVolume(ctx, xml)
}

func (b *brittle) Volume(ctx context.Context, name string) (libvirt.VolumeInfo, error) {
	if b.broken.Load() {
		return libvirt.VolumeInfo{}, errLink
	}
	return b.Backend.Volume(ctx, name)
}

func TestACompletedUploadIsNotThrownAway(t *testing.T) {
	published := func(r *rig) bool {
		return slices.ContainsFunc(r.daemon.VolumeNames(), func(v string) bool { return strings.Contains(v, "-base-") && strings.Contains(v, ".img.v1.") })
	}
	t.Run("M10: the shared link dies meanwhile", func(t *testing.T) {
		shared := &brittle{opened: func(b libvirt.Backend) libvirt.Backend { return b }}
		r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) {
			connect := o.Backend
			o.Backend = func(h config.Host) libvirt.Backend { shared.Backend = connect(h); return shared }
		})
		r.daemon.SetFaults(nil, func(_ context.Context, m, object string) error {
			if m == "UploadDone" && strings.Contains(object, "-base-") {
				shared.broken.Store(true)
			}
			return nil
		})
		_, err := r.settle(t.Context(), r.spec())
		want(t, err, provider.Transient, "the link broke")
		if !published(r) {
			t.Errorf("not published: %q", r.daemon.VolumeNames())
		}
	})
	t.Run("M10: its own link dies after the last byte", func(t *testing.T) {
		own := &brittle{}
		r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) {
			connect := o.Backend
			o.Backend = func(h config.Host) libvirt.Backend {
				return &brittle{Backend: connect(h), opened: func(b libvirt.Backend) libvirt.Backend { own.Backend = b; return own }}
			}
		})
		var first atomic.Bool
		r.daemon.SetFaults(nil, func(_ context.Context, m, object string) error {
			if m == "UploadDone" && strings.Contains(object, "-base-") && first.CompareAndSwap(false, true) {
				own.broken.Store(true)
			}
			return nil
		})
		_, _ = r.settle(t.Context(), r.spec()) // the agent's volume fails over the same connection
		if uploads := slices.DeleteFunc(r.daemon.Calls(), func(c string) bool { return !strings.HasPrefix(c, "UploadDone") || !strings.Contains(c, "-base-") }); len(uploads) != 1 || !published(r) {
			t.Errorf("uploads %q; volumes %q", uploads, r.daemon.VolumeNames())
		}
	})
}

func TestABaseThatMayBePublishedIsNotRemoved(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	marker := func(m, object string) bool {
		return m == "CreateVolume" && strings.Contains(object, "-base-") && strings.Contains(object, ".img.v1.")
	}
	made := func(object string) bool { return slices.Contains(r.daemon.VolumeNames(), object) }
	lost := func(_ context.Context, m, object string) error {
		if marker(m, object) && made(object) {
			return errLink
		}
		return nil
	}
	r.daemon.SetFaults(lost, lost)
	r.mustMake(t) // finds what was published without an answer
	if n := count(r.daemon.Calls(), "UploadDone egress-"+cluster+"-base-"); n != 1 {
		t.Errorf("%d uploads of the base", n)
	}
}

func TestOneFetchForAll(t *testing.T) { synctest.Test(t, oneFetchForAll) }

func oneFetchForAll(t *testing.T) {
	// H1b in its unit part: nobody waits in a call, one upload is made, and all are told.
	var opened atomic.Int32
	gate := make(chan struct{})
	r := newRig(t, libvirttest.Config{})
	r.daemon.SetFaults(func(ctx context.Context, m, object string) error {
		if m == "Upload" && strings.Contains(object, "-base-") {
			opened.Add(1)
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	}, nil)
	told := make(chan string, 100)
	watching, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Watch(watching, func(uid string) { told <- uid })
	}()
	defer func() { stop(); <-ended }()
	synctest.Wait() // until it watches
	waiting := map[string]bool{}
	for range 20 {
		spec := r.spec()
		spec.UID = uuid.NewString()
		waiting[spec.UID] = true
		_, err := r.Create(t.Context(), spec)
		want(t, err, provider.InProgress, "image debian", "pool default")
	}
	synctest.Wait() // until the upload stands at the gate, and all that was said at its start is said
	for len(told) > 0 {
		<-told
	}
	close(gate)
	for len(waiting) > 0 {
		delete(waiting, <-told)
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d uploads", n)
	}
}
