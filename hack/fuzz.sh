#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh TIME: runs every fuzz target of the root module for TIME each; fails with the first that finds something.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
time=${1:-5s} count=0
while IFS=: read -r file target; do
  count=$((count + 1))
  echo "fuzz $target in $(dirname "$file")"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "./$(dirname "$file")" >build/fuzz.log 2>&1 || { cat build/fuzz.log; exit 1; }
done < <(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' api cmd internal hack | sed -E 's/^([^:]+):[0-9]+:func (.*)$/\1:\2/')
echo "fuzz: $count targets, $time each, nothing found"
