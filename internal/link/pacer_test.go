// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// road is a connection to a daemon that is some way off, and takes so many bytes a second. Whatever is written waits on it, however much it is.
type road struct {
	trip    time.Duration // there and back
	rate    int64         // bytes a second
	there   chan frameAt
	back    chan frameAt
	in      *io.PipeReader
	out     *io.PipeWriter
	waiting atomic.Int64
	most    int64 // that waited
}

type frameAt struct {
	arrives time.Time
	frame   []byte
}

func newRoad(trip time.Duration, rate int64) *road {
	r := &road{trip: trip, rate: rate, there: make(chan frameAt, 1<<20), back: make(chan frameAt, 1<<20)}
	r.in, r.out = io.Pipe()
	return r
}

func (r *road) Read(p []byte) (int, error) { return r.in.Read(p) }

func (r *road) Write(p []byte) (int, error) {
	r.most = max(r.most, r.waiting.Add(int64(len(p))))
	for n := 0; n < len(p); { // a ping may lie behind a chunk
		frame := p[n:]
		r.there <- frameAt{time.Now().Add(r.trip / 2), append([]byte(nil), frame[:headerLen]...)}
		n += int(parseHeader(frame).length)
	}
	return len(p), nil
}

// daemon reads what comes, and answers pings.
func (r *road) daemon() {
	for f := range r.there {
		time.Sleep(time.Until(f.arrives))
		h := parseHeader(f.frame)
		time.Sleep(time.Duration(int64(h.length) * int64(time.Second) / r.rate))
		r.waiting.Add(-int64(h.length))
		if h.program == programKeepalive && h.procedure == procPing {
			r.back <- frameAt{time.Now().Add(r.trip / 2), keepaliveFrame(procPong)}
		}
	}
	close(r.back)
}

func (r *road) answers() {
	for f := range r.back {
		time.Sleep(time.Until(f.arrives))
		_, _ = r.out.Write(f.frame) // it ends with the reader
	}
}

func TestUploadsKeepTheQueueShortAndTheWayFull(t *testing.T) {
	const seconds = 4 // of each upload, at least
	for _, test := range []struct {
		trip time.Duration
		rate int64
	}{
		{200 * time.Microsecond, 500 << 20},
		{200 * time.Microsecond, 2 << 20},
		{10 * time.Millisecond, 100 << 20},
		{40 * time.Millisecond, 50 << 20},
		{200 * time.Millisecond, 10 << 20},
	} {
		t.Run(fmt.Sprintf("%v, %d MiB/s", test.trip, test.rate>>20), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoad(test.trip, test.rate)
				var ends sync.WaitGroup
				ends.Go(r.daemon)
				ends.Go(r.answers)
				g := newGuard(r, func() { r.in.Close() }, time.Hour, 1)
				defer func() {
					g.die(io.EOF)
					g.workers.Wait()
					close(r.there)
					ends.Wait()
				}()
				length := seconds * uint64(test.rate)
				start := time.Now()
				if err := newUploader(g, &stream{serial: 7}, false).send(io.LimitReader(endless{}, int64(length)), length); err != nil {
					t.Fatal(err)
				}
				for r.waiting.Load() > 0 {
					time.Sleep(time.Millisecond)
				}
				fits := int64(test.trip.Seconds() * float64(test.rate))
				if most := fits + queueLength + openingChunk; r.most > most {
					t.Errorf("%d KiB were under way at once; %d KiB fit, and the queue", r.most>>10, fits>>10)
				}
				if took := time.Since(start); took > seconds*time.Second*5/4 {
					t.Errorf("it took %v for what the daemon reads in %v", took, seconds*time.Second)
				}
			})
		})
	}
}

func TestAnAnswerToAPingGoesToWhoAsked(t *testing.T) {
	g := &guard{}
	ours := make(chan struct{}, 1)
	g.notePing(outgoing{frame: keepaliveFrame(procPing)}) // the watch's
	g.notePing(outgoing{frame: keepaliveFrame(procPong)})
	g.notePing(outgoing{frame: keepaliveFrame(procPing), pong: ours})
	g.answerPing()
	if len(ours) != 0 {
		t.Error("the answer to another ping was taken for ours")
	}
	g.answerPing()
	if len(ours) != 1 {
		t.Error("our answer did not come")
	}
	g.answerPing() // to a ping that nobody sent
}
