// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Key names one job: what is fetched, and for which host. The image part changes with the source's content, digest included.
type Key struct {
	Host, Image string
}

// State of a job.
type State int

// States.
const (
	// Queued: waits for its turn on its host, or among all.
	Queued State = iota
	// Running: Done and Total of Status say how far it is.
	Running
	// Done: ended well.
	Done
	// Failed: Err of Status says why, and RetryAt when Ensure would start it anew.
	Failed
)

// Status of a job.
type Status struct {
	State State
	Progress
	// Rate of the present step in bytes per second, and Remaining time of it at this rate; 0 where not known yet.
	Rate      int64
	Remaining time.Duration
	// Err of the last attempt; Failed only.
	Err error
	// RetryAt is the earliest time of the next attempt; Failed only.
	RetryAt time.Time
	// Attempts that were started, the present one included.
	Attempts int
}

// Percent of the work that is done, 0 to 100.
func (s Status) Percent() int {
	switch {
	case s.State == Done:
		return 100
	case s.Total <= 0:
		return 0
	default:
		return int(float64(s.Done) / float64(s.Total) * 100)
	}
}

// Job does the work. It ends soon after ctx does, and leaves no goroutine behind. report may be called at any time while it runs.
type Job func(ctx context.Context, report func(Progress)) error

// Options of a Manager; the zero value of each is its default.
type Options struct {
	// Depot bounds how many jobs run at once in all, and is told when one ended; nil for one of its own.
	Depot *Depot
	// PerHost bounds how many jobs run at once for a host; 2.
	PerHost int
	// RetryMin and RetryMax bound the wait after a failure, which doubles each time; 2 s and 5 min.
	RetryMin, RetryMax time.Duration
	// RetryPermanent is the wait after a Permanent failure; 10 min.
	RetryPermanent time.Duration
	// Abandon is how long a job that nobody wants goes on; 15 s.
	Abandon time.Duration
	// OnChange is called when a job starts and ends, and now and then as it proceeds, with who wants it, in order. It must not block, and may
	// call Ensure. Nil for none.
	OnChange func(key Key, wanted []string)
}

const (
	// Progress is told each tenth, and not more often than this.
	progressInterval = 10 * time.Second
	// How long an ended job is remembered that nobody asks for.
	rememberEnded = time.Hour
)

// Manager runs jobs in the background, one for each key. Nobody ever waits for one: whoever wants it asks again, or is woken by OnChange. A job that
// nobody wants any more is ended.
type Manager struct {
	options Options
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	jobs   map[Key]*job
	wanted map[Key]map[string]bool
	hosts  map[string]chan struct{}
}

// job is one key's present or last attempt, guarded by the manager's lock.
type job struct {
	status Status
	rate   rate
	cancel context.CancelFunc
	// abandoned: it was cancelled because nobody wanted it, and ends soon.
	abandoned bool
	started   time.Time
	ended     time.Time
	told      time.Time // when progress was last told, and which
	tenth     int
}

// NewManager makes a manager; Close ends it.
func NewManager(options Options) *Manager {
	if options.PerHost <= 0 {
		options.PerHost = 2
	}
	if options.Depot == nil {
		options.Depot, _ = NewDepot(DepotOptions{}) // without a folder nothing can fail
	}
	if options.Abandon <= 0 {
		options.Abandon = 15 * time.Second
	}
	if options.RetryMin <= 0 {
		options.RetryMin = 2 * time.Second
	}
	if options.RetryMax <= 0 {
		options.RetryMax = 5 * time.Minute
	}
	if options.RetryPermanent <= 0 {
		options.RetryPermanent = 10 * time.Minute
	}
	if options.OnChange == nil {
		options.OnChange = func(Key, []string) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Manager{
		options: options, ctx: ctx, cancel: cancel,
		jobs: map[Key]*job{}, wanted: map[Key]map[string]bool{}, hosts: map[string]chan struct{}{},
	}
}

// Ensure starts the job where none is known for the key, or where it failed and may be tried again, and returns its status at once. It goes on as
// long as somebody wants it. A job that ended well is not started anew: where its result is gone, Forget it first.
func (m *Manager) Ensure(key Key, who string, work Job) Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return Status{State: Failed, Err: transient(context.Canceled, "the operator is shutting down")}
	}
	if m.wanted[key] == nil {
		m.wanted[key] = map[string]bool{}
	}
	m.wanted[key][who] = true
	attempts := 1
	if last := m.jobs[key]; last != nil {
		if last.abandoned { // who wants it is told when it has ended, and asks again
			return Status{State: Queued, Attempts: last.status.Attempts}
		}
		if last.status.State != Failed || time.Now().Before(last.status.RetryAt) {
			return last.status
		}
		attempts += last.status.Attempts
	}
	m.prune()
	ctx, cancel := context.WithCancel(m.ctx)
	j := &job{status: Status{State: Queued, Attempts: attempts}, cancel: cancel}
	m.jobs[key] = j
	host := m.host(key.Host)
	m.running.Go(func() {
		defer cancel()
		m.run(ctx, key, j, host, work)
	})
	return j.status
}

// Leave says that who wants nothing any more but these, and what it asks for from now on.
func (m *Manager) Leave(who string, but ...Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, all := range m.wanted {
		if !all[who] || slices.Contains(but, key) {
			continue
		}
		delete(all, who)
		if len(all) > 0 {
			continue
		}
		delete(m.wanted, key)
		if j := m.jobs[key]; j != nil && !j.hasEnded() && !m.closed {
			m.running.Go(func() { m.abandon(key, j) })
		}
	}
}

// abandon ends a job that nobody wants even after a while.
func (m *Manager) abandon(key Key, j *job) {
	if err := pause(m.ctx, m.options.Abandon); err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.wanted[key]) == 0 && m.jobs[key] == j && !j.hasEnded() {
		j.abandoned = true
		j.cancel()
	}
}

// Forget drops what is known of a job that ended; one that is queued or runs goes on.
func (m *Manager) Forget(key Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j := m.jobs[key]; j != nil && j.hasEnded() {
		delete(m.jobs, key)
	}
}

// Close ends all jobs, and returns when none of their goroutines is left.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.running.Wait()
}

func (m *Manager) run(ctx context.Context, key Key, j *job, host chan struct{}, work Job) {
	// The host's turn first: jobs that queue up for one slow host take nobody else's place.
	for _, turn := range []chan struct{}{host, m.options.Depot.turns} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			m.finish(key, j, ctx.Err())
			return
		}
	}
	m.mu.Lock()
	j.status.State, j.started = Running, time.Now()
	m.mu.Unlock()
	m.tell(key)
	m.finish(key, j, work(ctx, func(p Progress) { m.progress(key, j, p) }))
}

// finish notes how a job ended. One that was abandoned leaves no trace: whoever wants it by now asks again.
func (m *Manager) finish(key Key, j *job, err error) {
	m.mu.Lock()
	if j.abandoned && err != nil {
		delete(m.jobs, key)
	} else {
		j.abandoned = false
		j.end(err, m.options)
	}
	ran := !j.started.IsZero()
	m.mu.Unlock()
	if ran {
		m.options.Depot.observer.JobEnded(key.Host, time.Since(j.started), j.status.Done, err)
	}
	m.tell(key)
}

func (m *Manager) progress(key Key, j *job, p Progress) {
	now := time.Now()
	m.mu.Lock()
	if p.Step != j.status.Step {
		j.tenth = 0
	}
	j.rate.update(now, p)
	j.status.Progress, j.status.Rate, j.status.Remaining = p, int64(j.rate.perSecond), j.rate.remaining(p)
	tenth := j.status.Percent() / 10
	tell := tenth > j.tenth && now.Sub(j.told) >= progressInterval
	if tell {
		j.told, j.tenth = now, tenth
	}
	m.mu.Unlock()
	if tell {
		m.tell(key)
	}
}

// tell wakes who wants the job, unless the manager ends.
func (m *Manager) tell(key Key) {
	m.mu.Lock()
	who, closed := slices.Sorted(maps.Keys(m.wanted[key])), m.closed
	m.mu.Unlock()
	if !closed {
		m.options.OnChange(key, who)
	}
}

func (j *job) hasEnded() bool { return j.status.State == Done || j.status.State == Failed }

func (j *job) end(err error, options Options) {
	j.ended = time.Now()
	if err == nil {
		j.status.State = Done
		return
	}
	j.status.State, j.status.Err = Failed, err
	j.status.RetryAt = j.ended.Add(retryAfter(err, j.status.Attempts, options))
}

// retryAfter is how long to wait after an attempt, the first of which is 1, failed.
func retryAfter(err error, attempt int, options Options) time.Duration {
	if KindOf(err) == Permanent {
		return options.RetryPermanent
	}
	wait := options.RetryMin
	for ; attempt > 1 && wait < options.RetryMax; attempt-- {
		wait *= 2
	}
	return min(wait, options.RetryMax)
}

// host is the queue of one host; the caller holds the lock.
func (m *Manager) host(name string) chan struct{} {
	queue := m.hosts[name]
	if queue == nil {
		queue = make(chan struct{}, m.options.PerHost)
		m.hosts[name] = queue
	}
	return queue
}

// prune drops jobs that ended long ago; the caller holds the lock.
func (m *Manager) prune() {
	for key, j := range m.jobs {
		if j.hasEnded() && time.Since(j.ended) > rememberEnded && time.Since(j.status.RetryAt) > rememberEnded {
			delete(m.jobs, key)
		}
	}
}
