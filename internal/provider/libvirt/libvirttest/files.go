// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"maps"
	"path"
	"slices"

	"libvirt.org/go/libvirtxml"
)

// filesOf are the volumes that a domain's disks are, by path.
func (d *Daemon) filesOf(def libvirtxml.Domain) map[string]*volume {
	all := map[string]*volume{}
	if def.Devices == nil {
		return all
	}
	for _, disk := range def.Devices.Disks {
		if s := disk.Source; s != nil && s.File != nil {
			all[s.File.File] = d.volumes[path.Base(s.File.File)]
		}
	}
	return all
}

// MissingFiles are the disks of a domain whose files are gone, or anything that backs them, and those that are others than its guest has open.
func (d *Daemon) MissingFiles(name string) (missing []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dom := d.domains[name]
	if dom == nil {
		return nil
	}
	for file, v := range d.filesOf(dom.def) {
		opened, known := dom.opened[file]
		if !d.fileExists(file) || dom.state != stateShutoff && known && opened != v {
			missing = append(missing, file)
		}
	}
	slices.Sort(missing)
	return missing
}

// Clone is another daemon whose machine holds the same. Nobody is connected to it, and it has no faults.
func (d *Daemon) Clone() *Daemon {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &Daemon{cfg: d.cfg, pool: d.pool, volumes: make(map[string]*volume, len(d.volumes)), domains: make(map[string]*domain, len(d.domains))}
	copies := make(map[*volume]*volume, len(d.volumes))
	for name, v := range d.volumes {
		other := *v
		other.content = slices.Clone(v.content)
		c.volumes[name], copies[v] = &other, &other
	}
	for name, dom := range d.domains {
		c.domains[name] = &domain{
			definition: dom.copy(), state: dom.state, reason: dom.reason, persistent: dom.persistent, run: dom.run, live: dom.live,
			addresses: maps.Clone(dom.addresses),
		}
		if dom.opened != nil {
			c.domains[name].opened = make(map[string]*volume, len(dom.opened))
			for file, v := range dom.opened {
				c.domains[name].opened[file] = copies[v]
			}
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
