#!/bin/bash
# host-init.sh NAME HOME KVM: process 1 of a host. Gives it its own folders, /dev, /sys and /run, starts libvirtd and sshd, and reaps.
set -euo pipefail
name=$1 home=$2 kvm=$3

mount --make-rprivate /
mount --rbind /sys/fs/cgroup "$home/cgroup"
mount -t sysfs sysfs /sys # shows the interfaces of this network namespace
mount --rbind "$home/cgroup" /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/lock /run/libvirt
mount --bind "$home/etc" /etc/libvirt
mount --bind "$home/lib" /var/lib/libvirt
mount --bind "$home/log" /var/log/libvirt
mount --bind "$home/cache" /var/cache/libvirt
mount --bind "$home/ssh" /etc/ssh
mount --bind "$home/root-ssh" /root/.ssh
# What root has its shell do at each command of ssh is none of a host's, and takes seconds where it is much.
[ ! -e /root/.bashrc ] || mount --bind /dev/null /root/.bashrc
hostname "$name"

# libvirtd insists on the users that its Debian package makes, also where it does not use them.
cp /etc/passwd "$home/passwd"
cp /etc/group "$home/group"
add_line() { grep -q "^${1%%:*}:" "$home/$2" || echo "$1" >>"$home/$2"; }
add_line 'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin' passwd
add_line 'libvirt-qemu:x:64055:' group
add_line 'libvirt-dnsmasq:x:64056:64056::/var/lib/libvirt/dnsmasq:/usr/sbin/nologin' passwd
add_line 'libvirt-dnsmasq:x:64056:' group
add_line 'sshd:x:64057:65534::/run/sshd:/usr/sbin/nologin' passwd

# A /dev of its own, without kvm: nested KVM may exist without being usable. (An empty file bound over /dev/kvm would
# make libvirt probe QEMU again at each define, 8 s a call.)
dev=$home/dev
mount -t tmpfs -o mode=755 tmpfs "$dev"
mkdir "$dev"/{net,pts,shm,mapper}
nodes=(null zero full random urandom tty net/tun loop-control)
[ "$kvm" = false ] || nodes+=(kvm)
for node in "${nodes[@]}"; do [ ! -e "/dev/$node" ] || cp -a "/dev/$node" "$dev/$node"; done
[ -e "$dev/net/tun" ] || mknod "$dev/net/tun" c 10 200
ln -s /proc/self/fd "$dev/fd"
for stream in 0:stdin 1:stdout 2:stderr; do ln -s "fd/${stream%:*}" "$dev/${stream#*:}"; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$dev/pts"
ln -s pts/ptmx "$dev/ptmx"
mount --move "$dev" /dev

mount --bind "$home/passwd" /etc/passwd
mount --bind "$home/group" /etc/group

# shellcheck source=daemons.sh
. "$home/daemons.sh"
start_libvirtd
start_sshd
while :; do sleep 86400 & wait $! || true; done
