// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestReflectorTargets(t *testing.T) {
	f := &File{Reflectors: []Reflector{{URL: "http://a.example/"}, {URL: "https://b.example"}, {URL: "http://[2001:db8::1]:8080/x"}}}
	if got, want := strings.Join(f.ReflectorTargets(), " "), "a.example:80 b.example:443 [2001:db8::1]:8080"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestDestinationsSHA256(t *testing.T) {
	of := func(kind string, allow []string, reflectors ...string) string {
		f, e := &File{}, &Entry{Type: kind, Destinations: Destinations{Allow: allow}}
		for _, r := range reflectors {
			f.Reflectors = append(f.Reflectors, Reflector{URL: r})
		}
		return f.DestinationsSHA256(e)
	}
	allow, a, b := []string{"10.0.0.0/8", "192.168.0.0/16"}, "http://a.example/ip", "https://b.example/"
	base := of(TypeKVM2, allow, a, b)
	if len(base) != 64 {
		t.Errorf("%q", base)
	}
	for name, same := range map[string]string{
		"another order":                of(TypeKVM2, []string{"192.168.0.0/16", "10.0.0.0/8"}, b, a),
		"another path of a reflector":  of(TypeKVM2, allow, "http://a.example/other", b),
		"a reflector's port in full":   of(TypeKVM2, allow, "http://a.example:80/", b),
		"two reflectors of one server": of(TypeKVM2, allow, a, b, "https://b.example/2"),
	} {
		if same != base {
			t.Errorf("%s is nothing to an agent", name)
		}
	}
	for name, other := range map[string]string{
		"a network less":      of(TypeKVM2, allow[:1], a, b),
		"no network":          of(TypeKVM2, nil, a, b),
		"a reflector less":    of(TypeKVM2, allow, a),
		"another port":        of(TypeKVM2, allow, "http://a.example:81/", b),
		"what moved across":   of(TypeKVM2, allow[:1], a, b, "http://192.168.0.0"),
		"what is live anyway": of(TypeLocal, allow, a, b),
	} {
		if other == base {
			t.Errorf("%s changes what an agent may reach", name)
		}
	}
	if got := of(TypeLocal, allow, a); got != "" {
		t.Errorf("local exits have no seed: %q", got)
	}
}
