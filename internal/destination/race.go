// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"net"
	"net/netip"
	"time"
)

type attempt struct {
	conn net.Conn
	err  error
}

// race dials the addresses in order, each one alone for AttemptDelay, and
// returns the first connection. The error is that of the first address that
// failed. Attempts that lose are closed before race's goroutines end.
func (d *Dialer) race(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan attempt, len(addrs))
	next, running := 0, 0
	defer func() {
		cancel()
		if running > 0 {
			go closeLosers(results, running)
		}
	}()
	start := func() {
		addr := netip.AddrPortFrom(addrs[next], port)
		next++
		running++
		go func() {
			conn, err := d.dialAddr(ctx, addr)
			results <- attempt{conn, err}
		}()
	}
	delay := orDefault(d.AttemptDelay, DefaultAttemptDelay)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	start()
	var firstErr error
	for running > 0 {
		select {
		case result := <-results:
			running--
			if result.err == nil {
				return result.conn, nil
			}
			if firstErr == nil {
				firstErr = result.err
			}
		case <-timer.C:
		}
		if next < len(addrs) && ctx.Err() == nil {
			timer.Reset(delay)
			start()
		}
	}
	return nil, firstErr
}

// closeLosers waits for attempts that were cancelled.
func closeLosers(results <-chan attempt, running int) {
	for range running {
		if result := <-results; result.err == nil {
			_ = result.conn.Close()
		}
	}
}

func (d *Dialer) dialAddr(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	if d.DialAddr != nil {
		return d.DialAddr(ctx, addr)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", addr.String())
}
