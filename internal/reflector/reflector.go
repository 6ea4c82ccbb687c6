// SPDX-License-Identifier: Apache-2.0

// Package reflector is an HTTP server that answers every request with the address that it came from: what a probe sends its request
// to, through a proxy, to learn the proxy's exit.
package reflector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/net/netutil"
)

// HeaderNonce of a request comes back in the answer, so that the asker knows the answer for its own and no cache's.
const HeaderNonce = "X-Egress-Nonce"

const (
	maxNonce       = 64
	maxHeaderBytes = 8 << 10
	requestTimeout = 10 * time.Second
	idleTimeout    = 30 * time.Second
	shutdownGrace  = 2 * time.Second
	maxConnections = 1024
)

// Answer is the JSON answer.
type Answer struct {
	// Address that the request came from, IPv4 or IPv6, without a zone.
	Address string `json:"address"`
	// Port that the request came from.
	Port uint16 `json:"port"`
}

// Handler answers with the source address of each request: as JSON, or as text with ?format=text. It logs each request as one line.
func Handler(log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		source, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			http.Error(w, "the source address of this request is not known", http.StatusInternalServerError)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this is a reflector: GET it, and it answers with the address that you came from", http.StatusMethodNotAllowed)
			return
		}
		answer := Answer{Address: source.Addr().Unmap().WithZone("").String(), Port: source.Port()}
		log.Info("request", "source", answer.Address, "port", answer.Port, "method", r.Method, "path", r.URL.Path)
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		if nonce := r.Header.Get(HeaderNonce); nonce != "" && len(nonce) <= maxNonce {
			header.Set(HeaderNonce, nonce)
		}
		if r.URL.Query().Get("format") == "text" {
			header.Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = fmt.Fprintln(w, answer.Address)
			return
		}
		header.Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// Serve answers on the listener until ctx ends, then finishes the requests at hand. It returns nil after such an end. A listener on
// ":port" serves IPv4 and IPv6.
func Serve(ctx context.Context, listener net.Listener, log *slog.Logger) error {
	server := &http.Server{
		Handler:           Handler(log),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(netutil.LimitListener(listener, maxConnections))
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
