// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// mirror is a server over TLS that notes what it is asked, with its CA in a file.
type mirror struct {
	*httptest.Server
	host, ca string

	mu   sync.Mutex
	seen []http.Header
}

func newMirror(t *testing.T, handler http.HandlerFunc) *mirror {
	t.Helper()
	m := &mirror{}
	m.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.seen = append(m.seen, r.Header.Clone())
		m.mu.Unlock()
		handler(w, r)
	}))
	t.Cleanup(m.Close)
	m.host = strings.TrimPrefix(m.URL, "https://")
	m.ca = secret(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})))
	return m
}

func (m *mirror) header(t *testing.T) http.Header {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen) == 0 {
		t.Fatal("the server was not asked")
	}
	return m.seen[len(m.seen)-1]
}

// secret is a file that holds text.
func secret(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMirrors(t *testing.T) {
	private := newMirror(t, whole)
	for name, test := range map[string]struct {
		mirror Mirror
		want   string
	}{
		"its own CA": {Mirror{CAFile: private.ca}, ""},
		"a token":    {Mirror{CAFile: private.ca, BearerTokenFile: secret(t, "hunter2\n")}, "Bearer hunter2"},
		"basic":      {Mirror{CAFile: private.ca, BasicAuthFile: secret(t, "bob:hunter2:x\r\n")}, "Basic Ym9iOmh1bnRlcjI6eA=="},
	} {
		t.Run(name, func(t *testing.T) {
			o := &Opener{Mirrors: map[string]Mirror{private.host: test.mirror}}
			if _, _, err := readAll(t, o, Source{URL: private.URL + "/a"}); err != nil {
				t.Fatal(err)
			}
			if got := private.header(t).Get("Authorization"); got != test.want {
				t.Errorf("sent %q, want %q", got, test.want)
			}
		})
	}
	t.Run("a token that changes is read anew", func(t *testing.T) {
		file := secret(t, "one")
		o := &Opener{Mirrors: map[string]Mirror{private.host: {CAFile: private.ca, BearerTokenFile: file}}}
		for _, token := range []string{"one", "two"} {
			if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := readAll(t, o, Source{URL: private.URL}); err != nil || private.header(t).Get("Authorization") != "Bearer "+token {
				t.Errorf("sent %q, %v", private.header(t).Get("Authorization"), err)
			}
		}
	})
	for name, test := range map[string]struct {
		mirror Mirror
		says   string
	}{
		"no CA given":            {Mirror{BearerTokenFile: secret(t, "hunter2")}, "certificate is refused"},
		"CA that is none":        {Mirror{CAFile: secret(t, "hunter2")}, "holds no PEM certificate"},
		"no such file":           {Mirror{CAFile: private.ca, BearerTokenFile: "/nonexistent/token"}, "no such file"},
		"empty token":            {Mirror{CAFile: private.ca, BearerTokenFile: secret(t, "\n")}, "does not hold one line"},
		"two lines":              {Mirror{CAFile: private.ca, BearerTokenFile: secret(t, "hunter2\nhunter2")}, "does not hold one line"},
		"basic without password": {Mirror{CAFile: private.ca, BasicAuthFile: secret(t, "hunter2")}, "does not hold user:password"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &Opener{Mirrors: map[string]Mirror{private.host: test.mirror}}
			_, _, err := readAll(t, o, Source{URL: private.URL})
			wantError(t, err, Permanent, test.says)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
	t.Run("refused for lack of credentials", func(t *testing.T) {
		locked := newMirror(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		o := &Opener{Mirrors: map[string]Mirror{locked.host: {CAFile: locked.ca}}}
		_, _, err := readAll(t, o, Source{URL: locked.URL})
		wantError(t, err, Permanent, "check the credentials of this server")
	})
}

func TestCredentialsGoToTheirHostAlone(t *testing.T) {
	elsewhere := newMirror(t, whole)
	private := newMirror(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/a", http.StatusFound)
	})
	token := Mirror{CAFile: private.ca, BearerTokenFile: secret(t, "hunter2")}
	t.Run("a redirect to another host takes none along", func(t *testing.T) {
		o := &Opener{Mirrors: map[string]Mirror{private.host: token, elsewhere.host: {CAFile: elsewhere.ca}}}
		if _, _, err := readAll(t, o, Source{URL: private.URL + "/a?key=hunter2"}); err != nil {
			t.Fatal(err)
		}
		if got := private.header(t).Get("Authorization"); got != "Bearer hunter2" {
			t.Errorf("its own host was sent %q", got)
		}
		for name, values := range elsewhere.header(t) {
			if strings.Contains(strings.Join(values, " "), "hunter2") {
				t.Errorf("the other host was sent %s: %s", name, values)
			}
		}
	})
	t.Run("a resumed download brings its own", func(t *testing.T) {
		server := &breaking{content: disk, etag: `"one"`, after: []int{1000}}
		breaks := newMirror(t, server.ServeHTTP)
		o := &Opener{Mirrors: map[string]Mirror{breaks.host: {CAFile: breaks.ca, BearerTokenFile: token.BearerTokenFile}}}
		if _, _, err := readAll(t, o, pinned(breaks.URL)); err != nil {
			t.Fatal(err)
		}
		if got := breaks.header(t); got.Get("Authorization") != "Bearer hunter2" || got.Get("Range") == "" {
			t.Errorf("the rest was asked for with %v", got)
		}
	})
	t.Run("nothing is sent over http", func(t *testing.T) {
		var sent string
		plain := serve(t, func(w http.ResponseWriter, r *http.Request) {
			sent = r.Header.Get("Authorization")
			whole(w, r)
		})
		o := &Opener{Mirrors: map[string]Mirror{strings.TrimPrefix(plain, "http://"): token}}
		if _, _, err := readAll(t, o, pinned(plain)); err != nil || sent != "" {
			t.Errorf("sent %q, %v", sent, err)
		}
	})
	t.Run("another port is another server", func(t *testing.T) {
		all := &mirrored{mirrors: map[string]Mirror{"a.example.org": {}, "b.example.org:8443": {}, "[2001:db8::1]:443": {}}}
		for raw, want := range map[string]bool{
			"https://a.example.org/x": true, "https://A.example.org:443/x": true, "https://a.example.org:8443/x": false, "http://a.example.org/x": true,
			"https://b.example.org/x": false, "https://b.example.org:8443/x": true, "https://xa.example.org/x": false, "https://[2001:db8::1]/x": true,
		} {
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := all.find(u); ok != want {
				t.Errorf("%s is a mirror: %v, want %v", raw, ok, want)
			}
		}
	})
}

func TestProxyByExplicitSettingAlone(t *testing.T) {
	asked := ""
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		whole(w, r)
	})
	o := &Opener{Mirrors: map[string]Mirror{"images.example.org": {Proxy: proxy}}}
	if _, _, err := readAll(t, o, pinned("http://images.example.org/a.img")); err != nil || asked != "http://images.example.org/a.img" {
		t.Errorf("the proxy was asked for %q, %v", asked, err)
	}
}
