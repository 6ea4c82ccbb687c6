// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

// credentials is a template that kubectl prints a Secret by, as curl takes a user.
const credentials = `{{.data.username | base64decode}}:{{.data.password | base64decode}}`

// hints are lines to paste into a shell, in any folder.
func hints(o Options, proxies []v1alpha1.Proxy) string {
	kubectl := carriedKubectl(o)
	if _, err := exec.LookPath("kubectl"); err == nil {
		kubectl = "kubectl --kubeconfig " + quote(o.Server.Paths.Kubeconfig())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe kubeconfig, for kubectl and every other client:\n\n  %s\n\nThe Proxies:\n\n  %s get proxies\n",
		o.Server.Paths.Kubeconfig(), kubectl)
	for i := range proxies {
		p := &proxies[i]
		if p.Status.Endpoint == "" || p.Status.CredentialsSecret == "" {
			continue
		}
		fmt.Fprintf(&b, "\nThe address that the reflector sees through %s:\n\n  curl -x http://%s%s --proxy-user \"$(%s get secret %s -n %s -o go-template=%s)\" %s\n",
			p.Name, p.Status.Endpoint, noProxy(), carriedKubectl(o), p.Status.CredentialsSecret, p.Namespace, quote(credentials), quote(o.Target))
		break
	}
	return b.String()
}

// carriedKubectl is this program, which is kubectl too.
func carriedKubectl(o Options) string {
	return fmt.Sprintf("%s --data-dir %s kubectl", quote(o.Server.Executable), quote(o.Server.Paths.Root()))
}

// noProxy keeps curl from going around the proxy where the environment names addresses to do so for.
func noProxy() string {
	if os.Getenv("no_proxy") == "" && os.Getenv("NO_PROXY") == "" {
		return ""
	}
	return " --noproxy ''"
}

// quote makes a word for a POSIX shell.
func quote(word string) string {
	plain := strings.IndexFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/._-:@%+=,", r)
	}) < 0
	if plain && word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
