// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"time"
)

// clock is the time that a World lives in.
type clock interface {
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own after d, unless it is stopped before.
	AfterFunc(d time.Duration, f func()) (stop func())
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() {
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop() }
}

// sleep waits for d, or until ctx or done ends; it says whether d passed.
func sleep(ctx context.Context, done <-chan struct{}, c clock, d time.Duration) bool {
	passed := make(chan struct{})
	stop := c.AfterFunc(d, func() { close(passed) })
	defer stop()
	select {
	case <-passed:
		return true
	case <-ctx.Done():
	case <-done:
	}
	return false
}
