// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/egress-proxies/egress-proxies-operator/internal/probe/probetest"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// scripted is a provider that holds its instances in memory, as real proxies on loopback addresses, and fails as the test says.
type scripted struct {
	t testing.TB

	mu        sync.Mutex
	hosts     []provider.HostState
	instances map[string]*made
	// leftovers of a Create on a host that is full: no instance to Get, and gone after so many calls of Delete.
	leftovers map[string]int
	full      map[string]bool
	// fail answers a call instead of the provider: by "create", "get", "delete", "retain", each with the host.
	fail func(call string, ref provider.InstanceRef) error
	// before runs before each call, unlocked.
	before func(call string, ref provider.InstanceRef)
	// death of the operator, where the test wants one.
	death    *death
	retained map[string]bool
	// broken instances reach nothing; mute ones report no address.
	broken, mute bool
	calls        map[string]int
	// held are addresses that marks on the hosts say somebody has.
	held   map[netip.Addr]string
	notify func(uid string)
}

type made struct {
	provider.Instance
	proxy *probetest.Proxy
	spec  provider.InstanceSpec
}

func newScripted(t testing.TB, hosts ...string) *scripted {
	s := &scripted{
		t: t, instances: map[string]*made{}, leftovers: map[string]int{}, full: map[string]bool{}, retained: map[string]bool{},
		calls: map[string]int{}, death: &death{},
	}
	for _, name := range hosts {
		s.hosts = append(s.hosts, provider.HostState{Name: name, Ready: true, Reason: provider.HostReady})
	}
	return s
}

func (s *scripted) enter(call string, ref provider.InstanceRef) (func(), error) {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(call, ref)
	}
	leave, err := s.death.enter()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.calls[call+" "+ref.Host]++
	if s.fail != nil {
		if err := s.fail(call, ref); err != nil {
			s.mu.Unlock()
			return nil, err
		}
	}
	return func() {
		s.mu.Unlock()
		leave()
	}, nil
}

// addresses are given to instances, each once: tests run side by side.
var addresses atomic.Int64

func nextAddress() string {
	n := addresses.Add(1)
	return fmt.Sprintf("127.9.%d.%d", n/250, n%250+1)
}

func key(ref provider.InstanceRef) string { return ref.Host + "/" + ref.UID }

func notFound(ref provider.InstanceRef) error {
	return &provider.Error{Kind: provider.NotFound, Host: ref.Host, Message: "the host has no such instance"}
}

func (s *scripted) Create(_ context.Context, spec provider.InstanceSpec) (provider.Instance, error) {
	leave, err := s.enter("create", spec.InstanceRef)
	if err != nil {
		return provider.Instance{}, err
	}
	defer leave()
	if s.full[spec.Host] {
		s.leftovers[key(spec.InstanceRef)] = 3
		return provider.Instance{}, &provider.Error{Kind: provider.Capacity, Host: spec.Host, Message: "no room"}
	}
	m, ok := s.instances[key(spec.InstanceRef)]
	if !ok {
		ip := nextAddress()
		listening := probetest.NewProxy(s.t, fmt.Sprintf("%s:%d", ip, spec.Port), spec.Credentials.Username, spec.Credentials.Password.Reveal())
		m = &made{proxy: listening, spec: spec, Instance: provider.Instance{
			InstanceRef: spec.InstanceRef, Namespace: spec.Namespace, Name: spec.Name, Shape: spec.Shape,
			ProviderID: "hosts/" + spec.Host + "/domains/" + spec.UID, Addresses: []netip.Addr{netip.MustParseAddr(ip)}, Created: time.Now(),
			NIC: spec.NIC,
		}}
		m.proxy.Break(s.broken)
		s.instances[key(spec.InstanceRef)] = m
	}
	m.State, m.StateReason = provider.StateRunning, ""
	return s.view(m), nil
}

func (s *scripted) view(m *made) provider.Instance {
	i := m.Instance
	if s.mute {
		i.Addresses = nil
	}
	return i
}

func (s *scripted) Get(_ context.Context, ref provider.InstanceRef) (provider.Instance, error) {
	leave, err := s.enter("get", ref)
	if err != nil {
		return provider.Instance{}, err
	}
	defer leave()
	m, ok := s.instances[key(ref)]
	if !ok {
		return provider.Instance{}, notFound(ref)
	}
	return s.view(m), nil
}

func (s *scripted) Delete(_ context.Context, ref provider.InstanceRef) error {
	leave, err := s.enter("delete", ref)
	if err != nil {
		return err
	}
	defer leave()
	if s.leftovers[key(ref)] > 0 {
		if s.leftovers[key(ref)]--; s.leftovers[key(ref)] == 0 {
			delete(s.leftovers, key(ref))
		}
		return nil
	}
	m, ok := s.instances[key(ref)]
	if !ok {
		return notFound(ref)
	}
	m.proxy.Close()
	delete(s.instances, key(ref))
	return nil
}

func (s *scripted) Retain(_ context.Context, ref provider.InstanceRef) error {
	leave, err := s.enter("retain", ref)
	if err != nil {
		return err
	}
	defer leave()
	if _, ok := s.instances[key(ref)]; !ok {
		return notFound(ref)
	}
	s.retained[key(ref)] = true
	return nil
}

func (s *scripted) List(context.Context) ([]provider.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []provider.Instance
	for _, m := range s.instances {
		all = append(all, s.view(m))
	}
	return all, nil
}

func (s *scripted) Hosts() []provider.HostState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]provider.HostState(nil), s.hosts...)
}

func (s *scripted) Watch(ctx context.Context, notify func(uid string)) error {
	s.mu.Lock()
	s.notify = notify
	s.mu.Unlock()
	<-ctx.Done()
	return nil
}

// tell says that something changed.
func (s *scripted) tell(uid string) {
	s.mu.Lock()
	notify := s.notify
	s.mu.Unlock()
	if notify != nil {
		notify(uid)
	}
}

// change the script.
func (s *scripted) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// count of the calls so far.
func (s *scripted) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[call]
}

// one is the only instance, wherever it is.
func (s *scripted) one() *made {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.instances) != 1 {
		s.t.Fatalf("%d instances, want 1", len(s.instances))
	}
	for _, m := range s.instances {
		return m
	}
	return nil
}

// HeldAddresses is what the test says.
func (s *scripted) HeldAddresses() map[netip.Addr]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.held)
}

// of is the instance of a Proxy, or nil.
func (s *scripted) of(uid types.UID) *made {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.instances {
		if m.UID == string(uid) {
			return m
		}
	}
	return nil
}

// lose removes the instance of a Proxy behind the operator's back.
func (s *scripted) lose(uid types.UID) {
	m := s.of(uid)
	s.change(func() {
		m.proxy.Close()
		delete(s.instances, key(m.InstanceRef))
	})
	s.tell(string(uid))
}
