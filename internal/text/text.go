// SPDX-License-Identifier: Apache-2.0

// Package text fits texts of hosts and of other people into messages, events and statuses.
package text

import (
	"strings"
	"unicode/utf8"
)

const cut = "..."

// Line is s on one line, in valid UTF-8.
func Line(s string) string { return strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ") }

// Shorten is s in at most that many bytes, at least 3: what is longer ends in "...", and no character is cut in two.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most - len(cut)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cut
}
