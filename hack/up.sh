#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# up.sh COMMAND [ARGUMENT...]: builds the standalone where the cache does not have it, and runs a command of it (up, down).
set -euo pipefail
binary=$("$(dirname "$0")/build-standalone.sh")
exec "$binary" "$@"
