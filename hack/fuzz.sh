#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh TIME: runs every fuzz target of the root module for TIME each (5m, or 5000x for a count of inputs); fails with the first
# that finds something. A count is surer for a short run: Go's fuzzer may fail with "context deadline exceeded" when its time ends.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
time=${1:-5000x} count=0
while IFS=: read -r file target; do
  count=$((count + 1))
  echo "fuzz $target in $(dirname "$file")"
  go test -vet=off -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "./$(dirname "$file")" >build/fuzz.log 2>&1 || { cat build/fuzz.log; exit 1; }
done < <(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' api cmd internal hack | sed -E 's/^([^:]+):[0-9]+:func (.*)$/\1:\2/')
echo "fuzz: $count targets, $time each, nothing found"
