// SPDX-License-Identifier: Apache-2.0

//go:build !race

package faults_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	ctrl "sigs.k8s.io/controller-runtime"
)

// imageURL is the image that guests boot; larger than what the daemon in memory takes at once, so that an upload has a middle.
var imageURL string

// gcPercent: a world is small and soon given up.
const gcPercent = 400

func TestMain(m *testing.M) {
	debug.SetGCPercent(gcPercent)
	ctrl.SetLogger(logr.Discard())
	flag.Parse()
	dir, err := os.MkdirTemp("", "egress-faults-")
	if err == nil {
		path := filepath.Join(dir, "image.qcow2")
		imageURL = "file://" + path
		err = os.WriteFile(path, qcow2(), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir) // a temporary folder
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if !tally.Print(os.Stdout, !whole()) && code == 0 {
		code = 1
	}
	os.Exit(code)
}

// whole says whether everything was run: a part of the matrix cannot reach every method.
func whole() bool {
	return flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
}

// qcow2 is an image without content.
func qcow2() []byte {
	b := make([]byte, 320<<10)
	copy(b, "QFI\xfb")
	binary.BigEndian.PutUint32(b[4:], 3)
	binary.BigEndian.PutUint32(b[20:], 16)
	binary.BigEndian.PutUint64(b[24:], 1<<30)
	binary.BigEndian.PutUint32(b[100:], 104)
	return b
}
