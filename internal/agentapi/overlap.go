// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"slices"
	"time"
)

// overlapping is the set to put in force: what is asked for, and for the
// overlap what is valid until now. None of these comes to be valid for longer
// than it was; where there are too many, those that end first make way.
func overlapping(request CredentialsRequest, active []Credential, now time.Time) []Credential {
	next := slices.Clone(request.Credentials)
	if request.OverlapSeconds <= 0 {
		return next
	}
	until := now.Add(time.Duration(request.OverlapSeconds) * time.Second)
	var kept []Credential
	for _, c := range active {
		if slices.ContainsFunc(next, func(n Credential) bool { return n.Username == c.Username && n.Password == c.Password }) {
			continue
		}
		if c.NotAfter == nil || c.NotAfter.After(until) {
			c.NotAfter = &until
		}
		kept = append(kept, c)
	}
	slices.SortStableFunc(kept, func(a, b Credential) int { return b.NotAfter.Compare(*a.NotAfter) })
	return append(next, kept[:min(len(kept), MaxCredentials-len(next))]...)
}

// splitByEnd are the valid credentials that have no end, and how long the
// last of the others is valid.
func splitByEnd(active []Credential, now time.Time) (current []Credential, previous time.Duration) {
	for _, c := range active {
		if c.NotAfter == nil {
			current = append(current, c)
			continue
		}
		previous = max(previous, c.NotAfter.Sub(now))
	}
	return current, previous
}
