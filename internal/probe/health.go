// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"net/netip"
	"time"
)

// Health is what the probes of one proxy add up to.
type Health struct {
	// Proven once a request has gone through.
	Proven  bool
	Healthy bool
	// Reason and Message of what decided, or of what kept a verdict from deciding.
	Reason  Reason
	Message string
	// Exit is the last exit seen.
	Exit netip.Addr
	// Last is the reason of the last verdict, whether or not it decided.
	Last Reason
	// Run counts the verdicts in a row that speak against the present state.
	Run int
}

// Next is the health after one more verdict. A proxy that was never healthy turns so with its first success; an open proxy turns
// unhealthy at once, for it was seen to be one; ReflectorDown and ManyFailing change nothing but the words.
func (h Health) Next(v Verdict, p Policy) Health {
	h.Last = v.Reason
	switch v.Reason {
	case ReflectorDown, ManyFailing:
		h.Reason, h.Message = v.Reason, v.Message
		return h
	case Succeeded:
		return h.succeeded(v, p)
	}
	return h.failed(v, p)
}

func (h Health) succeeded(v Verdict, p Policy) Health {
	h.Exit = v.Exit
	h.Run++
	if h.Proven && !h.Healthy && h.Run < p.SuccessThreshold {
		return h
	}
	return Health{Proven: true, Healthy: true, Reason: v.Reason, Message: v.Message, Exit: v.Exit, Last: v.Reason}
}

func (h Health) failed(v Verdict, p Policy) Health {
	if h.Healthy {
		h.Run++
		if h.Run < p.FailureThreshold && v.Reason != OpenProxy {
			return h
		}
	}
	// While nothing has ever gone through, the proxy is unhealthy in words only: the first success must suffice.
	return Health{Proven: h.Proven, Reason: v.Reason, Message: v.Message, Exit: h.Exit, Last: v.Reason}
}

// tells says whether somebody who knows before has something to learn from after. That credentials are refused is worth knowing before
// it decides: they may have changed.
func tells(before, after Health) bool {
	return before.Last != after.Last && after.Last == AuthFailed || before.Proven != after.Proven || before.Healthy != after.Healthy || before.Reason != after.Reason || before.Exit != after.Exit
}

// Delays while a proxy boots: from minBoot, growing with its age, up to maxBoot; after bootTime it is like any other that fails.
const (
	minBoot  = 250 * time.Millisecond
	maxBoot  = 5 * time.Second
	bootPart = 50
	bootTime = 15 * time.Minute
	// bootDial bounds a connection to a proxy that boots: its first packets may be lost while nobody answers for its address.
	bootDial = time.Second
)

// delay until the next probe of a proxy watched for age. While failures are counted, the probes come closer, so that an exit that dies
// is out within two intervals and a timeout.
func delay(h Health, p Policy, age time.Duration) time.Duration {
	switch {
	case !h.Proven && age < bootTime:
		return min(max(age/bootPart, minBoot), maxBoot)
	case h.Healthy && h.Run > 0:
		return p.Interval / time.Duration(max(p.FailureThreshold, 1))
	}
	return p.Interval
}
