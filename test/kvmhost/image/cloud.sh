#!/bin/bash
# cloud.sh TREE OUT.qcow2: Debian 12 with its own systemd and cloud-init, trimmed for guests that are emulated.
# Works in the current directory.
set -euo pipefail
tree=${1:?usage: cloud.sh TREE OUT.qcow2} out=${2:?}
here=$(dirname "$(readlink -f "$0")")
. "$here/disk.sh"
version=$(kernel_version "$tree")
root=cloud-root
rm -rf --one-file-system $root
cp -a "$tree" $root

: >$root/etc/fstab
: >$root/etc/machine-id
rm -f $root/etc/modules-load.d/*
install -D -m 644 /dev/stdin $root/etc/systemd/system.conf.d/egress.conf <<<$'[Manager]\nShowStatus=no'
install -D -m 644 /dev/stdin $root/etc/systemd/journald.conf.d/egress.conf <<<$'[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no'
sed 's/^/blacklist /' "$here/cloud/blacklisted-modules" >$root/etc/modprobe.d/egress.conf
while read -r unit; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done <"$here/cloud/masked-units"
while read -r rules; do rm -f "$root"/lib/udev/rules.d/$rules; done <"$here/cloud/removed-udev-rules" # lines are globs
rm -f $root/lib/udev/hwdb.bin $root/lib/systemd/system-generators/systemd-*
ln -sf /lib/systemd/system/multi-user.target $root/etc/systemd/system/default.target

rm -f $root/etc/cloud/cloud.cfg.d/*
cp "$here/cloud/cloud.cfg" $root/etc/cloud/cloud.cfg
printf 'datasource: NoCloud\npolicy: enabled\n' >$root/etc/cloud/ds-identify.cfg

# Without jsonschema cloud-init skips a check that only ever warns; its own start script loads a good deal of Python only to
# find main. Both are paid at each of cloud-init's four starts.
rm -rf $root/usr/lib/python3/dist-packages/jsonschema
install -m 755 /dev/stdin $root/usr/bin/cloud-init <<'PYTHON'
#!/usr/bin/python3
import sys
from cloudinit.cmd.main import main

sys.exit(main())
PYTHON

# Network by systemd-networkd, as cloud-init tells it. Its name servers reach /etc/resolv.conf without a resolver daemon.
cp "$here"/cloud/resolv-conf.* $root/etc/systemd/system/
rm -f $root/etc/resolv.conf
chroot $root systemctl -q enable systemd-networkd.service resolv-conf.path
install -D -m 644 /dev/stdin $root/etc/systemd/system/systemd-networkd-wait-online.service.d/egress.conf <<'UNIT'
[Service]
ExecStart=
ExecStart=/lib/systemd/systemd-networkd-wait-online --any --timeout=20
UNIT
# The agent answers early: sysinit.target would wait for cloud-init.
install -D -m 644 /dev/stdin $root/etc/systemd/system/qemu-guest-agent.service.d/egress.conf <<'UNIT'
[Unit]
DefaultDependencies=no
Conflicts=shutdown.target
UNIT

initramfs=cloud-initramfs
rm -rf $initramfs
mkdir -p $initramfs/{bin,sbin,proc,sys,dev,root,lib/modules}
cp /bin/busybox $initramfs/bin/busybox
install -m 755 "$here/cloud/init" $initramfs/init
module_files "$tree" "$version" virtio_pci virtio_blk ext4 crc32c_generic |
	while read -r file; do
		cp "$tree$file" $initramfs/lib/modules/
		echo "/lib/modules/${file##*/}"
	done >$initramfs/modules
pack_initramfs $initramfs initrd-cloud

rm -rf $root/boot/* $root/usr/share/perl5 $root/var/lib/apt/lists/* $root/var/cache/apt $root/var/cache/debconf $root/var/log/*.log
chroot $root depmod "$version"
truncate -s 512M root.ext4
mke2fs -q -t ext4 -L egressroot -O ^metadata_csum_seed,^orphan_file -E lazy_itable_init=1 -d $root root.ext4
write_disk "$out" "$tree" "$tree/boot/vmlinuz-$version" initrd-cloud root.ext4
rm -rf --one-file-system $root $initramfs initrd-cloud root.ext4
