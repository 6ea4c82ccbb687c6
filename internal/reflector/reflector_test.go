// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		method, target, source, nonce string
		status                        int
		body                          string
	}{
		"IPv4":             {"GET", "/", "203.0.113.7:4711", "", 200, `{"address":"203.0.113.7","port":4711}`},
		"IPv6":             {"GET", "/any/path", "[2001:db8::7]:4711", "", 200, `{"address":"2001:db8::7","port":4711}`},
		"mapped IPv4":      {"GET", "/", "[::ffff:203.0.113.7]:4711", "", 200, `{"address":"203.0.113.7","port":4711}`},
		"zone":             {"GET", "/", "[fe80::1%eth0]:4711", "", 200, `{"address":"fe80::1","port":4711}`},
		"text":             {"GET", "/?format=text", "203.0.113.7:4711", "", 200, "203.0.113.7"},
		"nonce":            {"GET", "/", "203.0.113.7:4711", "n0nce", 200, `{"address":"203.0.113.7","port":4711}`},
		"no other methods": {"POST", "/", "203.0.113.7:4711", "", 405, "this is a reflector"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			request := httptest.NewRequest(c.method, c.target, nil)
			request.RemoteAddr = c.source
			request.Header.Set(HeaderNonce, c.nonce)
			recorder := httptest.NewRecorder()
			Handler(slog.New(slog.NewTextHandler(&log, nil))).ServeHTTP(recorder, request)
			if recorder.Code != c.status || !strings.HasPrefix(recorder.Body.String(), c.body) {
				t.Errorf("%d %q", recorder.Code, recorder.Body)
			}
			if got := recorder.Header().Get(HeaderNonce); got != c.nonce {
				t.Errorf("nonce %q", got)
			}
			if c.status == 200 && strings.Count(log.String(), "\n") != 1 {
				t.Errorf("not one line a request: %q", log.String())
			}
		})
	}
	t.Run("a long nonce is dropped", func(t *testing.T) {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Header.Set(HeaderNonce, strings.Repeat("n", 65))
		recorder := httptest.NewRecorder()
		Handler(slog.New(slog.DiscardHandler)).ServeHTTP(recorder, request)
		if recorder.Header().Get(HeaderNonce) != "" {
			t.Error("echoed")
		}
	})
}

func TestServeBothFamiliesUntilTheEnd(t *testing.T) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, slog.New(slog.DiscardHandler)) }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	direct := &http.Client{Transport: &http.Transport{}}
	for _, host := range []string{"127.0.0.1", "::1"} {
		response, err := direct.Get("http://" + net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		var answer Answer
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Address != host || answer.Port == 0 {
			t.Errorf("%+v, %v", answer, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	direct.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
