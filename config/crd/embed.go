// SPDX-License-Identifier: Apache-2.0

// Package crd carries the definitions of the project's custom resources.
package crd

import "embed"

// Files are the definitions as `make generate` writes them: one YAML document each.
//
//go:embed *.yaml
var Files embed.FS
