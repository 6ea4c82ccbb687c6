#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tool.sh NAME MODULE@VERSION: builds a Go tool once, outside the clone, keyed by version and Go release; prints its path.
set -euo pipefail
name=$1 module=$2
cache=${XDG_CACHE_HOME:-$HOME/.cache}/egress-proxies/tools
dir=$cache/$name-${module##*@}-$(go env GOVERSION)
if [ ! -x "$dir/$name" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/.$name.lock"
  flock 9
  if [ ! -x "$dir/$name" ]; then
    echo "building $module once, into $dir" >&2
    tmp=$(mktemp -d "$cache/.build-XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    GOBIN=$tmp GOFLAGS=-mod=mod go install "$module" >&2
    mkdir -p "$dir"
    mv "$tmp/$name" "$dir/$name"
  fi
fi
echo "$dir/$name"
