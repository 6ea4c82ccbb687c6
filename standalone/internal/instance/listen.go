// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
)

// listen takes the port that was asked for, or else the one that the file remembers, or else a free one, and remembers it: copies
// of the kubeconfig stay good over restarts.
func listen(port int, file string) (*net.TCPListener, error) {
	if port != 0 {
		listener, err := listenOn(port)
		if err != nil {
			return nil, fmt.Errorf("cannot listen for the API: %w (choose another --port, or 0 for a free one)", err)
		}
		return listener, remember(listener, file)
	}
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the port of the last start: %w", err)
	}
	if last, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil {
		if listener, err := listenOn(last); err == nil {
			return listener, nil
		}
	}
	listener, err := listenOn(0)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the API: %w", err)
	}
	return listener, remember(listener, file)
}

func listenOn(port int) (*net.TCPListener, error) {
	return net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
}

func remember(listener *net.TCPListener, file string) error {
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err == nil {
		err = datadir.WriteFile(file, []byte(port+"\n"))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("remember the port: %w", err), listener.Close())
	}
	return nil
}
