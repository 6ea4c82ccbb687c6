// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// hintAfter is how long a guest may boot before people are told where to look. Emulated ones need minutes.
const hintAfter = 3 * time.Minute

// holdConsole has the console of a guest read until its Proxy is Ready.
func (p *pass) holdConsole() {
	if c, ok := p.provider.(provider.Consoler); ok && !p.isTrue(v1alpha1.ConditionReady) {
		c.HoldConsole(p.ref())
	}
}

// releaseConsole ends that.
func (p *pass) releaseConsole() {
	if c, ok := p.provider.(provider.Consoler); ok && p.isTrue(v1alpha1.ConditionReady) {
		c.ReleaseConsole(p.ref())
	}
}

// dropConsole ends it for a Proxy that is being deleted, whose entry may be gone.
func (p *pass) dropConsole() {
	if c, ok := p.set.Providers[p.proxy.Spec.Provider].(provider.Consoler); ok {
		c.ReleaseConsole(p.ref())
	}
}

// consoleHint is what a message says of a guest that has been booting for long: that its console says more, and never what it says, for that may hold
// secrets.
func (p *pass) consoleHint() string {
	if _, ok := p.provider.(provider.Consoler); !ok {
		return ""
	}
	c := meta.FindStatusCondition(p.stored.Status.Conditions, v1alpha1.ConditionProvisioned)
	if c == nil || c.Reason != v1alpha1.ReasonBooting || p.now.Sub(c.LastTransitionTime.Time) < hintAfter {
		return ""
	}
	return fmt.Sprintf("; its console may say why: egress-proxies console -n %s %s", p.proxy.Namespace, p.proxy.Name)
}
