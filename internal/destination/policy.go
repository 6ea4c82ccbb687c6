// SPDX-License-Identifier: Apache-2.0

// Package destination decides where a proxy may connect to: to the public
// Internet, and otherwise only where somebody allowed it. Names are resolved
// here, each address is checked, and the checked address is the one that is
// dialled, so that a name cannot change its mind in between.
package destination

import (
	"fmt"
	"net/netip"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// Rules are what an entry's configuration says.
type Rules struct {
	// Allow are networks that may be reached though they are not public.
	Allow []netip.Prefix
	// Deny are networks that may not be reached though they are public or in
	// Allow: the addresses of hypervisors, for example.
	Deny []netip.Prefix
	// Reflectors are host:port targets that may be reached whatever else
	// holds; exactly these, as they are written, in any case.
	Reflectors []string
}

// RefusedError is the error for a destination that the policy refuses.
type RefusedError struct {
	Addr netip.Addr
	// Why is a few words: what kind of address it is.
	Why string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("destination %s is refused: %s; allow its network in the entry's destinations.allow if it shall be reached", e.Addr, e.Why)
}

// Failure is what clients are told (proxyproto.FailureOf).
func (e *RefusedError) Failure() proxyproto.Failure { return proxyproto.FailurePolicy }

// Policy answers for addresses. It is immutable.
type Policy struct {
	allow, deny []netip.Prefix
	reflectors  map[string]struct{}
}

// NewPolicy makes a policy; its error names the rule that cannot be.
func NewPolicy(rules Rules) (*Policy, error) {
	p := &Policy{reflectors: map[string]struct{}{}}
	for _, list := range []struct {
		name string
		from []netip.Prefix
		to   *[]netip.Prefix
	}{{"allow", rules.Allow, &p.allow}, {"deny", rules.Deny, &p.deny}} {
		for _, prefix := range list.from {
			if !prefix.IsValid() {
				return nil, fmt.Errorf("destinations.%s: %q is not a network", list.name, prefix)
			}
			*list.to = append(*list.to, unmapPrefix(prefix.Masked()))
		}
	}
	for _, target := range rules.Reflectors {
		normal, err := normalTarget(target)
		if err != nil {
			return nil, fmt.Errorf("destinations.reflectors: %q: %w", target, err)
		}
		p.reflectors[normal] = struct{}{}
	}
	return p, nil
}

// IsReflector says whether target, host:port, is a configured reflector.
func (p *Policy) IsReflector(target string) bool {
	normal, err := normalTarget(target)
	if err != nil {
		return false
	}
	_, ok := p.reflectors[normal]
	return ok
}

// Check returns nil when addr may be connected to, or a *RefusedError. own are the
// addresses of this machine, which count as not public.
func (p *Policy) Check(addr netip.Addr, own []netip.Addr) error {
	original := addr
	refuse := func(why string) error { return &RefusedError{Addr: original, Why: why} }
	if !addr.IsValid() {
		return refuse("it is not an address")
	}
	if addr.Zone() != "" && !addr.IsLinkLocalUnicast() {
		return refuse("it has a zone and is not link-local")
	}
	addr = addr.WithZone("").Unmap()
	forms := append([]netip.Addr{addr}, embedded(addr)...)
	for _, form := range forms {
		if contains(p.deny, form) {
			return refuse("its network is in destinations.deny")
		}
	}
	if contains(p.allow, addr) {
		return nil
	}
	for i, form := range forms {
		if contains(p.allow, form) {
			continue
		}
		why := special(form)
		if why == "" && isOneOf(form, own) {
			why = "it is an address of the proxy itself"
		}
		if why == "" {
			continue
		}
		if i > 0 {
			why = fmt.Sprintf("it leads to %s: %s", form, why)
		}
		return refuse(why)
	}
	return nil
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

func isOneOf(addr netip.Addr, own []netip.Addr) bool {
	for _, o := range own {
		if o.WithZone("").Unmap() == addr {
			return true
		}
	}
	return false
}

// unmapPrefix makes ::ffff:10.0.0.0/104 what it means.
func unmapPrefix(prefix netip.Prefix) netip.Prefix {
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix
}
