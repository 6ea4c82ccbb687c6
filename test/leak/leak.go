// SPDX-License-Identifier: Apache-2.0

// Package leak counts what a test's own process holds, for comparing before and after.
package leak

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// OpenFiles is how many file descriptors the process has open.
func OpenFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

const (
	still   = time.Second
	settled = time.Minute
)

// Goroutines is how many there are once what ends by itself has ended: when their number has not changed for a second. The test fails where that does not
// come within a minute.
func Goroutines(t testing.TB) int {
	t.Helper()
	start := time.Now()
	for last, since := runtime.NumGoroutine(), start; ; time.Sleep(20 * time.Millisecond) {
		switch now := runtime.NumGoroutine(); {
		case now != last:
			last, since = now, time.Now()
		case time.Since(since) > still:
			return last
		}
		if time.Since(start) > settled {
			t.Fatalf("the number of goroutines goes on changing; %d now", last)
		}
	}
}
