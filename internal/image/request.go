// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// version is what a server says of the file that it serves, by which two answers can be told apart.
type version struct{ etag, modified string }

func versionOf(response *http.Response) version {
	return version{response.Header.Get("ETag"), response.Header.Get("Last-Modified")}
}

// known says whether the server says anything.
func (v version) known() bool { return v.etag != "" || v.modified != "" }

// condition is the value of If-Range, which takes a strong ETag or a date; empty where there is neither.
func (v version) condition() string {
	if v.etag != "" && !strings.HasPrefix(v.etag, "W/") {
		return v.etag
	}
	return v.modified
}

// differs says whether the two cannot be one file.
func (v version) differs(other version) bool {
	if v.etag != "" && other.etag != "" {
		return v.etag != other.etag
	}
	return v.modified != "" && other.modified != "" && v.modified != other.modified
}

// errChanged: the server serves another file than at the start. What came of the first is of no use.
var errChanged = errors.New("changed while it was fetched")

// get asks for the source from a byte on. It asks with GET at once: what HEAD would say decides nothing.
func (o *Opener) get(ctx context.Context, source Source, u *url.URL, from int64, seen version) (*http.Response, error) {
	if err := o.checkHost(u); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, permanent("correct the URL", "image source %s: not a URL", source)
	}
	request.Header.Set("User-Agent", "egress-proxies-operator")
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		if condition := seen.condition(); condition != "" {
			request.Header.Set("If-Range", condition)
		}
	}
	response, err := o.client(source).Do(request)
	if err != nil {
		return nil, requestError(source, err)
	}
	return response, nil
}

// client is made anew for each request: no connection stays behind, none is shared, and no proxy of the environment is used.
func (o *Opener) client(source Source) *http.Client {
	dialer := &net.Dialer{Timeout: o.stallTimeout(), ControlContext: o.DialControl}
	return &http.Client{
		Transport: &mirrored{mirrors: o.Mirrors, base: &http.Transport{
			DialContext:           dialer.DialContext,
			TLSClientConfig:       o.TLS,
			TLSHandshakeTimeout:   o.stallTimeout(),
			ResponseHeaderTimeout: o.stallTimeout(),
			DisableKeepAlives:     true,
			DisableCompression:    true, // the length and the digest are those of the file as served
		}},
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
		return &Error{
			Kind: Permanent, Message: "image source " + source.String() + ": the server's certificate is refused: " + unknown.Err.Error(),
			Next: "give its CA as caFile in the entry's mirrors", Err: err,
		}
	}
	return transient(err, "image source %s: %v", source, err)
}

func (o *Opener) statusError(source Source, response *http.Response) error {
	code := response.StatusCode
	switch {
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500, code < 400:
		return transient(nil, "image source %s: the server answers %d %s", source, code, http.StatusText(code))
	default:
		return permanent(o.hint(response.Request.URL, code), "image source %s: the server answers %d %s", source, code, http.StatusText(code))
	}
}

// rangeStart reads Content-Range: where the part starts, and how long the whole is, or -1 where the server does not say.
func rangeStart(header string) (start, total int64, ok bool) {
	rest, ok := strings.CutPrefix(header, "bytes ")
	if !ok {
		return 0, 0, false
	}
	span, size, _ := strings.Cut(rest, "/")
	first, _, _ := strings.Cut(span, "-")
	start, err := strconv.ParseInt(first, 10, 64)
	if err != nil || start < 0 {
		return 0, 0, false
	}
	if size == "*" {
		return start, -1, true
	}
	total, err = strconv.ParseInt(size, 10, 64)
	return start, total, err == nil && total >= 0
}
