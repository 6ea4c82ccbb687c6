// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// agentRig is a control server on loopback with a clock of its own.
type agentRig struct {
	address     string
	credentials *Credentials
	mu          sync.Mutex
	now         time.Time
	saved       []Credential
	saveErr     error
}

func (r *agentRig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *agentRig) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func startAgent(t *testing.T, key Key) *agentRig {
	t.Helper()
	r := &agentRig{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r.credentials = NewCredentials(r.clock)
	r.credentials.Replace([]Credential{{Username: "user", Password: "old"}})
	server, err := NewServer(ServerConfig{
		Key: key, Version: "v1.2.3", StartedAt: r.now, Credentials: r.credentials, Connections: func() int { return 42 },
		Save: func(credentials []Credential) error {
			if r.saveErr == nil {
				r.saved = credentials
			}
			return r.saveErr
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = listener.Addr().String()
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func TestStatus(t *testing.T) {
	agent := startAgent(t, testKey(1))
	status, err := (&Client{Address: agent.address, Key: testKey(1)}).Status(t.Context())
	want := Status{
		Version: "v1.2.3", ProtocolVersion: 2, StartedAt: agent.now, Connections: 42,
		CredentialsFingerprint: Fingerprint(testKey(1), []Credential{{Username: "user", Password: "old"}}),
		CurrentFingerprint:     Fingerprint(testKey(1), []Credential{{Username: "user", Password: "old"}}),
	}
	if err != nil || status != want {
		t.Errorf("status %+v, %v; want %+v", status, err, want)
	}
}

func TestRotationWithOverlap(t *testing.T) {
	agent := startAgent(t, testKey(1))
	client := &Client{Address: agent.address, Key: testKey(1)}
	until := agent.clock().Add(time.Hour)
	old, next := Credential{Username: "user", Password: "old", NotAfter: &until}, Credential{Username: "user", Password: "new"}
	status, err := client.PutCredentials(t.Context(), []Credential{old, next})
	if err != nil || status.CredentialsFingerprint != Fingerprint(testKey(1), []Credential{next, old}) {
		t.Fatalf("status %+v, %v", status, err)
	}
	if len(agent.saved) != 2 {
		t.Errorf("saved: %v", agent.saved)
	}
	accepts := func(password string) bool { return agent.credentials.Authenticate("user", password) }
	if !accepts("old") || !accepts("new") || accepts("other") || accepts("") {
		t.Error("in the overlap exactly old and new must be accepted")
	}
	agent.advance(time.Hour)
	if accepts("old") || !accepts("new") {
		t.Error("after the overlap exactly new must be accepted")
	}
	status, err = client.Status(t.Context())
	if err != nil || status.CredentialsFingerprint != Fingerprint(testKey(1), []Credential{next}) {
		t.Errorf("after the overlap: %+v, %v", status, err)
	}
}

func TestTheAgentKeepsTheOldForTheOverlap(t *testing.T) {
	agent := startAgent(t, testKey(1))
	client := &Client{Address: agent.address, Key: testKey(1)}
	accepted := func() (all string) {
		for _, password := range []string{"old", "second", "third"} {
			if agent.credentials.Authenticate("user", password) {
				all += password + " "
			}
		}
		return all
	}
	rotate := func(password string, overlap time.Duration) Status {
		t.Helper()
		status, err := client.RotateCredentials(t.Context(), []Credential{{Username: "user", Password: password}}, overlap)
		if err != nil {
			t.Fatal(err)
		}
		if want := Fingerprint(testKey(1), []Credential{{Username: "user", Password: password}}); status.Current() != want {
			t.Errorf("after %s the current fingerprint is that of others", password)
		}
		return status
	}
	check := func(when, want string, previous time.Duration, status Status) {
		t.Helper()
		if got := accepted(); got != want || status.Previous() != previous {
			t.Errorf("%s: accepts %q for %s more, want %q for %s", when, got, status.Previous(), want, previous)
		}
	}
	now := func() Status {
		t.Helper()
		status, err := client.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	check("after the first change", "old second ", 10*time.Minute, rotate("second", 10*time.Minute))
	check("asked again for the same", "old second ", 10*time.Minute, rotate("second", 10*time.Minute))
	agent.advance(4 * time.Minute)
	check("after the second change", "old second third ", 20*time.Minute, rotate("third", 20*time.Minute))
	agent.advance(6 * time.Minute)
	check("when the first overlap is over", "second third ", 14*time.Minute, now())
	agent.advance(14 * time.Minute)
	check("when both are over", "third ", 0, now())
	rotate("old", time.Hour)
	check("without an overlap, which ends one that goes on", "second ", 0, rotate("second", 0))
	if last := agent.saved; len(last) != 1 || last[0].Password != "second" {
		t.Errorf("saved: %v", last)
	}
	if _, err := client.RotateCredentials(t.Context(), []Credential{{Username: "user", Password: "x"}}, MaxOverlap+time.Second); err == nil || !strings.Contains(err.Error(), "overlapSeconds") {
		t.Errorf("an endless overlap: %v", err)
	}
}

func TestOverlapsAreBounded(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	active := []Credential{{Username: "user", Password: "0"}}
	for i := 1; i < 20; i++ {
		password := string(rune('a' + i))
		active = overlapping(CredentialsRequest{Credentials: []Credential{{Username: "user", Password: password}}, OverlapSeconds: int64(i)}, active, now)
		if len(active) > MaxCredentials || active[0].Password != password || active[0].NotAfter != nil {
			t.Fatalf("after %d changes: %v", i, active)
		}
	}
}

func TestPutCredentialsRefused(t *testing.T) {
	agent := startAgent(t, testKey(1))
	client := &Client{Address: agent.address, Key: testKey(1)}
	past := agent.clock().Add(-time.Second)
	intact := func(t *testing.T) {
		t.Helper()
		if agent.saved != nil || !agent.credentials.Authenticate("user", "old") || agent.credentials.Authenticate("user", "new") {
			t.Error("the old credentials are not in force any more")
		}
	}
	t.Run("all expired", func(t *testing.T) {
		_, err := client.PutCredentials(t.Context(), []Credential{{Username: "user", Password: "new", NotAfter: &past}})
		var said *ResponseError
		if !errors.As(err, &said) || said.Code != http.StatusUnprocessableEntity || !strings.Contains(said.Message, "guest's clock") {
			t.Errorf("error %v", err)
		}
		intact(t)
	})
	t.Run("the client checks first", func(t *testing.T) {
		if _, err := client.PutCredentials(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "1 to 8") {
			t.Errorf("error %v", err)
		}
		intact(t)
	})
	for name, body := range map[string]string{
		"none": `{"credentials":[]}`, "nine": `{"credentials":[` + strings.Repeat(`{"username":"u","password":"p"},`, 8) + `{"username":"u","password":"p"}]}`,
		"unknown field": `{"credentials":[{"username":"user","password":"new","expires":"never"}]}`, "no JSON": "new", "empty": "",
		"too much": `{"credentials":[{"username":"user","password":"` + strings.Repeat("x", 100_000) + `"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := client.do(t.Context(), http.MethodPut, pathCredentials, []byte(body)); err == nil {
				t.Error("accepted")
			}
			intact(t)
		})
	}
	t.Run("not kept, not in force", func(t *testing.T) {
		agent.saveErr = errors.New("disk full")
		_, err := client.PutCredentials(t.Context(), []Credential{{Username: "user", Password: "new"}})
		if err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("error %v", err)
		}
		intact(t)
	})
}

func TestWrongKeyIsRefused(t *testing.T) {
	agent := startAgent(t, testKey(1))
	for name, client := range map[string]*Client{
		"a client with another key":                          {Address: agent.address, Key: testKey(2)},
		"a client that accepts anything but has another key": {Address: agent.address, Key: testKey(2), Dial: nil},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := client.Status(t.Context()); !errors.Is(err, ErrWrongKey) || !strings.Contains(err.Error(), agent.address) {
				t.Errorf("error %v", err)
			}
		})
	}
	right, err := ClientTLS(testKey(1))
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := ClientTLS(testKey(2))
	if err != nil {
		t.Fatal(err)
	}
	serverOwn, err := ServerTLS(testKey(1))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*tls.Config){
		"another key, and no check of the server": func(c *tls.Config) { c.VerifyConnection = nil; c.Certificates = wrong.Certificates },
		"no certificate":       func(c *tls.Config) { c.Certificates = nil },
		"the server's own key": func(c *tls.Config) { c.Certificates = serverOwn.Certificates },
		"another ALPN":         func(c *tls.Config) { c.NextProtos = []string{"h2"}; c.VerifyConnection = nil },
		"no ALPN":              func(c *tls.Config) { c.NextProtos = nil; c.VerifyConnection = nil },
		"TLS 1.2":              func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
	} {
		t.Run(name, func(t *testing.T) {
			config := right.Clone()
			change(config)
			if answer, err := rawStatus(t, agent.address, config); err == nil {
				t.Errorf("the agent answered %q", answer)
			}
		})
	}
	t.Run("right key", func(t *testing.T) {
		if answer, err := rawStatus(t, agent.address, right); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 200") {
			t.Errorf("answer %q, %v", answer, err)
		}
	})
}

// rawStatus asks for the status over TLS as configured.
func rawStatus(t *testing.T, address string, config *tls.Config) (string, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func TestClientSaysWhatIsWrong(t *testing.T) {
	t.Run("something else listens", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		go func() {
			if conn, err := listener.Accept(); err == nil {
				_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH\r\n")
				conn.Close()
			}
		}()
		if _, err := (&Client{Address: listener.Addr().String(), Key: testKey(1)}).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "not this agent") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("nothing answers", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		client := &Client{Address: "agent:1080", Key: testKey(1), Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			if address != "agent:1080" {
				t.Errorf("dialled %s", address)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		if _, err := client.Status(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is the guest up") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("unknown request", func(t *testing.T) {
		agent := startAgent(t, testKey(1))
		_, err := (&Client{Address: agent.address, Key: testKey(1)}).do(t.Context(), http.MethodGet, "/v2/status", nil)
		if err == nil || !strings.Contains(err.Error(), "another version") {
			t.Errorf("error %v", err)
		}
	})
}

func TestCertificatesDependOnTheKeyAlone(t *testing.T) {
	der := func(config func(Key) (*tls.Config, error), key Key) []byte {
		c, err := config(key)
		if err != nil {
			t.Fatal(err)
		}
		return c.Certificates[0].Certificate[0]
	}
	if !bytes.Equal(der(ServerTLS, testKey(1)), der(ServerTLS, testKey(1))) {
		t.Error("the server's certificate differs from time to time")
	}
	if bytes.Equal(der(ServerTLS, testKey(1)), der(ClientTLS, testKey(1))) || bytes.Equal(der(ServerTLS, testKey(1)), der(ServerTLS, testKey(2))) {
		t.Error("two sides, or two instances, have one certificate")
	}
	if a, b := NewKey(), NewKey(); a == b || a.IsZero() {
		t.Error("keys are not random")
	}
}

func TestFingerprint(t *testing.T) {
	a, b := Credential{Username: "a", Password: "1"}, Credential{Username: "b", Password: "2"}
	want := Fingerprint(testKey(1), []Credential{a, b})
	if Fingerprint(testKey(1), []Credential{b, a}) != want {
		t.Error("the order counts")
	}
	for name, other := range map[string]string{
		"another key": Fingerprint(testKey(2), []Credential{a, b}), "one less": Fingerprint(testKey(1), []Credential{a}), "none": Fingerprint(testKey(1), nil),
		"shifted": Fingerprint(testKey(1), []Credential{{Username: "a1", Password: ""}, b}),
	} {
		if other == want {
			t.Errorf("%s: the same fingerprint", name)
		}
	}
}
