// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/egress-proxies/egress-proxies-operator/internal/destination"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
)

// publicOnly lets the fetch of a Proxy's own image reach public addresses only. It sees each address after name resolution, so no name that
// changes its mind gets around it.
func publicOnly(_ context.Context, _, address string, _ syscall.RawConn) error {
	refused := func(why error) error {
		return &image.Error{
			Kind: image.Permanent, Message: fmt.Sprintf("the image's host is at %s: %v", address, why),
			Next: "have it served from a public address, or put it into the entry's images", Err: why,
		}
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return refused(err)
	}
	policy, err := destination.NewPolicy(destination.Rules{})
	if err != nil {
		return refused(err)
	}
	own, err := destination.InterfaceAddresses()
	if err != nil {
		return err
	}
	if err := policy.Check(target.Addr(), own); err != nil {
		return refused(err)
	}
	return nil
}
