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

// ProtocolVersion is the version of the control requests. Since 2, agents keep the credentials before the new ones for a while.
const ProtocolVersion = 2

// OverlapVersion is the first version that knows OverlapSeconds.
const OverlapVersion = 2

// MaxOverlap bounds how long the credentials before the new ones may be kept.
const MaxOverlap = 7 * 24 * time.Hour

// Status is what an agent says of itself.
type Status struct {
	// Version is the agent's release.
	Version string `json:"version"`
	// ProtocolVersion is that of the control requests it takes.
	ProtocolVersion int `json:"protocolVersion"`
	// CredentialsFingerprint is Fingerprint of the credentials that are valid
	// now.
	CredentialsFingerprint string `json:"credentialsFingerprint"`
	// CurrentFingerprint is Fingerprint of those of them that have no end.
	CurrentFingerprint string `json:"currentFingerprint,omitempty"`
	// PreviousSeconds is how long, from now on, the last of the others is
	// valid; 0 when there are none.
	PreviousSeconds int64     `json:"previousSeconds,omitempty"`
	StartedAt       time.Time `json:"startedAt"`
	// Connections are clients' connections that are open now.
	Connections int `json:"connections"`
}

// Current is the fingerprint of the credentials without an end. Agents of
// protocol version 1 do not tell them apart.
func (s Status) Current() string {
	if s.ProtocolVersion < OverlapVersion {
		return s.CredentialsFingerprint
	}
	return s.CurrentFingerprint
}

// Previous is how long credentials that were replaced are still valid.
func (s Status) Previous() time.Duration { return time.Duration(s.PreviousSeconds) * time.Second }

// CredentialsRequest replaces all credentials at once.
type CredentialsRequest struct {
	Credentials []Credential `json:"credentials"`
	// OverlapSeconds is how long those that are replaced stay valid, by the
	// guest's clock: 0, which ends them at once, to MaxOverlap.
	OverlapSeconds int64 `json:"overlapSeconds,omitempty"`
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
	active := s.config.Credentials.Active()
	current, previous := splitByEnd(active, s.config.Credentials.now())
	return Status{
		Version:                s.config.Version,
		ProtocolVersion:        ProtocolVersion,
		CredentialsFingerprint: Fingerprint(s.config.Key, active),
		CurrentFingerprint:     Fingerprint(s.config.Key, current),
		PreviousSeconds:        int64((previous + time.Second - 1) / time.Second),
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
	if err := s.checkCredentials(request); err != nil {
		writeJSON(w, http.StatusUnprocessableEntity, errorBody{err.Error()})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := overlapping(request, s.config.Credentials.Active(), s.config.Credentials.now())
	if err := s.config.Save(next); err != nil {
		s.config.Logf.Printf("new credentials could not be kept, the old ones stay: %v", err)
		writeJSON(w, http.StatusInternalServerError, errorBody{fmt.Sprintf("the credentials could not be kept in the guest, the old ones stay in force: %v", err)})
		return
	}
	s.config.Credentials.Replace(next)
	s.config.Logf.Printf("credentials replaced by a control request: %d in force", len(s.config.Credentials.Active()))
	writeJSON(w, http.StatusOK, s.status())
}

// checkCredentials refuses a set that would lock everybody out.
func (s *Server) checkCredentials(request CredentialsRequest) error {
	if err := ValidateCredentials(request.Credentials); err != nil {
		return err
	}
	if most := int64(MaxOverlap / time.Second); request.OverlapSeconds < 0 || request.OverlapSeconds > most {
		return fmt.Errorf("overlapSeconds: must be 0 to %d, is %d", most, request.OverlapSeconds)
	}
	if len(ActiveAt(request.Credentials, s.config.Credentials.now())) == 0 {
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
