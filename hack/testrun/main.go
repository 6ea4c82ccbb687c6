// SPDX-License-Identifier: Apache-2.0

// Command testrun runs one suite of tests (`testrun run`), keeps its events for `make trace`, prints what a person needs of them,
// and sums the suites of a run up (`testrun summary`).
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/hack/internal/testjson"
)

var errUsage = errors.New(`usage: testrun run RESULTS-FOLDER SUITE [-C DIR] [-v] -- GO-TEST-ARGUMENTS
       testrun summary RESULTS-FOLDER SUITE [SUITE]`)

func main() {
	if len(os.Args) < 4 {
		fail(errUsage.Error())
	}
	var err error
	switch os.Args[1] {
	case "run":
		err = run(os.Args[2], os.Args[3], os.Args[4:])
	case "summary":
		err = summary(os.Args[2], os.Args[3:])
	default:
		err = errUsage
	}
	if err != nil {
		fail(err.Error())
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}

// run executes `go test -json` and prints a line a package, and the whole output of what failed; with -v of everything.
func run(folder, suite string, args []string) error {
	split := slices.Index(args, "--")
	if split < 0 {
		return errUsage
	}
	options, goTest := args[:split], args[split+1:]
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, suite+".json"))
	if err != nil {
		return err
	}
	defer file.Close()

	// Lint vets everything, with every tag: not again with each suite's flags, and all that it imports with it.
	cmd := exec.Command("go", append([]string{"test", "-json", "-vet=off"}, goTest...)...)
	if i := slices.Index(options, "-C"); i >= 0 && i+1 < len(options) {
		cmd.Dir = options[i+1]
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	report := newReport(os.Stdout, slices.Contains(options, "-v"))
	readErr := testjson.Read(io.TeeReader(out, file), report.event)
	err = errors.Join(readErr, cmd.Wait())
	fmt.Printf("suite %s: %s in %.0f s\n", suite, report.counts, time.Since(start).Seconds())
	if err != nil {
		return fmt.Errorf("suite %s failed: %w", suite, err)
	}
	return nil
}

// counts of tests and subtests, by how they ended.
type counts struct{ passed, failed, skipped int }

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

func (c *counts) add(e testjson.Event) {
	switch {
	case e.Action == "pass" && e.Test != "":
		c.passed++
	case e.Action == "fail" && e.Test != "":
		c.failed++
	case e.Action == "fail" || e.Action == "build-fail":
		// A package that does not build, or dies outside of a test, has no failing test to count.
		c.failed++
	case e.Action == "skip" && e.Test != "":
		c.skipped++
	}
}

// report prints a run for people.
type report struct {
	out     io.Writer
	verbose bool
	counts  counts
	outputs map[string][]string
}

func newReport(out io.Writer, verbose bool) *report {
	return &report{out: out, verbose: verbose, outputs: map[string][]string{}}
}

func (r *report) event(e testjson.Event) {
	r.counts.add(e)
	name := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		switch {
		case r.verbose || e.Package == "":
			fmt.Fprint(r.out, e.Output)
		default:
			r.outputs[name] = append(r.outputs[name], e.Output)
		}
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "fail", "skip":
		// A package without tests is skipped as a whole: nothing to tell.
		if !r.verbose && (e.Test != "" || e.Action == "fail") {
			fmt.Fprintf(r.out, "--- %s: %s\n%s", strings.ToUpper(e.Action), name, strings.Join(r.outputs[name], ""))
		}
		delete(r.outputs, name)
	case "pass":
		if !r.verbose {
			fmt.Fprint(r.out, figures(r.outputs[name]))
		}
		if e.Test == "" {
			fmt.Fprintf(r.out, "ok   %s  %.1f s\n", e.Package, e.Elapsed)
		}
		delete(r.outputs, name)
	}
}

// figures keeps the lines that a package prints for people (`figure: …`) out of an otherwise silent pass.
func figures(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		if strings.HasPrefix(line, "figure: ") {
			b.WriteString("     " + line)
		}
	}
	return b.String()
}

// summary prints a line a suite and the total, and fails unless every suite ran, none failed and none was skipped.
func summary(folder string, suites []string) error {
	var total counts
	var missing []string
	for _, suite := range suites {
		file, err := os.Open(filepath.Join(folder, suite+".json"))
		if err != nil {
			missing = append(missing, suite)
			fmt.Printf("suite %-10s did not run\n", suite)
			continue
		}
		var c counts
		err = testjson.Read(file, func(e testjson.Event) { c.add(e) })
		file.Close()
		if err != nil {
			return err
		}
		fmt.Printf("suite %-10s %s\n", suite, c)
		total.passed += c.passed
		total.failed += c.failed
		total.skipped += c.skipped
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped)
	switch {
	case total.failed > 0 || len(missing) > 0:
		return errors.New("tests failed")
	case total.skipped > 0:
		return errors.New("tests were skipped: what was skipped has not passed")
	}
	return nil
}
