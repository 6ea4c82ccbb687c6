// SPDX-License-Identifier: Apache-2.0

// Package architecture holds the tree to the arrows that docs/architecture.md draws.
package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/egress-proxies/egress-proxies-operator/"

// forbidden says what the packages under a path must not reach, not even through others. The linter holds direct imports to the
// same arrows and names the line.
var forbidden = []struct {
	from   string
	never  []string
	reason string
}{
	{"cmd/egress-agent", []string{"k8s.io/", "sigs.k8s.io/", "github.com/", "libvirt.org/"}, "the agent is small: standard library, x/sys and its protocol packages"},
	{"internal/agent", []string{"k8s.io/", "sigs.k8s.io/", "github.com/", "libvirt.org/"}, "the agent is small: standard library, x/sys and its protocol packages"},
	{"internal/proxyproto", []string{"k8s.io/", "sigs.k8s.io/", "libvirt.org/", "github.com/digitalocean/"}, "protocols know nothing of Kubernetes and libvirt"},
	{"internal/link", []string{"k8s.io/", "sigs.k8s.io/", module + "internal/provider", module + "internal/controller"}, "a link serves providers and knows none"},
	{"internal/image", []string{"k8s.io/", "sigs.k8s.io/", "github.com/digitalocean/", module + "internal/provider"}, "images know nothing of Kubernetes and hypervisors"},
	{"internal/cloudinit", []string{"k8s.io/", "sigs.k8s.io/", "github.com/digitalocean/", module + "internal/provider"}, "seeds know nothing of Kubernetes and hypervisors"},
	{"internal/config", []string{"k8s.io/", "sigs.k8s.io/", "github.com/digitalocean/", module + "internal/provider"}, "the providers file knows nothing of who reads it"},
	{"internal/probe", []string{"k8s.io/", "sigs.k8s.io/", "github.com/digitalocean/", "libvirt.org/", module + "internal/link"}, "probes know nothing of Kubernetes and hypervisors"},
	{"internal/provider", []string{"k8s.io/", "sigs.k8s.io/controller-runtime", module + "api/", module + "internal/controller"}, "a provider gets narrow structs, never the CR"},
	{"internal/controller", []string{"github.com/digitalocean/", "libvirt.org/", module + "internal/link", module + "internal/cli"}, "controllers know providers by their interface"},
}

type listedPackage struct {
	ImportPath string
	Deps       []string
}

func TestArrowsPointOneWay(t *testing.T) {
	packages := list(t, "./...")
	for _, rule := range forbidden {
		checked := 0
		for _, p := range packages {
			if !strings.HasPrefix(p.ImportPath+"/", module+rule.from+"/") {
				continue
			}
			checked++
			for _, dep := range p.Deps {
				for _, never := range rule.never {
					if strings.HasPrefix(dep, never) && !allowed(rule.from, dep) {
						t.Errorf("%s reaches %s: %s", p.ImportPath, dep, rule.reason)
					}
				}
			}
		}
		if checked == 0 {
			t.Errorf("no package under %s: the rule guards nothing", rule.from)
		}
	}
}

// allowed dependencies in spite of a prefix that is not.
func allowed(from, dep string) bool {
	return (from == "cmd/egress-agent" || from == "internal/agent") && strings.HasPrefix(dep, module)
}

func TestRootModuleIsFreeOfTheAPIServer(t *testing.T) {
	for _, p := range list(t, "./...") {
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "k8s.io/kubernetes") {
				t.Errorf("%s reaches %s: that belongs into the module standalone/", p.ImportPath, dep)
			}
		}
	}
}

func list(t *testing.T, pattern string) []listedPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps=false", "-tags", "kubeapi,live", "-json=ImportPath,Deps", pattern)
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []listedPackage
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
