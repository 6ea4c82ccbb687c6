// SPDX-License-Identifier: Apache-2.0

// Package cloudinit builds NoCloud seeds: the small volume from which cloud-init in a guest learns who it is and what to do.
//
// A seed is built in memory; no part of it touches this machine's disk, for it holds secrets.
package cloudinit

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/egress-proxies/egress-proxies-operator/internal/iso9660"
)

const (
	// SeedLabel is the volume label by which cloud-init knows a seed.
	SeedLabel = "cidata"
	// AgentLabel is the label of the agent volume, by which the guest finds it.
	AgentLabel = "EGRESS_AGENT"
	// AgentFile is the agent's name on the agent volume.
	AgentFile = "egress-agent"
	// MaxSeedBytes bounds a seed: it is smaller.
	MaxSeedBytes = 1 << 20
	// MaxUserDataBytes bounds a Proxy's own user data.
	MaxUserDataBytes = 512 << 10
	// MaxEntryDataBytes bounds what an entry gives every guest: its user data and its vendor data, each.
	MaxEntryDataBytes = 64 << 10
)

// Software says what serves in the guest.
type Software string

// What can serve.
const (
	// SoftwareAgent installs the agent from its volume, and starts it.
	SoftwareAgent Software = "Agent"
	// SoftwareCloudInit passes the user's own data on.
	SoftwareCloudInit Software = "CloudInit"
	// SoftwareNone leaves the image as it is.
	SoftwareNone Software = "None"
)

// SeedSpec is what a seed says.
type SeedSpec struct {
	// UID of the Proxy: the guest's instance-id, so that a guest made anew for the same Proxy on a fresh disk starts afresh, and a
	// restart does not.
	UID string
	// Name of the Proxy: the guest's host name is made from it.
	Name string
	// Software that serves; AgentConfig goes with Agent, and UserData with Agent or CloudInit.
	Software Software
	// AgentConfig is the content of the agent's configuration file.
	AgentConfig []byte
	// UserData is the Proxy's own; see CheckUserData.
	UserData []byte
	// EntryUserData and VendorData are for every guest of an entry, but those with SoftwareNone; left out when empty. See CheckUserData.
	EntryUserData, VendorData []byte
	// InstallGuestAgent has the guest install and start qemu-guest-agent, unless it has SoftwareNone.
	InstallGuestAgent bool
	// Network is how the guest's NIC is set up; the image's own way, which is DHCP as a rule, when nil.
	Network *Network
}

// Seed is the volume's content. Nothing but the spec can make it fail, so every error is for whoever wrote the spec; none quotes a secret.
func Seed(spec SeedSpec) ([]byte, error) {
	metaData, err := metaData(spec)
	if err != nil {
		return nil, err
	}
	userData, err := userData(spec)
	if err != nil {
		return nil, err
	}
	files := []iso9660.File{{Name: "meta-data", Mode: 0o644, Data: metaData}, {Name: "user-data", Mode: 0o600, Data: userData}}
	if len(spec.VendorData) > 0 && spec.Software != SoftwareNone {
		if err := CheckUserData(spec.VendorData); err != nil {
			return nil, fmt.Errorf("the entry's vendorData: %w", err)
		}
		files = append(files, iso9660.File{Name: "vendor-data", Mode: 0o600, Data: spec.VendorData})
	}
	if spec.Network != nil {
		networkConfig, err := spec.Network.config()
		if err != nil {
			return nil, err
		}
		files = append(files, iso9660.File{Name: "network-config", Mode: 0o644, Data: networkConfig})
	}
	image, err := iso9660.New(SeedLabel, files)
	if err != nil {
		return nil, err
	}
	if image.Size() >= MaxSeedBytes {
		return nil, fmt.Errorf("the seed would have %d bytes: it must stay under %d; shorten the user data, or let it fetch the rest", image.Size(), MaxSeedBytes)
	}
	return iso9660.Write(SeedLabel, files)
}

// AgentVolume is the volume that holds the agent, the same for every guest of one architecture; agent is kept by reference.
func AgentVolume(agent []byte) (*iso9660.Image, error) {
	return iso9660.New(AgentLabel, []iso9660.File{{Name: AgentFile, Mode: 0o755, Data: agent}})
}

func metaData(spec SeedSpec) ([]byte, error) {
	uid := strings.ToLower(strings.TrimSpace(spec.UID))
	if uid == "" {
		return nil, fmt.Errorf("seed of Proxy %q: no UID", spec.Name)
	}
	return yaml.Marshal(struct {
		InstanceID string `yaml:"instance-id"`
		Hostname   string `yaml:"local-hostname"`
	}{uid, Hostname(spec.Name)})
}

func userData(spec SeedSpec) ([]byte, error) {
	if spec.Software != SoftwareAgent && len(spec.AgentConfig) > 0 {
		return nil, fmt.Errorf("software %q takes no agent configuration", spec.Software)
	}
	switch spec.Software {
	case SoftwareAgent, SoftwareCloudInit:
	case SoftwareNone:
		if len(spec.UserData) > 0 {
			return nil, fmt.Errorf("software %q takes no user data: it would be ignored", spec.Software)
		}
		return []byte(cloudConfigHeader + "\n{}\n"), nil
	default:
		return nil, fmt.Errorf("software %q: must be %s, %s or %s", spec.Software, SoftwareAgent, SoftwareCloudInit, SoftwareNone)
	}
	if spec.Software == SoftwareCloudInit || len(spec.UserData) > 0 {
		if err := CheckUserData(spec.UserData); err != nil {
			return nil, fmt.Errorf("user data: %w", err)
		}
	}
	if len(spec.EntryUserData) > 0 {
		if err := CheckUserData(spec.EntryUserData); err != nil {
			return nil, fmt.Errorf("the entry's userData: %w", err)
		}
	}
	return together(spec)
}

// together is all that the guest is given, in one piece. The agent by itself is a cloud-config, which is the easiest to look at. Beside
// anything else it is a script, as is all of ours: cloud-init drops a key of vendor data that user data has too, and of two parts with one key
// the first, so that one of the two runcmd would never run.
func together(spec SeedSpec) ([]byte, error) {
	files, err := guestParts(spec)
	if err != nil {
		return nil, err
	}
	if spec.Software == SoftwareAgent && len(spec.UserData)+len(spec.EntryUserData)+len(spec.VendorData) == 0 && !spec.InstallGuestAgent {
		return agentUserData(files)
	}
	parts := []leaf{script("10-egress-machine-id", files.machineID)}
	if spec.Software == SoftwareAgent {
		parts = append(parts, script("20-egress-agent", agentScript(files.agent)))
	}
	if spec.InstallGuestAgent {
		parts = append(parts, script("30-egress-guest-agent", files.guestAgent))
	}
	own, err := leaves(spec.UserData)
	if err != nil {
		return nil, err
	}
	entry, err := leaves(spec.EntryUserData)
	if err != nil {
		return nil, err
	}
	if len(spec.UserData) > 0 {
		parts = append(parts, own...)
	}
	if len(spec.EntryUserData) > 0 {
		parts = append(parts, merged(entry)...)
	}
	return combine(parts), nil
}

// Hostname makes one valid DNS label, of 63 characters at most, of any name; "proxy" where nothing is left.
func Hostname(name string) string {
	label := bytes.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, []byte(name))
	label = bytes.TrimLeft(label, "-")
	if len(label) > 63 {
		label = label[:63]
	}
	label = bytes.TrimRight(label, "-")
	if len(label) == 0 {
		return "proxy"
	}
	return string(label)
}
