// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

// Source is where an image comes from. At most one of SHA256, SHA512 and Checksums is set.
type Source struct {
	// URL: https://, http:// (needs a digest) or file:///absolute/path; without user or password.
	URL string
	// SHA256 and SHA512 pin the content, in hexadecimal of any case.
	SHA256, SHA512 string
	// Checksums is the URL, https:// or file://, of a file that lists the digest of the URL's file, by name.
	Checksums string
	// Unpacked: the digest is of what the file holds when it is unpacked, and not of the file as served.
	Unpacked bool
	// Format that the unpacked content must have; empty accepts what it is.
	Format Format
}

// String is the URL as people may see it; a long one is cut in its middle, so that messages have room for what happened.
func (s Source) String() string {
	const longest, end = 100, 36
	shown := []rune(config.RedactURL(s.URL))
	if len(shown) > longest {
		return string(shown[:longest-end-1]) + "…" + string(shown[len(shown)-end:])
	}
	return string(shown)
}

// Validate refuses, as Permanent, what must not be fetched.
func (s Source) Validate() error {
	_, err := s.parse()
	return err
}

// Pin is what the content is held to, for names: it differs where that differs. Empty where nothing is pinned.
func (s Source) Pin() string {
	var pin string
	switch {
	case s.SHA512 != "":
		pin = "sha512:" + strings.ToLower(s.SHA512)
	case s.Checksums != "":
		sum := sha256.Sum256([]byte(s.Checksums)) // names may be compared without regard to case, which URLs may not
		pin = "checksums:" + hex.EncodeToString(sum[:])
	default:
		pin = strings.ToLower(s.SHA256)
	}
	if pin != "" && s.Unpacked {
		pin += " unpacked"
	}
	return pin
}

func (s Source) pinned() bool { return s.SHA256 != "" || s.SHA512 != "" || s.Checksums != "" }

func (s Source) parse() (*url.URL, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, permanent("correct the URL", "image source %s: not a URL", s)
	}
	if err := s.checkPins(); err != nil {
		return nil, err
	}
	if s.Format != "" && s.Format != QCOW2 && s.Format != Raw {
		return nil, permanent("use qcow2 or raw, or leave it out", "image source %s: format %q is not known", s, s.Format)
	}
	return u, s.allowed(u)
}

func (s Source) checkPins() error {
	given := 0
	for _, pin := range []struct {
		name, called, digest string
		size                 int
	}{{"sha256", "SHA-256", s.SHA256, sha256.Size}, {"sha512", "SHA-512", s.SHA512, sha512.Size}} {
		if pin.digest == "" {
			continue
		}
		given++
		if digest, err := hex.DecodeString(pin.digest); err != nil || len(digest) != pin.size {
			return permanent(fmt.Sprintf("give the %d hexadecimal digits that %ssum prints", 2*pin.size, pin.name), "image source %s: its %s is not a %s digest", s, pin.name, pin.called)
		}
	}
	if s.Checksums != "" {
		given++
		u, err := url.Parse(s.Checksums)
		if err != nil {
			return permanent("correct the URL", "image source %s: its checksums are not at a URL", s)
		}
		if err := s.checksumsSource().allowed(u); err != nil {
			return err
		}
	}
	if given > 1 {
		return permanent("keep one of them", "image source %s: more than one of sha256, sha512 and checksums", s)
	}
	return nil
}

// checksumsSource is where the list of digests comes from. Nothing pins it, so http is refused for it.
func (s Source) checksumsSource() Source { return Source{URL: s.Checksums} }

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
		if u.Scheme == "http" && !s.pinned() {
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
