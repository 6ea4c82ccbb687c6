// SPDX-License-Identifier: Apache-2.0

// Package testjson reads what `go test -json` prints.
package testjson

import (
	"bufio"
	"encoding/json"
	"io"
)

// Event is one line of `go test -json` (see `go doc test2json`).
type Event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

// Read calls f with each event of r. Lines that are not JSON (a tool's own output) come as Action "output" without a package.
func Read(r io.Reader, f func(Event)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e Event
			if json.Unmarshal(line, &e) != nil {
				e = Event{Action: "output", Output: string(line)}
			}
			f(e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
