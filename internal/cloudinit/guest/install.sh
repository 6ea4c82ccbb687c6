#!/bin/sh
# Puts the proxy agent from its volume in place and has the guest's service manager keep it running.
# Run again, it ends at the same. Any POSIX shell, busybox too.
set -u
root=${1:-} # a tree to install into instead of the running system, for tests
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin

label=EGRESS_AGENT
agent=$root/usr/local/bin/egress-agent
parts=$root/usr/local/lib/egress-agent
pids=$root/run/egress-agent
patience=15 # seconds for the volume to appear

# say reaches the guest's console, which the host keeps, and cloud-init's log.
say() {
	echo "egress-agent: $*" >&2
	{ echo "egress-agent: $*" >>"$root/dev/console"; } 2>/dev/null || :
}

volume() {
	for device in "$(findfs "LABEL=$label" 2>/dev/null)" "$(blkid -L "$label" 2>/dev/null)" "$root/dev/disk/by-label/$label"; do
		if [ -n "$device" ] && [ -e "$device" ]; then
			echo "$device"
			return 0
		fi
	done
	return 1
}

# put FILE PLACE MODE: whole or not at all, and safe while the old file runs. Sets changed where the content is new.
put() {
	if ! cmp -s "$1" "$2"; then
		cp "$1" "$2.new" && chmod "$3" "$2.new" || return 1
		sync "$2.new" 2>/dev/null || sync
		mv -f "$2.new" "$2" || return 1
		changed=yes
	fi
	chmod "$3" "$2"
}

install_agent() {
	waited=0
	until device=$(volume); do
		if [ "$waited" -ge "$patience" ]; then
			say "no volume labelled $label after $patience s: this guest has no agent to run; is the agent volume attached?"
			return 1
		fi
		sleep 1
		waited=$((waited + 1))
	done
	at=$root/run/egress-agent-volume
	mkdir -p "$at" "${agent%/*}" || return 1
	if ! mount -t iso9660 -o ro "$device" "$at"; then
		say "the agent volume $device cannot be mounted: does this guest's kernel have iso9660?"
		return 1
	fi
	put "$at/egress-agent" "$agent" 0755
	result=$?
	umount "$at" && rmdir "$at"
	[ "$result" -eq 0 ] || say "the agent cannot be copied from $device to $agent: is the guest's disk full?"
	return "$result"
}

start_systemd() {
	mkdir -p "$root/etc/systemd/system" &&
		put "$parts/egress-agent.service" "$root/etc/systemd/system/egress-agent.service" 0644 &&
		systemctl daemon-reload &&
		systemctl enable egress-agent.service || return 1
	if [ -n "$changed" ]; then
		systemctl restart egress-agent.service
	else
		systemctl start egress-agent.service
	fi
}

start_openrc() {
	put "$parts/egress-agent.openrc" "$root/etc/init.d/egress-agent" 0755 &&
		rc-update add egress-agent default || return 1
	if [ -n "$changed" ]; then
		rc-service egress-agent restart
	else
		rc-service --ifstopped egress-agent start
	fi
}

alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

# Without a service manager: a loop that restarts the agent, and cloud-init's own scripts to start the loop at each boot.
start_loop() {
	say "neither systemd nor OpenRC runs here: a shell loop keeps the agent running"
	boot=$root/var/lib/cloud/scripts/per-boot
	mkdir -p "$boot" "$pids" || return 1
	printf '#!/bin/sh\nexec /bin/sh /usr/local/lib/egress-agent/install.sh\n' >"$boot/egress-agent" &&
		chmod 0755 "$boot/egress-agent" || return 1
	if ! alive "$pids/loop"; then
		detach=
		command -v setsid >/dev/null && detach=setsid
		console=$root/dev/console
		{ : >>"$console"; } 2>/dev/null || console=/dev/null
		$detach /bin/sh "$parts/loop.sh" "$root" </dev/null >>"$console" 2>&1 &
	elif [ -n "$changed" ] && alive "$pids/agent"; then
		kill "$(cat "$pids/agent")" # the loop starts the new one
	fi
}

start_agent() {
	if [ -d "$root/run/systemd/system" ]; then
		start_systemd
	elif [ -d "$root/run/openrc" ] && command -v rc-service >/dev/null; then
		start_openrc
	else
		start_loop
	fi
}

changed=
if ! install_agent; then
	[ -x "$agent" ] || exit 1
	say "going on with the agent that is installed already"
fi
if ! start_agent; then
	say "the agent cannot be started; see the lines above, and cloud-init's log"
	exit 1
fi
