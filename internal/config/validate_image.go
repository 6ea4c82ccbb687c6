// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/hex"
	"errors"
	"net"
	"strings"
)

func (d *document) validateImages(path string, e *Entry) {
	if len(e.Images) == 0 && len(e.AllowURLImages) == 0 {
		d.failf(path+".images", "needs at least one image, where allowURLImages names no host")
	}
	for _, key := range e.ImageNames() {
		image := e.Images[key]
		at := child(path+".images", key)
		if !imageKey.MatchString(key) {
			d.failf(at, "must have a key of lower-case letters, digits, \".\", \"_\" and \"-\", at most 63")
		}
		d.validateImage(at, &image)
		e.Images[key] = image
	}
	seen := map[string]string{}
	for i, key := range e.PrePull {
		at := item(path+".prePull", i)
		if _, exists := e.Images[key]; !exists {
			d.failf(at, "is no key of images: %s%s (there is: %s)", shown(key), didYouMean(key, e.ImageNames()), listed(e.ImageNames()))
		}
		d.unique(seen, at, key)
	}
	at := path + ".defaultImage"
	_, exists := e.Images[e.DefaultImage]
	switch {
	case !d.sound(path + ".images"):
	case d.has(at) && !exists:
		d.failf(at, "is no key of images: %s%s (there is: %s)", shown(e.DefaultImage), didYouMean(e.DefaultImage, e.ImageNames()), listed(e.ImageNames()))
	case !d.has(at) && len(e.Images) > 1:
		d.failf(at, "is missing, and there is more than one image: name one of %s", listed(e.ImageNames()))
	}
}

func (d *document) validateImage(path string, image *Image) {
	if d.needs(path + ".url") {
		u, err := parseURL(image.URL, "https", "http", "file")
		if err != nil {
			d.failf(path+".url", "%s", err)
		} else if u.Scheme == "http" && !d.has(path+".sha256") && !d.has(path+".sha512") && !d.has(path+".checksums") {
			d.failf(path+".url", "is http://, which anybody on the way can change: use https://, or set sha256 beside it")
		}
	}
	d.validateDigests(path, image)
	d.oneOf(path+".format", image.Format, FormatQCOW2, FormatRaw)
	d.oneOf(path+".arch", image.Arch, ArchX8664, ArchAArch64)
	d.oneOf(path+".firmware", image.Firmware, FirmwareBIOS, FirmwareEFI)
}

func (d *document) validateDigests(path string, image *Image) {
	given := ""
	for _, digest := range []struct {
		key   string
		value *string
		bytes int
	}{{"sha256", &image.SHA256, 32}, {"sha512", &image.SHA512, 64}, {"checksums", &image.Checksums, 0}} {
		at := path + "." + digest.key
		switch {
		case !d.has(at):
			continue
		case given != "":
			d.failf(at, "stands beside %s: keep one of them", given)
		case digest.bytes == 0:
			if _, err := parseURL(*digest.value, "https", "file"); err != nil {
				d.failf(at, "%s", err)
			}
		default:
			if raw, err := hex.DecodeString(*digest.value); err != nil || len(raw) != digest.bytes {
				d.failf(at, "must be the %d hexadecimal digits that %ssum prints for the file as served", 2*digest.bytes, digest.key)
			}
			*digest.value = strings.ToLower(*digest.value)
		}
		given = digest.key
	}
	d.oneOf(path+".digestOf", image.DigestOf, DigestOfServed, DigestOfUnpacked)
	if given == "" && d.has(path+".digestOf") {
		d.failf(path+".digestOf", "stands without a digest: give sha256, sha512 or checksums beside it")
	}
}

func (d *document) validateMirrors(path string, mirrors []Mirror, folder string) {
	seen := map[string]string{}
	for i := range mirrors {
		at, m := item(path, i), &mirrors[i]
		if d.needs(at + ".host") {
			normal, err := normalMirror(m.Host)
			if err != nil {
				d.failf(at+".host", "%s", err)
			} else {
				m.Host = normal
				d.unique(seen, at+".host", normal)
			}
		}
		files := m.files()
		for _, file := range files {
			if *file.path != "" {
				d.validatePath(at+"."+file.key, file.path, folder)
			}
		}
		switch {
		case m.BasicAuthFile != "" && m.BearerTokenFile != "":
			d.failf(at+".bearerTokenFile", "stands beside basicAuthFile: keep one of them")
		case d.sound(at) && m.CAFile+m.BasicAuthFile+m.BearerTokenFile+m.Proxy == "":
			d.failf(at, "says nothing: give caFile, basicAuthFile, bearerTokenFile or proxy")
		}
		if m.Proxy != "" {
			u, err := parseURL(m.Proxy, "http", "https")
			if err == nil && (strings.Trim(u.Path, "/") != "" || u.RawQuery != "") {
				err = errors.New("must be a proxy as http://host:port, without a path")
			}
			if err != nil {
				d.failf(at+".proxy", "%s", err)
			}
		}
	}
}

func (m *Mirror) files() []credentialsFile {
	return []credentialsFile{
		{key: "caFile", path: &m.CAFile}, {key: "basicAuthFile", path: &m.BasicAuthFile}, {key: "bearerTokenFile", path: &m.BearerTokenFile},
	}
}

// normalMirror is the host in the form in which it is looked for, with the port where it has one.
func normalMirror(host string) (string, error) {
	wanted := errors.New("must be host, host:port or [IPv6 address]:port, without scheme and path")
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ""
	} else if _, err := parsePort(port); err != nil {
		return "", wanted
	}
	if name, err = normalHost(name); err != nil {
		return "", wanted
	}
	if port == "" {
		return name, nil
	}
	return net.JoinHostPort(name, port), nil
}
