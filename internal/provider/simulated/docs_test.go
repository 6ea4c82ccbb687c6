// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

// The page has each fault as the code has it, under the right heading, and no other.
func TestThePageHasTheFaults(t *testing.T) {
	data, err := os.ReadFile("../../../docs/simulated.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	_, ofHosts, _ := strings.Cut(page, "### Faults of hosts")
	ofHosts, ofInstances, _ := strings.Cut(ofHosts, "### Faults of instances")
	var want [2]int
	for _, f := range config.KnownFaults() {
		row, section := faultRow(f), ofInstances
		if want[1]++; f.OfHost {
			section = ofHosts
			want[0], want[1] = want[0]+1, want[1]-1
		}
		if !strings.Contains(section, row) {
			t.Errorf("docs/simulated.md lacks, in the right section, the row\n%s", row)
		}
	}
	for n, section := range []string{ofHosts, ofInstances} {
		if rows := strings.Count(section, "\n| `"); rows != want[n] {
			t.Errorf("section %d has %d rows for %d faults", n, rows, want[n])
		}
	}
}

// The example is a providers file, and a provider can be made of it.
func TestThePagesExampleCanBeUsed(t *testing.T) {
	data, err := os.ReadFile("../../../docs/simulated.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(data), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	file, err := config.Parse([]byte(example), "providers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := describe(file.Entries[0])
	if err != nil || len(d.Hosts) != 2 || d.Hosts[0].Capacity != config.DefaultCapacity || d.Hosts[1].Capacity != 5 || len(d.Rules) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

func faultRow(f config.KnownFault) string {
	return fmt.Sprintf("| `%s` | %s | [%s](troubleshooting.md#%s) |\n", f.Name, f.Meaning, f.Shows, strings.ToLower(f.Shows))
}

// A Proxy's name means one fault: the longest that it begins with.
func TestFaultsByNameAreOfOneMind(t *testing.T) {
	for _, a := range config.FaultNames() {
		for _, b := range config.FaultNames() {
			if strings.HasPrefix(b, a+"-") && config.FaultOfName(b) != b {
				t.Errorf("a Proxy named %s has the fault %s", b, config.FaultOfName(b))
			}
		}
	}
	for proxy, want := range map[string]string{
		"": "", "flaps": "flaps", "flaps-1": "flaps", "flapsy": "", "my-flaps": "", "create-fails-twice-3": "create-fails-twice", "create-fails-2": "create-fails",
	} {
		if got := config.FaultOfName(proxy); got != want {
			t.Errorf("a Proxy named %q has the fault %q, want %q", proxy, got, want)
		}
	}
}
