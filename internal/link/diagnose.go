// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Other places where libvirt listens.
const modularSocket = "/var/run/libvirt/virtqemud-sock"

// hostAnswer is what a host says of libvirt's socket when sshd does not forward to it, as sshd says the same whether it may not or cannot.
type hostAnswer struct {
	state   string   // missing, nosocket, denied, idle or fine; empty where the host runs no command for us
	group   string   // of the socket, where it is denied
	sockets []string // of libvirt that are there
	works   []string // commands that reached the socket
	fails   []string // commands that did not, and why
}

// maxAnswer bounds what is read of a host's answer.
const maxAnswer = 64 << 10

// look is the script that a host answers, in one line, on "$s". Each command is tried for a moment, with no input: it ends at once.
const look = `set -f; ` +
	`if [ ! -e "$s" ]; then echo state missing; elif [ ! -S "$s" ]; then echo state nosocket; ` +
	`elif [ ! -w "$s" ]; then echo state denied; echo group "$(stat -L -c %G "$s" 2>/dev/null)"; ` +
	`elif [ -r /proc/net/unix ] && ! grep -q -F -e "${s#/var}" /proc/net/unix; then echo state idle; else echo state fine; fi; ` +
	`for o in ` + modularSocket + ` ` + DefaultSocket + `; do if [ -S $o ]; then echo socket $o; fi; done; ` +
	`try() { n=$1; shift; if m=$("$@" 2>&1 >/dev/null </dev/null); then echo works $n; else echo fails $n: $m; fi; }; ` +
	`if [ -w "$s" ]; then ` +
	`if [ -n "$standard" ] && command -v virt-ssh-helper >/dev/null 2>&1; then try virt-ssh-helper virt-ssh-helper qemu:///system; fi; ` +
	`for c in nc nc.openbsd ncat; do if command -v $c >/dev/null 2>&1; then ` +
	`case "$($c -h 2>&1 </dev/null)" in *Ncat*) try $c $c -U "$s";; *"-q "*) try "$c -q 0" $c -q 0 -U "$s";; *) try "$c -N" $c -N -U "$s";; esac; ` +
	`fi; done; fi; true`

// commands are the ways that a host can name, in the order of preference. What a host says is never part of a command. Each ends when
// its input does, so that none outlives the connection.
func commands(socket string) []way {
	onSocket := func(command string) way {
		return way{command, shell("exec " + command + " -U " + quote(socket))}
	}
	ways := []way{{"virt-ssh-helper", "virt-ssh-helper qemu:///system"}}
	for _, c := range []string{"nc", "nc.openbsd"} {
		ways = append(ways, onSocket(c+" -q 0"), onSocket(c+" -N"), onSocket(c))
	}
	return append(ways, onSocket("ncat"))
}

func askHost(client *ssh.Client, t Target) hostAnswer {
	standard := ""
	if isStandard(t.Socket) { // virt-ssh-helper takes no other
		standard = "1"
	}
	script := "s=" + quote(t.Socket) + "; standard=" + quote(standard) + "; " + look
	text, err := run(client, shell(script), maxAnswer)
	if err != nil {
		return hostAnswer{}
	}
	return parseAnswer(text)
}

func isStandard(socket string) bool {
	socket = path.Clean(socket)
	if rest, ok := strings.CutPrefix(socket, "/run/"); ok {
		socket = "/var/run/" + rest
	}
	return socket == DefaultSocket || socket == modularSocket
}

// parseAnswer passes over what login scripts print.
func parseAnswer(text string) hostAnswer {
	var a hostAnswer
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(printable(line)), " ")
		rest = strings.ToValidUTF8(rest[:min(len(rest), 300)], "")
		switch word {
		case "state":
			a.state = rest
		case "group":
			a.group = rest
		case "socket":
			a.sockets = append(a.sockets, rest)
		case "works":
			a.works = append(a.works, rest)
		case "fails":
			a.fails = append(a.fails, rest)
		}
	}
	return a
}

// way is the best one that worked; the zero way when none did.
func (a hostAnswer) way(t Target) way {
	for _, w := range commands(t.Socket) {
		if slices.Contains(a.works, w.name) {
			return w
		}
	}
	return way{}
}

// explain says the one thing to change.
func (a hostAnswer) explain(t Target, cause error) error {
	const setting = "`AllowStreamLocalForwarding yes` (and no `DisableForwarding`) in the host's sshd_config"
	setup := func(format string, args ...any) error {
		return &SetupError{Host: t.Address, Message: fmt.Sprintf(format, args...)}
	}
	switch a.state {
	case "idle":
		return fmt.Errorf("nothing listens on %s: is libvirtd running there?", t.Socket)
	case "fine":
		return setup("sshd does not forward to %s, which is there: set %s, and reload sshd; or install virt-ssh-helper (of libvirt 6.8 and later) "+
			"or netcat-openbsd there%s", t.Socket, setting, a.failures())
	case "denied":
		return setup("user %q may not use %s: %s", t.User, t.Socket, joinGroup(t.User, a.group))
	case "nosocket":
		return setup("%s is not a socket: set the host's `socket` to libvirt's", t.Socket)
	case "missing":
		if len(a.sockets) > 0 {
			return setup("there is no socket %s, but %s: set the host's `socket`", t.Socket, strings.Join(a.sockets, ", "))
		}
		return fmt.Errorf("there is no socket %s: is libvirtd running there?", t.Socket)
	}
	return fmt.Errorf("%w: is libvirtd running, may user %q use its socket, and is there %s?", cause, t.User, setting)
}

func (a hostAnswer) failures() string {
	if len(a.fails) == 0 {
		return ""
	}
	return " (tried there: " + strings.Join(a.fails, "; ") + ")"
}

// joinGroup says how a user comes to be allowed to use a socket of group.
func joinGroup(user, group string) string {
	switch group {
	case "":
		return "add the user to the socket's group (libvirt on most hosts)"
	case "root":
		return "it is for root alone; log in as root, or set `unix_sock_group` and `unix_sock_rw_perms` in the host's libvirtd.conf (or in its socket unit)"
	}
	return fmt.Sprintf("add the user to its group %s (`usermod -aG %s %s`)", group, group, user)
}
