# Sourced by tiny.sh and cloud.sh: makes a bootable qcow2 image out of a kernel, an initramfs and, where there is one, a root file system.
# Both firmwares find their way: SeaBIOS through syslinux, OVMF through systemd-boot.

readonly esp_mib=36
# What an emulated processor need not do: hide itself, test its ciphers, audit, measure its clock, look for serial ports.
readonly kernel_options="console=ttyS0 quiet net.ifnames=0 mitigations=off nokaslr audit=0 apparmor=0 cryptomgr.notests\
 no_timer_check tsc=reliable random.trust_cpu=1 8250.nr_uarts=1"

# write_disk OUT.qcow2 TREE KERNEL INITRD [ROOT.ext4]
write_disk() {
	local out=$1 tree=$2 kernel=$3 initrd=$4 root=${5:-}
	local esp=esp.fat raw=disk.raw root_mib=0

	truncate -s "${esp_mib}M" $esp
	mkfs.vfat -F 16 -s 8 -n ESP $esp >/dev/null
	mmd -i $esp ::/EFI ::/EFI/BOOT ::/loader ::/loader/entries ::/syslinux
	mcopy -i $esp "$tree/usr/lib/systemd/boot/efi/systemd-bootx64.efi" ::/EFI/BOOT/BOOTX64.EFI
	mcopy -i $esp "$kernel" ::/vmlinuz
	mcopy -i $esp "$initrd" ::/initrd
	printf 'timeout 0\ndefault guest\n' | mcopy -i $esp - ::/loader/loader.conf
	printf 'title guest\nlinux /vmlinuz\ninitrd /initrd\noptions %s\n' "$kernel_options" | mcopy -i $esp - ::/loader/entries/guest.conf
	printf 'DEFAULT guest\nPROMPT 0\nTIMEOUT 1\nLABEL guest\n LINUX /vmlinuz\n INITRD /initrd\n APPEND %s\n' "$kernel_options" |
		mcopy -i $esp - ::/syslinux/syslinux.cfg
	syslinux --install --directory syslinux $esp

	local sectors=$((esp_mib * 2048))
	local table="label: gpt
start=2048, size=$sectors, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=ESP, attrs=LegacyBIOSBootable"
	if [ -n "$root" ]; then
		root_mib=$(($(stat -c %s "$root") >> 20))
		table="$table
start=$((2048 + sectors)), size=$((root_mib * 2048)), type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root"
	fi
	truncate -s "$((esp_mib + root_mib + 4))M" $raw
	sfdisk -q $raw <<<"$table"
	dd if=/usr/lib/syslinux/mbr/gptmbr.bin of=$raw bs=440 count=1 conv=notrunc status=none
	dd if=$esp of=$raw bs=1M seek=1 conv=notrunc,sparse status=none
	[ -z "$root" ] || dd if="$root" of=$raw bs=1M seek=$((1 + esp_mib)) conv=notrunc,sparse status=none
	qemu-img convert -c -O qcow2 $raw "$out"
	rm -f $esp $raw
}

kernel_version() { basename "$1"/lib/modules/*; }

# module_files TREE VERSION MODULE...: the modules and what they need, in the order of loading
module_files() {
	local tree=$1 version=$2 module
	shift 2
	for module; do chroot "$tree" modprobe -S "$version" --show-depends "$module"; done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

# pack_initramfs DIRECTORY OUT
pack_initramfs() { (cd "$1" && find . | LC_ALL=C sort | cpio -o -H newc -R 0:0 --quiet) | lz4 -l -9 -q >"$2"; }
