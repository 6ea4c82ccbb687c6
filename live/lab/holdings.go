// SPDX-License-Identifier: Apache-2.0

//go:build live

package lab

import (
	"context"
	"fmt"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// Holdings are what a host holds, by name.
type Holdings struct {
	Domains, Volumes []string
}

// Hold asks a host what it holds, apart from any operator.
func Hold(ctx context.Context, h *kvmhost.Host) (Holdings, error) {
	var held Holdings
	domains, err := h.Virsh(ctx, "list", "--all", "--name")
	if err != nil {
		return held, err
	}
	held.Domains = strings.Fields(domains)
	if _, err := h.Virsh(ctx, "pool-refresh", h.PoolName); err != nil {
		return held, err
	}
	volumes, err := h.Virsh(ctx, "vol-list", h.PoolName)
	if err != nil {
		return held, err
	}
	for line := range strings.Lines(volumes) {
		if fields := strings.Fields(line); len(fields) > 0 {
			held.Volumes = append(held.Volumes, fields[0])
		}
	}
	return held, nil
}

// Instances are the domains of ours, and Loose the volumes of ours besides bases, agent volumes and their markers.
func (h Holdings) Instances() []string { return withPrefix(h.Domains, "egress-") }

// Loose are volumes of instances.
func (h Holdings) Loose() []string {
	var loose []string
	for _, v := range withPrefix(h.Volumes, "egress-") {
		if !strings.Contains(v, "-base-") && !strings.Contains(v, "-agent-") {
			loose = append(loose, v)
		}
	}
	return loose
}

func withPrefix(names []string, prefix string) []string {
	var with []string
	for _, n := range names {
		if strings.HasPrefix(n, prefix) {
			with = append(with, n)
		}
	}
	return with
}

// Wipe removes every domain and volume of ours from a host, by prefix: what a test that failed has left.
func Wipe(ctx context.Context, h *kvmhost.Host) error {
	held, err := Hold(ctx, h)
	if err != nil {
		return err
	}
	for _, d := range held.Instances() {
		// A domain that does not run cannot be destroyed, and need not be.
		_, _ = h.Virsh(ctx, "destroy", d)
		if _, err := h.Virsh(ctx, "undefine", d, "--nvram", "--managed-save", "--snapshots-metadata"); err != nil {
			return fmt.Errorf("wipe %s: %w", d, err)
		}
	}
	for _, v := range withPrefix(held.Volumes, "egress-") {
		if _, err := h.Virsh(ctx, "vol-delete", v, "--pool", h.PoolName); err != nil {
			return fmt.Errorf("wipe %s: %w", v, err)
		}
	}
	return nil
}
