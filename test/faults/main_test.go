// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

// imageURL is the image that guests boot; larger than what the daemon in memory takes at once, so that an upload has a middle.
var imageURL string

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	tally.methods = map[string]bool{}
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
	if !summarise() && code == 0 && whole() {
		code = 1
	}
	os.Exit(code)
}

// whole says whether everything was run: a part of the matrix cannot reach every method.
func whole() bool {
	return flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
}

// summarise prints what all runs came to, and says whether it is as it has to be.
func summarise() bool {
	methods := faults.BackendMethods()
	missing := slices.DeleteFunc(slices.Clone(methods), func(m string) bool { return tally.methods[m] })
	if len(missing) > 0 {
		fmt.Printf("no operation reaches: %s\n", strings.Join(missing, ", "))
	}
	if tally.missed > 0 {
		fmt.Printf("%d cases were not come to again\n", tally.missed)
	}
	fmt.Printf("coverage: %d/%d backend methods, %d steps\n", len(methods)-len(missing), len(methods), tally.steps)
	fmt.Printf("faults: %d injected, %d converged, %d leaked, %d foreign touched\n", tally.injected, tally.converged, tally.leaked, tally.touched)
	return len(missing) == 0 && tally.converged == tally.injected && 100*tally.missed <= maxMissed*tally.injected && tally.leaked == 0 && tally.touched == 0
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
