// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

func TestContract(t *testing.T) {
	Contract(t, func(*testing.T) libvirt.Backend { return New(Config{}).Backend() })
}
