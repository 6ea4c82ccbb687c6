// SPDX-License-Identifier: Apache-2.0

// Package samples carries those samples that a program makes itself.
package samples

import _ "embed"

// Local are three Proxies of the entry "local".
//
//go:embed proxies-local.yaml
var Local []byte
