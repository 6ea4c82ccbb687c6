// SPDX-License-Identifier: Apache-2.0

package proxyproto

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
)

func TestTargets(t *testing.T) {
	for in, want := range map[string]string{
		"example.org:80": "example.org:80", "1.2.3.4:65535": "1.2.3.4:65535", "[::1]:080": "[::1]:80", "a_b-c.example.:1": "a_b-c.example.:1",
		"": "", "example.org": "", ":80": "", "example.org:": "", "example.org:0": "", "example.org:65536": "", "example.org:-1": "", "example.org:http": "",
		"::1:80": "", "[::1%lo]:80": "", "[::g]:80": "", "a b:80": "", "a\r\nb:80": "", "user@host:80": "", "a/b:80": "", "ü.example:80": "",
		strings.Repeat("a", 256) + ":80": "",
	} {
		got, err := ParseTarget(in)
		if (err == nil) != (want != "") || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestFailures(t *testing.T) {
	all := []Failure{FailureGeneral, FailurePolicy, FailureName, FailureConnectionRefused, FailureHostUnreachable, FailureNetworkUnreachable, FailureTimeout,
		FailureExitGone, FailureLoopbackOnly}
	for _, failure := range all {
		if got := ParseFailure(string(failure)); got != failure {
			t.Errorf("%s is read back as %s", failure, got)
		}
		// SOCKS5 has one code for a host that is not there, by name or not, and
		// few for a proxy that cannot get there.
		want := failure
		switch failure {
		case FailureName:
			want = FailureHostUnreachable
		case FailureLoopbackOnly:
			want = FailureNetworkUnreachable
		case FailureExitGone:
			want = FailureGeneral
		}
		if got := FailureOfSOCKS5Reply(failure.SOCKS5Reply()); got != want {
			t.Errorf("%s is read back from SOCKS5 as %s", failure, got)
		}
		if failure.Sentence() == "" || failure.HTTPStatus() < 400 {
			t.Errorf("%s: %q, %d", failure, failure.Sentence(), failure.HTTPStatus())
		}
	}
	if got := ParseFailure("from another proxy"); got != FailureGeneral {
		t.Errorf("an unknown one is %s", got)
	}
	for _, c := range []struct {
		err  error
		want Failure
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, FailureConnectionRefused},
		{&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, FailureHostUnreachable},
		{&net.OpError{Op: "dial", Err: syscall.ENETUNREACH}, FailureNetworkUnreachable},
		{&net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}, FailureTimeout},
		{context.DeadlineExceeded, FailureTimeout},
		{&net.DNSError{IsNotFound: true}, FailureName},
		{&net.DNSError{IsTimeout: true}, FailureTimeout},
		{errors.New("other"), FailureGeneral},
	} {
		if got := FailureOf(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

func TestRequestInContext(t *testing.T) {
	if _, ok := RequestFrom(t.Context()); ok {
		t.Error("a request from nowhere")
	}
	want := Request{Protocol: ProtocolHTTP, Username: "u", Target: "h:1"}
	if got, ok := RequestFrom(WithRequest(t.Context(), want)); !ok || got != want {
		t.Errorf("%+v, %t", got, ok)
	}
}
