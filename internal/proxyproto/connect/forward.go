// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// forwarded are headers that httputil.ReverseProxy takes for its own; for a
// forward proxy they are the client's.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// serveForward sends a plain HTTP request on.
func (s *Server) serveForward(w http.ResponseWriter, r *http.Request, username string) {
	if r.URL.Scheme != "http" || r.URL.Host == "" {
		refuse(w, http.StatusBadRequest, "bad-request",
			"This is a proxy: it takes http:// URLs in absolute form, and CONNECT for everything else.")
		return
	}
	target, err := proxyproto.ParseTarget(withPort(r.URL.Host))
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad-request", "The URL cannot be used: "+err.Error()+".")
		return
	}
	request := proxyproto.Request{
		Protocol: proxyproto.ProtocolHTTP, Username: username, Target: target, Client: clientAddr(r),
	}
	control := http.NewResponseController(w)
	r = r.WithContext(proxyproto.WithRequest(r.Context(), request))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &stallReader{ReadCloser: r.Body, control: control, timeout: s.config.StallTimeout}
	}
	s.forward.ServeHTTP(&stallWriter{ResponseWriter: w, control: control, timeout: s.config.StallTimeout}, r)
}

// withPort adds the port that http:// implies.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return net.JoinHostPort(host, "80")
}

func (s *Server) newForward(logger *log.Logger) *httputil.ReverseProxy {
	transport := s.config.Transport
	if transport == nil {
		s.origins = s.newOrigins()
		transport = s.origins
	}
	return &httputil.ReverseProxy{
		Rewrite:    rewrite,
		Transport:  stallTransport{transport, s.config.StallTimeout},
		BufferPool: &bufferPool{},
		ErrorLog:   logger,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			refuseFailure(w, err)
		},
	}
}

// rewrite leaves the request as the client made it: ReverseProxy has taken
// off the hop-by-hop headers, Proxy-Authorization among them.
func rewrite(pr *httputil.ProxyRequest) {
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	pr.Out.URL.User = nil
	for _, name := range forwarded {
		if values := pr.In.Header[name]; values != nil {
			pr.Out.Header[name] = values
		}
	}
	pr.Out.Header.Del(headerProxyAuthorization)
}

// newOrigins is the transport to origin servers.
func (s *Server) newOrigins() *http.Transport {
	return &http.Transport{
		DialContext:            s.dialOrigin,
		DisableCompression:     true, // bytes pass as they are
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    32,
		IdleConnTimeout:        30 * time.Second,
		ResponseHeaderTimeout:  s.config.StallTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: int64(s.config.MaxHeaderBytes),
	}
}

// dialOrigin dials for the request that its context carries. The transport
// may give the connection to another request for the same host and port.
func (s *Server) dialOrigin(ctx context.Context, _, _ string) (net.Conn, error) {
	request, ok := proxyproto.RequestFrom(ctx)
	if !ok {
		return nil, errors.New("no request in the context of a dial")
	}
	conn, err := s.config.Dial(ctx, request)
	if err != nil {
		return nil, err
	}
	return &stallConn{Conn: conn, timeout: s.config.StallTimeout}, nil
}

// bufferPool is httputil.BufferPool over sync.Pool.
type bufferPool struct{ pool sync.Pool }

const forwardBufferSize = 32 << 10

func (p *bufferPool) Get() []byte {
	if buffer, ok := p.pool.Get().(*[forwardBufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, forwardBufferSize)
}

func (p *bufferPool) Put(buffer []byte) {
	if len(buffer) == forwardBufferSize {
		p.pool.Put((*[forwardBufferSize]byte)(buffer))
	}
}
