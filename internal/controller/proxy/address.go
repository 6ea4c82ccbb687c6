// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// maxAddresses is how many addresses the status holds.
const maxAddresses = 16

// address takes over the addresses that the host reports. Where it reports none, the last known ones stand: a guest agent that restarts is
// no lost address.
func (r *Reconciler) address(_ context.Context, p *pass) (bool, error) {
	s := &p.proxy.Status
	if found := p.instance.Addresses; len(found) > 0 {
		s.Addresses = nil
		for _, a := range found[:min(len(found), maxAddresses)] {
			s.Addresses = append(s.Addresses, a.String())
		}
		s.IP = s.Addresses[0]
	}
	p.holdConsole()
	if s.IP == "" {
		p.provisioned(metav1.ConditionFalse, v1alpha1.ReasonBooting, fmt.Sprintf("%s runs, and has reported no address yet", p.instance.ProviderID)+p.consoleHint())
		p.noAddress = true
		p.lookAgain(p.provisionDelay())
		return false, nil
	}
	port := p.instance.Shape.Port
	if port == 0 {
		port = int(p.proxy.Spec.Port)
	}
	s.Endpoint = net.JoinHostPort(s.IP, strconv.Itoa(port))
	s.Progress = 0
	p.provisioned(metav1.ConditionTrue, v1alpha1.ReasonRunning, p.instance.ProviderID+" runs")
	return true, nil
}

// doubtAddress has the address of a guest asked for again while what answers there, if anything does, is not the guest's proxy.
func (p *pass) doubtAddress(h probe.Health) {
	switch h.Last {
	case probe.PortClosed, probe.AuthFailed, probe.OpenProxy:
	default:
		return
	}
	if d, ok := p.provider.(provider.AddressDoubter); ok {
		d.DoubtAddresses(p.ref())
	}
}
