// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"strings"
	"testing"
	"time"
)

func TestPrinter(t *testing.T) {
	for _, tt := range []struct {
		name     string
		terminal bool
		want     string
	}{
		{"in a log, what changes", false, "waiting for the API\nwaiting for exit-a\ndone\n"},
		{"on a terminal, one line a second", true, "\r\x1b[Kwaiting for the API (0 s)\r\x1b[Kwaiting for the API (1 s)\r\x1b[Kwaiting for exit-a (1 s)\r\x1b[Kdone\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			now := time.Unix(0, 0)
			p := &Printer{Out: &out, Terminal: tt.terminal, Now: func() time.Time { return now }}
			for range 5 {
				p.Waiting("the API")
				now = now.Add(300 * time.Millisecond)
			}
			p.Waiting("exit-a")
			p.Say("done")
			if got := out.String(); got != tt.want {
				t.Errorf("printed %q, want %q", got, tt.want)
			}
		})
	}
}
