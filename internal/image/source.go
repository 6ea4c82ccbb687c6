// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/hex"
	"net/url"
	"path"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

// Source is where an image comes from.
type Source struct {
	// URL: https://, http:// (needs SHA256) or file:///absolute/path; without user or password.
	URL string
	// SHA256 of the file as served, in hexadecimal of any case; empty when nothing is pinned.
	SHA256 string
	// Format that the content must have; empty accepts what it is.
	Format Format
}

// String is the URL as people may see it.
func (s Source) String() string { return config.RedactURL(s.URL) }

// Validate refuses, as Permanent, what must not be fetched.
func (s Source) Validate() error {
	_, err := s.parse()
	return err
}

func (s Source) parse() (*url.URL, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, permanent("correct the URL", "image source %s: not a URL", s)
	}
	if s.SHA256 != "" {
		if digest, err := hex.DecodeString(s.SHA256); err != nil || len(digest) != 32 {
			return nil, permanent("give the 64 hexadecimal digits that sha256sum prints", "image source %s: its sha256 is not a SHA-256 digest", s)
		}
	}
	if s.Format != "" && s.Format != QCOW2 && s.Format != Raw {
		return nil, permanent("use qcow2 or raw, or leave it out", "image source %s: format %q is not known", s, s.Format)
	}
	return u, s.allowed(u)
}

// allowed holds for the source's URL, and for every URL that it redirects to.
func (s Source) allowed(u *url.URL) error {
	shown := config.RedactURL(u.String())
	if u.User != nil {
		return permanent("remove them", "image source %s: user or password in the URL", shown)
	}
	switch u.Scheme {
	case "https", "http":
		if u.Hostname() == "" {
			return permanent("correct the URL", "image source %s: no host", shown)
		}
		if u.Scheme == "http" && s.SHA256 == "" {
			return permanent("give its sha256, or use https", "image source %s: http without a digest, so anybody on the way could change the image", shown)
		}
	case "file":
		if u.Host != "" || !path.IsAbs(u.Path) {
			return permanent("write file:///absolute/path", "image source %s: not an absolute path on this machine", shown)
		}
	default:
		return permanent("use https, http or file", "image source %s: scheme %q is not supported", shown, u.Scheme)
	}
	return nil
}

// matches says whether a digest is the pinned one; any is where nothing is pinned.
func (s Source) matches(digest string) bool {
	return s.SHA256 == "" || strings.EqualFold(s.SHA256, digest)
}
