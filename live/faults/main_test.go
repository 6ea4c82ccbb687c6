// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package faults runs the fault matrix on two real hosts, against a real API server, with operators that are processes of their own and die by SIGKILL.
package faults

import (
	"fmt"
	"os"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/test/drills"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

// The hosts of these tests' own.
const firstHost, secondHost = 54, 55

var (
	tally  faults.Tally
	shared *world
	ran    bool
)

func TestMain(m *testing.M) {
	if life := os.Getenv(asOperator); life != "" {
		os.Exit(operate(life))
	}
	code := m.Run()
	if ran && !tally.Print(os.Stdout, !drills.Full() || *only != "" || *sample > 0) && code == 0 {
		code = 1
	}
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
