// SPDX-License-Identifier: Apache-2.0

//go:build live

package state

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

// vigil watches Proxies that are Ready, and counts how often one is not.
type vigil struct {
	stop context.CancelFunc
	done sync.WaitGroup
	mu   sync.Mutex
	lost []string
}

func watchReady(t *testing.T, l *lab.Lab, names []string) *vigil {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	v := &vigil{stop: cancel}
	v.done.Go(func() {
		for ctx.Err() == nil {
			for _, name := range names {
				p := &v1alpha1.Proxy{}
				if err := l.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p); err == nil && !isReady(p) {
					v.mu.Lock()
					v.lost = append(v.lost, fmt.Sprintf("%s at %s:\n%s", name, time.Now().Format(time.TimeOnly), conditions(p)))
					v.mu.Unlock()
				}
			}
			pause(t, 50*time.Millisecond)
		}
	})
	return v
}

// end tells how often a Proxy was not Ready.
func (v *vigil) end() []string {
	v.stop()
	v.done.Wait()
	return v.lost
}

func TestRestarts(t *testing.T) {
	l := theLab(t)
	host := l.Hosts[0]
	names := []string{"steady-1", "steady-2", "steady-3"}
	var domains []string
	for _, name := range names {
		domains = append(domains, domainOf(t, l, proxyOf(t, l, lab.Entry, name, "tiny")))
	}
	for _, name := range names {
		await(t, l, name, bootedWithin, "to be Ready", isReady)
	}
	t.Run("H3: restarts of the guest agent and of libvirtd, and a link that is killed again and again, demote no Proxy", func(t *testing.T) {
		v := watchReady(t, l, names)
		for round := range 3 {
			for _, d := range domains {
				if err := inGuest(t.Context(), host, d, "killall qemu-ga"); err != nil {
					t.Logf("round %d: %v", round, err) // it may be on its way back
				}
			}
			pause(t, 4*time.Second)
		}
		for range 2 {
			if err := host.RestartLibvirtd(t.Context()); err != nil {
				t.Fatal(err)
			}
			pause(t, 4*time.Second)
		}
		for range 20 { // each lasts less than a poll, so some fall between its reads
			_, _ = host.Exec(t.Context(), "pkill", "-KILL", "-f", "^sshd: root")
			pause(t, 300*time.Millisecond)
		}
		pause(t, 10*time.Second)
		lost := v.end()
		t.Logf("false demotions: %d", len(lost))
		if len(lost) > 0 {
			t.Errorf("the first: %s", lost[0])
		}
	})
	t.Run("M14: the address is that of our NIC, and one that changes is corrected", func(t *testing.T) {
		p := await(t, l, names[0], bootedWithin, "to be Ready", isReady)
		before := p.Status.IP
		next := fmt.Sprintf("10.88.%d.210", stateHost)
		command := fmt.Sprintf("ip addr add 172.17.0.1/16 dev lo; ip addr flush dev eth0; ip addr add %s/24 dev eth0; ip route add default via 10.88.%d.1", next, stateHost)
		if err := inGuest(t.Context(), host, domains[0], command); err != nil {
			t.Fatal(err)
		}
		await(t, l, names[0], madeWithin, "to have its new address", func(p *v1alpha1.Proxy) bool {
			if p.Status.IP != before && p.Status.IP != next {
				t.Errorf("status.ip is %s", p.Status.IP)
			}
			return p.Status.IP == next
		})
		p = await(t, l, names[0], bootedWithin, "to be Ready at its new address", isReady)
		t.Logf("the guest's address changed from %s to %s: %s, all: %v", before, next, p.Status.Endpoint, p.Status.Addresses)
	})
}
