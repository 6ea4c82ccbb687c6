// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

// farm makes n instances that run and have an address.
func farm(t *testing.T, r *rig, n int) []provider.InstanceRef {
	t.Helper()
	refs := make([]provider.InstanceRef, n)
	for i := range refs {
		r.uid = uuid.NewString()
		refs[i] = r.ref()
		r.mustMake(t)
		r.daemon.SetAddresses(r.domain(), libvirt.SourceAgent, r.nic(fmt.Sprintf("192.0.2.%d", i+1)), nil)
	}
	return refs
}

func mustGet(t *testing.T, r *rig, ref provider.InstanceRef) provider.Instance {
	t.Helper()
	i, err := r.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// callsOf counts calls by method.
func callsOf(calls []string) map[string]int {
	counts := map[string]int{}
	for _, c := range calls {
		method, _, _ := strings.Cut(c, " ")
		counts[method]++
	}
	return counts
}

func TestASteadyPollCostsTheSame(t *testing.T) {
	var first map[string]int
	for _, n := range []int{1, 5, 60} {
		t.Run(fmt.Sprintf("whatever the number of instances: %d", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, libvirttest.Config{})
				refs := farm(t, r, n)
				poll := func() {
					for _, ref := range refs {
						if i := mustGet(t, r, ref); i.State != provider.StateRunning || len(i.Addresses) != 1 {
							t.Fatalf("got %+v", i)
						}
						time.Sleep(30 * time.Second / time.Duration(n)) // the Proxies' own rounds are spread
					}
				}
				for range 3 {
					poll() // what is read once
				}
				time.Sleep(7003 * time.Millisecond) // no round of the host's own begins or ends with the count
				before := len(r.daemon.Calls())
				for range 20 {
					poll()
				}
				counts := callsOf(r.daemon.Calls()[before:])
				t.Logf("%d instances, 10 minutes: %v", n, counts)
				if first == nil {
					first = counts
				}
				if diff := cmp.Diff(first, counts); diff != "" {
					t.Errorf("it costs another number of calls than one instance:\n%s", diff)
				}
			})
		})
	}
}

// watched tells what the provider tells, from now on.
func watched(t *testing.T, r *rig) chan string {
	t.Helper()
	told := make(chan string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Watch(ctx, func(uid string) { told <- uid })
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return told
}

func drained(told chan string) []string {
	synctest.Wait()
	seen := map[string]bool{}
	for len(told) > 0 {
		seen[<-told] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func TestEvents(t *testing.T) {
	t.Run("a guest that is killed wakes its Proxy at once, and is seen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			ref := farm(t, r, 2)[1]
			mustGet(t, r, ref)
			told := watched(t, r)
			drained(told)
			before := time.Now()
			if err := r.daemon.Backend().Destroy(t.Context(), r.domain()); err != nil {
				t.Fatal(err)
			}
			if got := drained(told); !slices.Equal(got, []string{ref.UID}) || time.Since(before) != 0 {
				t.Errorf("told %q after %v", got, time.Since(before))
			}
			if i := mustGet(t, r, ref); i.State != provider.StateStopped {
				t.Errorf("state %s", i.State)
			}
		})
	})
	t.Run("what is not ours wakes nobody", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			farm(t, r, 1)
			told := watched(t, r)
			drained(told)
			for _, name := range []string{"somebody", "egress-another0id-vm-00000000000000000000000000000000", r.domain() + ".qcow2"} {
				r.daemon.AddDomain(name, "", true)
				r.daemon.SetState(name, 5, 1)
			}
			if got := drained(told); len(got) > 0 {
				t.Errorf("told %q", got)
			}
		})
	})
	t.Run("events end with the link and begin with the next, and all are looked at then", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			ref := farm(t, r, 1)[0]
			mustGet(t, r, ref)
			told := watched(t, r)
			drained(told)
			r.daemon.CutEvents()
			synctest.Wait()
			if n := r.daemon.Listeners(); n != 0 {
				t.Fatalf("%d listeners", n)
			}
			r.daemon.SetState(r.domain(), 5, 1)
			if i := mustGet(t, r, ref); i.State != provider.StateStopped {
				t.Errorf("while nobody tells: %s", i.State)
			}
			time.Sleep(2 * time.Second)
			if got := drained(told); !slices.Contains(got, "") || r.daemon.Listeners() != 1 {
				t.Errorf("told %q, %d listeners", got, r.daemon.Listeners())
			}
			r.daemon.SetState(r.domain(), 1, 1)
			if got := drained(told); !slices.Equal(got, []string{ref.UID}) {
				t.Errorf("told %q", got)
			}
		})
	})
	t.Run("polling is the net: what was not told is found", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) { o.PollInterval = 10 * time.Second })
			r.daemon.SetFaults(failing("Events", errors.New("this daemon tells nothing")), nil)
			ref := farm(t, r, 1)[0]
			mustGet(t, r, ref)
			told := watched(t, r)
			time.Sleep(11 * time.Second)
			drained(told)
			r.daemon.SetState(r.domain(), 3, 5)
			time.Sleep(10 * time.Second)
			if got := drained(told); !slices.Contains(got, ref.UID) {
				t.Errorf("told %q", got)
			}
		})
	})
}

// The row M14 is proven on the real host; these are its decisions.
func TestAnAddressIsNeverLatched(t *testing.T) {
	lease := func(t *testing.T) (*rig, provider.InstanceRef) {
		t.Helper()
		r := newRig(t, libvirttest.Config{})
		ref := farm(t, r, 1)[0]
		r.daemon.SetAddresses(r.domain(), libvirt.SourceAgent, nil, &libvirt.DaemonError{Code: libvirt.CodeAgentUnresponsive, Message: "no agent"})
		r.daemon.SetAddresses(r.domain(), libvirt.SourceLease, r.nic("192.0.2.1"), nil)
		mustGet(t, r, ref)
		// A lease changes without an event.
		r.daemon.SetAddresses(r.domain(), libvirt.SourceLease, r.nic("192.0.2.77"), nil)
		return r, ref
	}
	wanted := []netip.Addr{netip.MustParseAddr("192.0.2.77")}
	t.Run("a changed one that nobody tells of is found by the poll, and told", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, ref := lease(t)
			told := watched(t, r)
			time.Sleep(11 * time.Second)
			if got := drained(told); !slices.Contains(got, ref.UID) {
				t.Errorf("told %q", got)
			}
			if i := mustGet(t, r, ref); !slices.Equal(i.Addresses, wanted) {
				t.Errorf("got %v", i.Addresses)
			}
		})
	})
	t.Run("one at which nothing answers is read again at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, ref := lease(t)
			r.DoubtAddresses(ref)
			if i := mustGet(t, r, ref); !slices.Equal(i.Addresses, wanted) {
				t.Errorf("got %v", i.Addresses)
			}
		})
	})
	t.Run("another run of the guest has none of the one before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, ref := lease(t)
			b := r.daemon.Backend()
			if err := errors.Join(b.Destroy(t.Context(), r.domain()), b.Start(t.Context(), r.domain())); err != nil {
				t.Fatal(err)
			}
			if i := mustGet(t, r, ref); len(i.Addresses) != 0 {
				t.Errorf("got %v", i.Addresses)
			}
		})
	})
}

func TestTheMarkIsReadBeforeAnythingIsDestroyed(t *testing.T) {
	for name, do := range map[string]func(*rig) error{
		"Delete": func(r *rig) error { return r.Delete(context.Background(), r.ref()) },
		"Retain": func(r *rig) error { return r.Retain(context.Background(), r.ref()) },
		"Create": func(r *rig) error { _, err := r.Create(context.Background(), r.spec()); return err },
	} {
		t.Run(name+" after the mark changed without a word", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, libvirttest.Config{})
				ref := farm(t, r, 1)[0]
				mustGet(t, r, ref)
				r.daemon.CutEvents()
				mark := libvirt.Mark{Cluster: "somebodyelse", Entry: "kvm2-home", UID: r.uid}
				element, err := mark.Bare()
				if err != nil {
					t.Fatal(err)
				}
				if err := r.daemon.Backend().SetMetadata(t.Context(), r.domain(), libvirt.MarkNamespace, "egress", element); err != nil {
					t.Fatal(err)
				}
				r.daemon.SetState(r.domain(), 6, 0) // crashed: a cause to replace what is ours
				before := r.daemon.Dump()
				want(t, do(r), provider.Conflict)
				if diff := cmp.Diff(before, r.daemon.Dump()); diff != "" {
					t.Errorf("it was changed:\n%s", diff)
				}
			})
		})
	}
}

// discreet is a Backend whose daemon keeps to itself what it is told to do.
type discreet struct{ libvirt.Backend }

func (d discreet) Events(ctx context.Context, notify func(string)) error {
	return d.Backend.Events(ctx, func(domain string) {
		if domain == "" {
			notify(domain)
		}
	})
}

func TestNoReadingIsOlderThanOnesOwnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) {
			connect := o.Backend
			o.Backend = func(h config.Host) libvirt.Backend { return discreet{connect(h)} }
		})
		ref := farm(t, r, 1)[0]
		mustGet(t, r, ref)
		before := count(r.daemon.Calls(), "Domains")
		if mustGet(t, r, ref); count(r.daemon.Calls(), "Domains") != before {
			t.Fatal("the reading is not shared")
		}
		if err := r.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		_, err := r.Get(t.Context(), ref)
		want(t, err, provider.NotFound)
	})
}

// The row M1 is proven on the real host; this is its bound.
func TestResumesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		farm(t, r, 1)
		pauseAndCreate := func() error {
			r.daemon.SetState(r.domain(), 3, 5)
			_, err := r.Create(t.Context(), r.spec())
			return err
		}
		if err := pauseAndCreate(); err != nil {
			t.Fatalf("the first time: %v", err)
		}
		resumed := 1
		for range 60 { // an hour of a guest that pauses again at once
			if err := pauseAndCreate(); err == nil {
				resumed++
			} else {
				want(t, err, provider.Transient, "paused: I/O error", "let run on")
			}
			time.Sleep(time.Minute)
		}
		if resumed < 6 || resumed > 14 {
			t.Errorf("resumed %d times in an hour", resumed)
		}
	})
}

// The row M1 is proven on the real host; this is its room.
func TestAGuestThatAFullPoolPausedWaitsForRoom(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	ref := farm(t, r, 1)[0]
	r.daemon.SetState(r.domain(), 3, 5)
	r.daemon.FillPool(1 << 20)
	before := len(r.daemon.Calls())
	for range 3 {
		_, err := r.Create(t.Context(), r.spec())
		want(t, err, provider.Capacity, "pool default")
	}
	if n := count(r.daemon.Calls()[before:], "Resume"); n > 0 {
		t.Errorf("resumed %d times without room", n)
	}
	if i := mustGet(t, r, ref); i.State != provider.StatePaused || !strings.Contains(i.StateReason, "I/O error") {
		t.Errorf("got %+v", i)
	}
	r.daemon.FillPool(50 << 30)
	if i, err := r.Create(t.Context(), r.spec()); err != nil || i.State != provider.StateRunning {
		t.Errorf("once there is room: %+v, %v", i, err)
	}
	for _, c := range r.daemon.Calls()[before:] {
		if method, _, _ := strings.Cut(c, " "); slices.Contains([]string{"Destroy", "Undefine", "DeleteVolume", "CreateVolume", "Define"}, method) {
			t.Errorf("call %s", c)
		}
	}
}

func TestASuspendedGuestIsWoken(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	farm(t, r, 1)
	r.daemon.SetState(r.domain(), 7, 0)
	if i := mustGet(t, r, r.ref()); i.State != provider.StatePaused {
		t.Errorf("state %s", i.State)
	}
	if i, err := r.Create(t.Context(), r.spec()); err != nil || i.State != provider.StateRunning {
		t.Errorf("got %+v, %v", i, err)
	}
}
