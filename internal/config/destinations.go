// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"slices"
)

// ReflectorTargets are the reflectors as host:port. One that a providers file may not have is left out.
func (f *File) ReflectorTargets() []string {
	ports := map[string]string{"http": "80", "https": "443"}
	var targets []string
	for _, reflector := range f.Reflectors {
		u, err := url.Parse(reflector.URL)
		if err != nil {
			continue
		}
		port := u.Port()
		if port == "" {
			port = ports[u.Scheme]
		}
		targets = append(targets, net.JoinHostPort(u.Hostname(), port))
	}
	return targets
}

// DestinationsSHA256 tells what an agent of the entry may reach beyond the public Internet, in hexadecimal, in whatever order the file has it; empty
// where agents are not given that with a seed.
func (f *File) DestinationsSHA256(e *Entry) string {
	if !e.HasCatalogue() {
		return ""
	}
	allowed := []string{}
	for _, p := range e.Destinations.Prefixes() {
		allowed = append(allowed, p.String())
	}
	digest := sha256.New()
	for _, all := range [][]string{allowed, f.ReflectorTargets()} {
		slices.Sort(all)
		_, _ = fmt.Fprintf(digest, "%q\n", slices.Compact(all))
	}
	return hex.EncodeToString(digest.Sum(nil))
}
