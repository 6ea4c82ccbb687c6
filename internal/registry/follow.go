// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"reflect"
	"time"
)

const (
	// checkEvery is how often the file is read though nobody said that it changed: not every file system tells.
	checkEvery = 30 * time.Second
	// settle is how long a file must have been left alone before it is read: who writes it may not be done.
	settle = 300 * time.Millisecond
	// again is when a file that cannot be used is read once more before anybody hears of it.
	again = 2 * time.Second
)

// follow puts each new file into force until ctx ends.
func (r *Registry) follow(ctx context.Context) {
	if r.Load == nil {
		<-ctx.Done()
		return
	}
	timer := time.NewTimer(checkEvery)
	defer timer.Stop()
	f := follower{Registry: r}
	for {
		select {
		case <-r.Changed:
			timer.Reset(settle)
		case <-timer.C:
			timer.Reset(f.look(ctx))
		case <-ctx.Done():
			return
		}
	}
}

// follower remembers what was said of a file that cannot be used.
type follower struct {
	*Registry
	doubted bool
	refused string
}

// look reads the file, and returns when to look again.
func (f *follower) look(ctx context.Context) time.Duration {
	before := f.Current()
	file, err := f.Load()
	if err == nil && !reflect.DeepEqual(file, before.File) {
		err = f.replace(ctx, file)
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		f.accepted(before.File != f.Current().File)
		if after := f.Current(); after.File != before.File {
			entries := changedEntries(before, after)
			f.Report.InForce(after.File, entries)
			f.wakeAll(before.File.EntryNames(), after.File.EntryNames())
		}
	case !f.doubted:
		f.doubted = true
		return again
	case err.Error() != f.refused:
		f.refused = err.Error()
		f.Report.Refused(before.File, err)
	}
	return checkEvery
}

// accepted forgets the last refusal. Where the file is again what it was before, that is in force anew, and said.
func (f *follower) accepted(changed bool) {
	if f.refused != "" && !changed {
		f.Report.InForce(f.Current().File, nil)
	}
	f.doubted, f.refused = false, ""
}

// wakeAll has all Proxies looked at: a limit that changed concerns those, too, whose provider did not.
func (f *follower) wakeAll(lists ...[]string) {
	woken := map[string]bool{}
	for _, names := range lists {
		for _, name := range names {
			if !woken[name] {
				woken[name] = true
				f.Wake(name, "")
			}
		}
	}
}
