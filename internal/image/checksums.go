// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// maxChecksumsBytes bounds a checksums file.
const maxChecksumsBytes = 1 << 20

// Checksum is one line of a checksums file.
type Checksum struct {
	// Name of the file as listed, which may have folders; empty in a file that holds nothing but one digest.
	Name string
	// Algorithm is sha256 or sha512.
	Algorithm string
	// Digest in hexadecimal, lower case.
	Digest string
}

var (
	gnuLine = regexp.MustCompile(`^(\\?)([0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})(?: [ *]|\t+| {2,})(.+)$`)
	bsdLine = regexp.MustCompile(`^(\\?)(SHA2?-?256|SHA2?-?512) ?\((.+)\) ?= ?([0-9A-Fa-f]+)$`)
	bare    = regexp.MustCompile(`^[0-9A-Fa-f]+$`)
)

// ParseChecksums reads what sha256sum, sha512sum (GNU's form, and BSD's with --tag), shasum and openssl dgst print. Lines of other kinds are passed
// over: comments, the armour of a signature, digests of other algorithms. It is total.
func ParseChecksums(data []byte) []Checksum {
	var all []Checksum
	lines := 0
	last := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		lines, last = lines+1, strings.TrimSpace(line)
		if c, ok := parseChecksum(line); ok {
			all = append(all, c)
		}
	}
	if a, ok := algorithmOf(last); lines == 1 && ok && bare.MatchString(last) {
		return []Checksum{{Algorithm: string(a), Digest: strings.ToLower(last)}}
	}
	return all
}

func parseChecksum(line string) (Checksum, bool) {
	var escaped, name, digest string
	var named algorithm
	if m := gnuLine.FindStringSubmatch(line); m != nil {
		escaped, digest, name = m[1], m[2], m[3]
	} else if m := bsdLine.FindStringSubmatch(line); m != nil {
		escaped, name, digest = m[1], m[3], m[4]
		named = algSHA256
		if strings.HasSuffix(m[2], "512") {
			named = algSHA512
		}
	} else {
		return Checksum{}, false
	}
	a, ok := algorithmOf(digest)
	if !ok || named != "" && a != named {
		return Checksum{}, false
	}
	if escaped != "" {
		name = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(name)
	}
	return Checksum{Name: name, Algorithm: string(a), Digest: strings.ToLower(digest)}, true
}

func algorithmOf(digest string) (algorithm, bool) {
	if _, err := hex.DecodeString(digest); err != nil {
		return "", false
	}
	switch len(digest) {
	case 64:
		return algSHA256, true
	case 128:
		return algSHA512, true
	}
	return "", false
}

// findChecksum finds the digest of the file at a URL's path: the longest algorithm of those listed. A file that holds nothing but a digest is
// about whatever the URL names.
func findChecksum(all []Checksum, file string) (pin, error) {
	found := map[algorithm]string{}
	for _, c := range all {
		if !names(c.Name, file) {
			continue
		}
		a := algorithm(c.Algorithm)
		if other, ok := found[a]; ok && other != c.Digest {
			return pin{}, errors.New("lists more than one " + c.Algorithm + " for " + path.Base(file))
		}
		found[a] = c.Digest
	}
	for _, a := range []algorithm{algSHA512, algSHA256} {
		if digest, ok := found[a]; ok {
			return pin{algorithm: a, digest: digest}, nil
		}
	}
	return pin{}, errors.New("lists no sha256 or sha512 for " + path.Base(file))
}

// names says whether a listed name means the file at an absolute path.
func names(listed, file string) bool {
	if listed == "" {
		return true
	}
	return strings.HasSuffix(file, path.Join("/", listed))
}

// resolve finds what the image is held to; where that is a line of a checksums file, it reads the file.
func (o *Opener) resolve(ctx context.Context, source Source) (pin, error) {
	if source.Checksums == "" {
		return source.pin(), nil
	}
	list := source.checksumsSource()
	small := *o
	small.MaxBytes = maxChecksumsBytes
	content, _, err := small.Open(ctx, list)
	if err != nil {
		return pin{}, err
	}
	data, err := io.ReadAll(content)
	if err := errors.Join(err, content.Close()); err != nil {
		return pin{}, err
	}
	u, err := url.Parse(source.URL)
	if err != nil {
		return pin{}, permanent("correct the URL", "image source %s: not a URL", source)
	}
	p, err := findChecksum(ParseChecksums(data), u.Path)
	if err != nil {
		return pin{}, permanent("check what the URL serves", "checksums %s: %v", list, err)
	}
	p.unpacked = source.Unpacked
	return p, nil
}
