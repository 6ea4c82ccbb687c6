#!/bin/bash
# tiny.sh TREE SEEDINIT OUT.qcow2: kernel and one initramfs with busybox, the real guest agent, and seedinit in place of cloud-init.
# Works in the current directory.
set -euo pipefail
tree=${1:?usage: tiny.sh TREE SEEDINIT OUT.qcow2} seedinit=${2:?} out=${3:?}
here=$(dirname "$(readlink -f "$0")")
. "$here/disk.sh"
version=$(kernel_version "$tree")
root=tiny-root
rm -rf $root
mkdir -p $root/{bin,sbin,usr/bin,usr/sbin,usr/local,lib/x86_64-linux-gnu,lib64,lib/modules,etc/acpi/PWRF,proc,sys,dev,run,tmp,mnt,var/log,root}
ln -s /run $root/var/run

cp /bin/busybox $root/bin/busybox
for applet in $(/bin/busybox --list); do [ "$applet" = busybox ] || ln -s /bin/busybox "$root/bin/$applet"; done
install -m 755 "$seedinit" $root/sbin/seedinit
install -m 755 "$here"/tiny/shutdown $root/sbin/shutdown
install -m 755 "$here"/tiny/init $root/init
install -m 755 "$here"/tiny/udhcpc.sh $root/etc/udhcpc.sh
printf '#!/bin/sh\nsync\npoweroff -f\n' >$root/etc/acpi/PWRF/00000080
chmod 755 $root/etc/acpi/PWRF/00000080

cp "$tree/usr/sbin/qemu-ga" $root/usr/sbin/
for library in $(chroot "$tree" ldd /usr/sbin/qemu-ga | grep -o '/lib[^ ]*'); do cp -nL "$tree$library" "$root$library"; done
printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >$root/etc/passwd
printf 'root:x:0:\nnogroup:x:65534:\n' >$root/etc/group

module_files "$tree" "$version" virtio_pci virtio_console virtio_net virtio_blk isofs evdev button |
	while read -r file; do
		cp "$tree$file" $root/lib/modules/
		echo "/lib/modules/${file##*/}"
	done >$root/etc/modules

pack_initramfs $root initrd-tiny
write_disk "$out" "$tree" "$tree/boot/vmlinuz-$version" initrd-tiny
rm -rf $root initrd-tiny
