// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// bad stands behind the line of a file that is wrong.
const bad = " # bad"

// wrongLine is the line that is marked as bad, from 1.
func wrongLine(t *testing.T, text string) int {
	t.Helper()
	before, _, ok := strings.Cut(text, bad)
	if !ok || strings.Count(text, bad) != 1 {
		t.Fatalf("not one line is marked:\n%s", text)
	}
	return strings.Count(before, "\n") + 1
}

// Who may use an entry, how, and how much of it: each mistake is told with its path and its line.
func TestAdmissionIsRefusedWithPathAndLine(t *testing.T) {
	host := func(line string) string {
		return with(t, "        bridge: br0\n", "        bridge: br0\n        "+line+bad+"\n")
	}
	of := func(lines ...string) string { return minimal + "    " + strings.Join(lines, "\n    ") + "\n" }
	quota := func(lines ...string) string { return of("quotas:", "  - "+strings.Join(lines, "\n        ")) }
	simulated := func(lines ...string) string {
		return entry(append([]string{"type: simulated", "hosts: [{name: a, addresses: 127.20.0.0/24}]"}, lines...)...)
	}
	const q = "entries[0].quotas"
	for name, test := range map[string]struct{ text, path, says string }{
		"maxVCPUs negative":       {host("maxVCPUs: -1"), "entries[0].hosts[0].maxVCPUs", "must be 0 to 65536, not -1"},
		"maxVCPUs absurd":         {host("maxVCPUs: 65537"), "entries[0].hosts[0].maxVCPUs", "must be 0 to 65536, not 65537"},
		"maxVCPUs beyond 64 bits": {host("maxVCPUs: 18446744073709551617"), "entries[0].hosts[0].maxVCPUs", "not 18446744073709551617"},
		"maxVCPUs no number":      {host("maxVCPUs: many"), "entries[0].hosts[0].maxVCPUs", "number"},
		"maxVCPUs empty":          {host("maxVCPUs:"), "entries[0].hosts[0].maxVCPUs", "no value"},
		"maxVCPUs of simulated": {
			entry("type: simulated", "hosts:", "  - name: a", "    addresses: 127.20.0.0/24", "    maxVCPUs: 4"+bad),
			"entries[0].hosts[0].maxVCPUs", "belongs to",
		},

		"allowPinning for nobody":     {of("allowPinning: []" + bad), "entries[0].allowPinning", "is an empty list"},
		"allowPinning for all":        {of("allowPinning:", "  - a", "  - '*'"+bad), "entries[0].allowPinning[1]", "the name of a namespace"},
		"allowPinning twice":          {of("allowPinning:", "  - a", "  - a"+bad), "entries[0].allowPinning[1]", "is the same as entries[0].allowPinning[0]"},
		"allowPinning no list":        {of("allowPinning: a" + bad), "entries[0].allowPinning", "list"},
		"allowPinning of a stranger":  {of("allowedNamespaces: [a]", "allowPinning:", "  - b"+bad), "entries[0].allowPinning[0]", "is not in allowedNamespaces"},
		"allowUserData for nobody":    {of("allowUserData: []" + bad), "entries[0].allowUserData", "is an empty list"},
		"allowUserData, all and some": {of("allowUserData:", "  - a", "  - '*'"+bad), "entries[0].allowUserData[1]", "the name of a namespace"},
		"allowUserData twice":         {of("allowUserData:", "  - a", "  - a"+bad), "entries[0].allowUserData[1]", "is the same as"},
		"allowUserData of a stranger": {of("allowedNamespaces: [a]", "allowUserData:", "  - b"+bad), "entries[0].allowUserData[0]", "is not in allowedNamespaces"},
		"allowUserData of simulated":  {simulated("allowUserData: [a]" + bad), "entries[0].allowUserData", "belongs to entries of type kvm2"},
		"installGuestAgent maybe":     {of("installGuestAgent: maybe" + bad), "entries[0].installGuestAgent", "true or false"},

		"quota of nobody":              {quota("namespaces: []"+bad, "instances: 1"), q + "[0].namespaces", "needs at least one namespace"},
		"quota without namespaces":     {quota("instances: 1" + bad), q + "[0].namespaces", "needs at least one namespace"},
		"quota of a name that is none": {quota("namespaces: ['team_a']"+bad, "instances: 1"), q + "[0].namespaces[0]", `the name of a namespace, or "*"`},
		"quota of a stranger":          {of("allowedNamespaces: [a]", "quotas:", "  - namespaces: [b]"+bad, "    instances: 1"), q + "[0].namespaces[0]", "is not in allowedNamespaces"},
		"quota, a namespace twice":     {quota("namespaces: [a, a]"+bad, "instances: 1"), q + "[0].namespaces[1]", "is the same as " + q + "[0].namespaces[0]"},
		"two quotas for a namespace": {
			of("quotas:", "  - {namespaces: [a], instances: 1}", "  - {namespaces: [a], instances: 2}"+bad), q + "[1].namespaces[0]", "is the same as " + q + "[0].namespaces[0]",
		},
		"two quotas for all": {
			of("quotas:", "  - {namespaces: ['*'], instances: 1}", "  - {namespaces: ['*'], vcpus: 2}"+bad), q + "[1].namespaces[0]", "is the same as " + q + "[0].namespaces[0]",
		},
		"quota of nothing":             {quota("namespaces: [a]" + bad), q + "[0]", "bounds nothing"},
		"quota of instances, negative": {quota("namespaces: [a]", "instances: -1"+bad), q + "[0].instances", "must be 0 to 1073741824, not -1"},
		"quota of vCPUs, absurd":       {quota("namespaces: [a]", "vcpus: 1073741825"+bad), q + "[0].vcpus", "must be 0 to 1073741824, not 1073741825"},
		"quota of memory, no number":   {quota("namespaces: [a]", "memoryMiB: 1Gi"+bad), q + "[0].memoryMiB", "number"},
		"quota of disks":               {quota("namespaces: [a]", "instances: 1", "disks: 4"+bad), q + "[0].disks", "unknown"},
		"quota of sizes, none there":   {entry("type: local", "quotas:", "  - namespaces: [a]", "    vcpus: 1"+bad), q + "[0].vcpus", "bound its instances"},

		"addressPools of simulated": {simulated("addressPools: [{network: 198.51.100.0/24}]" + bad), "entries[0].addressPools", "belongs to entries of type kvm2"},
		"addressPools, no gateway":  {of("addressPools:", "  - network: 198.51.100.0/24"+bad, "    nameservers: [198.51.100.53]", "    addresses: [198.51.100.7]"), "entries[0].addressPools[0].gateway", "is missing"},
		"addressPools, a bad range": {
			of("addressPools:", "  - network: 198.51.100.0/24", "    gateway: 198.51.100.1", "    nameservers: [198.51.100.53]", "    addresses:", "      - 198.51.100.7", "      - 198.51.100.9-8"+bad),
			"entries[0].addressPools[0].addresses[1]", "must be an address, a range",
		},
		"addressPools, a bad MAC": {
			of("addressPools:", "  - network: 198.51.100.0/24", "    gateway: 198.51.100.1", "    nameservers: [198.51.100.53]", "    addresses: [198.51.100.7]", "    macs:", "      198.51.100.7: 01:00:5e:00:00:01"+bad),
			`entries[0].addressPools[0].macs["198.51.100.7"]`, "must be the MAC of one NIC",
		},
		"userData and userDataFile": {
			of("userData: '#!/bin/sh'", "userDataFile: u"+bad), "entries[0].userDataFile", "stands beside userData",
		},
		"destinations of simulated": {simulated("destinations: {allow: [10.0.0.0/8]}" + bad), "entries[0].destinations", "belongs to entries of type"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := refused(t, test.text)
			if len(errs) != 1 || errs[0].Path != test.path || !strings.Contains(errs[0].Message, test.says) || errs[0].Line != wrongLine(t, test.text) {
				t.Errorf("errors:\n%v\nwant one, in line %d, at %s, with %q, of\n%s", errs, wrongLine(t, test.text), test.path, test.says, test.text)
			}
		})
	}
}

func TestAdmission(t *testing.T) {
	e := parse(t, with(t, "        bridge: br0\n", "        bridge: br0\n        maxVCPUs: 65536\n")+`    allowedNamespaces: [a, b, c]
    allowPinning: [a]
    quotas:
      - {namespaces: ["*"], instances: 0}
      - {namespaces: [b, c], instances: 1073741824, vcpus: 2, memoryMiB: 1024}
`).Entries[0]
	if e.Hosts[0].MaxVCPUs != 65536 || !e.AllowsPinning("a") || e.AllowsPinning("b") {
		t.Errorf("%+v", e)
	}
	if q, ok := e.Quota("a"); !ok || *q.Instances != 0 || q.VCPUs != nil {
		t.Errorf("the quota of all others: %+v", q)
	}
	if q, ok := e.Quota("c"); !ok || *q.Instances != 1<<30 || *q.VCPUs != 2 || *q.MemoryMiB != 1024 {
		t.Errorf("its own quota: %+v", q)
	}
	e = parse(t, minimal+"    quotas: [{namespaces: [b], vcpus: 1}]\n").Entries[0]
	if q, ok := e.Quota("a"); ok || !e.AllowsPinning("a") {
		t.Errorf("no quota, and no bound on pinning: %+v", q)
	}
	// An entry without machines bounds instances.
	parse(t, entry("type: local", "quotas:", "  - {namespaces: [a], instances: 3}"))
}
