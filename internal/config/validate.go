// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

var (
	entryName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`)
	hostKey   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	imageKey  = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)
	namespace = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// validate reports what the types promise and the file does not hold, and brings values into their normal form.
func (d *document) validate(f *File) {
	if d.needs("version") {
		d.inRange("version", int64(f.Version), Version, Version)
	}
	d.validateReflectors(f.Reflectors)
	d.validateProbe(&f.Probe)
	d.inRange("imageSpoolGiB", f.SpoolGiB(), 0, maxPoolReserveGiB)
	folder, err := filepath.Abs(filepath.Dir(d.file))
	if err != nil {
		d.failf("", "relative paths in it cannot be resolved: %s", err)
	}
	names := map[string]string{}
	for i := range f.Entries {
		path, e := item("entries", i), &f.Entries[i]
		if d.needs(path + ".name") {
			d.matches(path+".name", e.Name, entryName, "a DNS label (lower-case letters, digits, -) of at most 30 characters")
			d.unique(names, path+".name", e.Name)
		}
		d.validateEntry(path, e, folder)
	}
	d.validateDaemons(f)
	d.validatePlaces(f)
	d.validatePools(f)
}

func (d *document) validateReflectors(reflectors []Reflector) {
	if len(reflectors) == 0 {
		d.failf("reflectors", "needs at least one reflector: a URL that answers with the address a request came from")
	}
	seen := map[string]string{}
	for i, r := range reflectors {
		path := item("reflectors", i) + ".url"
		if !d.needs(path) {
			continue
		}
		if _, err := parseURL(r.URL, "http", "https"); err != nil {
			d.failf(path, "%s", err)
		}
		d.unique(seen, path, r.URL)
	}
}

func (d *document) validateProbe(p *Probe) {
	d.within("probe.interval", p.Interval, 5*time.Second, time.Hour)
	d.within("probe.timeout", p.Timeout, time.Second, time.Minute)
	if d.sound("probe.interval") && p.Interval >= Duration(5*time.Second) && p.Timeout > p.Interval {
		d.failf("probe.timeout", "must be at most probe.interval (%s)", p.Interval)
	}
	d.inRange("probe.failureThreshold", int64(p.FailureThreshold), 1, 20)
	d.inRange("probe.successThreshold", int64(p.SuccessThreshold), 1, 20)
}

// needs reports a value that is missing; false too where what should hold it is broken.
func (d *document) needs(path string) bool {
	if !d.sound(path) {
		return false
	}
	if !d.has(path) {
		d.failf(path, "is missing")
		return false
	}
	return true
}

func (d *document) inRange(path string, n, least, most int64) {
	switch {
	case n >= least && n <= most:
	case least == most:
		d.failf(path, "must be %d, not %s", least, d.number(path))
	default:
		d.failf(path, "must be %d to %d, not %s", least, most, d.number(path))
	}
}

// number is a number as the file has it: a huge one does not fit any type.
func (d *document) number(path string) string {
	const most = 30
	text := d.text(path)
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

func (d *document) within(path string, value Duration, least, most time.Duration) {
	if value.D() < least || value.D() > most {
		d.failf(path, "must be %s to %s, not %s", least, most, value)
	}
}

func (d *document) matches(path, value string, pattern *regexp.Regexp, wanted string) {
	if !pattern.MatchString(value) {
		d.failf(path, "must be %s, not %s", wanted, shown(value))
	}
}

// oneOf checks a value that may be left out.
func (d *document) oneOf(path, value string, allowed ...string) {
	if d.has(path) && !slices.Contains(allowed, value) {
		d.failf(path, "must be %s, not %s%s", strings.Join(allowed, " or "), shown(value), didYouMean(value, allowed))
	}
}

// unique reports a value that another path has already; seen is from value to path.
func (d *document) unique(seen map[string]string, path, value string) {
	if first, ok := seen[value]; ok {
		d.failf(path, "is the same as %s", first)
		return
	}
	if d.sound(path) {
		seen[value] = path
	}
}

func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }
