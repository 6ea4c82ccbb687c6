// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const agentConfig = `{"version":1,"listenPort":3128,"credentials":[{"username":"u","password":"a: 'b' \"c\" #d\n%e"}]}`

func agentSpec() SeedSpec {
	return SeedSpec{UID: "3F2504E0-4f89-11d3-9a0c-0305e82c3301", Name: "exit-1", Software: SoftwareAgent, AgentConfig: []byte(agentConfig)}
}

func TestSeedOfAgent(t *testing.T) {
	files := contents(t, agentSpec())
	if diff := cmp.Diff("instance-id: 3f2504e0-4f89-11d3-9a0c-0305e82c3301\nlocal-hostname: exit-1\n", files["meta-data"]); diff != "" {
		t.Errorf("meta-data:\n%s", diff)
	}
	if !strings.HasPrefix(files["user-data"], "#cloud-config\n") {
		t.Fatalf("user-data starts with %.40q", files["user-data"])
	}
	var document cloudConfig
	if err := yaml.Unmarshal([]byte(files["user-data"]), &document); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range document.WriteFiles {
		content, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil || f.Encoding != "b64" {
			t.Errorf("%s: encoding %q, %v", f.Path, f.Encoding, err)
		}
		got[f.Path+" "+f.Permissions] = string(content)
	}
	want := map[string]string{"/etc/egress-agent/config.json 0600": agentConfig}
	for name, permissions := range map[string]string{"install.sh": "0700", "loop.sh": "0700", "egress-agent.service": "0644", "egress-agent.openrc": "0755", "machine-id.sh": "0700"} {
		content, err := os.ReadFile("guest/" + name)
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.Replace(content, []byte("@UID@"), []byte("3f2504e04f8911d39a0c0305e82c3301"), 1)
		want["/usr/local/lib/egress-agent/"+name+" "+permissions] = string(content)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("write_files:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"sh /usr/local/lib/egress-agent/machine-id.sh", "sh /usr/local/lib/egress-agent/install.sh"}, document.RunCmd); diff != "" {
		t.Errorf("runcmd:\n%s", diff)
	}
}

// The tiny test guest, and people with a text editor, want each value on its own line.
func TestUserDataOfAgentHasOneLineAValue(t *testing.T) {
	for line := range strings.Lines(contents(t, agentSpec())["user-data"]) {
		if trimmed := strings.TrimLeft(line, " -"); !strings.HasPrefix(line, "#") && !strings.Contains(trimmed, ": ") && !strings.HasSuffix(trimmed, ":\n") && !strings.HasPrefix(trimmed, "sh ") {
			t.Errorf("line %.60q is not `key: value`", line)
		}
	}
}

func TestSeedOfOtherSoftware(t *testing.T) {
	for name, test := range map[string]struct {
		spec SeedSpec
		want map[string]string
	}{
		"None": {
			SeedSpec{UID: "u", Name: "n", Software: SoftwareNone},
			map[string]string{"meta-data": "instance-id: u\nlocal-hostname: \"n\"\n", "user-data": "#cloud-config\n{}\n"},
		},
		"None leaves the guest alone, whatever the entry says": {
			SeedSpec{
				UID: " U ", Name: "a.b", Software: SoftwareNone, InstallGuestAgent: true,
				EntryUserData: []byte("#cloud-config\na: 1\n"), VendorData: []byte("#cloud-config\na: 1\n"),
			},
			map[string]string{"meta-data": "instance-id: u\nlocal-hostname: a-b\n", "user-data": "#cloud-config\n{}\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, contents(t, test.spec)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSeedIsSmallAndTheSameEachTime(t *testing.T) {
	first, err := Seed(agentSpec())
	if err != nil {
		t.Fatal(err)
	}
	second, err := Seed(agentSpec())
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("the same spec gave another seed (%v)", err)
	}
	if len(first) > 128<<10 {
		t.Errorf("%d bytes: the agent's seed should stay well under the bound", len(first))
	}
}

func TestSeedTouchesNoDisk(t *testing.T) {
	t.Run("M8: the seed is built in memory, with no place for temporary files", func(t *testing.T) {
		work := t.TempDir()
		t.Setenv("TMPDIR", "/nonexistent")
		t.Chdir(work)
		if _, err := Seed(agentSpec()); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(work)
		if err != nil || len(left) > 0 {
			t.Errorf("files appeared: %v, %v", left, err)
		}
	})
}

func TestSeedRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*SeedSpec)
		says   string
	}{
		"no UID":                   {func(s *SeedSpec) { s.UID = " " }, "no UID"},
		"unknown software":         {func(s *SeedSpec) { s.Software, s.AgentConfig = "Squid", nil }, `"Squid"`},
		"agent config is not JSON": {func(s *SeedSpec) { s.AgentConfig = []byte("secret") }, "not JSON"},
		"agent with bad user data": {func(s *SeedSpec) { s.UserData = []byte("secret") }, "user data: its first line"},
		"none with user data": {func(s *SeedSpec) {
			s.Software, s.AgentConfig, s.UserData = SoftwareNone, nil, []byte("#!/bin/sh\n")
		}, "takes no user data"},
		"none with agent config":     {func(s *SeedSpec) { s.Software = SoftwareNone }, "takes no agent configuration"},
		"vendor data ignored":        {func(s *SeedSpec) { s.VendorData = []byte("hello") }, "the entry's vendorData: "},
		"entry's user data ignored":  {func(s *SeedSpec) { s.EntryUserData = []byte("hello") }, "the entry's userData: "},
		"network without an address": {func(s *SeedSpec) { s.Network = &Network{MAC: "02:00:00:00:00:01"} }, "an address"},
		"user data missing":          {func(s *SeedSpec) { s.Software, s.AgentConfig = SoftwareCloudInit, nil }, "user data: is empty"},
		"too large": {func(s *SeedSpec) {
			s.AgentConfig = []byte(`"` + strings.Repeat("x", MaxSeedBytes) + `"`)
		}, "must stay under 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := agentSpec()
			test.change(&spec)
			_, err := Seed(spec)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("error %v, want one that says %q", err, test.says)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes a secret: %v", err)
			}
		})
	}
}

func TestHostname(t *testing.T) {
	for name, want := range map[string]string{
		"exit-1":                          "exit-1",
		"a.b.c":                           "a-b-c",
		"UPPER_case":                      "upper-case",
		"-x-":                             "x",
		"":                                "proxy",
		"...":                             "proxy",
		"größe":                           "gr--e",
		strings.Repeat("a", 253):          strings.Repeat("a", 63),
		strings.Repeat("b.", 120):         strings.TrimRight(strings.Repeat("b-", 32)[:63], "-"),
		strings.Repeat("c", 62) + ".tail": strings.Repeat("c", 62),
	} {
		if got := Hostname(name); got != want {
			t.Errorf("Hostname(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestAgentVolume(t *testing.T) {
	volume, err := AgentVolume(bytes.Repeat([]byte("x"), 10_000))
	if err != nil {
		t.Fatal(err)
	}
	out := new(bytes.Buffer)
	if _, err := out.ReadFrom(volume.Reader()); err != nil || int64(out.Len()) != volume.Size() {
		t.Fatalf("%d bytes, %v; want %d", out.Len(), err, volume.Size())
	}
	if label := strings.TrimRight(string(out.Bytes()[16*2048+40:][:32]), " "); label != "EGRESS_AGENT" {
		t.Errorf("label %q", label)
	}
	if files := filesOf(t, out.Bytes()); len(files["egress-agent"]) != 10_000 {
		t.Errorf("the volume holds %d files, agent of %d bytes", len(files), len(files["egress-agent"]))
	}
}

func contents(t *testing.T, spec SeedSpec) map[string]string {
	t.Helper()
	seed, err := Seed(spec)
	if err != nil {
		t.Fatal(err)
	}
	return filesOf(t, seed)
}

// filesOf reads a small volume back: one directory sector, true names from Rock Ridge's NM.
func filesOf(t *testing.T, volume []byte) map[string]string {
	t.Helper()
	directory := volume[binary.LittleEndian.Uint32(volume[16*2048+156+2:])*2048:][:2048]
	files := map[string]string{}
	for ; directory[0] > 0; directory = directory[directory[0]:] {
		record := directory[:directory[0]]
		start, length := binary.LittleEndian.Uint32(record[2:]), binary.LittleEndian.Uint32(record[10:])
		if at := bytes.Index(record, []byte("NM")); at > 0 {
			files[string(record[at+5:at+int(record[at+2])])] = string(volume[start*2048:][:length])
		}
	}
	return files
}
