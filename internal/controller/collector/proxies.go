// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Proxy is what the collector knows of a Proxy.
type Proxy struct {
	// UID as the API server has it.
	UID             string
	Namespace, Name string
	// Entry and Host that hold its instance, or will.
	Entry, Host string
	// Provisioned is since when its instance is known to run; zero while it is not.
	Provisioned time.Time
	// Deleting: it waits for its instance to go.
	Deleting bool
}

// Proxies are all Proxies of all namespaces and entries.
type Proxies struct{ byUID map[string]Proxy }

// NewProxies refuses a UID that is not a UUID: nothing could be compared with it.
func NewProxies(all []Proxy) (Proxies, error) {
	p := Proxies{make(map[string]Proxy, len(all))}
	for _, one := range all {
		canonical, ok := provider.CanonicalUID(one.UID)
		if !ok {
			return Proxies{}, fmt.Errorf("Proxy %s/%s has the UID %q, which is not a UUID", one.Namespace, one.Name, one.UID)
		}
		p.byUID[provider.CompactUID(canonical)] = one
	}
	return p, nil
}

// Has says whether a Proxy has that UID, in any way of writing it.
func (p Proxies) Has(uid string) bool {
	_, ok := p.byUID[provider.CompactUID(uid)]
	return ok
}

// Len counts them.
func (p Proxies) Len() int { return len(p.byUID) }

// on are those whose instance is on a host.
func (p Proxies) on(entry, host string) []Proxy {
	var some []Proxy
	for _, one := range p.byUID {
		if one.Entry == entry && one.Host == host {
			some = append(some, one)
		}
	}
	return some
}

// proxyPage is how many Proxies are read at once.
const proxyPage = 500

// ReadProxies reads all Proxies from the API server, one snapshot of them, completely or with an error. live must not read from a cache.
func ReadProxies(live client.Reader) func(context.Context) (Proxies, error) {
	return func(ctx context.Context) (Proxies, error) {
		var all []Proxy
		next := ""
		for {
			var page v1alpha1.ProxyList
			if err := live.List(ctx, &page, client.Limit(proxyPage), client.Continue(next)); err != nil {
				return Proxies{}, err
			}
			for i := range page.Items {
				all = append(all, proxyOf(&page.Items[i]))
			}
			if next = page.Continue; next == "" {
				return NewProxies(all)
			}
		}
	}
}

func proxyOf(p *v1alpha1.Proxy) Proxy {
	one := Proxy{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Entry: p.Spec.Provider, Host: p.Status.Host, Deleting: !p.DeletionTimestamp.IsZero(),
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned); c != nil && c.Status == metav1.ConditionTrue {
		one.Provisioned = c.LastTransitionTime.Time
	}
	return one
}
