// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"slices"
	"strings"
)

// usage is who on a host refers to volumes: "domain …" or "volume …", by the volume's name.
type usage map[string][]string

// inUse says who else than one, which may be empty, refers to any of volumes; empty where nobody does.
func (u usage) inUse(volumes []string, but string) string {
	for _, v := range volumes {
		for _, user := range u[v] {
			if user != but {
				return "volume " + v + " is in use by " + user
			}
		}
	}
	return ""
}

// users says of each of volumes who on the host refers to it: any domain at all, as it is defined and as it runs, or any volume of the pool that it
// backs. A volume's name is nobody else's, so whatever text has it refers to the volume. Whoever vanishes meanwhile refers to nothing.
func (p *Provider) users(ctx context.Context, h *host, volumes []string) (usage, error) {
	users := usage{}
	note := func(user, text string) {
		for _, v := range volumes {
			if strings.Contains(text, v) && !slices.Contains(users[v], user) {
				users[v] = append(users[v], user)
			}
		}
	}
	there, err := h.backend.Volumes(ctx)
	if err != nil {
		return nil, translate(h.name, "pool "+h.cfg.Pool, "listing the volumes", err)
	}
	for _, name := range there {
		info, err := h.backend.Volume(ctx, name)
		if err != nil && !IsCode(err, CodeNoVolume) {
			return nil, translate(h.name, "volume "+name, "looking at what backs it", err)
		}
		note("volume "+name, info.BackingPath)
	}
	domains, err := h.backend.Domains(ctx)
	if err != nil {
		return nil, translate(h.name, "", "listing the domains", err)
	}
	for _, d := range domains {
		for _, read := range []func(context.Context, string) (string, error){h.backend.DomainXML, h.backend.LiveXML} {
			text, err := read(ctx, d.Name)
			if err != nil && !IsCode(err, CodeNoDomain) {
				return nil, translate(h.name, "domain "+bounded(d.Name), "looking at its disks", err)
			}
			note("domain "+bounded(d.Name), text)
		}
	}
	return users, nil
}
