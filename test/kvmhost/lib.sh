# Sourced by the commands of this folder: names, addresses and paths, all derived from the host's number.

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
state=${EGRESS_KVMHOST_DIR:-/tmp/egress-kvmhost}
image_cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/egress-proxies/images
readonly here state image_cache
readonly namespace_prefix=egress-host veth_prefix=veth-egress

fail() {
	echo "kvmhost: $*" >&2
	exit 1
}

# What else the caller has open is its own: a daemon would keep it, and a lock on it, for as long as its host is up.
for descriptor in "/proc/$$/fd"/*; do
	descriptor=${descriptor##*/}
	((descriptor <= 2 || descriptor == 255)) || eval "exec $descriptor>&-" # 255 is the command that sources this
done

# setting NAME: a boolean of the environment, as strconv.ParseBool reads it; false where there is none.
setting() {
	case ${!1:-} in
	1 | t | T | TRUE | true | True) echo true ;;
	'' | 0 | f | F | FALSE | false | False) echo false ;;
	*) fail "$1 is neither true nor false: '${!1}'" ;;
	esac
}

# use_host NUMBER: sets the variables that describe one host.
use_host() {
	[[ ${1:-} =~ ^[1-9][0-9]{0,2}$ && $1 -le 250 ]] || fail "a host is a number from 1 to 250, not '${1:-}'"
	number=$1
	namespace=$namespace_prefix$number
	veth=$veth_prefix$number
	outside=10.77.$number.1 # this machine's end of the wire
	inside=10.77.$number.2  # the host's end, where sshd listens
	guests=10.88.$number
	home=$state/hosts/$number
}

# lock_host: until the command ends, no other command changes this host.
lock_host() {
	mkdir -p "$state"
	exec {lock}>"$state/lock.$number"
	flock "$lock"
}

# host_init NAME: the pid of that host's init; nothing when it is down. Found by its command line and its being process 1 of a
# pid namespace, each time: a pid in a file may be somebody else's by now.
host_init() {
	local cmdline pid
	for cmdline in $(grep -lsxzF -- "$1" /proc/[0-9]*/cmdline); do
		pid=${cmdline//[!0-9]/}
		if awk '$1 == "NSpid:" { one = NF == 3 && $3 == 1 } END { exit !one }' "/proc/$pid/status" 2>/dev/null; then
			echo "$pid"
			return
		fi
	done
}

# enter COMMAND...: run it inside the host.
enter() {
	local init
	init=$(host_init "$namespace")
	[ -n "$init" ] || fail "host $number is not up: run $here/up $number"
	nsenter -t "$init" -m -n -p -u -i -- "$@"
}

virsh_in_host() { enter virsh -q -c qemu:///system "$@"; }

# await SECONDS WHAT COMMAND...: poll until the command succeeds.
await() {
	local deadline=$((SECONDS + $1)) what=$2
	shift 2
	until ("$@") >/dev/null 2>&1; do
		((SECONDS < deadline)) || fail "host $number: $what did not happen in time; see $home/log and $home/init.log"
		sleep 0.05
	done
}

# stop_host NAME: end that host's processes by ending its init, then remove its namespace, wire and route.
stop_host() {
	local name=$1 init outer tries=250
	init=$(host_init "$name")
	if [ -n "$init" ]; then
		outer=$(awk '$1 == "PPid:" { print $2 }' "/proc/$init/status" || true) # unshare, which waits for the init
		kill -KILL "$init" 2>/dev/null || true
		while [ -e "/proc/$init" ] || grep -qsx unshare "/proc/$outer/comm"; do
			((tries-- > 0)) || fail "the processes of $name do not end: see ip netns pids $name"
			sleep 0.02
		done
	fi
	ip link del "$veth_prefix${name#"$namespace_prefix"}" 2>/dev/null || true # takes the route with it
	ip netns del "$name" 2>/dev/null || true
}

# write_known_hosts: one file for all hosts, so that an entry with several of them needs no other.
write_known_hosts() {
	local directory key temporary
	exec {known}>"$state/lock.known_hosts"
	flock "$known"
	temporary=$(mktemp "$state/known_hosts.XXXXXX")
	for directory in "$state"/hosts/*/; do
		for key in "$directory"ssh/ssh_host_*_key.pub; do
			[ -f "$key" ] && echo "10.77.$(basename "$directory").2 $(cut -d' ' -f1,2 "$key")" >>"$temporary"
		done
	done
	chmod 644 "$temporary"
	mv "$temporary" "$state/known_hosts"
	exec {known}>&-
}
