// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	if got := Line(" a\n\tb\xff  c\r\n"); got != "a b? c" {
		t.Errorf("%q", got)
	}
}

func TestShorten(t *testing.T) {
	for _, s := range []string{"", "abc", strings.Repeat("x", 10), strings.Repeat("ü", 5), strings.Repeat("x", 11), strings.Repeat("ü", 6), "x" + strings.Repeat("€", 9)} {
		got := Shorten(s, 10)
		if len(got) > 10 || !utf8.ValidString(got) || len(s) <= 10 && got != s || len(s) > 10 && !strings.HasPrefix(s, strings.TrimSuffix(got, cut)) {
			t.Errorf("%q: %q", s, got)
		}
	}
}
