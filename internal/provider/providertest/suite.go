// SPDX-License-Identifier: Apache-2.0

// Package providertest is the contract suite of package provider: no provider is registered without passing it.
package providertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Harness is what a provider brings to the suite.
type Harness struct {
	// New makes a provider with nothing of its own on its host yet: by fresh state, or by a cluster ID that nobody else has.
	New func(t *testing.T) System
	// Patience is how long a Create may be InProgress, and a deletion may take; default 30 s.
	Patience time.Duration
}

// System is one provider with its host.
type System struct {
	// Provider is closed by the suite, where it can be.
	Provider provider.Provider
	// Host is one of its hosts.
	Host string
	// MoreHosts, where a host takes one instance only: the suite makes up to three instances at a time.
	MoreHosts []string
	// Restart makes another provider over the same hosts, as a restarted operator does; the suite closes it.
	Restart func(t *testing.T) provider.Provider
	// Ephemeral: instances live in the provider's process and end with it, so that another one makes them anew.
	Ephemeral bool
	// NoMachines: instances have no image and no sizes, and a spec with any is refused.
	NoMachines bool
	// Spec of an instance on Host.
	Spec func(uid string) provider.InstanceSpec
	// Decoys are ways to put something that is not ours where the instance of a UID would be.
	Decoys []Decoy
	// Damage are ways in which an instance that was made can be half gone, or half made.
	Damage []Damage
}

// Decoy is something that is not ours.
type Decoy struct {
	// Name says whose it is: "no mark", "another cluster".
	Name string
	// Plant puts it there, has it removed at the end of the test, and returns what it is like now, byte for byte.
	Plant func(t *testing.T, uid string) (fingerprint func() string)
}

// Damage takes a part of an instance away.
type Damage struct {
	Name string
	Do   func(t *testing.T, uid string)
}

// suite is one case's view.
type suite struct {
	System
	patience time.Duration

	mu     sync.Mutex
	hostOf map[string]string
}

// Run holds a provider to the contract.
func Run(t *testing.T, h Harness) {
	if h.Patience == 0 {
		h.Patience = 30 * time.Second
	}
	for _, c := range []struct {
		name string
		run  func(*suite, *testing.T)
	}{
		{"create, and what it gives", (*suite).create},
		{"create twice gives one instance", (*suite).createTwice},
		{"concurrent creates give one instance", (*suite).createAtOnce},
		{"another provider goes on where this one was, or makes anew what ended with it", (*suite).restart},
		{"get and delete of nothing are NotFound", (*suite).nothing},
		{"delete until NotFound, twice, and get after it", (*suite).deleteTwice},
		{"a UID in any case and with space around it is the same", (*suite).canonical}, // of E2, which is about the collector too
		{"list is complete", (*suite).list},
		{"what is retained stays in the list", (*suite).retain},
		{"a cancelled call ends alone", (*suite).cancelled},
		{"what cannot be is refused", (*suite).refused},
		{"hosts says how its hosts are", (*suite).hosts},
		{"calls after close fail, and say nothing of instances", (*suite).closed},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newSuite(t, h), t) })
	}
	t.Run("somebody else's instance is left alone", func(t *testing.T) {
		for _, d := range newSuite(t, h).Decoys {
			t.Run(d.Name, func(t *testing.T) { newSuite(t, h).decoy(t, d.Name) })
		}
	})
	t.Run("a half instance", func(t *testing.T) {
		for _, d := range newSuite(t, h).Damage {
			t.Run(d.Name+", deleted", func(t *testing.T) { newSuite(t, h).deleteHalf(t, d.Name) })
			t.Run(d.Name+", created again", func(t *testing.T) { newSuite(t, h).createHalf(t, d.Name) })
		}
	})
}

func newSuite(t *testing.T, h Harness) *suite {
	t.Helper()
	s := &suite{System: h.New(t), patience: h.Patience, hostOf: map[string]string{}}
	closeAtEnd(t, s.Provider)
	return s
}

func closeAtEnd(t *testing.T, p provider.Provider) {
	if c, ok := p.(provider.Closer); ok {
		t.Cleanup(c.Close)
	}
}

// newUID is a UID whose instance is gone when the test ends.
func (s *suite) newUID(t *testing.T) string {
	t.Helper()
	uid := uuid.NewString()
	s.mu.Lock()
	hosts := append([]string{s.Host}, s.MoreHosts...)
	s.hostOf[uid] = hosts[len(s.hostOf)%len(hosts)]
	s.mu.Unlock()
	if s.Ephemeral {
		return uid
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.patience)
		defer cancel()
		p := s.Restart(t)
		if c, ok := p.(provider.Closer); ok {
			defer c.Close()
		}
		for err := error(nil); !provider.IsNotFound(err) && provider.KindOf(err) != provider.Conflict; {
			if err = p.Delete(ctx, s.ref(uid)); ctx.Err() != nil {
				t.Errorf("the instance of %s is left: %v", uid, err)
				return
			}
		}
	})
	return uid
}

func (s *suite) ref(uid string) provider.InstanceRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	return provider.InstanceRef{Host: s.hostOf[strings.ToLower(strings.TrimSpace(uid))], UID: uid}
}

// spec is Spec, on the host of that UID.
func (s *suite) spec(uid string) provider.InstanceSpec {
	spec := s.Spec(uid)
	spec.InstanceRef = s.ref(uid)
	return spec
}

// made creates an instance and waits for it.
func (s *suite) made(t *testing.T, p provider.Provider, uid string) provider.Instance {
	t.Helper()
	i, err := s.tryMake(t.Context(), p, uid)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return i
}

func (s *suite) tryMake(ctx context.Context, p provider.Provider, uid string) (provider.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		i, err := p.Create(ctx, s.spec(uid))
		if !provider.IsInProgress(err) {
			return i, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return i, errors.Join(ctx.Err(), err)
		}
	}
}

// gone deletes until the provider says that nothing is left.
func (s *suite) gone(t *testing.T, uid string) {
	t.Helper()
	deadline := time.Now().Add(s.patience)
	for {
		err := s.Provider.Delete(t.Context(), s.ref(uid))
		if provider.IsNotFound(err) {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("delete: %v", err)
		}
	}
}

// listed are the UIDs in the list that are among uids, or all without.
func (s *suite) listed(t *testing.T, p provider.Provider) []string {
	t.Helper()
	all, err := p.List(t.Context())
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	uids := make([]string, len(all))
	for i, one := range all {
		uids[i] = one.UID
	}
	slices.Sort(uids)
	return uids
}

func wantKind(t *testing.T, what string, err error, kind provider.Kind) {
	t.Helper()
	var e *provider.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Errorf("%s: got %v (%v), want %v", what, err, provider.KindOf(err), kind)
	}
}
