// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/url"
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
	// Scope is who may share what this Opener fetches: fetches of one source are one download where their scopes are the same. Two Openers that
	// differ in anything else that decides what may be fetched have different scopes.
	Scope string
	// MaxBytes bounds what a source may declare, and what it may unpack to; 0 means DefaultMaxBytes.
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
	// Mirrors are servers that are asked in a way of their own, by host, or host:port where the port is not the scheme's; lower case.
	Mirrors map[string]Mirror

	// openPath opens a file of this machine; nil means openRegular.
	openPath func(path string) (file, error)
	// hangs are the files that are not to be tried again; nil for none.
	hangs *hangs
	// received is told how many bytes came over the network; nil for nobody.
	received func(n int)
	// unpacking is held while something is unpacked, which takes memory; nil for no bound.
	unpacking chan struct{}
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

// Open starts to read a source, as it is served. The length is what the source declares, in bytes, and the body gives exactly as many, or an error:
// Transient where it ends before, stalls or breaks, and asking for the rest did not help. Reading ends when ctx does. The caller closes the body.
func (o *Opener) Open(ctx context.Context, source Source) (io.ReadCloser, int64, error) {
	b, err := o.open(ctx, source)
	if err != nil {
		return nil, 0, err
	}
	return b, b.length, nil
}

func (o *Opener) open(ctx context.Context, source Source) (*body, error) {
	u, err := source.parse()
	if err != nil {
		return nil, err
	}
	b := &body{source: source, opener: o, url: u, ctx: ctx, stall: o.stallTimeout()}
	if u.Scheme == "file" {
		err = b.openFile()
	} else {
		err = b.ask()
	}
	if err != nil {
		return nil, err
	}
	switch {
	case b.length < 0:
		err = permanent("serve it with Content-Length, as plain file servers do", "image source %s: the server does not say how long the image is", source)
	case b.length == 0:
		err = permanent("check what the URL serves", "image source %s: is empty", source)
	case b.length > o.maxBytes():
		err = permanent("raise maxImageBytes, or use a smaller image", "image source %s: has %d bytes, and maxImageBytes is %d", source, b.length, o.maxBytes())
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
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
