// SPDX-License-Identifier: Apache-2.0

package link

import "sync"

// maxMail is how many names a mailbox holds; more than that means: anything.
const maxMail = 4096

// mailbox gathers the names of domains for one reader. It never grows without bound, and putting something in never blocks.
type mailbox struct {
	ready chan struct{} // holds one while there is mail

	mu    sync.Mutex
	names map[string]struct{}
}

func newMailbox() *mailbox {
	return &mailbox{ready: make(chan struct{}, 1), names: map[string]struct{}{}}
}

// put adds a name; the empty one, or one too many, stands for all.
func (m *mailbox) put(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, all := m.names[""]
	switch {
	case all:
	case name == "" || len(m.names) == maxMail:
		m.names = map[string]struct{}{"": {}}
	default:
		m.names[name] = struct{}{}
	}
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// take empties the mailbox.
func (m *mailbox) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.names))
	for name := range m.names {
		names = append(names, name)
	}
	m.names = map[string]struct{}{}
	return names
}
