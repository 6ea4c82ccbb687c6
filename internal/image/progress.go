// SPDX-License-Identifier: Apache-2.0

package image

import "time"

// Step of a job.
type Step string

// Steps.
const (
	// StepDownloading: an image is on its way into the spool, because only its end tells how long it is.
	StepDownloading Step = "downloading"
	// StepStoring: it is on its way to where it is to be.
	StepStoring Step = "storing"
)

// Progress of a job in its present step, in bytes; 0 where not known yet.
type Progress struct {
	Step        Step
	Done, Total int64
}

// rateWindow is how far back a rate looks, about.
const rateWindow = 10 * time.Second

// rate is how fast a step proceeds: of the last window, not of all time, for mirrors and hosts change their pace.
type rate struct {
	step      Step
	since     time.Time
	from      int64
	perSecond float64
}

func (r *rate) update(now time.Time, p Progress) {
	if r.since.IsZero() || p.Step != r.step || p.Done < r.from {
		*r = rate{step: p.Step, since: now, from: p.Done}
		return
	}
	past := now.Sub(r.since)
	if past < time.Second {
		return
	}
	current := float64(p.Done-r.from) / past.Seconds()
	weight := min(1, past.Seconds()/rateWindow.Seconds())
	if r.perSecond == 0 {
		weight = 1
	}
	r.perSecond += weight * (current - r.perSecond)
	r.since, r.from = now, p.Done
}

// remaining is how long the rest of the step takes at this rate; 0 where that is not known.
func (r *rate) remaining(p Progress) time.Duration {
	if r.perSecond < 1 || p.Total <= p.Done {
		return 0
	}
	const longest = 1000 * time.Hour
	return min(longest, time.Duration(float64(p.Total-p.Done)/r.perSecond*float64(time.Second))).Round(time.Second)
}
