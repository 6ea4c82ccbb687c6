// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

const consoleLong = `Show what the guest of a Proxy says on its console: for guests that boot and never report.

The operator reads the console of each guest until its Proxy is Ready, and keeps the last 64 KiB. It shows them on a socket in its file system, which only its
own user and root can open; so this command runs where the operator runs:

  kubectl -n egress-proxies exec deploy/egress-proxies-operator -- egress-proxies console -n team-a exit-1

A console may hold secrets. Control characters are left out unless --raw is given: a guest could use them against your terminal.`

func newConsole(s streams) *cobra.Command {
	var namespace, socket string
	var follow, raw bool
	cmd := &cobra.Command{
		Use: "console PROXY", Short: "Show what the guest of a Proxy says on its console", Long: consoleLong,
		Example: `  egress-proxies console -n team-a exit-1
  egress-proxies console -n team-a exit-1 --follow`,
		Args: UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := plainText
			if raw {
				show = func(to io.Writer, from io.Reader) error {
					_, err := io.Copy(to, from)
					return err
				}
			}
			return showConsole(cmd.Context(), socket, namespace, args[0], follow, func(from io.Reader) error { return show(s.out, from) })
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "`NAMESPACE` of the Proxy")
	cmd.Flags().StringVar(&socket, "socket", DefaultConsoleSocket(), "`PATH` of the operator's --console-socket")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what the guest says from now on")
	cmd.Flags().BoolVar(&raw, "raw", false, "also what could change the state of a terminal")
	return cmd
}

func showConsole(ctx context.Context, socket, namespace, name string, follow bool, show func(io.Reader) error) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	where := url.URL{Scheme: "http", Host: "operator", Path: "/consoles/" + namespace + "/" + name, RawQuery: fmt.Sprintf("follow=%t", follow)}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("no operator answers: %w; run this where the operator runs, as its user, and with its --console-socket as --socket", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := bufio.NewReader(io.LimitReader(response.Body, 4<<10)).ReadString('\n') // what is cut short is shown so
		return errors.New(strings.TrimSpace(text))
	}
	if err := show(response.Body); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the operator ended: %w", err)
	}
	if why := response.Trailer.Get(consoleFailed); why != "" {
		return errors.New(why)
	}
	return nil
}

// plainText copies text without what could change the state of a terminal: all control characters but newlines and tabs. What is no UTF-8 becomes U+FFFD.
func plainText(to io.Writer, from io.Reader) error {
	in, out := bufio.NewReader(from), bufio.NewWriter(to)
	for {
		char, _, err := in.ReadRune()
		if err != nil {
			flushed := out.Flush()
			if errors.Is(err, io.EOF) {
				return flushed
			}
			return err
		}
		if char == '\n' || char == '\t' || !unicode.IsControl(char) {
			if _, err := out.WriteRune(char); err != nil {
				return err
			}
		}
		if in.Buffered() == 0 { // nothing more has come yet
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}
