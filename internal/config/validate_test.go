// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	t.Run("M16: accepted, default port 22", func(t *testing.T) {
		for address, want := range map[string]string{
			"kvm":                            "kvm:22",
			"KVM.Example.ORG.":               "kvm.example.org:22",
			"kvm.example.org:2222":           "kvm.example.org:2222",
			"192.0.2.1":                      "192.0.2.1:22",
			"192.0.2.1:1":                    "192.0.2.1:1",
			"'[2001:db8::1]'":                "[2001:db8::1]:22",
			"'[2001:DB8:0::1]:65535'":        "[2001:db8::1]:65535",
			"'[::ffff:192.0.2.1]:22'":        "192.0.2.1:22",
			"my_kvm-1":                       "my_kvm-1:22",
			strings.Repeat("a", 63) + ".org": strings.Repeat("a", 63) + ".org:22",
		} {
			f := parse(t, with(t, "address: a.example.org", "address: "+address))
			if got := f.Entries[0].Hosts[0].DialAddress(); got != want {
				t.Errorf("%s: dial address is %s, want %s", address, got, want)
			}
		}
	})
	for address, want := range map[string]string{
		"root@kvm":                       "goes into `user:`",
		"root:hunter2@kvm:22":            "goes into `user:`",
		"ssh://kvm":                      "not a URL",
		"qemu+ssh://root:hunter2@kvm/":   "not a URL",
		"2001:db8::1":                    "put the IPv6 address in brackets",
		"kvm:22:22":                      "must be host, host:port or",
		"'kvm:'":                         "the port after the colon is missing",
		"kvm:0":                          "a port of 1 to 65535",
		"kvm:65536":                      "a port of 1 to 65535",
		"kvm:022":                        "a port of 1 to 65535",
		"kvm:+22":                        "a port of 1 to 65535",
		"kvm:ssh":                        "a port of 1 to 65535",
		"'kvm:99999999999999999999'":     "a port of 1 to 65535",
		"':22'":                          "a DNS name or an IP address",
		"kvm/path":                       "a DNS name or an IP address",
		"'kv m'":                         "a DNS name or an IP address",
		"-kvm":                           "a DNS name or an IP address",
		"kvm..org":                       "a DNS name or an IP address",
		"192.0.2.256":                    "a DNS name or an IP address",
		"'127.1'":                        "a DNS name or an IP address",
		"kvm.0x7f":                       "a DNS name or an IP address",
		"'[kvm]:22'":                     "no IPv6 address",
		"'[192.0.2.1]:22'":               "no IPv6 address",
		"'[2001:db8::1]22'":              "must be host, host:port or",
		"'[2001:db8::1]:'":               "must be host, host:port or",
		"'[2001:db8::1'":                 "must be host, host:port or",
		"'[fe80::1%eth0]:22'":            "without a zone",
		"0.0.0.0":                        "of one machine",
		"'[::]'":                         "of one machine",
		"224.0.0.1":                      "of one machine",
		strings.Repeat("a", 64) + ".org": "a DNS name or an IP address",
		strings.Repeat("a.", 130) + "a":  "a DNS name or an IP address",
		`"kvm\u0000"`:                    "a DNS name or an IP address",
	} {
		t.Run("M16: refused "+address, func(t *testing.T) {
			text := with(t, "address: a.example.org", "address: "+address)
			refusedOnce(t, text, "entries[0].hosts[0].address", want)
			if strings.Contains(refused(t, text).Error(), "hunter2") {
				t.Error("the error shows the password")
			}
		})
	}
}

func TestHostNames(t *testing.T) {
	const bridge = "        bridge: br0\n"
	pad := func(n int) string { return strings.Repeat("x", n) }
	tests := []struct {
		name, lines, path, want string
	}{
		{"L12: bridge of 16 bytes", "bridge: " + pad(16), "bridge", "at most 15 bytes, not 16"},
		{"L12: bridge of 15 bytes counted in bytes", "bridge: " + strings.Repeat("é", 8), "bridge", "at most 15 bytes, not 16"},
		{"L12: bridge with a slash", "bridge: br/0", "bridge", `no "/"`},
		{"L12: bridge with a space", "bridge: br 0", "bridge", `no "/", ":", space`},
		{"L12: bridge with a colon", "bridge: br0:1", "bridge", `no "/", ":", space`},
		{"L12: bridge with a control character", `bridge: "br\u0001"`, "bridge", "control character"},
		{"L12: bridge ..", "bridge: ..", "bridge", `not "." or ".."`},
		{"L12: pool with a slash", "bridge: br0\npool: a/b", "pool", `no "/"`},
		{"L12: pool with a control character", "bridge: br0\npool: \"a\\nb\"", "pool", "control character"},
		{"L12: pool with a space at its end", "bridge: br0\npool: 'a '", "pool", "no space at its ends"},
		{"L12: pool too long", "bridge: br0\npool: " + pad(201), "pool", "at most 200 bytes"},
		{"L12: pool ..", "bridge: br0\npool: ..", "pool", `not "." or ".."`},
		{"L12: network with a slash", "network: a/b", "network", `no "/"`},
		{"L12: network with a control character", `network: "a\u007fb"`, "network", "control character"},
		{"L12: socket relative", "bridge: br0\nsocket: run/libvirt.sock", "socket", "absolute path"},
		{"L12: socket is a folder", "bridge: br0\nsocket: /run/libvirt/", "socket", "absolute path"},
		{"L12: socket of 108 bytes", "bridge: br0\nsocket: /" + pad(107), "socket", "at most 107 bytes, as every path of a unix socket, not 108"},
		{"L12: socket with a control character", "bridge: br0\nsocket: \"/run/\\u0000\"", "socket", "control characters"},
		{"bridge and network", "bridge: br0\nnetwork: default", "network", "stands beside bridge"},
		{"neither bridge nor network", "user: x", "", "needs a bridge (of the host) or a network (of libvirt)"},
		{"user with a host", "bridge: br0\nuser: root@kvm", "user", "must be the name of a user"},
		{"user with a password", "bridge: br0\nuser: root:x", "user", "must be the name of a user"},
		{"alias with a port", "bridge: br0\nhostKeyAlias: kvm:22", "hostKeyAlias", "without port"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lines := "        " + strings.ReplaceAll(tt.lines, "\n", "\n        ") + "\n"
			path := "entries[0].hosts[0]"
			if tt.path != "" {
				path += "." + tt.path
			}
			refusedOnce(t, with(t, bridge, lines), path, tt.want)
		})
	}
	t.Run("names at their limits are accepted", func(t *testing.T) {
		parse(t, with(t, bridge, "        bridge: "+pad(15)+"\n        socket: /"+pad(106)+"\n        pool: "+pad(200)+"\n"))
		parse(t, with(t, bridge, "        network: my network\n        user: DOM\\user\n"))
	})
}

func TestSizes(t *testing.T) {
	tests := []struct {
		id, key string
		values  []string
		want    string
	}{
		{"L11", "vcpus", []string{"0", "-1", "-9223372036854775808"}, "must be 1 to 64, not "},
		{"L11", "memoryMiB", []string{"0", "-1", "63"}, "must be 64 to 262144, not "},
		{"L20", "vcpus", []string{"65", "4294967297", "18446744073709551617"}, "must be 1 to 64, not "},
		{"L20", "memoryMiB", []string{"262145", "9223372036854775807", "-99999999999999999999"}, "must be 64 to 262144, not "},
		{"L20", "diskSizeGb", []string{"0", "-4", "4097", "17179869185", "99999999999999999999999999999"}, "must be 1 to 4096, not "},
	}
	for _, tt := range tests {
		for _, value := range tt.values {
			t.Run(tt.id+": "+tt.key+" "+value, func(t *testing.T) {
				text := minimal + "    defaults:\n      " + tt.key + ": " + value + "\n"
				refusedOnce(t, text, "entries[0].defaults."+tt.key, tt.want+value)
			})
		}
	}
	for line, want := range map[string]string{
		"poolReserveGiB: -1":                  "must be 0 to 1048576, not -1",
		"poolReserveGiB: 1048577":             "must be 0 to 1048576, not 1048577",
		"maxImageBytes: 0":                    "must be 1 to 4398046511104, not 0",
		"maxImageBytes: 18446744073709551617": "must be 1 to 4398046511104, not 18446744073709551617",
	} {
		t.Run("L20: "+line, func(t *testing.T) {
			key, _, _ := strings.Cut(line, ":")
			refusedOnce(t, minimal+"    "+line+"\n", "entries[0]."+key, want)
		})
	}
	t.Run("bounds are accepted", func(t *testing.T) {
		parse(t, minimal+"    defaults: {vcpus: 64, memoryMiB: 262144, diskSizeGb: 4096}\n    poolReserveGiB: 0\n    maxImageBytes: 1\n")
		parse(t, minimal+"    defaults: {vcpus: 1, memoryMiB: 64, diskSizeGb: 1}\n    poolReserveGiB: 1048576\n")
	})
}

func TestImages(t *testing.T) {
	const url = "        url: https://example.org/debian.qcow2\n"
	digest := strings.Repeat("Ab", 32)
	tests := []struct {
		name, lines, path, want string
	}{
		{"M17: http without a digest", "url: http://example.org/a", "url", "or set sha256 beside it"},
		{"M17: HTTP in capitals without a digest", "url: HTTP://example.org/a", "url", "or set sha256 beside it"},
		{"no URL", "format: raw", "url", "is missing"},
		{"scheme", "url: ftp://example.org/a", "url", "https:// or http:// or file://"},
		{"no scheme", "url: example.org/a", "url", "https:// or http:// or file://"},
		{"no host", "url: https:///a", "url", "name its host"},
		{"port", "url: https://example.org:70000/a", "url", "a port of 1 to 65535"},
		{"colon without port", "url: https://example.org:/a", "url", "port after the colon"},
		{"fragment", "url: 'https://example.org/a#'", "url", "without a fragment"},
		{"too long", "url: https://example.org/" + strings.Repeat("a", 2048), "url", "at most 2048 bytes"},
		{"file relative", "url: file://images/a", "url", "file:///absolute/path"},
		{"file opaque", "url: file:images/a", "url", "https:// or http:// or file://"},
		{"file with ..", "url: file:///images/../a", "url", "file:///absolute/path"},
		{"short digest", "url: https://example.org/a\nsha256: abcd", "sha256", "64 hexadecimal digits"},
		{"digest with a prefix", "url: https://example.org/a\nsha256: 'sha256:" + digest[:57] + "'", "sha256", "64 hexadecimal digits"},
		{"format", "url: https://example.org/a\nformat: qcow", "format", `must be qcow2 or raw, not "qcow"; did you mean "qcow2"?`},
		{"arch", "url: https://example.org/a\narch: amd64", "arch", `must be x86_64 or aarch64, not "amd64"`},
		{"firmware", "url: https://example.org/a\nfirmware: uefi", "firmware", `did you mean "efi"?`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lines := "        " + strings.ReplaceAll(tt.lines, "\n", "\n        ") + "\n"
			refusedOnce(t, with(t, url, lines), "entries[0].images.debian."+tt.path, tt.want)
		})
	}
	t.Run("M17: http with a digest is accepted", func(t *testing.T) {
		f := parse(t, with(t, url, "        url: http://example.org/a\n        sha256: "+digest+"\n"))
		if got := f.Entries[0].Images["debian"].SHA256; got != strings.ToLower(digest) {
			t.Errorf("digest is %s", got)
		}
	})
	t.Run("file URL is accepted", func(t *testing.T) {
		parse(t, with(t, url, "        url: file:///images/a%20b.qcow2\n"))
	})
	t.Run("bad key", func(t *testing.T) {
		refusedOnce(t, with(t, "      debian:\n", "      Debian 12:\n"), `entries[0].images["Debian 12"]`, "must have a key of lower-case letters")
	})
	t.Run("several images and no default", func(t *testing.T) {
		refusedOnce(t, minimal+"      other: {url: https://example.org/}\n", "entries[0].defaultImage", `name one of "debian", "other"`)
	})
	t.Run("no image", func(t *testing.T) {
		refusedOnce(t, with(t, "    images:\n      debian:\n"+url, ""), "entries[0].images", "needs at least one image")
		parse(t, with(t, "    images:\n      debian:\n"+url, "    allowURLImages: [Example.ORG]\n"))
	})
}

func TestFileRules(t *testing.T) {
	second := func(name, address, more string) string {
		return minimal + `  - name: ` + name + `
    type: kvm2
    hosts:
      - {name: a, address: ` + address + `, bridge: br0` + more + `}
    credentials: {privateKeyFile: k, knownHostsFile: h}
    images: {i: {url: "https://example.org/"}}
`
	}
	host := func(line string) string {
		return with(t, "        bridge: br0\n", "        bridge: br0\n      - "+line+"\n")
	}
	tests := []struct{ name, text, path, want string }{
		{"no reflector", with(t, "reflectors:\n  - url: http://192.0.2.10:8080/\n", ""), "reflectors", "needs at least one reflector"},
		{"empty reflectors", with(t, "reflectors:\n  - url: http://192.0.2.10:8080/\n", "reflectors: []\n"), "reflectors", "needs at least one reflector"},
		{"reflector without host", with(t, "http://192.0.2.10:8080/", "http:///x"), "reflectors[0].url", "name its host"},
		{"reflector twice", with(t, "entries:\n", "  - url: http://192.0.2.10:8080/\nentries:\n"), "reflectors[1].url", "is the same as reflectors[0].url"},
		{"probe interval short", minimal + "probe: {interval: 4s, timeout: 1s}\n", "probe.interval", "must be 5s to 1h0m0s, not 4s"},
		{"probe interval negative", minimal + "probe: {interval: -5s}\n", "probe.interval", "must be 5s to 1h0m0s, not -5s"},
		{"probe timeout long", minimal + "probe: {interval: 5m, timeout: 61s}\n", "probe.timeout", "must be 1s to 1m0s"},
		{"probe timeout above interval", minimal + "probe: {timeout: 40s}\n", "probe.timeout", "at most probe.interval (30s)"},
		{"probe threshold 0", minimal + "probe: {failureThreshold: 0}\n", "probe.failureThreshold", "must be 1 to 20, not 0"},
		{"probe threshold 21", minimal + "probe: {successThreshold: 21}\n", "probe.successThreshold", "must be 1 to 20, not 21"},
		{"entry name", with(t, "name: home", "name: Home_1"), "entries[0].name", "must be a DNS label"},
		{"entry name long", with(t, "name: home", "name: "+strings.Repeat("a", 31)), "entries[0].name", "at most 30"},
		{"entry name twice", second("home", "b", ""), "entries[1].name", "is the same as entries[0].name"},
		{"entry type missing", with(t, "    type: kvm2\n", ""), "entries[0].type", "is missing"},
		{"no hosts", with(t, "    hosts:\n      - name: a\n        address: a.example.org\n        bridge: br0\n", ""), "entries[0].hosts", "needs at least one host"},
		{"host name", with(t, "- name: a\n", "- name: A\n"), "entries[0].hosts[0].name", "lower-case letters"},
		{"host name twice", host("{name: a, address: b, bridge: br0}"), "entries[0].hosts[1].name", "is the same as entries[0].hosts[0].name"},
		{"one host twice in an entry", host("{name: b, address: 'A.example.org.:22', bridge: br0, pool: other}"), "entries[0].hosts[1].address", "is the libvirt of entries[0].hosts[0]"},
		// H4 is a live row; this is its part at load.
		{"two entries, one pool", second("other", "A.EXAMPLE.ORG:22", ", socket: /run/libvirt/libvirt-sock"), "entries[1].hosts[0].address", "the libvirt and the pool of entries[0].hosts[0]"},
		{"no private key", with(t, "      privateKeyFile: /keys/id\n", ""), "entries[0].credentials.privateKeyFile", "is missing"},
		{"no known_hosts", with(t, "      knownHostsFile: /keys/known_hosts\n", ""), "entries[0].credentials.knownHostsFile", "is missing"},
		{"tilde", with(t, "/keys/id", "~/.ssh/id"), "entries[0].credentials.privateKeyFile", "~ is not expanded"},
		{"no namespace", minimal + "    allowedNamespaces: []\n", "entries[0].allowedNamespaces", "is an empty list"},
		{"namespace", minimal + "    allowedNamespaces: ['*']\n", "entries[0].allowedNamespaces[0]", "the name of a namespace"},
		{"namespace twice", minimal + "    allowedNamespaces: [a, a]\n", "entries[0].allowedNamespaces[1]", "is the same as"},
		{"image host with scheme", minimal + "    allowURLImages: ['https://example.org']\n", "entries[0].allowURLImages[0]", "without scheme"},
		{"image host wildcard", minimal + "    allowURLImages: ['*.example.org']\n", "entries[0].allowURLImages[0]", "wildcard"},
		{"network without mask", minimal + "    destinations: {allow: [10.0.0.1]}\n", "entries[0].destinations.allow[0]", "add /32"},
		{"network with host bits", minimal + "    destinations: {allow: [10.0.0.1/8]}\n", "entries[0].destinations.allow[0]", "write 10.0.0.0/8"},
		{"network mapped", minimal + "    destinations: {allow: ['::ffff:10.0.0.0/104']}\n", "entries[0].destinations.allow[0]", "CIDR"},
		{"network nonsense", minimal + "    destinations: {allow: [10.0.0.0/33]}\n", "entries[0].destinations.allow[0]", "CIDR"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { refusedOnce(t, tt.text, tt.path, tt.want) })
	}
	t.Run("two entries set apart by pool, or by socket", func(t *testing.T) {
		parse(t, second("other", "a.example.org", ", pool: other"))
		parse(t, second("other", "a.example.org", ", socket: /run/other"))
		parse(t, second("other", "a.example.org:23", ""))
	})
	t.Run("no entries", func(t *testing.T) {
		parse(t, "version: 1\nreflectors: [{url: https://example.org/}]\n")
	})
}
