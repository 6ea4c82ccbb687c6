// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/splice"
)

// answering is a proxy that answers CONNECT with a fixed text.
func answering(t *testing.T, text string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	go func() {
		if _, err := http.ReadRequest(bufio.NewReader(server)); err != nil {
			return
		}
		_, _ = io.WriteString(server, text)
		server.Close()
	}()
	return client
}

func TestHandshakeKeepsBytesThatCameWithTheAnswer(t *testing.T) {
	tunnel, err := Handshake(t.Context(), answering(t, established+"banner"), username, password, "example.org:22")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := tunnel.(splice.Unwrapper); !ok {
		t.Errorf("a tunnel could not splice %T", tunnel)
	}
	if got, err := io.ReadAll(tunnel); err != nil || string(got) != "banner" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestHandshakeErrors(t *testing.T) {
	for name, text := range map[string]string{
		"no HTTP":           "SSH-2.0-OpenSSH\r\n",
		"nothing":           "",
		"an endless header": "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 10000),
		"a redirect":        "HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			if tunnel, err := Handshake(t.Context(), answering(t, text), username, password, "example.org:22"); err == nil {
				t.Errorf("%v", tunnel)
			}
		})
	}
	t.Run("a target that would smuggle a header", func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		if _, err := Handshake(t.Context(), client, username, password, "a\r\nX: y:80"); err == nil {
			t.Error("accepted")
		}
	})
	t.Run("the end of its context ends it", func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := Handshake(ctx, client, username, password, "example.org:22"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}
