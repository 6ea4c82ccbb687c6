// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLocalHost(t *testing.T) {
	const address = "        address: a.example.org\n"
	credentials := "    credentials:\n      privateKeyFile: /keys/id\n      knownHostsFile: /keys/known_hosts\n"
	local := with(t, address, "        local: true\n")
	t.Run("it needs neither address nor credentials", func(t *testing.T) {
		h := parse(t, strings.Replace(local, credentials, "", 1)).Entries[0].Hosts[0]
		if !h.Local || h.DialAddress() != "" || h.Socket != DefaultSocket {
			t.Errorf("%+v", h)
		}
	})
	t.Run("credentials that it does not need are checked all the same", func(t *testing.T) {
		refusedOnce(t, strings.Replace(local, "/keys/id", "~/id", 1), "entries[0].credentials.privateKeyFile", "~ is not expanded")
	})
	t.Run("local: false changes nothing", func(t *testing.T) { parse(t, with(t, address, address+"        local: false\n")) })
	t.Run("one beside a host that is dialed needs them", func(t *testing.T) {
		text := strings.Replace(with(t, address, address+"        network: n\n      - name: b\n        local: true\n"), "        network: n\n", "        bridge: br1\n", 1)
		text = strings.Replace(text, credentials, "", 1)
		for _, key := range []string{"privateKeyFile", "knownHostsFile"} {
			if !strings.Contains(refused(t, text).Error(), "credentials."+key+": is missing") {
				t.Errorf("%s is not asked for: %v", key, refused(t, text))
			}
		}
	})
	for key, line := range map[string]string{
		"address": "address: kvm", "user": "user: root", "hostKeyAlias": "hostKeyAlias: kvm", "jump": "jump: [{address: bastion}]",
	} {
		t.Run("refused beside "+key, func(t *testing.T) {
			refusedOnce(t, with(t, address, "        local: true\n        "+line+"\n"), "entries[0].hosts[0]."+key, "stands beside local: true")
		})
	}
	t.Run("twice", func(t *testing.T) {
		text := with(t, address+"        bridge: br0\n", "        local: true\n        bridge: br0\n      - {name: b, local: true, bridge: br0, pool: other}\n")
		refusedOnce(t, text, "entries[0].hosts[1].local", "is the libvirt of entries[0].hosts[0]")
	})
}

func TestJumpHosts(t *testing.T) {
	const bridge = "        bridge: br0\n"
	jump := func(list string) string { return with(t, bridge, bridge+"        jump: "+list+"\n") }
	t.Run("defaults", func(t *testing.T) {
		e := parse(t, jump("[{address: Bastion.Example.org}, {address: '[2001:db8::1]:2222', user: hop, hostKeyAlias: inner, credentials: {privateKeyFile: /keys/hop, knownHostsFile: /keys/hops}}]")).Entries[0]
		first, second := e.Hosts[0].Jump[0], e.Hosts[0].Jump[1]
		if first.DialAddress() != "bastion.example.org:22" || first.User != "root" || first.CredentialsOr(e.Credentials) != e.Credentials {
			t.Errorf("%+v", first)
		}
		if second.DialAddress() != "[2001:db8::1]:2222" || second.User != "hop" || second.CredentialsOr(e.Credentials).PrivateKeyFile != "/keys/hop" {
			t.Errorf("%+v", second)
		}
	})
	for name, c := range map[string]struct{ list, path, want string }{
		"none":                     {"[]", "", "is an empty list"},
		"too many":                 {"[{address: a1}, {address: a2}, {address: a3}, {address: a4}, {address: a5}]", "", "at most 4 jump hosts, not 5"},
		"one twice":                {"[{address: a1}, {address: 'A1:22'}]", "[1].address", "is the same as"},
		"no address":               {"[{user: hop}]", "[0].address", "is missing"},
		"a user in the address":    {"[{address: hop@bastion}]", "[0].address", "goes into `user:`"},
		"a user with a password":   {"[{address: a1, user: 'hop:x'}]", "[0].user", "must be the name of a user"},
		"an alias with a port":     {"[{address: a1, hostKeyAlias: 'b:1'}]", "[0].hostKeyAlias", "without port"},
		"credentials of half":      {"[{address: a1, credentials: {privateKeyFile: /k}}]", "[0].credentials.knownHostsFile", "is missing"},
		"an unknown key of a jump": {"[{adress: a1}]", "[0].adress", `did you mean "address"?`},
		"M16: a bad port":          {"[{address: 'a1:0'}]", "[0].address", "a port of 1 to 65535"},
	} {
		t.Run(name, func(t *testing.T) { refusedOnce(t, jump(c.list), "entries[0].hosts[0].jump"+c.path, c.want) })
	}
	t.Run("one address by two ways is two hosts, as far as the file can tell", func(t *testing.T) {
		parse(t, with(t, bridge, bridge+"        jump: [{address: a1}]\n      - {name: b, address: a.example.org, bridge: br0, jump: [{address: a2}]}\n"))
	})
	t.Run("their files are looked for too", func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{"id", "known_hosts"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text := strings.ReplaceAll(jump("[{address: a1, credentials: {privateKeyFile: missing, knownHostsFile: known_hosts}}]"), "/keys/", dir+"/")
		f, err := Parse([]byte(text), filepath.Join(dir, "providers.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var errs Errors
		if err := CheckFiles(f); !errors.As(err, &errs) || len(errs) != 1 || errs[0].Path != "entries[0].hosts[0].jump[0].credentials.privateKeyFile" {
			t.Errorf("got %v", err)
		}
	})
}

func TestAgent(t *testing.T) {
	const key = "      privateKeyFile: /keys/id\n"
	if c := parse(t, with(t, key, "      agent: true\n")).Entries[0].Credentials; !c.Agent || c.PrivateKeyFile != "" {
		t.Errorf("%+v", c)
	}
	refusedOnce(t, with(t, key, key+"      agent: true\n"), "entries[0].credentials.privateKeyFile", "stands beside agent: true")
	refusedOnce(t, with(t, key, "      passphraseFile: /keys/p\n      agent: true\n"), "entries[0].credentials.passphraseFile", "stands beside agent: true")
	refusedOnce(t, with(t, key, "      agent: false\n"), "entries[0].credentials.privateKeyFile", "is missing")
}

// TestLinksPage: what docs/links.md shows is taken as it stands there.
func TestLinksPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/links.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "version: 1\nreflectors: [{url: https://example.org/}]\nentries:\n  - name: one\n    type: kvm2\n" +
		"    images: {a: {url: https://example.org/a}}\n"
	shown := 0
	for _, part := range strings.Split(string(page), "```yaml\n")[1:] {
		part, _, _ = strings.Cut(part, "```")
		if !strings.Contains(part, "\ncredentials:") && !strings.Contains(part, "local: true") {
			part += "credentials: {privateKeyFile: k, knownHostsFile: h}\n"
		}
		parse(t, head+"    "+strings.ReplaceAll(strings.TrimSpace(part), "\n", "\n    ")+"\n")
		shown++
	}
	if shown < 4 {
		t.Errorf("%d examples: the page is another", shown)
	}
}
