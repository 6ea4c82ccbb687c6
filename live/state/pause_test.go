// SPDX-License-Identifier: Apache-2.0

//go:build live

package state

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

const ballast = smallDir + "/ballast"

func TestPaused(t *testing.T) {
	l := theLab(t)
	host := l.Hosts[0]
	t.Run("M1: a guest that a full pool paused says so, is not replaced, and runs again on the same disk once there is room", func(t *testing.T) {
		p := proxyOf(t, l, smallEntry, "filled", "tiny")
		p = await(t, l, p.Name, bootedWithin, "to be provisioned", func(p *v1alpha1.Proxy) bool {
			return provisioned(p).Status == metav1.ConditionTrue
		})
		domain, overlay := domainOf(t, l, p), overlayIn(t, l, p, smallDir)
		disk := inode(t, host, overlay)

		if out, err := host.Exec(t.Context(), "sh", "-c", fmt.Sprintf("fallocate -l $(($(stat -f -c %%a*%%S %s) - 4194304)) %s", smallDir, ballast)); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() { _, _ = host.Exec(context.WithoutCancel(t.Context()), "rm", "-f", ballast) })
		if err := inGuest(t.Context(), host, domain, "dd if=/dev/urandom of=/dev/vda bs=1M seek=200 count=64"); err != nil {
			t.Fatal(err)
		}
		p = await(t, l, p.Name, madeWithin, "to be paused", func(p *v1alpha1.Proxy) bool {
			c := provisioned(p)
			return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPaused && strings.Contains(c.Message, "I/O error") && strings.Contains(c.Message, smallPool)
		})
		t.Logf("pool full: %s: %s", provisioned(p).Reason, provisioned(p).Message)
		if out, err := host.Virsh(t.Context(), "domstate", domain, "--reason"); err != nil || !strings.Contains(out, "paused (I/O error)") {
			t.Errorf("the host says %q, %v", out, err)
		}

		if _, err := host.Exec(t.Context(), "rm", "-f", ballast); err != nil {
			t.Fatal(err)
		}
		p = await(t, l, p.Name, madeWithin, "to run again", func(p *v1alpha1.Proxy) bool { return provisioned(p).Status == metav1.ConditionTrue })
		if now := inode(t, host, overlay); now != disk {
			t.Errorf("the disk is another: inode %s, was %s", now, disk)
		}
		t.Logf("room made: %s: %s; the disk is the same (inode %s)", provisioned(p).Reason, provisioned(p).Message, disk)
	})
	t.Run("a guest that somebody paused is left alone, and said", func(t *testing.T) {
		p := proxyOf(t, l, lab.Entry, "suspended", "empty")
		await(t, l, p.Name, madeWithin, "to run", runs)
		domain := domainOf(t, l, p)
		if _, err := host.Virsh(t.Context(), "suspend", domain); err != nil {
			t.Fatal(err)
		}
		await(t, l, p.Name, madeWithin, "to be paused", func(p *v1alpha1.Proxy) bool {
			return provisioned(p).Reason == v1alpha1.ReasonPaused && strings.Contains(provisioned(p).Message, "by a user")
		})
		if _, err := host.Virsh(t.Context(), "resume", domain); err != nil {
			t.Fatal(err)
		}
		await(t, l, p.Name, madeWithin, "to run again", runs)
	})
}

// runs says that the instance runs, whether or not its guest reports anything.
func runs(p *v1alpha1.Proxy) bool {
	c := provisioned(p)
	return c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonBooting
}
