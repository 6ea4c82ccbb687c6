// SPDX-License-Identifier: Apache-2.0

// Package libvirt is what the libvirt providers share: names, the mark, domain XML, and the steps of create, get, delete and list
// over one seam, Backend. How a Backend reaches its daemon (RPC in kvm2, virsh in kvm) is not known here.
package libvirt
