// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// disk is a small raw image.
var disk = []byte(strings.Repeat("0123456789abcdef", 8192))

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// serve runs a handler on loopback until the test ends; clients that still wait are cut off.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// whole serves the disk as plain file servers do.
func whole(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", strconv.Itoa(len(disk)))
	_, _ = w.Write(disk)
}

func pinned(url string) Source { return Source{URL: url, SHA256: digestOf(disk)} }

func readAll(t *testing.T, o *Opener, source Source) ([]byte, int64, error) {
	t.Helper()
	body, length, err := o.Open(t.Context(), source)
	if err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(body)
	if closed := body.Close(); err == nil {
		err = closed
	}
	return data, length, err
}

func wantError(t *testing.T, err error, kind Kind, says string) {
	t.Helper()
	if err == nil || KindOf(err) != kind || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v, want a %v one that says %q", err, kind, says)
	}
}

func TestGETDecides(t *testing.T) {
	for name, head := range map[string]http.HandlerFunc{
		"M9: HEAD is refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"M9: HEAD answers 200 without a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Transfer-Encoding", "chunked")
			w.WriteHeader(http.StatusOK)
		},
		"M9: HEAD answers 204":                   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"M11: HEAD promises less than GET gives": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "7") },
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					head(w, r)
					return
				}
				whole(w, r)
			})
			data, length, err := readAll(t, &Opener{}, pinned(url))
			if err != nil || length != int64(len(disk)) || string(data) != string(disk) {
				t.Errorf("%d bytes of %d, %v; want %d", len(data), length, err, len(disk))
			}
		})
	}
}

func TestLengthIsBounded(t *testing.T) {
	declare := func(length string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", length)
			_, _ = w.Write(disk)
		}
	}
	t.Run("M11: more than maxImageBytes is refused before a byte is stored", func(t *testing.T) {
		_, _, err := readAll(t, &Opener{MaxBytes: 1 << 20}, pinned(serve(t, declare("1048577"))))
		wantError(t, err, Permanent, "has 1048577 bytes, and maxImageBytes is 1048576")
	})
	t.Run("M11: an endless body without a length is refused", func(t *testing.T) {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(disk); err != nil {
					return
				}
			}
		})
		_, _, err := readAll(t, &Opener{}, pinned(url))
		wantError(t, err, Permanent, "does not say how long")
	})
	t.Run("M11: an endless body is cut at the declared length", func(t *testing.T) {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			conn, out, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = out.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			for range 100 {
				if _, err := out.Write(disk); err != nil {
					return
				}
			}
		})
		data, length, err := readAll(t, &Opener{}, pinned(url))
		if err != nil || length != 1000 || string(data) != string(disk[:1000]) {
			t.Errorf("%d bytes of %d, %v", len(data), length, err)
		}
	})
	t.Run("M11: a file that grows is cut at the length it had", func(t *testing.T) {
		o := &Opener{openPath: func(string) (file, error) { return growing{}, nil }}
		data, length, err := readAll(t, o, Source{URL: "file:///x"})
		if err != nil || length != growingBytes || len(data) != growingBytes {
			t.Errorf("%d bytes of %d, %v", len(data), length, err)
		}
	})
	t.Run("empty", func(t *testing.T) {
		_, _, err := readAll(t, &Opener{}, pinned(serve(t, func(http.ResponseWriter, *http.Request) {})))
		wantError(t, err, Permanent, "is empty")
	})
}

// growing is a file that somebody writes to.
type growing struct{ fs.FileInfo }

const growingBytes = 1000

func (growing) Read(p []byte) (int, error)   { return len(p), nil }
func (growing) Close() error                 { return nil }
func (g growing) Stat() (fs.FileInfo, error) { return g, nil }
func (growing) Mode() fs.FileMode            { return 0 }
func (growing) Size() int64                  { return growingBytes }

func TestBodyThatBreaksOff(t *testing.T) {
	half := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", strconv.Itoa(len(disk)))
		_, _ = w.Write(disk[:1000])
		_ = http.NewResponseController(w).Flush()
	}
	t.Run("short", func(t *testing.T) {
		_, _, err := readAll(t, &Opener{}, pinned(serve(t, func(w http.ResponseWriter, _ *http.Request) {
			half(w)
			panic(http.ErrAbortHandler)
		})))
		wantError(t, err, Transient, "after 1000 of 131072 bytes")
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cause of %v is not an unexpected end", err)
		}
	})
	t.Run("stalled", func(t *testing.T) {
		_, _, err := readAll(t, &Opener{StallTimeout: time.Second}, pinned(serve(t, func(w http.ResponseWriter, r *http.Request) {
			half(w)
			<-r.Context().Done()
		})))
		wantError(t, err, Transient, "after 1000 of 131072 bytes the server sent nothing for 1s")
	})
	t.Run("no answer", func(t *testing.T) {
		_, _, err := readAll(t, &Opener{StallTimeout: time.Second}, pinned(serve(t, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		})))
		wantError(t, err, Transient, "timeout awaiting response headers")
	})
	t.Run("the context ends while a read waits", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			half(w)
			cancel()
			<-r.Context().Done()
		})
		body, _, err := (&Opener{}).Open(ctx, pinned(url))
		if err == nil {
			_, err = io.ReadAll(body)
			_ = body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that the context was ended", err)
		}
	})
	t.Run("file that shrinks", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "disk.raw")
		if err := os.WriteFile(path, bytes.Repeat(disk, 32), 0o600); err != nil {
			t.Fatal(err)
		}
		body, _, err := (&Opener{}).Open(t.Context(), Source{URL: "file://" + path})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 10); err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(body)
		wantError(t, err, Transient, "of 4194304 bytes the body ended")
		_ = body.Close()
	})
}

func TestAnswers(t *testing.T) {
	for code, kind := range map[int]Kind{
		204: Transient, 206: Transient, 400: Permanent, 401: Permanent, 403: Permanent, 404: Permanent, 408: Transient, 410: Permanent,
		429: Transient, 500: Transient, 502: Transient, 503: Transient, 504: Transient,
	} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			_, _, err := readAll(t, &Opener{}, pinned(serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })))
			wantError(t, err, kind, "the server answers "+strconv.Itoa(code))
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		_, _, err = readAll(t, &Opener{}, pinned("http://"+address+"/x"))
		wantError(t, err, Transient, "connection refused")
	})
}

func TestSourceRefused(t *testing.T) {
	digest := digestOf(disk)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		source Source
		says   string
	}{
		"M17: http without a digest":           {Source{URL: "http://127.0.0.1:1/x"}, "http without a digest"},
		"L24: userinfo":                        {Source{URL: "https://bob:hunter2@127.0.0.1:1/x"}, "user or password"},
		"L24: query of what is refused":        {Source{URL: "ftp://127.0.0.1/x?token=hunter2", SHA256: digest}, `"ftp"`},
		"L24: userinfo of what cannot be read": {Source{URL: "https://bob:hunter2@127.0.0.1:x y/", SHA256: digest}, "not a URL"},
		"no scheme":                            {Source{URL: "/var/lib/x"}, "scheme"},
		"no host":                              {Source{URL: "https:///x"}, "no host"},
		"digest":                               {Source{URL: "https://127.0.0.1:1/x", SHA256: "hunter2"}, "not a SHA-256"},
		"digest of another kind":               {Source{URL: "https://127.0.0.1:1/x", SHA256: digest[:40]}, "not a SHA-256"},
		"format":                               {Source{URL: "https://127.0.0.1:1/x", Format: "vmdk"}, `"vmdk"`},
		"file of another machine":              {Source{URL: "file://server/x"}, "absolute path"},
		"no such file":                         {Source{URL: "file:///nonexistent/x"}, "no such file"},
		"directory":                            {Source{URL: "file:///"}, "not a regular file"},
		"pipe":                                 {Source{URL: "file://" + fifo}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := readAll(t, &Opener{}, test.source)
			wantError(t, err, Permanent, test.says)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

func TestErrorsOfTheNetworkShowNoQuery(t *testing.T) {
	t.Run("L24: a token in the query is not in the error", func(t *testing.T) {
		url := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		_, _, err := readAll(t, &Opener{}, pinned(url+"/x?token=hunter2"))
		wantError(t, err, Transient, "image source http://127.0.0.1")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows a secret: %v", err)
		}
	})
}

func TestRedirects(t *testing.T) {
	target := serve(t, whole)
	tlsServer := httptest.NewTLSServer(http.RedirectHandler(target, http.StatusFound))
	t.Cleanup(tlsServer.Close)
	roots := tlsServer.Client().Transport.(*http.Transport).TLSClientConfig
	for name, test := range map[string]struct {
		to   string
		says string // "" means followed
	}{
		"to http, with a digest": {target, ""},
		"into the file system":   {"file:///etc/passwd", "redirects into the file system"},
		"to another scheme":      {"gopher://127.0.0.1/", `"gopher"`},
		"L24: to userinfo":       {strings.Replace(target, "http://", "http://bob:hunter2@", 1), "user or password"},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", test.to)
				w.WriteHeader(http.StatusFound)
			})
			_, _, err := readAll(t, &Opener{}, pinned(url))
			if test.says == "" && err != nil {
				t.Errorf("not followed: %v", err)
			}
			if test.says != "" {
				wantError(t, err, Permanent, test.says)
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the error shows a secret: %v", err)
				}
			}
		})
	}
	t.Run("in circles", func(t *testing.T) {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) })
		_, _, err := readAll(t, &Opener{}, pinned(url))
		wantError(t, err, Permanent, "more than 10 redirects")
	})
	t.Run("M17: from https to http without a digest", func(t *testing.T) {
		_, _, err := readAll(t, &Opener{TLS: roots}, Source{URL: tlsServer.URL})
		wantError(t, err, Permanent, "http without a digest")
	})
	t.Run("unknown certificate", func(t *testing.T) {
		_, _, err := readAll(t, &Opener{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, Source{URL: tlsServer.URL})
		wantError(t, err, Permanent, "certificate is refused")
	})
}

func TestPolicies(t *testing.T) {
	url := serve(t, whole)
	elsewhere := strings.Replace(url, "127.0.0.1", "localhost", 1)
	hop := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, http.StatusFound) })
	onlyLoopbackAddress := &Opener{AllowHost: func(host string) error {
		if host != "127.0.0.1" {
			return errors.New("host " + host + " is not in allowURLImages")
		}
		return nil
	}}
	t.Run("host", func(t *testing.T) {
		_, _, err := readAll(t, onlyLoopbackAddress, pinned(elsewhere))
		wantError(t, err, Permanent, "host localhost is not in allowURLImages")
	})
	t.Run("host of a redirect", func(t *testing.T) {
		_, _, err := readAll(t, onlyLoopbackAddress, pinned(hop))
		wantError(t, err, Permanent, "host localhost is not in allowURLImages")
	})
	t.Run("address, after name resolution", func(t *testing.T) {
		refuse := &Opener{DialControl: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return &Error{Kind: Permanent, Message: "address " + address + " is refused"}
		}}
		_, _, err := readAll(t, refuse, pinned(elsewhere))
		wantError(t, err, Permanent, "is refused")
	})
	t.Run("no proxy of the environment", func(t *testing.T) {
		t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
		t.Setenv("http_proxy", "http://127.0.0.1:1")
		client := (&Opener{}).client(pinned(url))
		if client.Transport.(*mirrored).base.Proxy != nil {
			t.Error("the environment's proxy is used")
		}
	})
}
