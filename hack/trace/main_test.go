// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const table = `
## Link: SSH

| ID | situation | required | proof |
|---|---|---|---|
| H1 | a | b | *live*: c |
| L16, L17 | a | b | test |

## Build and test

| ID | situation | required |
|---|---|---|
| L23 | tags | everything *live* compiles |
`

func TestParseTable(t *testing.T) {
	got := parseTable(table)
	want := []row{
		{[]string{"H1"}, "Link", true},
		{[]string{"L16", "L17"}, "Link", false},
		{[]string{"L23"}, "Build and test", false},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
}

func TestProjectTableIsRead(t *testing.T) {
	text, err := os.ReadFile("../../docs/required-behaviour.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range parseTable(string(text)) {
		for _, id := range r.ids {
			if seen[id] {
				t.Errorf("%s stands twice in the table", id)
			}
			seen[id] = true
		}
	}
	if len(seen) < 90 {
		t.Errorf("only %d IDs found", len(seen))
	}
}

func TestIDsOf(t *testing.T) {
	for name, want := range map[string][]string{
		"TestL27":                     nil,
		"TestLink/L27:_short_frame":   {"L27"},
		"TestLink/L16,_L17:_two_rows": {"L16", "L17"},
		"TestLink/H4a:_names#01":      {"H4a"},
		"TestLink/L27:_parent/child":  nil,
		"TestLink/about_L27:_no":      nil,
		"TestLink/UTF8:_is_no_row":    nil,
	} {
		if diff := cmp.Diff(want, idsOf(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestLiveRowsNeedTheLiveSuite(t *testing.T) {
	folder := t.TempDir()
	write := func(suite, events string) {
		if err := os.WriteFile(filepath.Join(folder, suite+".json"), []byte(events), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rows := parseTable(table)
	missing := func() []string {
		p, err := readProofs(folder)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, r := range rows {
			ids = append(ids, r.missing(p)...)
		}
		return ids
	}
	write("unit", `{"Action":"pass","Test":"TestA/H1: x"}
{"Action":"pass","Test":"TestA/L16: x"}
{"Action":"skip","Test":"TestA/L17: x"}
{"Action":"fail","Test":"TestA/L23: x"}
`)
	if diff := cmp.Diff([]string{"H1", "L17", "L23"}, missing()); diff != "" {
		t.Error(diff)
	}
	write("live", `{"Action":"pass","Test":"TestA/H1:_x"}
{"Action":"pass","Test":"TestA/L17:_x"}
`)
	if diff := cmp.Diff([]string{"L23"}, missing()); diff != "" {
		t.Error(diff)
	}
	write("live", "")
	write("live-race", `{"Action":"pass","Test":"TestA/H1:_x"}`)
	if diff := cmp.Diff([]string{"L17", "L23"}, missing()); diff != "" {
		t.Error("live tests under -race: " + diff)
	}
}
