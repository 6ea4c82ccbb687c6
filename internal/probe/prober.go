// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	controlTimeout = 5 * time.Second
	// controlAge is how long one direct answer of a reflector speaks for others that ask.
	controlAge = 2 * time.Second
)

func newNonce() string { return rand.Text() }

// Prober sends probes. Its zero value is ready.
type Prober struct {
	asks singleflight.Group
	mu   sync.Mutex
	last map[string]control
}

type control struct {
	at  time.Time
	err error
}

// Limits of one probe.
type Limits struct {
	// Total is for the requests through the proxy, Dial for each connection to it.
	Total, Dial time.Duration
}

// Probe probes a proxy once. The end of ctx ends the questions to the reflectors themselves too, which have a time of their own.
func (p *Prober) Probe(ctx context.Context, t Target, l Limits) Verdict {
	start := time.Now()
	observation := p.through(ctx, t, l)
	if observation.needsControl() {
		observation.Control, observation.ControlDetail = p.control(ctx, t.Reflectors, start)
	}
	return Judge(observation)
}

// through sends the requests through the proxy: to the first reflector that answers. Each reflector has its own share of the time, so
// that one that hangs leaves enough for the next.
func (p *Prober) through(ctx context.Context, t Target, l Limits) Observation {
	observation := Observation{With: Attempt{Result: Broken, Detail: "the providers file has no reflectors"}}
	share := l.Total / time.Duration(max(len(t.Reflectors), 1))
	for _, text := range t.Reflectors {
		reflector, err := url.Parse(text)
		if err != nil {
			observation.With.Detail = "a reflector of the providers file is not a URL"
			continue
		}
		observation.With, observation.Without = attempts(ctx, t, reflector, l.Dial, share)
		if observation.With.Result != Broken {
			break
		}
	}
	return observation
}

// attempts asks one reflector with credentials, and, when that is served, without.
func attempts(ctx context.Context, t Target, reflector *url.URL, dial, share time.Duration) (with, without Attempt) {
	ctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	with = attempt(ctx, t, reflector, true, dial)
	if with.Result == Served {
		without = attempt(ctx, t, reflector, false, dial)
	}
	return with, without
}

// control asks the reflectors directly: one that answers is enough. An answer from before the probe's start proves nothing.
func (p *Prober) control(ctx context.Context, reflectors []string, start time.Time) (Control, string) {
	detail := "none is configured"
	for _, reflector := range reflectors {
		err := p.askDirectly(ctx, reflector, start)
		if err == nil {
			return Answers, ""
		}
		detail = err.Error()
	}
	return Silent, detail
}

// askDirectly shares one question among all that ask about the same reflector at about the same time. A success counts only when it was asked
// for at start or later; a failure, which blames nobody, when it is not older than controlAge.
func (p *Prober) askDirectly(ctx context.Context, reflector string, start time.Time) error {
	for {
		p.mu.Lock()
		known, ok := p.last[reflector]
		p.mu.Unlock()
		if ok && (!known.at.Before(start) || known.err != nil && time.Since(known.at) < controlAge) {
			return known.err
		}
		// A question that others asked before start is waited for, and then asked again.
		_, _, _ = p.asks.Do(reflector, func() (any, error) {
			asked := time.Now()
			err := get(ctx, reflector)
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.last == nil {
				p.last = map[string]control{}
			}
			p.last[reflector] = control{at: asked, err: err}
			return nil, nil
		})
	}
}

func get(ctx context.Context, reflector string) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, reflector, nil)
	if err != nil {
		return err
	}
	nonce := newNonce()
	request.Header.Set(headerNonce, nonce)
	request.Header.Set("User-Agent", userAgent)
	request.Close = true
	// As through a proxy, a redirect is not followed: the two must ask the same question.
	response, err := (&http.Transport{Proxy: nil, DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return fmt.Errorf("%s: %w", request.URL.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := readAnswer(response, nonce); err != nil {
		return fmt.Errorf("%s: %w", request.URL.Host, err)
	}
	return nil
}
