// SPDX-License-Identifier: Apache-2.0

package local

import (
	"os"
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

func TestThePageSaysWhatIsTrue(t *testing.T) {
	content, err := os.ReadFile("../../../docs/local.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	_, rest, _ := strings.Cut(page, "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	file, err := config.Parse([]byte(example), "local.md")
	if err != nil {
		t.Fatalf("the example: %v", err)
	}
	if n := len(file.Entries[0].Exits()); n != 21 {
		t.Errorf("the default entry has %d exits", n)
	}
	for _, row := range []struct{ keys, exit, listens string }{
		{"  addresses: [127.0.0.12]\n", "127.0.0.12", "127.0.0.12"},
		{"  addresses: [198.51.100.7]\n", "198.51.100.7", "127.51.100.7"},
		{"  addresses: ['2001:db8::7']\n", "2001-db8--7", ""},
	} {
		entry := entryOf(t, row.keys)
		x := entry.Exits()[0]
		if x.Name != row.exit || row.listens != "" && x.Listen.String() != row.listens {
			t.Errorf("exit %+v, want %+v", x, row)
		}
		if !strings.Contains(page, row.exit) || !strings.Contains(page, row.listens) {
			t.Errorf("the page does not have %+v", row)
		}
	}
	for _, word := range []string{
		string(proxyproto.FailureExitGone), string(proxyproto.FailureLoopbackOnly), "every 2 seconds", "127.64.0.0/10",
	} {
		if !strings.Contains(page, word) {
			t.Errorf("the page does not have %q", word)
		}
	}
}
