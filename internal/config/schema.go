// SPDX-License-Identifier: Apache-2.0

package config

import _ "embed" // the schema

// Schema is the JSON Schema of the providers file, for editors: what it refuses Parse refuses, and Parse refuses more. It is written by
// `make generate`.
//
//go:embed providers.schema.json
var Schema []byte
