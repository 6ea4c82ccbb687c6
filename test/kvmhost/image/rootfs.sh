#!/bin/bash
# rootfs.sh TREE: a Debian 12 tree with kernel, cloud-init and the guest agent, which both guests are made from.
set -euo pipefail
tree=${1:?usage: rootfs.sh TREE}

# Left out while unpacking: documentation, and drivers that no virtual machine of ours has.
excludes=(
	'/usr/share/doc/*' '/usr/share/man/*' '/usr/share/locale/*' '/usr/share/info/*' '/usr/share/i18n/*'
	'/usr/share/zoneinfo/*' '/usr/share/bash-completion/*' '/usr/share/zsh/*'
	'/etc/kernel/postinst.d/initramfs-tools' # each guest gets an initramfs of its own
	'/lib/modules/*/kernel/sound/*'
	'/lib/modules/*/kernel/net/netfilter/*'
)
for driver in gpu infiniband nvme net/ethernet md; do
	excludes+=("/lib/modules/*/kernel/drivers/$driver/*")
done
for fs in btrfs xfs nfs nfsd cifs smb ocfs2 gfs2 ceph f2fs jfs ntfs3; do
	excludes+=("/lib/modules/*/kernel/fs/$fs/*")
done

packages=(
	systemd-sysv systemd-boot-efi udev dbus kmod iproute2 netbase
	linux-image-cloud-amd64 cloud-init qemu-guest-agent
)

rm -rf --one-file-system "$tree"
mmdebstrap --mode=root --variant=minbase --architectures=amd64 \
	"${excludes[@]/#/--dpkgopt=path-exclude=}" \
	--include="$(IFS=,; echo "${packages[*]}")" \
	bookworm "$tree"
