// SPDX-License-Identifier: Apache-2.0

package providertest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func (s *suite) create(t *testing.T) {
	uid := s.newUID(t)
	spec := s.spec(uid)
	i := s.made(t, s.Provider, uid)
	if i.UID != uid || i.Host != spec.Host || i.Namespace != spec.Namespace || i.Name != spec.Name || i.ProviderID == "" {
		t.Errorf("create gave %+v", i)
	}
	if i.State != provider.StateRunning || i.Retained {
		t.Errorf("state %q, retained %t after create", i.State, i.Retained)
	}
	if diff := cmp.Diff(spec.Shape, i.Shape); diff != "" {
		t.Errorf("the shape is not what was asked for (-want +got):\n%s", diff)
	}
	if age := time.Since(i.Created); age < -time.Minute || age > time.Hour {
		t.Errorf("created %v ago", age)
	}
	got, err := s.Provider.Get(t.Context(), s.ref(uid))
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if got.ProviderID != i.ProviderID || got.UID != i.UID || got.State != i.State || !got.Created.Equal(i.Created) {
		t.Errorf("get gave %+v, create gave %+v", got, i)
	}
	for _, a := range got.Addresses {
		if a.IsLinkLocalUnicast() {
			t.Errorf("%v is a link-local address", a)
		}
	}
}

func (s *suite) createTwice(t *testing.T) {
	uid := s.newUID(t)
	first := s.made(t, s.Provider, uid)
	again := s.made(t, s.Provider, uid)
	if first.ProviderID != again.ProviderID || !first.Created.Equal(again.Created) {
		t.Errorf("first %+v, then %+v", first, again)
	}
	if got := s.listed(t, s.Provider); !slices.Equal(got, []string{uid}) {
		t.Errorf("the list has %q", got)
	}
}

func (s *suite) createAtOnce(t *testing.T) {
	uid := s.newUID(t)
	var all sync.WaitGroup
	found := make([]provider.Instance, 5)
	for i := range found {
		all.Go(func() {
			var err error
			if found[i], err = s.tryMake(t.Context(), s.Provider, uid); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	all.Wait()
	for _, i := range found {
		if i.ProviderID != found[0].ProviderID || !i.Created.Equal(found[0].Created) {
			t.Errorf("two instances: %+v and %+v", i, found[0])
		}
	}
	if got := s.listed(t, s.Provider); !slices.Equal(got, []string{uid}) {
		t.Errorf("the list has %q", got)
	}
}

func (s *suite) restart(t *testing.T) {
	uid := s.newUID(t)
	first := s.made(t, s.Provider, uid)
	if s.Ephemeral {
		s.restartAnew(t, uid, first)
		return
	}
	other := s.Restart(t)
	closeAtEnd(t, other)
	got, err := other.Get(t.Context(), s.ref(uid))
	if err != nil || got.ProviderID != first.ProviderID || !got.Created.Equal(first.Created) {
		t.Errorf("get gave %+v, %v; want %+v", got, err, first)
	}
	if again := s.made(t, other, uid); !again.Created.Equal(first.Created) {
		t.Errorf("create made another one: %+v, want %+v", again, first)
	}
	if got := s.listed(t, other); !slices.Equal(got, []string{uid}) {
		t.Errorf("the list has %q", got)
	}
}

// restartAnew holds a provider whose instances end with it to making the same one again.
func (s *suite) restartAnew(t *testing.T, uid string, first provider.Instance) {
	t.Helper()
	s.Provider.(provider.Closer).Close()
	other := s.Restart(t)
	closeAtEnd(t, other)
	_, err := other.Get(t.Context(), s.ref(uid))
	wantKind(t, "get", err, provider.NotFound)
	if got := s.listed(t, other); len(got) > 0 {
		t.Errorf("the list has %q before anything was made", got)
	}
	again := s.made(t, other, uid)
	if again.ProviderID != first.ProviderID || cmp.Diff(first.Addresses, again.Addresses, cmpopts.EquateComparable(netip.Addr{})) != "" {
		t.Errorf("create made another one: %+v, want %+v", again, first)
	}
	if got := s.listed(t, other); !slices.Equal(got, []string{uid}) {
		t.Errorf("the list has %q", got)
	}
}

func (s *suite) nothing(t *testing.T) {
	uid := s.newUID(t)
	_, err := s.Provider.Get(t.Context(), s.ref(uid))
	wantKind(t, "get", err, provider.NotFound)
	wantKind(t, "delete", s.Provider.Delete(t.Context(), s.ref(uid)), provider.NotFound)
	if got := s.listed(t, s.Provider); len(got) > 0 {
		t.Errorf("the list has %q", got)
	}
}

func (s *suite) deleteTwice(t *testing.T) {
	uid, neighbour := s.newUID(t), s.newUID(t)
	s.made(t, s.Provider, neighbour)
	s.made(t, s.Provider, uid)
	s.gone(t, uid)
	wantKind(t, "delete again", s.Provider.Delete(t.Context(), s.ref(uid)), provider.NotFound)
	_, err := s.Provider.Get(t.Context(), s.ref(uid))
	wantKind(t, "get after delete", err, provider.NotFound)
	if got := s.listed(t, s.Provider); !slices.Equal(got, []string{neighbour}) {
		t.Errorf("the list has %q, want %q", got, neighbour)
	}
}

func (s *suite) canonical(t *testing.T) {
	uid := s.newUID(t)
	s.made(t, s.Provider, uid)
	odd := "\t " + strings.ToUpper(uid) + "\n"
	if got, err := s.Provider.Get(t.Context(), s.ref(odd)); err != nil || got.UID != uid {
		t.Errorf("get gave %+v, %v", got, err)
	}
	s.made(t, s.Provider, odd)
	if got := s.listed(t, s.Provider); !slices.Equal(got, []string{uid}) {
		t.Errorf("the list has %q", got)
	}
	s.gone(t, odd)
}

func (s *suite) list(t *testing.T) {
	want := make([]string, 0, 3)
	for range cap(want) {
		uid := s.newUID(t)
		s.made(t, s.Provider, uid)
		want = append(want, uid)
	}
	slices.Sort(want)
	if got := s.listed(t, s.Provider); !slices.Equal(got, want) {
		t.Errorf("the list has %q, want %q", got, want)
	}
}

func (s *suite) retain(t *testing.T) {
	r, ok := s.Provider.(provider.Retainer)
	if !ok {
		t.Log("retains nothing") // an optional interface: there is nothing to hold it to
		return
	}
	uid := s.newUID(t)
	wantKind(t, "retain of nothing", r.Retain(t.Context(), s.ref(uid)), provider.NotFound)
	made := s.made(t, s.Provider, uid)
	for range 2 {
		if err := r.Retain(t.Context(), s.ref(uid)); err != nil {
			t.Fatalf("retain: %v", err)
		}
	}
	all, err := s.Provider.List(t.Context())
	if err != nil || len(all) != 1 || all[0].UID != uid || !all[0].Retained {
		t.Errorf("list gave %+v, %v", all, err)
	}
	got, err := s.Provider.Get(t.Context(), s.ref(uid))
	if err != nil || !got.Retained || got.State != provider.StateRunning || cmp.Diff(got.Shape, made.Shape) != "" {
		t.Errorf("get gave %+v, %v", got, err)
	}
}

func (s *suite) cancelled(t *testing.T) {
	uid, other := s.newUID(t), s.newUID(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := s.tryMake(t.Context(), s.Provider, other); err != nil {
			t.Errorf("the call beside it: %v", err)
		}
	})
	_, err := s.Provider.Create(ended, s.spec(uid))
	wantKind(t, "create", err, provider.Transient)
	_, err = s.Provider.Get(ended, s.ref(uid))
	wantKind(t, "get", err, provider.Transient)
	wantKind(t, "delete", s.Provider.Delete(ended, s.ref(uid)), provider.Transient)
	_, err = s.Provider.List(ended)
	wantKind(t, "list", err, provider.Transient)
	all.Wait()
	s.made(t, s.Provider, uid)
}

func (s *suite) refused(t *testing.T) {
	changes := map[string]func(*provider.InstanceSpec){
		"no such host":       func(i *provider.InstanceSpec) { i.Host = "no-such-host" },
		"a UID that is none": func(i *provider.InstanceSpec) { i.UID = "../../etc/passwd" },
		"no such image":      func(i *provider.InstanceSpec) { i.Image = provider.Image{Name: "no-such-image"} },
		"L20: absurd disk":   func(i *provider.InstanceSpec) { i.DiskSizeGiB = 1 << 40 },
	}
	if s.NoMachines {
		changes["a number of vCPUs"] = func(i *provider.InstanceSpec) { i.VCPUs = 1 }
		changes["an amount of memory"] = func(i *provider.InstanceSpec) { i.MemoryMiB = 512 }
		changes["software of the user's own"] = func(i *provider.InstanceSpec) { i.Software = provider.SoftwareCloudInit }
	} else {
		changes["L11: no vCPUs"] = func(i *provider.InstanceSpec) { i.VCPUs = 0 }
		changes["L11: no memory"] = func(i *provider.InstanceSpec) { i.MemoryMiB = -1 }
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			spec := s.spec(s.newUID(t))
			change(&spec)
			_, err := s.Provider.Create(t.Context(), spec)
			wantKind(t, "create", err, provider.Permanent)
			var e *provider.Error
			if errors.As(err, &e) && e.Next == "" && name != "a UID that is none" {
				t.Errorf("%q does not say what to do", err)
			}
		})
	}
	if got := s.listed(t, s.Provider); len(got) > 0 {
		t.Errorf("the list has %q", got)
	}
}

func (s *suite) hosts(t *testing.T) {
	deadline := time.Now().Add(s.patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		states := s.Provider.Hosts()
		at := slices.IndexFunc(states, func(h provider.HostState) bool { return h.Name == s.Host })
		if at >= 0 && states[at].Ready && states[at].Reason == provider.HostReady {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the host does not become ready: %+v", states)
		}
		<-tick.C
	}
}

func (s *suite) closed(t *testing.T) {
	c, ok := s.Provider.(provider.Closer)
	if !ok {
		return // nothing to close
	}
	uid := s.newUID(t)
	s.made(t, s.Provider, uid)
	c.Close()
	_, err := s.Provider.Get(t.Context(), s.ref(uid))
	wantKind(t, "get", err, provider.Transient)
	wantKind(t, "delete", s.Provider.Delete(t.Context(), s.ref(uid)), provider.Transient)
	if _, err := s.Provider.List(t.Context()); err == nil {
		t.Error("list: no error")
	}
}

func (s *suite) decoy(t *testing.T, name string) {
	uid, other := s.newUID(t), s.newUID(t)
	d := s.Decoys[slices.IndexFunc(s.Decoys, func(d Decoy) bool { return d.Name == name })]
	fingerprint := d.Plant(t, uid)
	before := fingerprint()
	_, err := s.tryMake(t.Context(), s.Provider, uid)
	wantKind(t, "create", err, provider.Conflict)
	_, err = s.Provider.Get(t.Context(), s.ref(uid))
	wantKind(t, "get", err, provider.Conflict)
	wantKind(t, "delete", s.Provider.Delete(t.Context(), s.ref(uid)), provider.Conflict)
	if r, ok := s.Provider.(provider.Retainer); ok {
		wantKind(t, "retain", r.Retain(t.Context(), s.ref(uid)), provider.Conflict)
	}
	s.made(t, s.Provider, other)
	if got := s.listed(t, s.Provider); !slices.Equal(got, []string{other}) {
		t.Errorf("the list has %q, want only %q", got, other)
	}
	s.gone(t, other)
	if diff := cmp.Diff(before, fingerprint()); diff != "" {
		t.Errorf("it was changed (-before +after):\n%s", diff)
	}
}

func (s *suite) damaged(t *testing.T, name string) (uid string) {
	t.Helper()
	uid = s.newUID(t)
	s.made(t, s.Provider, uid)
	s.Damage[slices.IndexFunc(s.Damage, func(d Damage) bool { return d.Name == name })].Do(t, uid)
	return uid
}

func (s *suite) deleteHalf(t *testing.T, name string) {
	uid := s.damaged(t, name)
	s.gone(t, uid)
	_, err := s.Provider.Get(t.Context(), s.ref(uid))
	wantKind(t, "get after delete", err, provider.NotFound)
}

func (s *suite) createHalf(t *testing.T, name string) {
	uid := s.damaged(t, name)
	if i := s.made(t, s.Provider, uid); i.State != provider.StateRunning {
		t.Errorf("state %q after create", i.State)
	}
	if got := s.listed(t, s.Provider); !slices.Equal(got, []string{uid}) {
		t.Errorf("the list has %q", got)
	}
}
