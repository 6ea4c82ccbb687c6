// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// A plain HTTP exchange has four ways to stall, each with its own watch: the
// client's body, the client taking the answer, the origin taking the body,
// and the origin's answer. None bounds the exchange as a whole.

// stallReader is a request's body that fails when the client sends nothing
// for timeout.
type stallReader struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
}

func (r *stallReader) Read(p []byte) (int, error) {
	if err := r.control.SetReadDeadline(time.Now().Add(r.timeout)); err != nil {
		return 0, err
	}
	n, err := r.ReadCloser.Read(p)
	if err == io.EOF {
		// From here on net/http watches for the client's end by reading: a
		// deadline left in place would look like one.
		_ = r.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// stallWriter is an answer that fails when the client takes nothing for
// timeout.
type stallWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (w *stallWriter) Write(p []byte) (int, error) {
	if err := w.control.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush and hijack.
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// stallConn fails a write that the origin does not take for timeout. It has
// no such bound on reads: the transport reads ahead while a body goes up.
type stallConn struct {
	net.Conn
	timeout time.Duration
}

func (c *stallConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

var errStalled = errors.New("the origin stopped in the middle of its answer")

// stallTransport cancels an exchange whose answer's body does not come
// forward for timeout.
type stallTransport struct {
	base    http.RoundTripper
	timeout time.Duration
}

func (t stallTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	answer, err := t.base.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel(err)
		return nil, err
	}
	body := &stallBody{ReadCloser: answer.Body, timeout: t.timeout, cancel: cancel}
	// What has been upgraded is no HTTP any more, and may be silent.
	if answer.StatusCode != http.StatusSwitchingProtocols {
		body.timer = time.AfterFunc(t.timeout, func() { cancel(errStalled) })
		answer.Body = body
	}
	return answer, nil
}

// stallBody is an answer's body; its timer runs only while it is read.
type stallBody struct {
	io.ReadCloser
	timeout time.Duration
	cancel  context.CancelCauseFunc
	timer   *time.Timer
}

func (b *stallBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.timeout)
	defer b.timer.Stop()
	return b.ReadCloser.Read(p)
}

func (b *stallBody) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
