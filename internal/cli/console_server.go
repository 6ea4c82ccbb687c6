// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/proxy"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// DefaultConsoleSocket is a file in a folder that only this user can enter: the first operator of a user has it.
func DefaultConsoleSocket() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("egress-proxies-%d", os.Getuid()), "console.sock")
}

// consoleServer shows the consoles of guests to who may open a file of the operator's: its user, and root. They may hold secrets, so there is no other way
// to them, and they are never logged.
type consoleServer struct {
	socket  string
	proxies client.Reader
	current func() proxy.Set
	log     *slog.Logger
}

// Start serves until ctx ends. A socket that cannot be had is no reason for an operator not to work.
func (s *consoleServer) Start(ctx context.Context) error {
	listener, err := listenPrivately(ctx, s.socket)
	if err != nil {
		s.log.Warn("consoles cannot be shown: name another place with --console-socket", "error", err)
		return nil
	}
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = server.Close() // its error is the listener's, which has to end anyway
		if err = <-ended; errors.Is(err, http.ErrServerClosed) {
			return nil
		}
	}
	return fmt.Errorf("console socket %s: %w", s.socket, err)
}

// listenPrivately listens on a socket that nobody else can reach, and takes the place of one whose process has ended.
func listenPrivately(ctx context.Context, socket string) (net.Listener, error) {
	dir := filepath.Dir(socket)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("folder %s must belong to this user, and be open to nobody else (chmod 700)", dir)
	}
	if conn, err := new(net.Dialer).DialContext(ctx, "unix", socket); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("another operator serves %s", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return new(net.ListenConfig).Listen(ctx, "unix", socket)
}

func (s *consoleServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /consoles/{namespace}/{name}", s.show)
	return mux
}

// consoleFailed is the trailer that says why a console ended before its reader did.
const consoleFailed = "Console-Failed"

func (s *consoleServer) show(w http.ResponseWriter, r *http.Request) {
	follow, err := strconv.ParseBool(r.URL.Query().Get("follow"))
	if err != nil {
		http.Error(w, "follow must be true or false", http.StatusBadRequest)
		return
	}
	consoler, ref, err := s.find(r.Context(), client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")})
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Trailer", consoleFailed)
	out := &flushed{ResponseWriter: w, control: http.NewResponseController(w)}
	err = consoler.Console(r.Context(), ref, follow, out)
	switch {
	case err == nil || r.Context().Err() != nil:
	case out.begun:
		w.Header().Set(consoleFailed, err.Error())
	default:
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// find is who has the console of a Proxy's guest.
func (s *consoleServer) find(ctx context.Context, name client.ObjectKey) (provider.Consoler, provider.InstanceRef, error) {
	var p v1alpha1.Proxy
	none := provider.InstanceRef{}
	if err := s.proxies.Get(ctx, name, &p); apierrors.IsNotFound(err) {
		return nil, none, fmt.Errorf("there is no Proxy %s", name)
	} else if err != nil {
		return nil, none, err
	}
	if p.Spec.Provider == "" || p.Status.Host == "" {
		return nil, none, fmt.Errorf("there is no instance of Proxy %s", name)
	}
	consoler, ok := s.current().Providers[p.Spec.Provider].(provider.Consoler)
	if !ok {
		return nil, none, fmt.Errorf("the instances of entry %s have no console", p.Spec.Provider)
	}
	return consoler, provider.InstanceRef{Host: p.Status.Host, UID: string(p.UID)}, nil
}

// flushed sends each piece at once.
type flushed struct {
	http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (f *flushed) Write(b []byte) (int, error) {
	f.begun = true
	n, err := f.ResponseWriter.Write(b)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}
