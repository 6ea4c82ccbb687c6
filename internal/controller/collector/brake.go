// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

const (
	// brakeTime is the time within which only so many instances may go unasked, and brakeShare the part of all that they may be.
	brakeTime  = 24 * time.Hour
	brakeShare = 10
	// What the schema takes.
	maxNames      = 16
	maxPending    = 4096
	maxNameLength = 256
	tokenLength   = 16
)

// situation is what a sweep saw of an entry's instances. Instances are named host/uid.
type situation struct {
	entry string
	// proxies are all that the API lists, of any entry.
	proxies int
	// instances of the entry on all of its hosts, as last known.
	instances int
	// removed unasked in the last brakeTime.
	removed int
	// candidates have no Proxy; due are those whose grace period is over.
	candidates, due []string
	// shown are the candidates as people know them, host/domain.
	shown map[string]string
}

func nameOf(host, uid string) string { return host + "/" + uid }

// add takes in what one host holds.
func (s *situation) add(v survey) {
	if s.shown == nil {
		s.shown = map[string]string{}
	}
	for _, l := range v.left {
		if name := nameOf(v.host, l.UID); l.UID != "" && s.shown[name] == "" {
			s.candidates = append(s.candidates, name)
			s.shown[name] = nameOf(v.host, l.Object)
		}
	}
	for _, l := range v.due {
		if name := nameOf(v.host, l.UID); l.UID != "" && !slices.Contains(s.due, name) {
			s.due = append(s.due, name)
		}
	}
	slices.Sort(s.candidates)
	slices.Sort(s.due)
}

// among counts the candidates among names.
func (s *situation) among(names []string) (n int) {
	for _, name := range names {
		if slices.Contains(s.candidates, name) {
			n++
		}
	}
	return n
}

// allowed is how many instances may be removed within brakeTime unasked.
func (s *situation) allowed() int { return max(1, s.instances/brakeShare) }

// brake says why so many instances must not go unasked; empty where they may.
func (s *situation) brake(pending int) string {
	switch {
	case pending == 0:
		return ""
	case s.proxies == 0:
		return v1alpha1.ReasonNoProxies
	case s.removed+pending > s.allowed():
		return v1alpha1.ReasonTooManyLeftovers
	}
	return ""
}

// token stands for a stop and for exactly these instances.
func token(entry string, since metav1.Time, reason string, names []string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s\n%s", entry, since.Unix(), reason, strings.Join(names, "\n")))
	return hex.EncodeToString(sum[:])[:tokenLength]
}

// brakes are what is remembered of all entries. It may be lost: then what was approved and is not removed yet has to be approved again.
type brakes struct {
	mu      sync.Mutex
	entries map[string]*brake
}

type brake struct {
	// held is what the last token stands for.
	held []string
	// approved by somebody.
	approved map[string]bool
	// strangers are what is foreign, by host.
	strangers map[string][]string
}

func (b *brakes) of(entry string) *brake {
	if b.entries == nil {
		b.entries = map[string]*brake{}
	}
	if b.entries[entry] == nil {
		b.entries[entry] = &brake{approved: map[string]bool{}, strangers: map[string][]string{}}
	}
	return b.entries[entry]
}

// verdict is what the brake says.
type verdict struct {
	// stop, if nothing may be removed.
	stop *v1alpha1.CollectorStop
	// unasked are the instances that are removed now without anybody's approval.
	unasked []string
}

// judge decides whether what is due may go.
func (b *brakes) judge(s situation, record Record, now time.Time) verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(s.entry).judge(s, record, now)
}

func (b *brake) judge(s situation, record Record, now time.Time) verdict {
	for name := range b.approved {
		if !slices.Contains(s.candidates, name) {
			delete(b.approved, name)
		}
	}
	pending := b.unapproved(s.candidates)
	was := record.Status.Stopped
	if was != nil && record.Approval == was.Token && b.covers(s.entry, *was, pending) {
		for _, name := range pending {
			b.approved[name] = true
		}
		was, pending = nil, nil
	}
	reason := s.brake(len(pending))
	unasked := b.unapproved(s.due)
	if len(pending) == 0 || was == nil && (reason == "" || len(unasked) == 0) {
		b.held = nil
		return verdict{unasked: unasked}
	}
	stop := v1alpha1.CollectorStop{Since: metav1.NewTime(now.Truncate(time.Second)), Reason: reason, Instances: int32(len(pending)),
		Allowed: int32(s.allowed()), Removed: int32(s.removed)}
	if was != nil {
		stop.Since, stop.Reason = was.Since, cmp.Or(reason, was.Reason)
	}
	stop.Token = token(s.entry, stop.Since, stop.Reason, pending)
	for _, name := range pending[:min(len(pending), maxNames)] {
		stop.Names = append(stop.Names, cut(s.shown[name]))
	}
	b.held = pending
	return verdict{stop: &stop}
}

// spent is told which instances were removed: an approval holds for one removal.
func (b *brakes) spent(entry string, removed map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.of(entry)
	for name := range removed {
		delete(of.approved, name)
	}
}

func (b *brake) unapproved(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return b.approved[name] })
}

// covers says whether a stop's token stands for all of pending. Some of what it stood for may have gone meanwhile.
func (b *brake) covers(entry string, was v1alpha1.CollectorStop, pending []string) bool {
	for _, stood := range [][]string{pending, b.held} {
		if token(entry, was.Since, was.Reason, stood) == was.Token {
			return !slices.ContainsFunc(pending, func(name string) bool { return !slices.Contains(stood, name) })
		}
	}
	return false
}

// foreign is what is foreign on all hosts, by what each last said.
func (b *brakes) foreign(entry string, surveys []survey) *v1alpha1.ForeignLeftovers {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.of(entry)
	for _, v := range surveys {
		of.strangers[v.host] = nil
		for _, l := range v.foreign {
			of.strangers[v.host] = append(of.strangers[v.host], cut(nameOf(v.host, l.Object)))
		}
	}
	var names []string
	for _, some := range of.strangers {
		names = append(names, some...)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return &v1alpha1.ForeignLeftovers{Count: int32(len(names)), Names: names[:min(len(names), maxNames)]}
}

func cut(name string) string { return string([]rune(name)[:min(len([]rune(name)), maxNameLength)]) }

func instancesOf(hosts []provider.HostState) (n int) {
	for _, h := range hosts {
		n += h.Instances
	}
	return n
}

// removedIn counts what was removed within the last brakeTime: an hour that reaches into it counts in full.
func removedIn(removed []v1alpha1.RemovedInstances, now time.Time) (n int) {
	for _, r := range removed {
		if now.Sub(r.Hour.Time) < brakeTime+time.Hour {
			n += int(r.Count)
		}
	}
	return n
}

// counted adds to the hour that it is.
func counted(removed []v1alpha1.RemovedInstances, now time.Time, n int32) []v1alpha1.RemovedInstances {
	if n == 0 {
		return removed
	}
	hour := metav1.NewTime(now.Truncate(time.Hour))
	next := slices.Clone(removed)
	if i := slices.IndexFunc(next, func(r v1alpha1.RemovedInstances) bool { return r.Hour.Equal(&hour) }); i >= 0 {
		next[i].Count += n
		return next
	}
	return append(next, v1alpha1.RemovedInstances{Hour: hour, Count: n})
}

// uncounted takes off what was counted and did not go, from the latest hours first.
func uncounted(removed []v1alpha1.RemovedInstances, n int) []v1alpha1.RemovedInstances {
	next := slices.Clone(removed)
	for i := len(next) - 1; i >= 0 && n > 0; i-- {
		off := min(next[i].Count, int32(n))
		next[i].Count -= off
		n -= int(off)
	}
	return slices.DeleteFunc(next, func(r v1alpha1.RemovedInstances) bool { return r.Count == 0 })
}
