// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// register is what a census reads.
type register struct {
	mu      sync.Mutex
	domains []DomainInfo
	err     error
	reads   int
	takes   time.Duration
}

func (r *register) read(ctx context.Context) ([]DomainInfo, error) {
	r.mu.Lock()
	r.reads++
	domains, err, takes := r.domains, r.err, r.takes // as they are when the daemon is asked
	r.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return domains, err
}

func (r *register) set(err error, domains ...DomainInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.domains, r.err = domains, err
}

func inCensus(t *testing.T, run func(t *testing.T, r *register, c *census)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &register{takes: 100 * time.Millisecond, domains: []DomainInfo{{Name: "a", State: domainRunning}}}
		c := newCensus(ctx, r.read, 20*time.Second)
		run(t, r, c)
		cancel()
		c.close()
	})
}

func (c *census) state(t *testing.T, domain string) int {
	t.Helper()
	info, there, err := c.find(t.Context(), domain)
	if err != nil {
		t.Fatal(err)
	}
	if !there {
		return -1
	}
	return info.State
}

func TestCensus(t *testing.T) {
	t.Run("while changes are told, a reading serves all until it is old", func(t *testing.T) {
		inCensus(t, func(t *testing.T, r *register, c *census) {
			c.hears(true)
			for range 100 {
				if c.state(t, "a") != domainRunning || c.state(t, "b") != -1 {
					t.Error("a wrong answer")
				}
			}
			if r.reads != 1 {
				t.Errorf("%d readings", r.reads)
			}
			time.Sleep(21 * time.Second)
			c.state(t, "a")
			if r.reads != 2 {
				t.Errorf("%d readings", r.reads)
			}
		})
	})
	t.Run("a domain that something was told of is read again, and the others are not", func(t *testing.T) {
		inCensus(t, func(t *testing.T, r *register, c *census) {
			c.hears(true)
			c.state(t, "a")
			r.set(nil, DomainInfo{Name: "a", State: domainShutoff})
			c.touch("a")
			if c.state(t, "b"); r.reads != 1 {
				t.Errorf("%d readings", r.reads)
			}
			if got := c.state(t, "a"); got != domainShutoff || r.reads != 2 {
				t.Errorf("state %d after %d readings", got, r.reads)
			}
		})
	})
	t.Run("a reading that was under way at a change is not used for it", func(t *testing.T) {
		inCensus(t, func(t *testing.T, r *register, c *census) {
			c.hears(true)
			early := make(chan int)
			go func() { early <- c.state(t, "a") }()
			time.Sleep(50 * time.Millisecond)
			r.set(nil, DomainInfo{Name: "a", State: domainShutoff})
			c.touch("a")
			if got := c.state(t, "a"); got != domainShutoff {
				t.Errorf("after the change: %d", got)
			}
			if got := <-early; got != domainRunning {
				t.Errorf("before the change: %d", got)
			}
			if r.reads != 2 {
				t.Errorf("%d readings", r.reads)
			}
		})
	})
	t.Run("while nobody tells, each question is answered by a reading that began after it", func(t *testing.T) {
		inCensus(t, func(t *testing.T, r *register, c *census) {
			c.state(t, "a")
			r.set(nil, DomainInfo{Name: "a", State: domainShutoff})
			if got := c.state(t, "a"); got != domainShutoff || r.reads != 2 {
				t.Errorf("state %d after %d readings", got, r.reads)
			}
			var all sync.WaitGroup
			for range 60 {
				all.Go(func() { c.state(t, "a") })
			}
			all.Wait()
			if r.reads > 4 {
				t.Errorf("%d readings: those who ask at one time share one", r.reads)
			}
		})
	})
	t.Run("what was read before the end of the events is not used after it", func(t *testing.T) {
		inCensus(t, func(t *testing.T, r *register, c *census) {
			c.hears(true)
			c.state(t, "a")
			c.hears(false)
			r.set(nil)
			c.hears(true)
			if got := c.state(t, "a"); got != -1 {
				t.Errorf("state %d", got)
			}
		})
	})
	t.Run("an error is no absence, and the next question is asked again", func(t *testing.T) {
		inCensus(t, func(t *testing.T, r *register, c *census) {
			c.hears(true)
			broken := errors.New("the link broke")
			r.set(broken)
			if _, there, err := c.find(t.Context(), "a"); there || !errors.Is(err, broken) {
				t.Errorf("got %t, %v", there, err)
			}
			r.set(nil, DomainInfo{Name: "a", State: domainRunning})
			if c.state(t, "a") != domainRunning {
				t.Error("not read again")
			}
		})
	})
	t.Run("T4: who gives up ends alone", func(t *testing.T) {
		inCensus(t, func(t *testing.T, r *register, c *census) {
			ctx, cancel := context.WithCancel(t.Context())
			patient := make(chan int)
			impatient := make(chan error)
			go func() {
				_, _, err := c.find(ctx, "a")
				impatient <- err
			}()
			time.Sleep(10 * time.Millisecond)
			go func() { patient <- c.state(t, "a") }()
			cancel()
			if err := <-impatient; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if got := <-patient; got != domainRunning {
				t.Errorf("state %d", got)
			}
		})
	})
	t.Run("what changed is remembered only until it was read", func(t *testing.T) {
		inCensus(t, func(t *testing.T, r *register, c *census) {
			c.hears(true)
			for i := range 1000 {
				c.touch(string(rune('a' + i)))
			}
			if _, err := c.refresh(t.Context()); err != nil || len(c.changed) > 0 {
				t.Errorf("%d are remembered, %v", len(c.changed), err)
			}
		})
	})
}

func TestResumeDelay(t *testing.T) {
	last := time.Duration(-1)
	for n := range 40 {
		d := resumeDelay(n)
		if n == 0 && d != 0 || d < last || d > maxResumeDelay {
			t.Errorf("after %d resumes: %v", n, d)
		}
		last = d
	}
}

func TestTail(t *testing.T) {
	var l tail
	text, at, grown := l.since(0)
	if len(text) != 0 || at != 0 {
		t.Errorf("empty: %q, %d", text, at)
	}
	l.write([]byte("hello "))
	l.write([]byte("world"))
	<-grown
	if text, at, _ = l.since(0); string(text) != "hello world" {
		t.Errorf("got %q", text)
	}
	l.write([]byte("!"))
	if text, at, _ = l.since(at); string(text) != "!" {
		t.Errorf("got %q", text)
	}
	for range 100 {
		l.write(make([]byte, 5000))
		if len(l.kept) > 2*tailSize {
			t.Fatalf("%d bytes are kept", len(l.kept))
		}
	}
	l.write([]byte("end"))
	text, next, _ := l.since(at)
	if len(text) != tailSize || string(text[len(text)-3:]) != "end" || next != at+500_003 {
		t.Errorf("%d bytes up to %d", len(text), next)
	}
	l.write(make([]byte, 3*tailSize))
	if text, _, _ := l.since(next); len(text) != tailSize {
		t.Errorf("%d bytes of a packet that is larger than what is kept", len(text))
	}
}
