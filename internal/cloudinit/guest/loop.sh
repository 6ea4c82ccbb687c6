#!/bin/sh
# Keeps the agent running for as long as the guest runs, where no service manager does.
root=${1:-}
pids=$root/run/egress-agent
echo $$ >"$pids/loop"
ulimit -n 1048576 2>/dev/null || ulimit -n "$(ulimit -H -n)"
while :; do
	"$root/usr/local/bin/egress-agent" --config "$root/etc/egress-agent/config.json" &
	echo $! >"$pids/agent"
	wait $!
	sleep 1
done
