// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// families are the loopback addresses that tests run over.
var families = map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"}

// tcpPair is two ends of one connection over loopback.
func tcpPair(t testing.TB, address string) (dialled, accepted *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	dialled, accepted = conn.(*net.TCPConn), other.(*net.TCPConn)
	t.Cleanup(func() { _ = dialled.Close(); _ = accepted.Close() })
	deadline := time.Now().Add(30 * time.Second)
	_ = dialled.SetDeadline(deadline)
	return dialled, accepted
}

// rig is a client, an origin and a tunnel between them.
type rig struct {
	client, origin *net.TCPConn
	done           chan result
}

type result struct {
	counts Counts
	err    error
}

func (r *rig) wait(t testing.TB) result {
	t.Helper()
	select {
	case res := <-r.done:
		return res
	case <-time.After(30 * time.Second):
		t.Fatal("the tunnel does not end")
		return result{}
	}
}
