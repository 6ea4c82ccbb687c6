// SPDX-License-Identifier: Apache-2.0

package image

import "time"

// DefaultTurns is how many fetches run at once in all where DepotOptions does not say.
const DefaultTurns = 16

// Depot is what all fetches of a process share: the turns to run, the spool, and who is told of figures.
type Depot struct {
	turns     chan struct{}
	unpacking chan struct{}
	spool     *spool
	hangs     *hangs
	observer  Observer
}

// Observer is told figures, for metrics. Its methods do not block, and are called by many goroutines at once.
type Observer interface {
	// JobEnded: a fetch for a host ended, after took, with the error or nil. bytes of it were stored.
	JobEnded(host string, took time.Duration, bytes int64, err error)
	// Received bytes over the network, from mirrors.
	Received(bytes int)
	// Spooled is how many bytes of images the spool holds or has promised.
	Spooled(bytes int64)
}

// DepotOptions are what a Depot is made with; the zero value is a depot without a spool.
type DepotOptions struct {
	// Turns bounds how many fetches run at once in all; 0 means DefaultTurns.
	Turns int
	// SpoolDir is a folder on a disk, where images are kept while hosts take them; empty for no spool. Its files have no name, so nothing is left in
	// it when the process ends, however it ends.
	SpoolDir string
	// SpoolBytes bounds what the spool takes of the disk; 0 for no spool.
	SpoolBytes int64
	// Observer is told figures; nil for nobody.
	Observer Observer
}

// NewDepot makes a depot; Close ends it. The error says why SpoolDir cannot be used.
func NewDepot(o DepotOptions) (*Depot, error) {
	if o.Turns <= 0 {
		o.Turns = DefaultTurns
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	d := &Depot{
		turns: make(chan struct{}, o.Turns), unpacking: make(chan struct{}, 1), observer: o.Observer,
		hangs: &hangs{paths: map[string][]<-chan struct{}{}},
	}
	if o.SpoolDir == "" || o.SpoolBytes <= 0 {
		return d, nil
	}
	var err error
	d.spool, err = newSpool(o.SpoolDir, o.SpoolBytes, o.Observer)
	return d, err
}

// Close ends all downloads into the spool, and returns when none is left.
func (d *Depot) Close() {
	if d.spool != nil {
		d.spool.close()
	}
}

type nobody struct{}

func (nobody) JobEnded(string, time.Duration, int64, error) {}
func (nobody) Received(int)                                 {}
func (nobody) Spooled(int64)                                {}
