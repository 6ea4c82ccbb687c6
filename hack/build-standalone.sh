#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Prints the path of the egress-standalone binary of this source tree, and builds it first
# where the cache does not have it, with the agents beside it (about 10 minutes with an empty
# Go cache, seconds after that). EGRESS_STANDALONE names a binary to use instead.
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
module=github.com/egress-proxies/egress-proxies-operator
cd "$root"

export CGO_ENABLED=0
# What the binaries are made of: both modules, and what they embed.
release=$(git describe --tags --exact-match --dirty 2>/dev/null || true)
case $release in *-dirty) release= ;; esac
key=$({
	go env GOVERSION GOOS GOARCH GOAMD64 GOARM64
	find api cmd config internal standalone -type f ! -name '*_test.go' ! -path '*/testdata/*' |
		LC_ALL=C sort | xargs sha256sum go.mod go.sum standalone/go.mod standalone/go.sum hack/build-standalone.sh
	echo "$release"
} | sha256sum | cut -c1-16)
# The key says exactly which sources they are, the commit only about when.
version=${release:-$(git describe --tags --always 2>/dev/null || echo unknown)+$key}
dir=$tools/standalone-$key
binary=$dir/egress-standalone

# compile builds one program, and says now and then how far it is: a first build is long.
compile() {
	{ go build -v -buildvcs=false "$@" 2>&1 || echo "go build failed"; } | awk '
		/^[a-z][a-zA-Z0-9_.]*(\/[a-zA-Z0-9_.~-]+)*$/ { n++; if (n % 100 == 0) printf "%d packages compiled, now %s\n", n, $0; fflush(); next }
		{ print; fflush() }' >&2
}

mkdir -p "$dir"
exec 9>"$tools/standalone.lock"
flock 9
if [ ! -x "$binary" ]; then
	echo "building egress-standalone $version into $dir (a first build compiles Kubernetes: about 10 minutes on 2 cores)" >&2
	for arch in amd64 arm64; do
		GOOS=linux GOARCH=$arch compile -ldflags "-s -w -X main.version=$version" -o "$dir/egress-agent-linux-$arch" ./cmd/egress-agent
	done
	cd standalone
	kubernetes=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
	minor=${kubernetes#v*.}
	stamp=k8s.io/component-base/version
	compile -o "$binary.$$" -ldflags "-s -w -X main.buildVersion=$version -X $module/internal/cli.Version=$version \
		-X $stamp.gitVersion=$kubernetes -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*} -X $stamp.gitTreeState=clean" .
	if [ ! -x "$binary.$$" ] || [ ! -x "$dir/egress-agent-linux-amd64" ] || [ ! -x "$dir/egress-agent-linux-arm64" ]; then
		rm -f "$binary.$$"
		echo "egress-standalone could not be built" >&2
		exit 1
	fi
	mv "$binary.$$" "$binary"
fi
# Of the binaries of other trees, those that were asked for last stay, and those that run.
touch "$dir"
ls -dt "$tools"/standalone-*/ | tail -n +9 | while read -r old; do
	if ! find /proc/[0-9]*/exe -maxdepth 0 -lname "$old*" 2>/dev/null | grep -q .; then
		rm -rf "$old"
	fi
done
echo "$binary"
