// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"regexp"
	"strings"
)

var uidPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

// CanonicalUID is the form in which UIDs are compared and kept: lower case, no space around it. ok is false where it is not a UUID.
func CanonicalUID(uid string) (canonical string, ok bool) {
	canonical = strings.ToLower(strings.TrimSpace(uid))
	return canonical, uidPattern.MatchString(CompactUID(canonical))
}

// CompactUID is the canonical form without dashes, as names of instances have it.
func CompactUID(uid string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(uid)), "-", "")
}
