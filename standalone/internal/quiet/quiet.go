// SPDX-License-Identifier: Apache-2.0

// Package quiet keeps the database's client, inside of the API server, from printing a warning for each request that a stop cuts short.
package quiet

import "go.etcd.io/etcd/client/pkg/v3/logutil"

// The API server copies this configuration into a logger of its own while the program is initialised, and takes no other. Packages are
// initialised in the order of their paths as far as their imports allow, so this one goes before those of k8s.io.
func init() { logutil.DefaultZapLoggerConfig.OutputPaths = nil }
