// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

const maxURLBytes = 2048

// RedactURL is a URL as logs, errors and status may show it: without userinfo and without its query, both of which may hold
// secrets. It takes any text: whatever stands before the last @ counts as userinfo, for in a URL that is not well formed a
// password may hold any sign.
func RedactURL(raw string) string {
	const redacted = "redacted"
	scheme, rest, hasScheme := strings.Cut(raw, "://")
	if !hasScheme || !isScheme(scheme) {
		scheme, rest = "", raw
	} else {
		scheme += "://"
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = redacted + rest[at:]
	}
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end+1] + redacted
	}
	return scheme + rest
}

func isScheme(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

// parseURL reads an absolute URL of one of the schemes. Its errors never show the URL: it may hold a password.
func parseURL(raw string, schemes ...string) (*url.URL, error) {
	wanted := "must be a URL that starts with " + strings.Join(schemes, ":// or ") + "://"
	if len(raw) > maxURLBytes {
		return nil, fmt.Errorf("must be a URL of at most %d bytes", maxURLBytes)
	}
	u, err := url.Parse(raw)
	if strings.Contains(raw, "@") {
		// Anywhere, not only in the parsed userinfo: see RedactURL.
		return nil, errors.New("must be a URL without user or password (an @ that is part of a path or query is written %40)")
	}
	if err != nil || u.Opaque != "" || !slices.Contains(schemes, u.Scheme) {
		return nil, errors.New(wanted)
	}
	if u.Fragment != "" || strings.Contains(raw, "#") {
		return nil, errors.New("must be a URL without a fragment (#)")
	}
	if u.Scheme == "file" {
		return u, checkFileURL(u)
	}
	if _, err := normalHost(u.Hostname()); err != nil {
		return nil, err
	}
	if port := u.Port(); port != "" {
		if _, err := parsePort(port); err != nil {
			return nil, err
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return nil, errors.New("must have a port after the colon of its host, or no colon")
	}
	return u, nil
}

func checkFileURL(u *url.URL) error {
	if u.Host != "" || !path.IsAbs(u.Path) || u.RawQuery != "" || path.Clean(u.Path) != u.Path || u.Path == "/" || hasControl(u.Path) {
		return errors.New("must have the form file:///absolute/path, without .. in it")
	}
	return nil
}
