// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"

	"go.yaml.in/yaml/v3"
)

// Where things stand in the guest; the files in guest/ name the same places.
const (
	agentConfigPath = "/etc/egress-agent/config.json"
	agentPartsPath  = "/usr/local/lib/egress-agent/"
)

//go:embed guest
var guestFiles embed.FS

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

// agentUserData puts configuration, script and service files into the guest, and runs the script once. From then on the guest's service
// manager starts the agent at each boot.
func agentUserData(config []byte) ([]byte, error) {
	if !json.Valid(config) {
		return nil, errors.New("the agent's configuration is not JSON")
	}
	document := cloudConfig{
		WriteFiles: []writeFile{encoded(agentConfigPath, "0600", config)},
		RunCmd:     []string{"sh " + agentPartsPath + "install.sh"},
	}
	for _, part := range []struct{ name, permissions string }{
		{"install.sh", "0700"},
		{"loop.sh", "0700"},
		{"egress-agent.service", "0644"},
		{"egress-agent.openrc", "0755"},
	} {
		content, err := fs.ReadFile(guestFiles, "guest/"+part.name)
		if err != nil {
			return nil, err
		}
		document.WriteFiles = append(document.WriteFiles, encoded(agentPartsPath+part.name, part.permissions, content))
	}
	body, err := yaml.Marshal(document)
	if err != nil {
		return nil, err
	}
	return append([]byte(cloudConfigHeader+"\n"), body...), nil
}

func encoded(path, permissions string, content []byte) writeFile {
	return writeFile{Path: path, Permissions: permissions, Encoding: "b64", Content: base64.StdEncoding.EncodeToString(content)}
}
