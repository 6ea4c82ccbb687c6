// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/crypto/ssh"
)

// transport opens a byte stream to a unix socket on the host. It is freed when the
// connection under client closes.
type transport func(client *ssh.Client, socket string) (io.ReadWriter, error)

// transports are tried in this order.
var transports = []transport{forwardSocket}

// forwardSocket has sshd connect to the socket itself.
func forwardSocket(client *ssh.Client, socket string) (io.ReadWriter, error) {
	conn, err := client.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("sshd does not forward: %w", err)
	}
	return conn, nil
}

// otherSockets is where libvirt also listens: the modular daemon's socket, and the classic one.
var otherSockets = []string{"/var/run/libvirt/virtqemud-sock", DefaultSocket}

// diagnose asks the host why its socket could not be opened: sshd says the same
// whether it may not forward or could not connect.
func diagnose(client *ssh.Client, t Target, cause error) error {
	path := quote(t.Socket)
	script := "if [ ! -e " + path + " ]; then echo missing; elif [ ! -S " + path + " ]; then echo nosocket; elif [ ! -w " + path +
		" ]; then echo denied; else echo fine; fi; for s in " + strings.Join(otherSockets, " ") + "; do [ -S $s ] && echo $s; done; true"
	answer, err := run(client, "sh -c "+quote(script))
	if err != nil {
		answer = nil
	}
	return explainSocket(t, answer, cause)
}

func explainSocket(t Target, answer []string, cause error) error {
	const setting = "`AllowStreamLocalForwarding yes` (and no `DisableForwarding`) in the host's sshd_config"
	state := ""
	if len(answer) > 0 {
		state = answer[0]
	}
	setup := func(format string, args ...any) error {
		return &SetupError{Host: t.Address, Message: fmt.Sprintf(format, args...)}
	}
	switch state {
	case "fine":
		return setup("sshd does not forward to %s, which is there: set %s, and reload sshd", t.Socket, setting)
	case "denied":
		return setup("user %q may not use %s: add the user to the socket's group (libvirt on most hosts)", t.User, t.Socket)
	case "nosocket":
		return setup("%s is not a socket: set the host's `socket` to libvirt's", t.Socket)
	case "missing":
		if len(answer) > 1 {
			return setup("there is no socket %s, but %s: set the host's `socket`", t.Socket, strings.Join(answer[1:], ", "))
		}
		return fmt.Errorf("there is no socket %s: is libvirtd running there?", t.Socket)
	}
	return fmt.Errorf("%w: is libvirtd running, may user %q use its socket, and is there %s?", cause, t.User, setting)
}

func run(client *ssh.Client, command string) ([]string, error) {
	session, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }() // the connection goes next
	out, err := session.Output(command)
	return strings.Fields(string(out)), err
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
