// SPDX-License-Identifier: Apache-2.0

//go:build live

package cloudinit

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestSeedsAreWhatCloudInitTakes asks Debian's own cloud-init: its schema command, its mail parser with its mergers, and its renderers of
// network configurations.
func TestSeedsAreWhatCloudInitTakes(t *testing.T) {
	tr := grow(t, trees(t).Cloud, "")
	valid := func(t *testing.T, content string) {
		t.Helper()
		tr.write("/tmp/part", []byte(content), 0o600)
		if out, err := tr.try("cloud-init", "schema", "--config-file", "/tmp/part"); err != nil || !strings.Contains(out, "Valid cloud-config") {
			t.Errorf("cloud-init schema: %v\n%s", err, out)
		}
	}
	t.Run("cloud-init schema refuses what is wrong", func(t *testing.T) {
		tr.write("/tmp/part", []byte("#cloud-config\nruncmd: 7\n"), 0o600)
		if out, err := tr.try("cloud-init", "schema", "--config-file", "/tmp/part"); err == nil {
			t.Errorf("accepted: %s", out)
		}
	})
	t.Run("cloud-init schema takes the seed of the agent", func(t *testing.T) {
		valid(t, contents(t, agentSpec())["user-data"])
	})
	t.Run("cloud-init schema takes the seed of software None", func(t *testing.T) {
		valid(t, contents(t, SeedSpec{UID: "u", Name: "n", Software: SoftwareNone})["user-data"])
	})
	together := agentSpec()
	together.InstallGuestAgent = true
	together.UserData = []byte("#cloud-config\nruncmd: [own]\nntp: {enabled: false}\nfinal_message: own\n")
	together.EntryUserData = []byte("#cloud-config\nruncmd: [entry]\npackages: [entry]\nfinal_message: entry Grüße\n")
	t.Run("cloud-init schema takes each cloud-config of a seed with several parts", func(t *testing.T) {
		seen := 0
		for _, part := range partsOf(t, contents(t, together)["user-data"]) {
			if part.Type == typeCloudConfig {
				valid(t, part.Content)
				seen++
			}
		}
		if seen != 2 {
			t.Errorf("%d cloud-configs, want 2", seen)
		}
	})
	t.Run("cloud-init reads every part, and joins what two of them say", func(t *testing.T) {
		tr.write("/tmp/user-data", []byte(contents(t, together)["user-data"]), 0o600)
		tr.write("/tmp/parse.py", []byte(parseAsCloudInit), 0o600)
		out := tr.run("python3", "/tmp/parse.py", "/tmp/user-data")
		for _, want := range []string{
			"part text/x-shellscript 10-egress-machine-id", "part text/x-shellscript 20-egress-agent", "part text/x-shellscript 30-egress-guest-agent",
			"script 20-egress-agent ok", "runcmd: ['entry', 'own']", "packages: ['entry']", "ntp: {'enabled': False}", "final_message: own",
		} {
			if !strings.Contains(out, want+"\n") {
				t.Errorf("lacks %q:\n%s", want, out)
			}
		}
	})
	t.Run("cloud-init renders the network configuration for every kind of guest", func(t *testing.T) { renders(t, tr) })
}

func renders(t *testing.T, tr *tree) {
	spec := agentSpec()
	spec.Network = &Network{
		MAC:         "02:00:00:00:00:01",
		Addresses:   []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
		Gateways:    []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")},
		Nameservers: []netip.Addr{netip.MustParseAddr("198.51.100.2")},
	}
	tr.write("/tmp/network", []byte(contents(t, spec)["network-config"]), 0o600)
	for kind, distro := range map[string]string{"eni": "debian", "networkd": "debian", "netplan": "ubuntu", "sysconfig": "rhel"} {
		at := "/tmp/rendered-" + kind
		out, err := tr.try("cloud-init", "devel", "net-convert", "--network-data", "/tmp/network", "--kind", "yaml", "--directory", at,
			"--distro", distro, "--output-kind", kind, "--mac", "eth0,02:00:00:00:00:01")
		if err != nil {
			t.Errorf("%s: %v\n%s", kind, err, out)
			continue
		}
		rendered := tr.run("sh", "-c", fmt.Sprintf("find %s -type f -exec cat {} +", at))
		for _, want := range []string{"198.51.100.7", "2001:db8::7", "198.51.100.1", "2001:db8::1", "198.51.100.2"} {
			if !strings.Contains(rendered, want) {
				t.Errorf("%s lacks %s:\n%s", kind, want, rendered)
			}
		}
	}
}

// parseAsCloudInit hands user data to the code that cloud-init itself runs over it.
const parseAsCloudInit = `
import sys, tempfile
from cloudinit import helpers, user_data, util
from cloudinit.handlers import CONTENT_START, cloud_config

work = tempfile.mkdtemp()
paths = helpers.Paths({"cloud_dir": work, "run_dir": work, "templates_dir": work})
message = user_data.UserDataProcessor(paths).process(open(sys.argv[1], "rb").read())
config = cloud_config.CloudConfigPartHandler(paths)
config.handle_part(None, CONTENT_START, None, None, "always", {})
for part in message.walk():
    if user_data.is_skippable(part):
        continue
    payload = util.fully_decoded_payload(part)
    print("part", part.get_content_type(), part.get_filename())
    if part.get_content_type() == "text/cloud-config":
        config.handle_part(None, part.get_content_type(), part.get_filename(), payload, "always", part)
    else:
        print("script", part.get_filename(), "ok" if payload.startswith("#!/bin/sh\n") else "broken")
for key in sorted(config.cloud_buf):
    print("%s: %s" % (key, config.cloud_buf[key]))
`
