#!/bin/bash
# build.sh TREE RESULT: make the three images in the folder RESULT, from the Debian tree TREE, which is made too if it is not there.
# Both appear whole or not at all.
set -euo pipefail
tree=${1:?usage: build.sh TREE RESULT} result=${2:?}
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d "$(dirname "$result")/build.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
mkdir "$work/scratch" "$work/images"

if [ ! -d "$tree" ]; then
	"$here/rootfs.sh" "$work/rootfs"
	mv "$work/rootfs" "$tree"
fi
(cd "$here/.." && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$work/seedinit" ./seedinit)
cd "$work/scratch"
"$here/empty.sh" "$work/images/empty.qcow2"
"$here/tiny.sh" "$tree" "$work/seedinit" "$work/images/tiny.qcow2"
"$here/cloud.sh" "$tree" "$work/images/cloud.qcow2"
rm -rf "$result"
mv "$work/images" "$result"
