// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"sync"
	"time"
)

// failureAge is how long a failed job speaks for itself: all who waited for it see its error, and none of them starts it anew at once.
const failureAge = 5 * time.Second

// progressStep is the percentage between two notifications.
const progressStep = 10

// jobs is background work, at most one at a time per key, that ends when nobody waits for it any more.
type jobs struct {
	notify func(uid string)
	ctx    context.Context
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu  sync.Mutex
	all map[string]*job
}

type job struct {
	waiting map[string]bool // UIDs
	cancel  context.CancelFunc
	percent int
	err     error     // of a job that failed
	until   time.Time // when that is forgotten; zero while it runs
}

// work is what a job does. report takes 0 to 100.
type work func(ctx context.Context, report func(percent int)) error

func newJobs(notify func(uid string)) *jobs {
	j := &jobs{notify: notify, all: map[string]*job{}}
	j.ctx, j.stop = context.WithCancel(context.Background())
	return j
}

// ensure says how far the job of that key is, and starts it where there is none. uid is told when it moves on. The error is that of the
// job's last run, where it failed just now.
func (j *jobs) ensure(key, uid string, do work) (percent int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.ctx.Err(); err != nil {
		return 0, err
	}
	if old := j.all[key]; old != nil {
		if old.until.IsZero() {
			old.waiting[uid] = true
			return old.percent, nil
		}
		if time.Now().Before(old.until) {
			return 0, old.err
		}
	}
	ctx, cancel := context.WithCancel(j.ctx)
	fresh := &job{waiting: map[string]bool{uid: true}, cancel: cancel}
	j.all[key] = fresh
	j.ended.Go(func() {
		defer cancel()
		j.finish(key, fresh, do(ctx, func(percent int) { j.report(fresh, percent) }))
	})
	return 0, nil
}

func (j *jobs) report(one *job, percent int) {
	j.mu.Lock()
	step := percent/progressStep > one.percent/progressStep
	one.percent = max(one.percent, min(percent, 100))
	told := one.uids()
	j.mu.Unlock()
	if step {
		j.tell(told)
	}
}

func (j *jobs) finish(key string, one *job, err error) {
	j.mu.Lock()
	told := one.uids()
	switch {
	case j.all[key] != one:
	case err == nil || len(told) == 0:
		delete(j.all, key)
	default:
		one.err, one.until = err, time.Now().Add(failureAge)
	}
	j.mu.Unlock()
	j.tell(told)
}

func (one *job) uids() []string {
	all := make([]string, 0, len(one.waiting))
	for uid := range one.waiting {
		all = append(all, uid)
	}
	return all
}

func (j *jobs) tell(uids []string) {
	for _, uid := range uids {
		j.notify(uid)
	}
}

// forget takes a UID out; a job for which nobody waits any more is cancelled.
func (j *jobs) forget(uid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, one := range j.all {
		if !one.waiting[uid] {
			continue
		}
		delete(one.waiting, uid)
		if len(one.waiting) == 0 {
			one.cancel()
			delete(j.all, key)
		}
	}
}

// close cancels all and waits for their end.
func (j *jobs) close() {
	j.stop()
	j.ended.Wait()
}
