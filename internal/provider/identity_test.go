// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"strings"
	"testing"
)

func TestCanonicalUID(t *testing.T) {
	const uid = "3f2b8c1e-9a7d-4e5f-8b6a-0c1d2e3f4a5b"
	for text, good := range map[string]bool{uid: true, "": false, "x": false, uid + "0": false, "../../../etc/passwd": false} {
		if _, ok := CanonicalUID(text); ok != good {
			t.Errorf("%q: ok %t", text, ok)
		}
	}
	if canonical, ok := CanonicalUID("\t " + strings.ToUpper(uid) + "\n"); !ok || canonical != uid {
		t.Errorf("%q, %t", canonical, ok)
	}
}

func TestCheckCluster(t *testing.T) {
	for id, good := range map[string]bool{
		"0123456789ab": true, "abcdef": true, strings.Repeat("a", 32): true,
		"": false, "abcde": false, strings.Repeat("a", 33): false, "ABCDEF": false, "abc-def": false, "abcdef\n": false,
	} {
		if err := CheckCluster(id); (err == nil) != good {
			t.Errorf("%q: %v", id, err)
		}
	}
}
