// SPDX-License-Identifier: Apache-2.0

package local

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
)

// asUplinks makes this test binary be what is behind the uplinks of a machine, until its standard input ends.
const asUplinks = "EGRESS_LOCAL_TEST_UPLINKS"

// What is behind the uplinks. A connection to the canary is one too many.
const (
	worldReflector  = "198.51.100.80:80"
	worldReflector6 = "[2001:db8:80::80]:80"
	worldCanary     = "198.51.100.80:81"
	worldNames      = "198.51.100.53:53"
	worldName       = "reflector.test"
)

// world remembers who came.
type world struct {
	mu     sync.Mutex
	canary []string
	asked  string
}

// serveUplinks never returns.
func serveUplinks() {
	w := &world{}
	http.HandleFunc("/", func(out http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(out, hostOf(r.RemoteAddr)) })
	http.HandleFunc("/canary", func(out http.ResponseWriter, _ *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, _ = fmt.Fprintf(out, "%q", w.canary)
	})
	http.HandleFunc("/asked", func(out http.ResponseWriter, _ *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, _ = io.WriteString(out, w.asked)
	})
	for _, address := range []string{worldReflector, worldReflector6} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			log.Fatal(err)
		}
		go func() { log.Fatal(http.Serve(listener, nil)) }()
	}
	canary, err := net.Listen("tcp", worldCanary)
	if err != nil {
		log.Fatal(err)
	}
	names, err := net.ListenPacket("udp", worldNames)
	if err != nil {
		log.Fatal(err)
	}
	go w.count(canary)
	go w.answer(names)
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func (w *world) count(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		w.mu.Lock()
		w.canary = append(w.canary, hostOf(conn.RemoteAddr().String()))
		w.mu.Unlock()
		_ = conn.Close()
	}
}

// answer says of every name that it is the reflector's, in IPv4.
func (w *world) answer(conn net.PacketConn) {
	query := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(query)
		if err != nil {
			log.Fatal(err)
		}
		w.mu.Lock()
		w.asked = hostOf(from.String())
		w.mu.Unlock()
		end := 12
		for query[end] != 0 { // the labels of the question
			end += 1 + int(query[end])
		}
		end += 5
		answer := append([]byte{}, query[:min(n, end)]...)
		binary.BigEndian.PutUint16(answer[2:], 0x8180)
		for i := 6; i < 12; i++ {
			answer[i] = 0
		}
		if binary.BigEndian.Uint16(answer[end-4:]) == 1 { // an A record is asked for
			answer[7] = 1
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 198, 51, 100, 80)
		}
		_, _ = conn.WriteTo(answer, from)
	}
}
