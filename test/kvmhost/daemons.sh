# Sourced inside a host: how its daemons are started and stopped.

start_libvirtd() { setsid /usr/sbin/libvirtd --pid-file /run/libvirtd.pid </dev/null >>/var/log/libvirt/libvirtd.out 2>&1 & }

start_sshd() { setsid /usr/sbin/sshd -D -f /etc/ssh/sshd_config -E /var/log/libvirt/sshd.log </dev/null >/dev/null 2>&1 & }

# signal SIGNAL NAME: to each process of that name in this pid namespace, and wait until none is left.
signal() {
	local comm name tries sent=''
	for ((tries = 500; tries > 0; tries--)); do
		local pids=()
		for comm in /proc/[0-9]*/comm; do
			read -r name 2>/dev/null <"$comm" || continue
			[ "$name" != "$2" ] || pids+=("$(basename "${comm%/comm}")")
		done
		[ ${#pids[@]} -gt 0 ] || return 0
		[ "$1" = TERM ] && [ -n "$sent" ] || kill "-$1" "${pids[@]}" 2>/dev/null || true
		sent=yes
		sleep 0.02
	done
	echo "kvmhost: $2 did not end" >&2
	return 1
}
