// SPDX-License-Identifier: Apache-2.0

// Command trace holds the required-behaviour table against the results of a test run: which rows does no passed subtest name?
//
// An ID counts only as the start of the name of a subtest that passed (`t.Run("L27: a short frame ends the link", …)`), and a live
// row only where that subtest ran on the real libvirt host (suite "live", or one whose name begins with "live-").
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/hack/internal/testjson"
)

const liveSuite = "live"

// row of the table. A row with several IDs is covered when each of them is.
type row struct {
	ids     []string
	section string
	live    bool
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: trace TABLE.md RESULTS-FOLDER")
		os.Exit(2)
	}
	table, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	rows := parseTable(string(table))
	proofs, err := readProofs(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	covered := 0
	for _, r := range rows {
		missing := r.missing(proofs)
		for _, id := range missing {
			fmt.Printf("missing: %s (%s)\n", id, r.section)
		}
		if len(missing) == 0 {
			covered++
		}
	}
	fmt.Printf("required behaviour: %d rows, %d covered\n", len(rows), covered)
}

var idPattern = regexp.MustCompile(`^[A-Z]{1,2}[0-9]+[a-z]?$`)

// parseTable finds the rows of every table whose first cell holds IDs, under the heading before it.
func parseTable(markdown string) []row {
	var rows []row
	section := ""
	for line := range strings.Lines(markdown) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section, _, _ = strings.Cut(heading, ":")
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 3 {
			continue
		}
		var ids []string
		for cell := range strings.SplitSeq(cells[0], ",") {
			if id := strings.TrimSpace(cell); idPattern.MatchString(id) {
				ids = append(ids, id)
			}
		}
		if len(ids) > 0 {
			rows = append(rows, row{ids, section, len(cells) > 3 && strings.Contains(cells[len(cells)-1], "*live*")})
		}
	}
	return rows
}

// proofs are the IDs that passed subtests name: in any suite, and in the live one.
type proofs struct{ any, live map[string]bool }

func (r row) missing(p proofs) []string {
	named := p.any
	if r.live {
		named = p.live
	}
	return slices.DeleteFunc(slices.Clone(r.ids), func(id string) bool { return named[id] })
}

func readProofs(folder string) (proofs, error) {
	p := proofs{map[string]bool{}, map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return p, err
	}
	if len(files) == 0 {
		return p, fmt.Errorf("no results in %s: run `make test` first", folder)
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return p, err
		}
		suite, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".json"), "-")
		live := suite == liveSuite
		err = testjson.Read(file, func(e testjson.Event) {
			if e.Action != "pass" {
				return
			}
			for _, id := range idsOf(e.Test) {
				p.any[id] = true
				p.live[id] = p.live[id] || live
			}
		})
		file.Close()
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// idsOf reads the IDs at the start of a subtest's own name, up to the colon: "TestLink/L16,_L17:_an_unreachable_host" names two.
// Its parents are not read: each of them has an event of its own, and a parent passes without having proved what its children do.
func idsOf(test string) []string {
	i := strings.LastIndex(test, "/")
	if i < 0 {
		return nil
	}
	head, _, ok := strings.Cut(test[i+1:], ":")
	if !ok {
		return nil
	}
	var ids []string
	for word := range strings.SplitSeq(head, ",") {
		id := strings.Trim(word, "_ ")
		if !idPattern.MatchString(id) {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}
