// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/digitalocean/go-libvirt"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// words are 32-bit numbers, one after the other.
func words(n ...uint32) (b []byte) {
	for _, w := range n {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

func TestHugeLengthsInAnswers(t *testing.T) {
	const listDomains, huge = 273, 0x7fffffff
	list := func(c *libvirt.Libvirt) error { _, _, err := c.ConnectListAllDomains(1, 0); return err }
	stats := func(c *libvirt.Libvirt) error { _, err := c.ConnectGetAllDomainStats(nil, 0, 0); return err }
	for name, c := range map[string]struct {
		status  uint32
		payload []byte
		call    func(*libvirt.Libvirt) error
	}{
		"a list of 2^31 domains":                  {linktest.OK, words(huge, 0), list},
		"a list of more than the protocol has":    {linktest.OK, words(maxList + 1), list},
		"a list of more than there is":            {linktest.OK, words(3, 0), list},
		"a name of 2^31 bytes":                    {linktest.OK, words(1, huge), list},
		"a name of 2^32-1 bytes":                  {linktest.OK, words(1, 0xffffffff), list},
		"nothing":                                 {linktest.OK, nil, list},
		"a parameter of 2^31 bytes":               {linktest.OK, words(1, 0, 0, 0, 0, 0, 0, 1, 0, 7, huge), stats},
		"an error whose message has 2^31 bytes":   {linktest.Error, words(1, 0, 1, huge), list},
		"an error without a message, and a level": {linktest.Error, words(1, 0, 0, huge), list},
		"an error of four bytes":                  {linktest.Error, words(1), list},
	} {
		t.Run("L27: "+name+" ends the link, and allocates nothing", func(t *testing.T) {
			l := mustPipe(t, Target{}, &linktest.Peer{OnCall: func(conn *linktest.PeerConn, f linktest.Frame) bool {
				if f.Procedure < listDomains {
					return false
				}
				conn.Send(f.Answer(c.status, c.payload))
				return true
			}})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := l.Do(t.Context(), c.call)
			runtime.ReadMemStats(&after)
			var dead *DeadError
			if !errors.As(err, &dead) || !strings.Contains(err.Error(), "not libvirt: ") {
				t.Errorf("got %T %v", err, err)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
				t.Errorf("%d bytes were allocated", grown)
			}
		})
	}
	t.Run("what a daemon says is passed on", func(t *testing.T) {
		payload := words(2, 1, 'a'<<24, 0, 0, 0, 1, 7, 5)
		payload = append(payload, "hello\x00\x00\x00"...)
		payload = append(payload, words(0, 0, 0, 2, 0xffffffff, 2)...)
		l := mustPipe(t, Target{}, &linktest.Peer{OnCall: func(conn *linktest.PeerConn, f linktest.Frame) bool {
			if f.Procedure != listDomains {
				return false
			}
			conn.Send(f.Answer(linktest.OK, payload))
			return true
		}})
		domains, err := Call(t.Context(), l, func(c *libvirt.Libvirt) ([]libvirt.Domain, error) {
			domains, _, err := c.ConnectListAllDomains(1, 0)
			return domains, err
		})
		if err != nil || len(domains) != 2 || domains[0].Name != "a" || domains[1].Name != "hello" {
			t.Errorf("got %+v, %v", domains, err)
		}
	})
	t.Run("a call whose answers are unknown is refused", func(t *testing.T) {
		l := mustPipe(t, Target{}, &linktest.Peer{})
		err := l.Do(t.Context(), func(c *libvirt.Libvirt) error { _, err := c.ConnectListSecrets(1); return err })
		if err == nil || !strings.Contains(err.Error(), "answerTypes") {
			t.Errorf("got %v", err)
		}
	})
}
