// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"net"
	"net/http"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// established is the answer after which the connection is the tunnel's.
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// serveConnect dials, answers, and leaves the tunnel to a goroutine of its
// own, so that the memory of the HTTP exchange is freed.
func (s *Server) serveConnect(w http.ResponseWriter, r *http.Request, username string) {
	target, err := proxyproto.ParseTarget(r.RequestURI)
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad-request", "CONNECT needs host:port: "+err.Error()+".")
		return
	}
	request := proxyproto.Request{
		Protocol: proxyproto.ProtocolConnect, Username: username, Target: target, Client: clientAddr(r),
	}
	// The request's context ends when the client hangs up.
	upstream, err := s.config.Dial(r.Context(), request)
	if err != nil {
		refuseFailure(w, err)
		return
	}
	client, early, err := hijack(w)
	if err != nil {
		_ = upstream.Close()
		s.config.Logf.Printf("taking over a client's connection: %v", err)
		return
	}
	if !s.startTunnel(client, upstream, early) {
		_ = client.Close()
		_ = upstream.Close()
	}
}

// hijack takes the connection over, and what the client sent early.
func hijack(w http.ResponseWriter) (net.Conn, []byte, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	var early []byte
	if n := buffered.Reader.Buffered(); n > 0 {
		peeked, err := buffered.Peek(n)
		if err != nil {
			_ = conn.Close()
			return nil, nil, err
		}
		early = append(early, peeked...)
	}
	return conn, early, nil
}

func (s *Server) startTunnel(client, upstream net.Conn, early []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.tunnels.Go(func() {
		_ = client.SetDeadline(time.Now().Add(s.config.HeaderTimeout))
		_, err := client.Write([]byte(established))
		if err != nil || client.SetDeadline(time.Time{}) != nil {
			_ = client.Close()
			_ = upstream.Close()
			return
		}
		_, _ = s.config.Tunneler.Tunnel(s.ctx, client, upstream, early)
	})
	return true
}

// clientAddr is the client's address as net/http has it.
func clientAddr(r *http.Request) net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", r.RemoteAddr)
	if err != nil {
		return nil
	}
	return addr
}
