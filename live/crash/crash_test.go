// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/test/drills"
)

// TestDrillCrash is the drill at a reduced count, or at its full one under `make drills`.
func TestDrillCrash(t *testing.T) {
	kills := drills.Count(20, 3)
	total, err := run(t.Context(), kills, uint64(time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	if !total.clean() || total.kills != 2*kills {
		t.Errorf("%+v", total)
	}
	fmt.Printf("figure: standalone crash: %d kills, %d converged, %d leaked, %d foreign touched\n", total.kills, total.converged, total.leaked, total.touched)
}
