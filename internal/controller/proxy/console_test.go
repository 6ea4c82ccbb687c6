// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// consoled is a provider that notes what is done with consoles and addresses.
type consoled struct {
	provider.Provider
	done []string
}

func (c *consoled) HoldConsole(ref provider.InstanceRef) { c.done = append(c.done, "hold "+ref.UID) }
func (c *consoled) ReleaseConsole(ref provider.InstanceRef) {
	c.done = append(c.done, "release "+ref.UID)
}
func (c *consoled) DoubtAddresses(ref provider.InstanceRef) {
	c.done = append(c.done, "doubt "+ref.UID)
}

func (c *consoled) Console(context.Context, provider.InstanceRef, bool, io.Writer) error {
	return io.ErrUnexpectedEOF
}

func consolePass(c provider.Provider, conditions ...metav1.Condition) *pass {
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "exit-1", UID: "u"}, Status: v1alpha1.ProxyStatus{Conditions: conditions}}
	made := newPass(p, Set{}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	made.provider = c
	return made
}

func TestConsoleIsHeldUntilReady(t *testing.T) {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		want       []string
	}{
		"not Ready": {nil, []string{"hold u"}},
		"Ready":     {[]metav1.Condition{ready}, []string{"release u"}},
	} {
		t.Run(name, func(t *testing.T) {
			by := &consoled{}
			p := consolePass(by, c.conditions...)
			p.holdConsole()
			p.releaseConsole()
			if !slices.Equal(by.done, c.want) {
				t.Errorf("done: %q", by.done)
			}
		})
	}
	p := consolePass(struct{ provider.Provider }{})
	p.holdConsole()
	p.releaseConsole()
	p.doubtAddress(probe.Health{Last: probe.PortClosed})
}

func TestConsoleHint(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		age    time.Duration
		want   bool
	}{
		"it has been booting for long": {v1alpha1.ReasonBooting, time.Hour, true},
		"it has just begun":            {v1alpha1.ReasonBooting, time.Minute, false},
		"it does something else":       {v1alpha1.ReasonCreating, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := consolePass(&consoled{})
			p.stored.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionProvisioned, Status: metav1.ConditionFalse, Reason: c.reason, LastTransitionTime: metav1.NewTime(p.now.Add(-c.age)),
			}}
			hint := p.consoleHint()
			if got := strings.Contains(hint, "egress-proxies console -n team-a exit-1"); got != c.want || !c.want && hint != "" {
				t.Errorf("hint %q", hint)
			}
		})
	}
}

func TestAddressesAreDoubted(t *testing.T) {
	for last, want := range map[probe.Reason]bool{
		probe.PortClosed: true, probe.AuthFailed: true, probe.OpenProxy: true, probe.Succeeded: false, probe.EgressFailed: false, probe.ReflectorDown: false, "": false,
	} {
		by := &consoled{}
		consolePass(by).doubtAddress(probe.Health{Last: last})
		if got := len(by.done) > 0; got != want {
			t.Errorf("after %q: %q", last, by.done)
		}
	}
}
