// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"maps"
	"slices"
)

// MissingFiles are the disks of a domain whose files are gone, or anything that backs them.
func (d *Daemon) MissingFiles(name string) (missing []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dom := d.domains[name]
	if dom == nil || dom.def.Devices == nil {
		return nil
	}
	for _, disk := range dom.def.Devices.Disks {
		if s := disk.Source; s != nil && s.File != nil && !d.fileExists(s.File.File) {
			missing = append(missing, s.File.File)
		}
	}
	return missing
}

// Clone is another daemon whose machine holds the same. Nobody is connected to it, and it has no faults.
func (d *Daemon) Clone() *Daemon {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &Daemon{cfg: d.cfg, pool: d.pool, volumes: make(map[string]*volume, len(d.volumes)), domains: make(map[string]*domain, len(d.domains))}
	for name, v := range d.volumes {
		other := *v
		other.content = slices.Clone(v.content)
		c.volumes[name] = &other
	}
	for name, dom := range d.domains {
		c.domains[name] = &domain{
			definition: dom.copy(), state: dom.state, reason: dom.reason, persistent: dom.persistent, run: dom.run, live: dom.live,
			addresses: maps.Clone(dom.addresses),
		}
		if dom.was != nil {
			was := dom.was.copy()
			c.domains[name].was = &was
		}
	}
	return c
}

func (d *definition) copy() definition { return definition{d.def, maps.Clone(d.metadata)} }

// StartPool starts the pool where it was stopped.
func (d *Daemon) StartPool() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.pool.active {
		d.pool.active = true
		d.rescan()
	}
}
