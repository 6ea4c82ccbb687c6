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
	observation := p.through(ctx, t, l)
	if observation.needsControl() {
		observation.Control, observation.ControlDetail = p.control(ctx, t.Reflectors)
	}
	return Judge(observation)
}

// through sends the requests through the proxy: to the first reflector that answers.
func (p *Prober) through(ctx context.Context, t Target, l Limits) Observation {
	ctx, cancel := context.WithTimeout(ctx, l.Total)
	defer cancel()
	observation := Observation{With: Attempt{Result: Broken, Detail: "the providers file has no reflectors"}}
	for _, text := range t.Reflectors {
		reflector, err := url.Parse(text)
		if err != nil {
			observation.With.Detail = "a reflector of the providers file is not a URL"
			continue
		}
		observation.With = attempt(ctx, t, reflector, true, l.Dial)
		if observation.With.Result == Served {
			observation.Without = attempt(ctx, t, reflector, false, l.Dial)
		}
		if observation.With.Result != Broken {
			break
		}
	}
	return observation
}

// control asks the reflectors directly: one that answers is enough.
func (p *Prober) control(ctx context.Context, reflectors []string) (Control, string) {
	detail := "none is configured"
	for _, reflector := range reflectors {
		err := p.askDirectly(ctx, reflector)
		if err == nil {
			return Answers, ""
		}
		detail = err.Error()
	}
	return Silent, detail
}

// askDirectly shares one question among all that ask about the same reflector at about the same time.
func (p *Prober) askDirectly(ctx context.Context, reflector string) error {
	p.mu.Lock()
	known, ok := p.last[reflector]
	p.mu.Unlock()
	if ok && time.Since(known.at) < controlAge {
		return known.err
	}
	_, err, _ := p.asks.Do(reflector, func() (any, error) {
		err := get(ctx, reflector)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.last == nil {
			p.last = map[string]control{}
		}
		p.last[reflector] = control{at: time.Now(), err: err}
		return nil, err
	})
	return err
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
	direct := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	response, err := direct.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := readAnswer(response, nonce); err != nil {
		return fmt.Errorf("%s: %w", request.URL.Redacted(), err)
	}
	return nil
}
