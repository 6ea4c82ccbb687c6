// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// offerAge is how long a host's capabilities are believed: they change when somebody installs something, which nothing tells us. What a
// host lacked is asked again each time.
const offerAge = 5 * time.Minute

// capable finds how a guest is run on h, before anything is made there. What is missing is named in one Permanent error.
func (p *Provider) capable(ctx context.Context, h *host, n need) (Guest, error) {
	missing, err := h.placesMissing(ctx)
	if err != nil {
		return Guest{}, err
	}
	guest, lacks, err := h.match(ctx, n)
	if err != nil {
		return guest, err
	}
	if missing = append(missing, lacks...); len(missing) > 0 {
		h.forgetOffer(n.Arch)
		return guest, incapable(h.name, missing)
	}
	return guest, nil
}

// match asks what the host can run, and compares.
func (h *host) match(ctx context.Context, n need) (Guest, []string, error) {
	var o offer
	if machineFor(n.Arch) != "" {
		var err error
		if o, err = h.offer(ctx, n.Arch); err != nil {
			return Guest{}, nil, translate(h.name, "", "reading the capabilities", err)
		}
	}
	guest, lacks := match(n, o)
	return guest, lacks, nil
}

func incapable(host string, missing []string) *provider.Error {
	return &provider.Error{
		Kind: provider.Permanent, Reason: provider.HostIncapable, Host: host, Message: "lacks " + strings.Join(missing, "; and "),
		Next: "change the host, or use another one",
	}
}

// placesMissing looks at the pool, and at the bridge or network: where guests are put.
func (h *host) placesMissing(ctx context.Context) ([]string, error) {
	_, missing, err := h.poolMissing(ctx)
	if err != nil {
		return nil, err
	}
	lacks, err := h.networkMissing(ctx)
	return append(missing, lacks...), err
}

func (h *host) poolMissing(ctx context.Context) (PoolInfo, []string, error) {
	pool, err := h.backend.Pool(ctx, false)
	switch {
	case IsCode(err, CodeNoStoragePool):
		return pool, []string{fmt.Sprintf("the pool %q", h.cfg.Pool)}, nil
	case err != nil:
		return pool, nil, translate(h.name, "pool "+h.cfg.Pool, "looking at the pool", err)
	}
	return pool, poolMissing(h.cfg.Pool, pool), nil
}

func (h *host) networkMissing(ctx context.Context) ([]string, error) {
	object, check, code := "bridge "+h.cfg.Bridge, h.backend.CheckBridge, CodeNoInterface
	name := h.cfg.Bridge
	if h.cfg.Network != "" {
		object, check, code, name = "network "+h.cfg.Network, h.backend.CheckNetwork, CodeNoNetwork, h.cfg.Network
	}
	err := check(ctx, name)
	switch {
	case IsCode(err, code):
		return []string{"the " + object}, nil
	case IsCode(err, CodeOperationInvalid):
		return []string{fmt.Sprintf("an active network: network %s is not started (virsh net-start %s)", name, name)}, nil
	case err != nil:
		return nil, translate(h.name, object, "looking at it", err)
	}
	return nil, nil
}

// offer asks for the domain capabilities, or remembers them.
func (h *host) offer(ctx context.Context, arch string) (offer, error) {
	h.mu.Lock()
	cached, ok := h.offers[arch]
	h.mu.Unlock()
	if ok && time.Now().Before(cached.until) {
		return cached.offer, nil
	}
	info, err := h.backend.Host(ctx)
	if err != nil {
		return offer{}, err
	}
	o := offer{Arch: info.Arch}
	if o.KVM, err = h.domainCaps(ctx, virtKVM, arch); err != nil {
		return offer{}, err
	}
	if o.TCG, err = h.domainCaps(ctx, virtTCG, arch); err != nil {
		return offer{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offers[arch] = cachedOffer{o, time.Now().Add(offerAge)}
	return o, nil
}

func (h *host) forgetOffer(arch string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.offers, arch)
}

// domainCaps is nil where the daemon says that it has nothing of the kind.
func (h *host) domainCaps(ctx context.Context, virtType, arch string) (*libvirtxml.DomainCaps, error) {
	text, err := h.backend.DomainCapabilities(ctx, virtType, arch, machineFor(arch))
	var answer *DaemonError
	if errors.As(err, &answer) {
		switch answer.Code {
		case CodeNoSupport, CodeInvalidArg, CodeConfigUnsupported:
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	caps := &libvirtxml.DomainCaps{}
	if err := caps.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("the domain capabilities cannot be read: %w", err)
	}
	return caps, nil
}
