#!/bin/sh
# Installs QEMU's guest agent unless the guest has it, and has the guest's service manager start it, now and at each boot.
# Any POSIX shell, busybox too.
root=${EGRESS_ROOT:-} # a tree instead of the running system, for tests
[ -n "$root" ] || PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin
name=qemu-guest-agent
tries=5 # for a mirror that is not reached yet
failed=

# say reaches the guest's console, which the host keeps, and cloud-init's log.
say() {
	echo "$name: $*" >&2
	{ echo "$name: $*" >>"$root/dev/console"; } 2>/dev/null || :
}

has() { command -v "$1" >/dev/null 2>&1; }

install_package() {
	if has apt-get; then
		export DEBIAN_FRONTEND=noninteractive
		apt-get -q update && apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $name
	elif has dnf; then
		dnf -q -y install $name
	elif has microdnf; then
		microdnf -y install $name
	elif has yum; then
		yum -q -y install $name
	elif has zypper; then
		zypper --non-interactive install $name
	elif has apk; then
		apk add $name
	elif has pacman; then
		pacman -Sy --noconfirm --needed $name
	else
		unknown=yes
	fi
}

ensure_installed() {
	try=1
	unknown=
	until has qemu-ga; do
		install_package
		if [ -n "$unknown" ]; then
			say "not in this image, and no package manager is known here (apt-get, dnf, microdnf, yum, zypper, apk, pacman): put $name into the image"
			return 1
		fi
		if ! has qemu-ga; then
			if [ "$try" -ge "$tries" ]; then
				say "cannot be installed; see the lines above in cloud-init's log: is a package mirror reached from here, and has it the package $name?"
				return 1
			fi
			try=$((try + 1))
			sleep 10
		fi
	done
}

start() {
	if [ -d "$root/run/systemd/system" ]; then
		systemctl daemon-reload
		systemctl enable $name.service || : # some distributions have udev start it
		systemctl start $name.service
	elif [ -d "$root/run/openrc" ] && has rc-service; then
		rc-update add $name default && rc-service --ifstopped $name start
	else
		say "neither systemd nor OpenRC runs here: nothing starts it"
		return 1
	fi
}

ensure_installed || failed=yes
if [ -z "$failed" ] && ! start; then
	say "cannot be started: does the guest have the channel org.qemu.guest_agent.0?"
	failed=yes
fi
[ -z "$failed" ]
