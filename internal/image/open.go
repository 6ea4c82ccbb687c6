// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

// Defaults of an Opener.
const (
	DefaultMaxBytes     = 16 << 30
	DefaultStallTimeout = time.Minute

	maxRedirects = 10
)

// Opener opens sources. The zero value works. It may be used by many goroutines at once.
type Opener struct {
	// MaxBytes bounds what a source may declare; 0 means DefaultMaxBytes.
	MaxBytes int64
	// StallTimeout bounds the wait for a connection, for an answer, and for each next byte; 0 means DefaultStallTimeout.
	StallTimeout time.Duration
	// AllowHost is asked about each host, by name, before it is contacted, redirects included; nil allows all. Its error is the answer.
	AllowHost func(host string) error
	// DialControl is net.Dialer's ControlContext: it sees each address after name resolution, and may refuse it; an *Error
	// of its keeps its kind. Nil allows all.
	DialControl func(ctx context.Context, network, address string, conn syscall.RawConn) error
	// TLS is the client's configuration; nil means the system's roots.
	TLS *tls.Config
}

func (o *Opener) maxBytes() int64 {
	if o.MaxBytes > 0 {
		return o.MaxBytes
	}
	return DefaultMaxBytes
}

func (o *Opener) stallTimeout() time.Duration {
	if o.StallTimeout > 0 {
		return o.StallTimeout
	}
	return DefaultStallTimeout
}

// Open starts to read a source. The length is what the source declares, in bytes, and the body gives exactly as many, or an error:
// Transient where it ends before, stalls or breaks. Reading ends when ctx does. The caller closes the body.
func (o *Opener) Open(ctx context.Context, source Source) (io.ReadCloser, int64, error) {
	u, err := source.parse()
	if err != nil {
		return nil, 0, err
	}
	open := o.get
	if u.Scheme == "file" {
		open = openFile
	}
	body, err := open(ctx, source, u)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case body.length < 0:
		err = permanent("serve it with Content-Length, as plain file servers do", "image source %s: the server does not say how long the image is", source)
	case body.length == 0:
		err = permanent("check what the URL serves", "image source %s: is empty", source)
	case body.length > o.maxBytes():
		err = permanent("raise maxImageBytes, or use a smaller image", "image source %s: has %d bytes, and maxImageBytes is %d", source, body.length, o.maxBytes())
	}
	if err != nil {
		return nil, 0, errors.Join(err, body.Close())
	}
	return body, body.length, nil
}

func openFile(_ context.Context, source Source, u *url.URL) (*body, error) {
	// Not blocking, for opening a pipe would.
	file, err := os.OpenFile(u.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // file:// comes from the providers file only
	if err != nil {
		return nil, fileError(source, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = permanent("name a file", "image source %s: is not a regular file", source)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &body{source: source, length: info.Size(), content: file, end: func(error) {}, cause: func() error { return nil }}, nil
}

func fileError(source Source, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return permanent("put it where the operator can read it", "image source %s: %v", source, errors.Unwrap(err))
	}
	return transient(err, "image source %s: %v", source, err)
}

// get asks with GET at once: what HEAD would say decides nothing.
func (o *Opener) get(ctx context.Context, source Source, u *url.URL) (*body, error) {
	if err := o.checkHost(u); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		end(nil)
		return nil, permanent("correct the URL", "image source %s: not a URL", source)
	}
	request.Header.Set("User-Agent", "egress-proxies-operator")
	response, err := o.client(source).Do(request)
	if err != nil {
		end(nil)
		return nil, requestError(source, err)
	}
	if response.StatusCode != http.StatusOK {
		end(nil)
		return nil, errors.Join(statusError(source, response), response.Body.Close())
	}
	return &body{
		source: source, length: response.ContentLength, content: response.Body, stall: o.stallTimeout(),
		end: end, cause: func() error { return context.Cause(ctx) },
	}, nil
}

// client is made anew for each fetch: no connection stays behind, none is shared, and no proxy of the environment is used.
func (o *Opener) client(source Source) *http.Client {
	dialer := &net.Dialer{Timeout: o.stallTimeout(), ControlContext: o.DialControl}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:           dialer.DialContext,
			TLSClientConfig:       o.TLS,
			TLSHandshakeTimeout:   o.stallTimeout(),
			ResponseHeaderTimeout: o.stallTimeout(),
			DisableKeepAlives:     true,
			DisableCompression:    true, // the length and the digest are those of the file as served
		},
		CheckRedirect: func(request *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return permanent("give the URL that serves the image", "image source %s: more than %d redirects", source, maxRedirects)
			}
			if request.URL.Scheme == "file" {
				return permanent("give a URL that serves the image", "image source %s: redirects into the file system", source)
			}
			if err := source.allowed(request.URL); err != nil {
				return err
			}
			return o.checkHost(request.URL)
		},
	}
}

func (o *Opener) checkHost(u *url.URL) error {
	if o.AllowHost == nil {
		return nil
	}
	if err := o.AllowHost(u.Hostname()); err != nil {
		return &Error{Kind: Permanent, Message: "image source " + config.RedactURL(u.String()) + ": " + err.Error(), Err: err}
	}
	return nil
}

// requestError drops net/url's own wrapping, which shows the whole URL.
func requestError(source Source, err error) error {
	var ours *Error
	if errors.As(err, &ours) {
		return ours
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var unknown *tls.CertificateVerificationError
	if errors.As(err, &unknown) {
		return &Error{Kind: Permanent, Message: "image source " + source.String() + ": the server's certificate is refused: " + unknown.Err.Error(), Err: err}
	}
	return transient(err, "image source %s: %v", source, err)
}

func statusError(source Source, response *http.Response) error {
	code := response.StatusCode
	switch {
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500, code < 400:
		return transient(nil, "image source %s: the server answers %d %s", source, code, http.StatusText(code))
	default:
		return permanent("check the URL", "image source %s: the server answers %d %s", source, code, http.StatusText(code))
	}
}
