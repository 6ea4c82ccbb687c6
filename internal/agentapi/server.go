// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// ProtocolVersion is the version of the control requests.
const ProtocolVersion = 1

// Status is what an agent says of itself.
type Status struct {
	// Version is the agent's release.
	Version string `json:"version"`
	// ProtocolVersion is that of the control requests it takes.
	ProtocolVersion int `json:"protocolVersion"`
	// CredentialsFingerprint is Fingerprint of the credentials that are valid
	// now.
	CredentialsFingerprint string    `json:"credentialsFingerprint"`
	StartedAt              time.Time `json:"startedAt"`
	// Connections are clients' connections that are open now.
	Connections int `json:"connections"`
}

// CredentialsRequest replaces all credentials at once. For an overlap it
// lists old and new, the old with a NotAfter.
type CredentialsRequest struct {
	Credentials []Credential `json:"credentials"`
}

// errorBody is the body of an answer that is not 200.
type errorBody struct {
	Error string `json:"error"`
}

const (
	pathStatus      = "/v1/status"
	pathCredentials = "/v1/credentials"

	maxBodyBytes = 64 << 10
)

// ServerConfig is what a Server needs; only Logf may be missing.
type ServerConfig struct {
	Key         Key
	Version     string
	StartedAt   time.Time
	Credentials *Credentials
	// Save makes a set outlive a restart; it is called before the set is in
	// force, one call at a time.
	Save        func([]Credential) error
	Connections func() int
	Logf        proxyproto.Logf
}

// Server answers control requests.
type Server struct {
	config ServerConfig
	tls    *tls.Config
	http   http.Server
	mu     sync.Mutex // serialises changes
}

// NewServer makes a server.
func NewServer(config ServerConfig) (*Server, error) {
	tlsConfig, err := ServerTLS(config.Key)
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, tls: tlsConfig}
	routes := http.NewServeMux()
	routes.HandleFunc("GET "+pathStatus, s.getStatus)
	routes.HandleFunc("PUT "+pathCredentials, s.putCredentials)
	s.http = http.Server{
		Handler:     routes,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10,
		// A scanner's broken handshake is not worth a line.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return s, nil
}

// Serve accepts TLS connections from l until Shutdown, then returns nil.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(tlsListener{l, s.tls})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting and waits for requests; when ctx ends first it
// closes them.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
		return err
	}
	return nil
}

// tlsListener is tls.NewListener, but for the connection's type: net/http
// serves an unknown ALPN name only when it does not see it. The handshake
// runs with the first read, under the server's ReadTimeout.
type tlsListener struct {
	net.Listener
	config *tls.Config
}

func (l tlsListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ net.Conn }{tls.Server(conn, l.config)}, nil
}

func (s *Server) status() Status {
	return Status{
		Version:                s.config.Version,
		ProtocolVersion:        ProtocolVersion,
		CredentialsFingerprint: Fingerprint(s.config.Key, s.config.Credentials.Active()),
		StartedAt:              s.config.StartedAt.UTC(),
		Connections:            s.config.Connections(),
	}
}

func (s *Server) getStatus(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.status())
}

func (s *Server) putCredentials(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		writeJSON(w, http.StatusBadRequest, errorBody{fmt.Sprintf("the request's body cannot be read: %v", err)})
		return
	}
	var request CredentialsRequest
	if err := decodeStrict(body, &request); err != nil {
		writeJSON(w, http.StatusBadRequest, errorBody{err.Error()})
		return
	}
	if err := s.checkCredentials(request.Credentials); err != nil {
		writeJSON(w, http.StatusUnprocessableEntity, errorBody{err.Error()})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.config.Save(request.Credentials); err != nil {
		s.config.Logf.Printf("new credentials could not be kept, the old ones stay: %v", err)
		writeJSON(w, http.StatusInternalServerError, errorBody{fmt.Sprintf("the credentials could not be kept in the guest, the old ones stay in force: %v", err)})
		return
	}
	s.config.Credentials.Replace(request.Credentials)
	s.config.Logf.Printf("credentials replaced by a control request: %d in force", len(s.config.Credentials.Active()))
	writeJSON(w, http.StatusOK, s.status())
}

// checkCredentials refuses a set that would lock everybody out.
func (s *Server) checkCredentials(credentials []Credential) error {
	if err := ValidateCredentials(credentials); err != nil {
		return err
	}
	if len(ActiveAt(credentials, s.config.Credentials.now())) == 0 {
		return errors.New("credentials: every notAfter has passed by the guest's clock; the old ones stay in force")
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may be gone; there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(body)
}
