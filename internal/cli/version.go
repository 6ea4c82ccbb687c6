// SPDX-License-Identifier: Apache-2.0

package cli

import "runtime/debug"

// Version is set by the linker: -X github.com/egress-proxies/egress-proxies-operator/internal/cli.Version=v1.2.3.
var Version string

// version is the linker's, or the module's, or that of the commit.
func version() string {
	if Version != "" {
		return Version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
