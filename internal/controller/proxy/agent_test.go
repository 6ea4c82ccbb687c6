// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// A running agent over its real control channel, with a clock of the test's.
func TestAnAgentTakesCredentialsWithAnOverlap(t *testing.T) {
	var mu sync.Mutex
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	key := agentapi.NewKey()
	credentials, saves := agentapi.NewCredentials(clock), 0
	credentials.Replace([]agentapi.Credential{{Username: "u", Password: "seed"}})
	server, err := agentapi.NewServer(agentapi.ServerConfig{
		Key: key, Version: "v1", StartedAt: now, Credentials: credentials, Connections: func() int { return 0 },
		Save: func([]agentapi.Credential) error { saves++; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Shutdown(context.WithoutCancel(t.Context()))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	ensure := func(password string, overlap time.Duration) GuestState {
		t.Helper()
		state, err := AgentGuest{}.Ensure(t.Context(), netip.MustParseAddrPort(listener.Addr().String()), provider.NewSecret(string(key[:])),
			provider.Credentials{Username: "u", Password: provider.NewSecret(password)}, overlap)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	for _, step := range []struct {
		what, password string
		overlap, later time.Duration
		want           GuestState
		accepts        string
		saves          int
	}{
		{"what it has is not sent again", "seed", time.Minute, 0, GuestState{"v1", false, 0}, "seed ", 0},
		{"new ones", "next", time.Minute, 0, GuestState{"v1", true, time.Minute}, "seed next ", 1},
		{"the same again, in the overlap", "next", time.Minute, 20 * time.Second, GuestState{"v1", false, 40 * time.Second}, "seed next ", 1},
		{"no overlap any more", "next", 0, 0, GuestState{"v1", true, 0}, "next ", 2},
		{"nothing is left to end", "next", 0, 0, GuestState{"v1", false, 0}, "next ", 2},
	} {
		mu.Lock()
		now = now.Add(step.later)
		mu.Unlock()
		state, accepts := ensure(step.password, step.overlap), ""
		for _, password := range []string{"seed", "next"} {
			if credentials.Authenticate("u", password) {
				accepts += password + " "
			}
		}
		if state != step.want || accepts != step.accepts || saves != step.saves {
			t.Errorf("%s: %+v, accepts %q, %d saves; want %+v, %q, %d", step.what, state, accepts, saves, step.want, step.accepts, step.saves)
		}
	}
}
