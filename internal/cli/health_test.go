// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func TestCollectorFlags(t *testing.T) {
	good := write(t, "good.yaml", goodFile)
	for says, flag := range map[string]string{"on, dry-run or off": "--collector=maybe", "at least 1m": "--collector-grace=59s"} {
		var out safeBuffer
		if code := Run(t.Context(), []string{"operator", "--providers", good, flag}, &out, &out); code != ExitUsage || !strings.Contains(out.String(), says) {
			t.Errorf("%s: exit code %d: %s", flag, code, &out)
		}
	}
}

const revokedFile = `version: 1
reflectors:
  - url: http://127.0.0.1:1/
entries:
  - name: health-test
    type: kvm2
    hosts:
      - {name: kvm1, address: "%s", network: default}
    images:
      debian: {url: "https://127.0.0.1:1/image"}
    defaultImage: debian
    credentials:
      privateKeyFile: %s
      knownHostsFile: %s
`

// The whole operator, with one host that answers with a revoked key.
func TestARevokedKeyIsShown(t *testing.T) {
	hostKey, _ := linktest.Ed25519Key(t)
	login, private := linktest.Ed25519Key(t)
	sshd := &linktest.Server{HostKeys: []ssh.Signer{hostKey}, Client: login.PublicKey()}
	sshd.Start(t)
	pin := knownhosts.Line([]string{sshd.Addr}, hostKey.PublicKey())
	providers := fmt.Sprintf(revokedFile, sshd.Addr, write(t, "id", string(private)), linktest.KnownHosts(t, pin, "@revoked "+pin))

	r := runOperator(t, write(t, "providers.yaml", providers), "--collector=dry-run")
	p := r.create("p", "health-test")
	t.Run("L2: a revoked host key is shown in the condition and in the ProviderHealth", func(t *testing.T) {
		var h v1alpha1.ProviderHealth
		r.until("Unauthorized", func() bool {
			err := r.Get(t.Context(), client.ObjectKey{Name: "health-test"}, &h)
			return err == nil && len(h.Status.Hosts) == 1 && h.Status.Hosts[0].Reason == provider.HostUnauthorized
		})
		if message := h.Status.Hosts[0].Message; !strings.Contains(message, "is revoked by") {
			t.Errorf("the message is %q", message)
		}
		if ready := meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionReady); ready.Reason != v1alpha1.ReasonNoHostReady || !strings.Contains(ready.Message, "kvm1: Unauthorized") {
			t.Errorf("%+v", ready)
		}
		r.until("said of the Proxy", func() bool {
			provisioned := meta.FindStatusCondition(r.read(p).Status.Conditions, v1alpha1.ConditionProvisioned)
			return provisioned != nil && strings.Contains(provisioned.Message, "Unauthorized") && strings.Contains(provisioned.Message, "is revoked by")
		})
	})
	r.until("an event", func() bool { return r.told("health-test", provider.HostUnauthorized) })
	r.end()
}
