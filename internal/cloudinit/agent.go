// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Where things stand in the guest; the files in guest/ name the same places.
const (
	agentConfigPath = "/etc/egress-agent/config.json"
	agentPartsPath  = "/usr/local/lib/egress-agent/"
)

//go:embed guest
var guestFiles embed.FS

// ours is what of ours may go into a guest.
type ours struct {
	// agent's configuration, and what installs and starts it; empty without our agent.
	agent []guestFile
	// machineID and guestAgent are scripts.
	machineID, guestAgent []byte
}

type guestFile struct {
	path, mode string
	content    []byte
}

func guestParts(spec SeedSpec) (p ours, err error) {
	read := func(name string) []byte {
		content, readErr := guestFiles.ReadFile("guest/" + name)
		err = errors.Join(err, readErr)
		return content
	}
	p.machineID = bytes.Replace(read("machine-id.sh"), []byte("@UID@"), []byte(machineID(spec.UID)), 1)
	p.guestAgent = read("guest-agent.sh")
	if spec.Software != SoftwareAgent {
		return p, err
	}
	if !json.Valid(spec.AgentConfig) {
		return p, errors.New("the agent's configuration is not JSON")
	}
	p.agent = []guestFile{{agentConfigPath, "0600", spec.AgentConfig}}
	for _, part := range []struct{ name, mode string }{
		{"install.sh", "0700"},
		{"loop.sh", "0700"},
		{"egress-agent.service", "0644"},
		{"egress-agent.openrc", "0755"},
	} {
		p.agent = append(p.agent, guestFile{agentPartsPath + part.name, part.mode, read(part.name)})
	}
	return p, err
}

// machineID is a UID as /etc/machine-id has it; where it is no UUID, it is empty, and nothing is changed in the guest.
func machineID(uid string) string {
	id := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(uid)), "-", "")
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}

type cloudConfig struct {
	WriteFiles []writeFile `yaml:"write_files"`
	RunCmd     []string    `yaml:"runcmd"`
}

// writeFile keeps to what every reader of cloud-config understands: one line of base64.
type writeFile struct {
	Path        string `yaml:"path"`
	Permissions string `yaml:"permissions"`
	Encoding    string `yaml:"encoding"`
	Content     string `yaml:"content"`
}

// agentUserData puts configuration, scripts and service files into the guest, and runs the scripts once. From then on the guest's service
// manager starts the agent at each boot.
func agentUserData(p ours) ([]byte, error) {
	document := cloudConfig{RunCmd: []string{"sh " + agentPartsPath + "machine-id.sh", "sh " + agentPartsPath + "install.sh"}}
	for _, file := range append(p.agent, guestFile{agentPartsPath + "machine-id.sh", "0700", p.machineID}) {
		document.WriteFiles = append(document.WriteFiles, writeFile{
			Path: file.path, Permissions: file.mode, Encoding: "b64", Content: base64.StdEncoding.EncodeToString(file.content),
		})
	}
	body, err := yaml.Marshal(document)
	if err != nil {
		return nil, err
	}
	return append([]byte(cloudConfigHeader+"\n"), body...), nil
}

// agentScript does the same as a shell script.
func agentScript(files []guestFile) []byte {
	var out bytes.Buffer
	out.WriteString(`#!/bin/sh
# Puts the files of the proxy agent in place, and installs it.
put() { # PATH MODE, content on standard input
	mkdir -p "${1%/*}" && (umask 077 && cat >"$1.new") && chmod "$2" "$1.new" && mv -f "$1.new" "$1" || exit 1
}
`)
	for _, file := range files {
		content := bytes.TrimSuffix(file.content, []byte("\n"))
		end := "END-OF-" + strings.ToUpper(file.path[strings.LastIndex(file.path, "/")+1:])
		for bytes.Contains(content, []byte(end)) {
			end += "-"
		}
		_, _ = fmt.Fprintf(&out, "put %s %s <<'%s'\n%s\n%s\n", file.path, file.mode, end, content, end)
	}
	out.WriteString("exec sh " + agentPartsPath + "install.sh\n")
	return out.Bytes()
}
