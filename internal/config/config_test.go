// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// minimal is the shortest useful file; its lines are what tests replace.
const minimal = `version: 1
reflectors:
  - url: http://192.0.2.10:8080/
entries:
  - name: home
    type: kvm2
    hosts:
      - name: a
        address: a.example.org
        bridge: br0
    credentials:
      privateKeyFile: /keys/id
      knownHostsFile: /keys/known_hosts
    images:
      debian:
        url: https://example.org/debian.qcow2
`

// with is minimal with one text replaced.
func with(t *testing.T, old, replacement string) string {
	t.Helper()
	if strings.Count(minimal, old) != 1 {
		t.Fatalf("%q is not in the minimal file once", old)
	}
	return strings.Replace(minimal, old, replacement, 1)
}

func parse(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse([]byte(text), "/etc/egress/providers.yaml")
	if err != nil {
		t.Fatalf("refused:\n%v", err)
	}
	return f
}

// refused returns the errors of a file that must have some.
func refused(t *testing.T, text string) Errors {
	t.Helper()
	f, err := Parse([]byte(text), "providers.yaml")
	var errs Errors
	if !errors.As(err, &errs) || len(errs) == 0 || f != nil {
		t.Fatalf("Parse gave %v, %v; want Errors", f, err)
	}
	return errs
}

// refusedOnce wants exactly one error, at path, whose message holds want.
func refusedOnce(t *testing.T, text, path, want string) {
	t.Helper()
	errs := refused(t, text)
	if len(errs) != 1 || errs[0].Path != path || !strings.Contains(errs[0].Message, want) || errs[0].Line == 0 {
		t.Errorf("errors:\n%v\nwant one, at %s, with %q and a line", errs, path, want)
	}
}

func TestDefaults(t *testing.T) {
	got := parse(t, minimal)
	want := &File{
		Version:       1,
		Reflectors:    []Reflector{{URL: "http://192.0.2.10:8080/"}},
		Probe:         Probe{Interval: Duration(30 * time.Second), Timeout: Duration(5 * time.Second), FailureThreshold: 3, SuccessThreshold: 1},
		ImageSpoolGiB: new(int64(20)),
		Entries: []Entry{{
			Name: "home", Type: "kvm2",
			Hosts: []Host{{
				Name: "a", Address: "a.example.org", User: "root", Socket: "/var/run/libvirt/libvirt-sock",
				Pool: "default", Bridge: "br0", Schedulable: new(true),
			}},
			Credentials:    SSHCredentials{PrivateKeyFile: "/keys/id", KnownHostsFile: "/keys/known_hosts"},
			Images:         map[string]Image{"debian": {URL: "https://example.org/debian.qcow2", DigestOf: "served", Arch: "x86_64", Firmware: "bios"}},
			DefaultImage:   "debian",
			Defaults:       Sizes{VCPUs: 1, MemoryMiB: 512, DiskSizeGb: 4},
			PoolReserveGiB: new(int64(2)),
			MaxImageBytes:  16 << 30,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("minimal file (-want +got):\n%s", diff)
	}
}

func TestSampleFile(t *testing.T) {
	f, err := Load("../../config/samples/providers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e, ok := f.Entry("kvm2-home")
	if !ok {
		t.Fatalf("entries are %v", f.EntryNames())
	}
	h, ok := e.Host("rack2")
	if !ok || h.DialAddress() != "[2001:db8::22]:2222" || h.IsSchedulable() {
		t.Errorf("host rack2 is %+v", h)
	}
	key, err := filepath.Abs("../../config/samples/keys/id_ed25519")
	if err != nil {
		t.Fatal(err)
	}
	if e.Credentials.PrivateKeyFile != key {
		t.Errorf("private key is %s, want %s", e.Credentials.PrivateKeyFile, key)
	}
}

func TestFiveMistakesAtOnce(t *testing.T) {
	errs := refused(t, `version: 1
reflectors:
  - url: ftp://192.0.2.10/
entries:
  - name: home
    type: kvm3
    hosts:
      - name: a
        adress: a.example.org
        bridge: br0
    credentials:
      privateKeyFile: /keys/id
      knownHostsFile: /keys/known_hosts
    images:
      debian:
        url: https://example.org/debian.qcow2
    defaultImage: debain
    defaults:
      vcpus: 0
`)
	want := `providers.yaml:3: reflectors[0].url: must be a URL that starts with http:// or https://
providers.yaml:6: entries[0].type: must be kvm2 or local or simulated, not "kvm3"; did you mean "kvm2"?
providers.yaml:9: entries[0].hosts[0].adress: unknown key; did you mean "address"? (known here: name, address, local, user, hostKeyAlias, jump, socket, pool, bridge, network, maxVCPUs, schedulable)
providers.yaml:17: entries[0].defaultImage: is no key of images: "debain"; did you mean "debian"? (there is: "debian")
providers.yaml:19: entries[0].defaults.vcpus: must be 1 to 64, not 0`
	if diff := cmp.Diff(want, errs.Error()); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if errs[2].Line != 9 || errs[2].Column != 9 {
		t.Errorf("the unknown key is said to be at %d:%d", errs[2].Line, errs[2].Column)
	}
	var one Error
	if !errors.As(error(errs), &one) {
		t.Error("errors.As finds no Error in Errors")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "providers.yaml")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	text := with(t, "privateKeyFile: /keys/id", "privateKeyFile: keys/../id")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.Entries[0].Credentials.PrivateKeyFile, filepath.Join(dir, "id"); got != want {
		t.Errorf("private key is %s, want %s", got, want)
	}
	if err := os.WriteFile(path, []byte(minimal+strings.Repeat("# filler\n", MaxFileBytes/9)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("a huge file: %v", err)
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f := parse(t, minimal)
	e := &f.Entries[0]
	e.Credentials = SSHCredentials{PrivateKeyFile: write("id", "key"), KnownHostsFile: write("known_hosts", "hosts")}
	e.Images["debian"] = Image{URL: "file://" + write("disk", "disk")}
	if err := CheckFiles(f); err != nil {
		t.Errorf("all files are there: %v", err)
	}
	e.Credentials = SSHCredentials{PrivateKeyFile: dir + "/none", PassphraseFile: dir, KnownHostsFile: write("empty", "")}
	e.Images["debian"] = Image{URL: "file://" + dir + "/no.qcow2"}
	want := `entries[0].credentials.privateKeyFile: DIR/none does not exist
entries[0].credentials.passphraseFile: DIR is not a file
entries[0].credentials.knownHostsFile: DIR/empty is empty
entries[0].images.debian.url: DIR/no.qcow2 does not exist`
	err := CheckFiles(f)
	if err == nil {
		t.Fatal("no file is there, and no error")
	}
	if diff := cmp.Diff(want, strings.ReplaceAll(err.Error(), dir, "DIR")); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestLookup(t *testing.T) {
	f := parse(t, with(t, "    images:\n", "    allowedNamespaces: [one, two]\n    destinations: {allow: [10.0.0.0/8]}\n    defaultImage: debian\n    images:\n      alpine: {url: https://example.org/alpine}\n"))
	e, ok := f.Entry("home")
	if !ok {
		t.Fatal("no entry home")
	}
	if _, ok := f.Entry("other"); ok {
		t.Error("found an entry that is not there")
	}
	if _, ok := e.Host("b"); ok {
		t.Error("found a host that is not there")
	}
	if !e.AllowsNamespace("two") || e.AllowsNamespace("three") {
		t.Error("allowedNamespaces are not obeyed")
	}
	got := [][]string{f.EntryNames(), e.HostNames(), e.ImageNames()}
	if diff := cmp.Diff([][]string{{"home"}, {"a"}, {"alpine", "debian"}}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if p := e.Destinations.Prefixes(); len(p) != 1 || p[0].String() != "10.0.0.0/8" {
		t.Errorf("prefixes are %v", p)
	}
}
