// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxErrors bounds the mistakes that are kept of one file.
const maxErrors = 100

// Error is one mistake in a providers file.
type Error struct {
	// File is the path of the providers file, as it was given; empty where it is not known.
	File string
	// Path of the value in the file: entries[0].hosts[1].address. Empty for the file as a whole.
	Path string
	// Line and Column of the value, or of what should hold it; from 1, and 0 where not known.
	Line, Column int
	// Message says what is wrong, and what is allowed or exists.
	Message string
}

// Error is `providers.yaml:12: entries[0].hosts[1].address: message`.
func (e Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			b.WriteString(":" + strconv.Itoa(e.Line))
		}
		b.WriteString(": ")
	} else if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Errors are all mistakes in a providers file, in the order of its lines.
type Errors []Error

// Error has one mistake a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As and errors.Is each mistake.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// shown is a value from the file as an error may show it: quoted and short, and not at all where it may hold a password.
func shown(value string) string {
	const most = 60
	if strings.Contains(value, "@") {
		return "(not shown: it has an @)"
	}
	if len(value) > most {
		return strconv.Quote(strings.ToValidUTF8(value[:most], "")) + "…"
	}
	return strconv.Quote(value)
}

// suggestion is the known word nearest to a mistyped one, or "".
func suggestion(word string, known []string) string {
	const longest = 64
	if len(word) > longest {
		return ""
	}
	word = strings.ToLower(word)
	best, bestDistance := "", 1+(len(word)+2)/3
	for _, k := range known {
		if d := editDistance(word, strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// editDistance is the number of letters to insert, delete or replace.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// didYouMean is `; did you mean "x"?`, or "" where nothing is near.
func didYouMean(word string, known []string) string {
	if s := suggestion(word, known); s != "" {
		return fmt.Sprintf("; did you mean %q?", s)
	}
	return ""
}
