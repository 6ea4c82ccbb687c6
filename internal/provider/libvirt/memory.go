// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// memory is what is remembered of a host's running guests: what has no bulk call and changes seldom. A mark and addresses that are remembered
// are shown, and never decide about anything that is changed: for that the mark is read again.
type memory struct {
	mu     sync.Mutex
	guests map[string]*guestMemory // by UID
}

// guestMemory is of one run of one guest.
type guestMemory struct {
	uuid string
	run  int
	// doubts counts the reasons to read again what is remembered; what was read before the last is not taken for new.
	doubts uint64
	// mark, where it was read and nothing was told since.
	mark   Mark
	marked bool
	// addresses that were last found; asked is when, and sure whether nothing was told since.
	addresses []netip.Addr
	asked     time.Time
	sure      bool
	// resumes are how often the guest was let run on, and when last.
	resumes int
	resumed time.Time
}

func (m *memory) of(uid string) *guestMemory {
	if m.guests == nil {
		m.guests = map[string]*guestMemory{}
	}
	g := m.guests[uid]
	if g == nil {
		g = &guestMemory{}
		m.guests[uid] = g
	}
	return g
}

// meet forgets what was known of another run, or of another domain, and returns the count of doubts so far. That it paused lately is known of the
// instance, and stays.
func (m *memory) meet(uid string, info DomainInfo) (doubts uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(uid)
	if g.uuid != info.UUID || g.run != info.Run {
		*g = guestMemory{uuid: info.UUID, run: info.Run, doubts: g.doubts + 1, resumes: g.resumes, resumed: g.resumed}
	}
	return g.doubts
}

// doubt has everything about a guest read again; the last known addresses stand until then.
func (m *memory) doubt(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.guests[uid]; g != nil {
		g.doubts++
		g.marked, g.sure = false, false
	}
}

// doubtAll is doubt for all guests.
func (m *memory) doubtAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.guests {
		g.doubts++
		g.marked, g.sure = false, false
	}
}

func (m *memory) mark(uid string) (mark Mark, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.guests[uid]
	if g == nil || !g.marked {
		return Mark{}, false
	}
	return g.mark, true
}

// keepMark remembers a mark that was read after that many doubts.
func (m *memory) keepMark(uid string, doubts uint64, mark Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.of(uid); g.doubts == doubts {
		g.mark, g.marked = mark, true
	}
}

// known are the last known addresses; sure says that there is no reason to ask again.
func (m *memory) known(uid string) (addresses []netip.Addr, sure bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.guests[uid]
	if g == nil {
		return nil, false
	}
	return slices.Clone(g.addresses), g.sure
}

// keepAddresses remembers what a source answered.
func (m *memory) keepAddresses(uid string, doubts uint64, found []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(uid)
	g.addresses, g.asked, g.sure = slices.Clone(found), time.Now(), g.doubts == doubts
}

// eldest is the guest whose addresses were asked for longest ago, among those that have some.
func (m *memory) eldest() (uid string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var asked time.Time
	for id, g := range m.guests {
		if len(g.addresses) > 0 && (!ok || g.asked.Before(asked)) {
			uid, asked, ok = id, g.asked, true
		}
	}
	return uid, ok
}

// askedNow puts a guest at the end of those whose turn it is.
func (m *memory) askedNow(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.guests[uid]; g != nil {
		g.asked = time.Now()
	}
}

// keepOnly forgets the guests that are gone.
func (m *memory) keepOnly(there func(uid string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.guests {
		if !there(uid) {
			delete(m.guests, uid)
		}
	}
}

func (m *memory) forget(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.guests, uid)
}

// stopped forgets what a run had, and not that it paused.
func (m *memory) stopped(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.guests[uid]; g != nil {
		*g = guestMemory{uuid: g.uuid, run: g.run, doubts: g.doubts, mark: g.mark, marked: g.marked, resumes: g.resumes, resumed: g.resumed}
	}
}

// A guest that pauses again soon after it was let run on is let run on after longer and longer times.
const (
	firstResumeDelay = 10 * time.Second
	maxResumeDelay   = 10 * time.Minute
	// resumeMemory is how long a pause counts.
	resumeMemory = 30 * time.Minute
)

// resumeDelay is how long after the last of that many resumes the next may follow.
func resumeDelay(resumes int) time.Duration {
	if resumes == 0 {
		return 0
	}
	return min(firstResumeDelay<<min(resumes-1, 10), maxResumeDelay)
}

// mayResume says from when on a guest may be let run on, and how often it was lately.
func (m *memory) mayResume(uid string, now time.Time) (at time.Time, resumes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(uid)
	if now.Sub(g.resumed) > resumeMemory {
		g.resumes = 0
	}
	return g.resumed.Add(resumeDelay(g.resumes)), g.resumes
}

func (m *memory) noteResume(uid string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(uid)
	g.resumes++
	g.resumed = now
}
