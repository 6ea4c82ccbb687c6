#!/bin/bash
# empty.sh OUT.qcow2: an image of a few KiB whose boot sector halts the processor, for tests that need no guest.
# Works in the current directory.
set -euo pipefail
out=${1:?usage: empty.sh OUT.qcow2}
truncate -s 1M empty.raw
printf '\xfa\xf4\xeb\xfd' | dd of=empty.raw conv=notrunc status=none # cli; hlt; jmp back
printf '\x55\xaa' | dd of=empty.raw bs=1 seek=510 conv=notrunc status=none
qemu-img convert -O qcow2 -o cluster_size=512 empty.raw "$out"
rm -f empty.raw
