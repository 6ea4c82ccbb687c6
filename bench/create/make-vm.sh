#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make-vm.sh NAME: makes a VM on a libvirt host and starts it, as people script it. ./host.go sets what it needs to know:
# SSH_CONFIG, HOST, BASE (on the host), POOL_DIR, DISK, SEED (a folder with user-data), TEMPLATE (a domain's XML with @NAME@ in it).
set -eu
name=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf 'instance-id: %s\nlocal-hostname: %s\n' "$name" "$name" >"$work/meta-data"
genisoimage -quiet -output "$work/seed.iso" -volid cidata -joliet -rock "$SEED/user-data" "$work/meta-data"
sed "s|@NAME@|$name|g" "$TEMPLATE" >"$work/domain.xml"

ssh -F "$SSH_CONFIG" "$HOST" "qemu-img create -q -f qcow2 -F qcow2 -b $BASE $POOL_DIR/$name.qcow2 $DISK"
ssh -F "$SSH_CONFIG" "$HOST" "cat >$POOL_DIR/$name.seed.iso" <"$work/seed.iso"
ssh -F "$SSH_CONFIG" "$HOST" "virsh -q define /dev/stdin" <"$work/domain.xml"
ssh -F "$SSH_CONFIG" "$HOST" "virsh -q start $name"
