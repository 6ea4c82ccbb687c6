// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// call is one call to a host about one instance, or about all where name is empty.
type call struct {
	owner      Owner
	host, name string
	// proxy whose own faults of hosts count too; empty: none.
	proxy string
}

// enter lets a call through to a host, or fails as the host's faults say. It holds no lock while it waits.
func (w *World) enter(ctx context.Context, c call) error {
	if ctx.Err() != nil || w.closed() {
		return ended(ctx, c.host)
	}
	w.mu.Lock()
	h, attached := w.attached(c.owner, c.host)
	if !attached {
		w.mu.Unlock()
		return &provider.Error{Kind: provider.Transient, Reason: ReasonNotAttached, Host: c.host, Message: fmt.Sprintf(
			"the simulator was not told of this host by entry %s of cluster %s", c.owner.Entry, c.owner.Cluster)}
	}
	faults := w.faultsOf(c.owner, c.host, c.proxy)
	h.calls++
	nth := h.calls
	w.mu.Unlock()

	if faults[config.FaultHostHangs] {
		select {
		case <-ctx.Done():
		case <-w.ctx.Done():
		}
		return ended(ctx, c.host)
	}
	if faults[config.FaultSlowHost] && !sleep(ctx, w.ctx.Done(), w.clock, slowHostTime) {
		return ended(ctx, c.host)
	}
	if err := refusal(faults, c.host, nth); err != nil {
		if c.name != "" {
			err.Object = objectOf(c.name)
		}
		return err
	}
	return nil
}

// attached says whether the owner described the host.
func (w *World) attached(o Owner, name string) (*host, bool) {
	for _, d := range w.owners[o].Hosts {
		if d.Name == name {
			return w.hosts[name], true
		}
	}
	return nil, false
}

// refusal is how a host fails its nth call, or nil.
func refusal(f faultSet, host string, nth int) *provider.Error {
	var e *provider.Error
	switch {
	case f[config.FaultHostDown]:
		e = faulty(provider.Transient, host, "", config.FaultHostDown, "the host does not answer")
		e.Reason = provider.HostUnreachable
	case f[config.FaultHostUnreachable]:
		e = faulty(provider.Transient, host, "", config.FaultHostUnreachable, "the host cannot be reached")
		e.Reason = provider.HostUnreachable
	case f[config.FaultHostRefuses]:
		e = faulty(provider.Unauthorized, host, "", config.FaultHostRefuses, "the host refuses the key")
	case f[config.FaultHostDegraded] && nth%2 == 0:
		e = faulty(provider.Transient, host, "", config.FaultHostDegraded, "the host answers with an internal error")
	}
	return e
}

// hostState is how a host with these faults looks to placement.
func hostState(name string, f faultSet) provider.HostState {
	for _, bad := range []struct{ fault, reason, message string }{
		{config.FaultHostDown, provider.HostUnreachable, "the host does not answer"},
		{config.FaultHostUnreachable, provider.HostUnreachable, "the host cannot be reached"},
		{config.FaultHostHangs, provider.HostTimeout, "no answer in time"},
		{config.FaultHostRefuses, provider.HostUnauthorized, "the host refuses the key"},
		{config.FaultHostIncapable, provider.HostIncapable, "the host lacks what an instance needs"},
		{config.FaultHostDegraded, provider.HostDegraded, "every second call fails"},
	} {
		if f[bad.fault] {
			return provider.HostState{Name: name, Reason: bad.reason, Message: bad.message + " (simulated fault " + bad.fault + ")"}
		}
	}
	return provider.HostState{Name: name, Ready: true, Reason: provider.HostReady}
}

// checkSpec refuses what no host can make.
func checkSpec(spec provider.InstanceSpec) error {
	if wrong := spec.CheckMachine(); wrong != nil {
		return wrong
	}
	if image := strings.TrimSpace(spec.Image.String()); image != "" {
		return permanent(spec.Host, fmt.Sprintf("simulated instances boot no image, and %q is asked for", image), "leave placement.image out")
	}
	if spec.Software != provider.SoftwareAgent {
		return permanent(spec.Host, fmt.Sprintf("simulated instances run the agent, and software type %q is asked for", spec.Software), "set software.type to Agent")
	}
	return nil
}
