// SPDX-License-Identifier: Apache-2.0

//go:build live

package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// Holdings are what a host holds, by name.
type Holdings struct {
	Domains, Volumes []string
}

const ours = libvirt.Prefix + "-"

// Hold asks a host what it holds, apart from any operator.
func Hold(ctx context.Context, h *kvmhost.Host) (Holdings, error) {
	out, err := h.Virsh(ctx, fmt.Sprintf("list --all --name; pool-refresh %s; vol-list %s", h.PoolName, h.PoolName))
	if err != nil {
		return Holdings{}, err
	}
	var held Holdings
	for line := range strings.Lines(out) {
		// A domain is a name alone, a volume a name and a path; what the refresh says has more words.
		switch fields := strings.Fields(line); {
		case len(fields) == 1:
			held.Domains = append(held.Domains, fields[0])
		case len(fields) == 2 && strings.HasPrefix(fields[1], "/"):
			held.Volumes = append(held.Volumes, fields[0])
		}
	}
	return held, nil
}

// Instances are the domains of ours.
func (h Holdings) Instances() []string { return withPrefix(h.Domains) }

// Loose are the volumes of ours besides bases, agent volumes and their markers: those of instances.
func (h Holdings) Loose() []string {
	return slices.DeleteFunc(withPrefix(h.Volumes), func(v string) bool {
		return strings.Contains(v, "-base-") || strings.Contains(v, "-agent-")
	})
}

func withPrefix(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, ours) })
}

// Wipe removes every domain and volume of ours from a host, by prefix: what a test has left.
func Wipe(ctx context.Context, h *kvmhost.Host) error {
	held, err := Hold(ctx, h)
	if err != nil {
		return err
	}
	for _, d := range held.Instances() {
		// A domain that does not run cannot be destroyed, and need not be.
		_, _ = h.Virsh(ctx, "destroy", d)
		if _, err := h.Virsh(ctx, "undefine", d, "--nvram", "--managed-save", "--snapshots-metadata", "--checkpoints-metadata"); err != nil {
			return fmt.Errorf("wipe %s: %w", d, err)
		}
	}
	var deletions []string
	for _, v := range withPrefix(held.Volumes) {
		deletions = append(deletions, fmt.Sprintf("vol-delete %s --pool %s", v, h.PoolName))
	}
	if len(deletions) == 0 {
		return nil
	}
	if _, err := h.Virsh(ctx, strings.Join(deletions, "; ")); err != nil {
		return fmt.Errorf("wipe the pool: %w", err)
	}
	return nil
}
