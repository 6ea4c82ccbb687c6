// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
)

func TestReadRequest(t *testing.T) {
	name := func(host string) string { return "\x05\x01\x00\x03" + string(rune(len(host))) + host + "\x00\x50" }
	for _, c := range []struct {
		name, message, target string
		code                  int // of a replyError; -1: broken connection
	}{
		{"IPv4", "\x05\x01\x00\x01\x01\x02\x03\x04\x01\xbb", "1.2.3.4:443", 0},
		{"IPv6", "\x05\x01\x00\x04" + string(netip.MustParseAddr("2606::7").AsSlice()) + "\x00\x50", "[2606::7]:80", 0},
		{"name", name("Example.org"), "Example.org:80", 0},
		{"name that is an IPv6 address", name("2606::7"), "[2606::7]:80", 0},
		{"name with a zone", name("fe80::1%eth0"), "", replyGeneral},
		{"name with a line break", name("a\r\nb"), "", replyGeneral},
		{"empty name", name(""), "", replyGeneral},
		{"port 0", "\x05\x01\x00\x01\x01\x02\x03\x04\x00\x00", "", replyGeneral},
		{"BIND", "\x05\x02\x00\x01\x01\x02\x03\x04\x01\xbb", "", replyCommandNotSupported},
		{"UDP ASSOCIATE", "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", "", replyCommandNotSupported},
		{"unknown address type", "\x05\x01\x00\x05\x00\x00", "", replyAddressNotSupported},
		{"SOCKS4", "\x04\x01\x00\x50\x01\x02\x03\x04", "", -1},
		{"cut in the address", "\x05\x01\x00\x01\x01\x02", "", -1},
		{"cut before the port", "\x05\x01\x00\x01\x01\x02\x03\x04", "", -1},
		{"nothing", "", "", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, err := readRequest(strings.NewReader(c.message))
			var answer *replyError
			isAnswer := errors.As(err, &answer)
			switch {
			case c.code == 0 && (err != nil || target != c.target):
				t.Errorf("target %q, %v; want %q", target, err, c.target)
			case c.code > 0 && (!isAnswer || int(answer.code) != c.code):
				t.Errorf("error %v, want reply %d", err, c.code)
			case c.code < 0 && (err == nil || isAnswer || errors.Is(err, io.EOF)):
				t.Errorf("error %v, want a broken connection", err)
			}
		})
	}
}

func FuzzServerMessages(f *testing.F) {
	f.Add([]byte("\x05\x01\x02\x01\x01u\x01p\x05\x01\x00\x03\x0bexample.org\x00\x50"))
	f.Add([]byte("\x05\x02\x00\x02\x01\x00\x00\x05\x01\x00\x01\x01\x02\x03\x04\x01\xbb"))
	f.Add([]byte("\x05\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		if _, err := readGreeting(r); err != nil {
			return
		}
		username, password, err := readUserPass(r)
		if err != nil {
			return
		}
		if len(username) > 255 || len(password) > 255 {
			t.Errorf("lengths %d and %d", len(username), len(password))
		}
		target, err := readRequest(r)
		if err != nil {
			return
		}
		// What the server accepts the client can ask for, and it means the same.
		message, err := connectRequest(target)
		if err != nil {
			t.Fatalf("target %q: %v", target, err)
		}
		again, err := readRequest(bytes.NewReader(message))
		if err != nil || again != target {
			t.Errorf("target %q came back as %q, %v", target, again, err)
		}
	})
}

func FuzzClientReply(f *testing.F) {
	f.Add(reply(0))
	f.Add(reply(5))
	f.Add([]byte("\x05\x00\x00\x03\x01a\x00\x50rest"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		if err := readReply(r); err == nil && (data[0] != version || data[1] != replySuccess) {
			t.Errorf("%x was taken for success", data)
		}
	})
}
