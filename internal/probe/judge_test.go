// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var exit = netip.MustParseAddr("203.0.113.7")

func TestJudge(t *testing.T) {
	served, refused := Attempt{Result: Served, Exit: exit}, Attempt{Result: Refused, Detail: "it answers 407"}
	closed, unreachable, broken := Attempt{Result: Closed, Detail: "c"}, Attempt{Result: Unreachable, Detail: "u"}, Attempt{Result: Broken, Detail: "b"}
	for name, c := range map[string]struct {
		seen Observation
		want Reason
	}{
		"goes through and is closed to others":                  {Observation{With: served, Without: refused}, Succeeded},
		"serves anybody":                                        {Observation{With: served, Without: served}, OpenProxy},
		"refuses its own credentials":                           {Observation{With: refused}, AuthFailed},
		"nothing listens":                                       {Observation{With: closed}, PortClosed},
		"nothing listens, whatever the reflector does":          {Observation{With: closed, Control: Silent}, PortClosed},
		"no answer, and the reflector answers":                  {Observation{With: unreachable, Control: Answers}, PortClosed},
		"no answer, and the reflector is silent":                {Observation{With: unreachable, Control: Silent}, ReflectorDown},
		"egress fails, and the reflector answers":               {Observation{With: broken, Control: Answers}, EgressFailed},
		"egress fails, and the reflector is silent":             {Observation{With: broken, Control: Silent}, ReflectorDown},
		"neither refused nor served without credentials":        {Observation{With: served, Without: broken, Control: Answers}, EgressFailed},
		"the second connection fails":                           {Observation{With: served, Without: closed}, PortClosed},
		"the second connection fails with the network":          {Observation{With: served, Without: unreachable, Control: Silent}, ReflectorDown},
		"refuses its own credentials, whatever the reflector's": {Observation{With: refused, Control: Silent}, AuthFailed},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(c.seen)
			if v.Reason != c.want || v.Message == "" {
				t.Errorf("got %s (%s), want %s", v.Reason, v.Message, c.want)
			}
			if v.Exit.IsValid() != (c.want == Succeeded) {
				t.Errorf("exit %v", v.Exit)
			}
		})
	}
}

func TestHealthThresholds(t *testing.T) {
	policy := Policy{Interval: 30 * time.Second, FailureThreshold: 3, SuccessThreshold: 2}
	ok, bad := Verdict{Reason: Succeeded, Exit: exit}, Verdict{Reason: EgressFailed}
	down, open := Verdict{Reason: ReflectorDown}, Verdict{Reason: OpenProxy}
	healthy := Health{Proven: true, Healthy: true, Reason: Succeeded, Exit: exit}
	for name, c := range map[string]struct {
		from     Health
		verdicts []Verdict
		healthy  bool
		reason   Reason
	}{
		"the first success suffices":                  {Health{}, []Verdict{bad, bad, ok}, true, Succeeded},
		"two failures are not three":                  {healthy, []Verdict{bad, bad}, true, Succeeded},
		"a success starts the count anew":             {healthy, []Verdict{bad, bad, ok, bad, bad}, true, Succeeded},
		"three failures are":                          {healthy, []Verdict{bad, bad, bad}, false, EgressFailed},
		"one success is not two":                      {healthy, []Verdict{bad, bad, bad, ok}, false, EgressFailed},
		"two are":                                     {healthy, []Verdict{bad, bad, bad, ok, ok}, true, Succeeded},
		"a failure starts the count of successes":     {healthy, []Verdict{bad, bad, bad, ok, bad, ok}, false, EgressFailed},
		"a silent reflector demotes nobody":           {healthy, []Verdict{down, down, down, down, down}, true, ReflectorDown},
		"a silent reflector neither adds to failures": {healthy, []Verdict{bad, bad, down}, true, ReflectorDown},
		"nor makes them forgotten":                    {healthy, []Verdict{bad, bad, down, bad}, false, EgressFailed},
		"an open proxy is out at once":                {healthy, []Verdict{open}, false, OpenProxy},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.from
			for _, v := range c.verdicts {
				h = h.Next(v, policy)
			}
			if diff := cmp.Diff([]any{c.healthy, c.reason}, []any{h.Healthy, h.Reason}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDelay(t *testing.T) {
	policy := Policy{Interval: 30 * time.Second, FailureThreshold: 3}
	for name, c := range map[string]struct {
		health Health
		age    time.Duration
		want   time.Duration
	}{
		"just booted":       {Health{}, 0, 250 * time.Millisecond},
		"booting a while":   {Health{}, 100 * time.Second, 2 * time.Second},
		"booting for long":  {Health{}, 10 * time.Minute, 5 * time.Second},
		"will never boot":   {Health{}, time.Hour, 30 * time.Second},
		"healthy":           {Health{Proven: true, Healthy: true}, time.Hour, 30 * time.Second},
		"counting failures": {Health{Proven: true, Healthy: true, Run: 1}, time.Hour, 10 * time.Second},
		"unhealthy":         {Health{Proven: true}, time.Hour, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := delay(c.health, policy, c.age); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
