// SPDX-License-Identifier: Apache-2.0

package kvmhost

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestSettings(t *testing.T) {
	t.Run("L25: a boolean setting is read as a boolean", func(t *testing.T) {
		for _, value := range []string{"1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False", "yes", "no", "on", "off", "2", " 1", "-1", "tRUE"} {
			command := exec.CommandContext(t.Context(), "bash", "-c", ". ./lib.sh; setting EGRESS_KVMHOST_KVM")
			command.Env = append(os.Environ(), "EGRESS_KVMHOST_KVM="+value)
			out, err := command.Output()
			want, wantErr := strconv.ParseBool(value)
			if (err == nil) != (wantErr == nil) || err == nil && strings.TrimSpace(string(out)) != strconv.FormatBool(want) {
				t.Errorf("%q: got %q, %v; want %t, %v", value, out, err, want, wantErr)
			}
		}
	})
	t.Run("L25: no setting is false", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), "bash", "-c", ". ./lib.sh; unset EGRESS_KVMHOST_KVM; setting EGRESS_KVMHOST_KVM").Output()
		if err != nil || string(out) != "false\n" {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("L25: a host is not brought up with a setting that is neither", func(t *testing.T) {
		command := exec.CommandContext(t.Context(), "./up", "205")
		command.Env = append(os.Environ(), "EGRESS_KVMHOST_KVM=maybe", "EGRESS_KVMHOST_DIR="+t.TempDir())
		if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), "EGRESS_KVMHOST_KVM is neither true nor false: 'maybe'") {
			t.Errorf("got %v: %s", err, out)
		}
	})
}
