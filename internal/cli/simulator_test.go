// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ran runs a command to its end.
func ran(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestSimulator(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var log bytes.Buffer
	go func() {
		ended <- Run(ctx, []string{"simulator", "--socket", socket, "--log-format", "text"}, &log, &log)
	}()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if code, _, _ := ran(t, "simulator", "list", "--socket", socket); code == ExitOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the simulator does not serve its socket")
		}
		<-tick.C
	}
	for _, step := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"an empty list", []string{"list"}, ExitOK, "HOST"},
		{"a second simulator", nil, ExitFailed, "another simulator serves " + socket},
		{"a fault is set", []string{"fault", "set", "no-egress", "--proxies", "shop-*"}, ExitOK, ""},
		{"a fault that is none", []string{"fault", "set", "no-egres"}, ExitFailed, `there is no fault "no-egres"`},
		{"the faults", []string{"fault", "list"}, ExitOK, "no-egress   -       shop-*"},
		{"the known faults", []string{"fault", "list", "--known"}, ExitOK, "dies-after-60s"},
		{"another fault is cleared", []string{"fault", "clear", "flaps"}, ExitOK, "0 cleared"},
		{"all are cleared", []string{"fault", "clear"}, ExitOK, "1 cleared"},
		{"an output that is none", []string{"list", "-o", "xml"}, ExitUsage, "table or json"},
	} {
		t.Run(step.name, func(t *testing.T) {
			code, stdout, stderr := ran(t, append([]string{"simulator", "--socket", socket}, step.args...)...)
			if code != step.code || !strings.Contains(stdout+stderr, step.says) {
				t.Errorf("code %d, says %s%s", code, stdout, stderr)
			}
		})
	}
	_, stdout, _ := ran(t, "simulator", "list", "--socket", socket, "-o", "json")
	var records []map[string]any
	if err := json.Unmarshal([]byte(stdout), &records); err != nil {
		t.Errorf("%v in %s", err, stdout)
	}
	stop()
	if code := <-ended; code != ExitOK {
		t.Errorf("the simulator ended with %d: %s", code, log.String())
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	code, _, stderr := ran(t, "simulator", "list", "--socket", socket)
	if code != ExitFailed || !strings.Contains(stderr, "egress-proxies simulator --socket "+socket) {
		t.Errorf("code %d, says %s", code, stderr)
	}
	if code, _, stderr := ran(t, "simulator"); code != ExitUsage || !strings.Contains(stderr, "--socket") {
		t.Errorf("without --socket: code %d, says %s", code, stderr)
	}
}
