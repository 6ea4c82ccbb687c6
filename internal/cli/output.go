// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/pflag"
)

// output is the flag -o: a table for people, or JSON for programs.
type output struct{ format string }

var _ pflag.Value = (*output)(nil)

func (o *output) bind(flags *pflag.FlagSet) {
	flags.VarP(o, "output", "o", "table, or json for programs")
}

func (o *output) json() bool { return o.format == "json" }

func (o *output) String() string {
	if o.format == "" {
		return "table"
	}
	return o.format
}

func (o *output) Type() string { return "FORMAT" }

func (o *output) Set(format string) error {
	if format != "table" && format != "json" {
		return fmt.Errorf("it is table or json, not %q", format)
	}
	o.format = format
	return nil
}
