// SPDX-License-Identifier: Apache-2.0

// Package bench compares what we do with what is at hand, as ratios in one
// run: absolute figures say more about the machine.
package bench

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/splice"
)

// tunnelFunc copies both ways until both have ended, and closes both.
type tunnelFunc func(client, upstream net.Conn)

// ioCopy is the usual tunnel: it splices too, with a pipe a direction.
func ioCopy(client, upstream net.Conn) {
	var both sync.WaitGroup
	for _, ends := range [][2]*net.TCPConn{
		{upstream.(*net.TCPConn), client.(*net.TCPConn)}, {client.(*net.TCPConn), upstream.(*net.TCPConn)},
	} {
		both.Go(func() {
			_, _ = io.Copy(ends[0], ends[1])
			_ = ends[0].CloseWrite()
		})
	}
	both.Wait()
	_ = client.Close()
	_ = upstream.Close()
}

// BenchmarkTunnel measures both tunnels in turns within each iteration and
// reports ours / io.Copy: throughput of one bulk tunnel, and round trips of
// small messages.
func BenchmarkTunnel(b *testing.B) {
	var tunneler splice.Tunneler
	defer tunneler.Close()
	ours := func(client, upstream net.Conn) { _, _ = tunneler.Tunnel(b.Context(), client, upstream, nil) }
	for _, work := range []struct {
		name string
		unit string
		run  func(b *testing.B, tunnel tunnelFunc) float64
	}{
		{"bulk", "MB/s", func(b *testing.B, t tunnelFunc) float64 { return bulk(b, t, 256<<20) }},
		{"messages", "round-trips/s", func(b *testing.B, t tunnelFunc) float64 { return roundTrips(b, t, 10000) }},
		{"short", "tunnels/s", func(b *testing.B, t tunnelFunc) float64 { return short(b, t, 500) }},
	} {
		b.Run(work.name, func(b *testing.B) {
			var ourSum, theirSum float64
			for b.Loop() {
				ourSum += work.run(b, ours)
				theirSum += work.run(b, ioCopy)
			}
			b.ReportMetric(ourSum/float64(b.N), "ours-"+work.unit)
			b.ReportMetric(theirSum/float64(b.N), "iocopy-"+work.unit)
			b.ReportMetric(ourSum/theirSum, "ours/iocopy")
		})
	}
}

// bulk returns MB/s of size bytes from client to origin.
func bulk(b *testing.B, tunnel tunnelFunc, size int64) float64 {
	client, origin, done := open(b, tunnel)
	start := time.Now()
	go func() {
		chunk := make([]byte, 256<<10)
		for left := size; left > 0; left -= int64(len(chunk)) {
			if _, err := client.Write(chunk); err != nil {
				b.Error(err)
				break
			}
		}
		_ = client.CloseWrite()
	}()
	buffer := make([]byte, 256<<10)
	var got int64
	for got < size {
		n, err := origin.Read(buffer)
		got += int64(n)
		if err != nil {
			b.Fatalf("after %d bytes: %v", got, err)
		}
	}
	took := time.Since(start)
	_ = origin.Close()
	done()
	return float64(size) / 1e6 / took.Seconds()
}

// roundTrips returns exchanges of 100 bytes a second.
func roundTrips(b *testing.B, tunnel tunnelFunc, count int) float64 {
	client, origin, done := open(b, tunnel)
	var echo sync.WaitGroup
	echo.Go(func() {
		buffer := make([]byte, 100)
		for {
			if _, err := io.ReadFull(origin, buffer); err != nil {
				break
			}
			if _, err := origin.Write(buffer); err != nil {
				break
			}
		}
		_ = origin.Close()
	})
	buffer := make([]byte, 100)
	start := time.Now()
	for range count {
		if _, err := client.Write(buffer); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, buffer); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(start)
	_ = client.CloseWrite()
	echo.Wait()
	done()
	return float64(count) / took.Seconds()
}

// short returns tunnels a second that carry one exchange each.
func short(b *testing.B, tunnel tunnelFunc, count int) float64 {
	start := time.Now()
	for range count {
		roundTrips(b, tunnel, 1)
	}
	return float64(count) / time.Since(start).Seconds()
}

// open returns both far ends of a running tunnel; done waits for its end.
func open(b *testing.B, tunnel tunnelFunc) (client, origin *net.TCPConn, done func()) {
	b.Helper()
	client, clientSide := pair(b)
	origin, originSide := pair(b)
	ended := make(chan struct{})
	go func() { tunnel(clientSide, originSide); close(ended) }()
	return client, origin, func() {
		_ = client.Close()
		<-ended
	}
}

func pair(b *testing.B) (dialled, accepted *net.TCPConn) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	other, err := listener.Accept()
	if err != nil {
		b.Fatal(err)
	}
	return conn.(*net.TCPConn), other.(*net.TCPConn)
}
