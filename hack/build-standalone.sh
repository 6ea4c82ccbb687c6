#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Prints the path of the egress-standalone binary of this source tree, and builds it first
# where the cache does not have it (about 7 minutes with an empty Go cache, seconds after
# that). EGRESS_STANDALONE names a binary to use instead.
set -eu

if [ -n "${EGRESS_STANDALONE:-}" ]; then
	if [ ! -x "$EGRESS_STANDALONE" ]; then
		echo "EGRESS_STANDALONE=$EGRESS_STANDALONE is not an executable file" >&2
		exit 1
	fi
	echo "$EGRESS_STANDALONE"
	exit
fi

root=$(cd "$(dirname "$0")/.." && pwd)
tools=${XDG_CACHE_HOME:-$HOME/.cache}/egress-proxies/tools
cd "$root/standalone"

export CGO_ENABLED=0
key=$({
	go env GOVERSION GOOS GOARCH GOAMD64 GOARM64
	find . -name '*.go' ! -name '*_test.go' | LC_ALL=C sort | xargs sha256sum go.mod go.sum
	sha256sum <"$root/hack/build-standalone.sh"
} | sha256sum | cut -c1-16)
dir=$tools/standalone-$key
binary=$dir/egress-standalone

mkdir -p "$dir"
exec 9>"$tools/standalone.lock"
flock 9
if [ ! -x "$binary" ]; then
	echo "building egress-standalone into $dir" >&2
	kubernetes=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
	minor=${kubernetes#v*.}
	stamp=k8s.io/component-base/version
	go build -buildvcs=false -o "$binary.$$" -ldflags "-s -w -X main.buildVersion=$key \
		-X $stamp.gitVersion=$kubernetes -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*} -X $stamp.gitTreeState=clean" .
	mv "$binary.$$" "$binary"
fi
# Binaries of other trees go when nobody has asked for them in two weeks.
touch "$dir"
find "$tools" -mindepth 1 -maxdepth 1 -name 'standalone-*' -mtime +14 -exec rm -rf {} +
echo "$binary"
