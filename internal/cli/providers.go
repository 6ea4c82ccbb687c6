// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/local"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/simulated"
)

// environment is what providers are made with, besides their entry.
type environment struct {
	cluster string
	file    *config.File
	agents  libvirt.AgentSource
	depot   *image.Depot
	places  *libvirt.Places
	log     *slog.Logger
	// decorators wrap the Backend of each host.
	decorators []Decorator
}

// constructor makes the provider of one entry.
type constructor func(environment, config.Entry) (provider.Provider, error)

// constructors by the type of entry: the one place where a provider is added.
var constructors = map[string]constructor{
	config.TypeKVM2: func(env environment, entry config.Entry) (provider.Provider, error) {
		return libvirt.New(libvirt.Options{
			Cluster: env.cluster, Entry: entry, Reflectors: env.file.ReflectorTargets(), Agent: env.agents, Depot: env.depot, Places: env.places, Log: env.log.With("entry", entry.Name),
			Backend: env.decorated(kvm2.CountedBackends(entry.Credentials, observedCalls().count(entry.Name))),
		})
	},
	config.TypeLocal: func(env environment, entry config.Entry) (provider.Provider, error) {
		return local.New(local.Options{
			Cluster: env.cluster, Entry: entry, Reflectors: env.file.ReflectorTargets(), Version: version(), Log: env.log.With("entry", entry.Name),
		})
	},
	config.TypeSimulated: func(env environment, entry config.Entry) (provider.Provider, error) {
		return simulated.New(simulated.Options{Cluster: env.cluster, Entry: entry, Version: version(), Log: env.log.With("entry", entry.Name)})
	},
}

// decorated wraps every Backend that is made.
func (env environment) decorated(backend func(config.Host) libvirt.Backend) func(config.Host) libvirt.Backend {
	return func(h config.Host) libvirt.Backend {
		b := backend(h)
		for _, decorate := range env.decorators {
			b = decorate(b)
		}
		return b
	}
}

// makeProvider makes the provider of an entry.
func makeProvider(env environment, entry config.Entry) (provider.Provider, error) {
	construct, ok := constructors[entry.Type]
	if !ok {
		return nil, fmt.Errorf("there is no provider of type %q; there are: %s", entry.Type, strings.Join(slices.Sorted(maps.Keys(constructors)), ", "))
	}
	return construct(env, entry)
}
