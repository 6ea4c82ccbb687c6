// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func testKey(b byte) (k Key) {
	for i := range k {
		k[i] = b
	}
	return k
}

func testConfig() Config {
	return Config{
		Version: 1, ListenPort: 1080, ControlKey: testKey(7),
		Credentials: []Credential{{Username: "user", Password: "first secret"}},
		Destinations: Destinations{
			Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Reflectors: []string{"reflector.example:8080"},
		},
		Limits: Limits{MaxConnections: 100},
	}
}

var comparable = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, Key{})

func TestConfigRoundTrip(t *testing.T) {
	config := testConfig()
	data, err := config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config, again, comparable); diff != "" {
		t.Error(diff)
	}
	minimal := `{"version":1,"listenPort":1,"controlKey":"` + strings.Repeat("AQEB", 10) + `AQE=","credentials":[{"username":"u","password":"p"}]}`
	if config, err := ParseConfig([]byte(minimal)); err != nil || config.Limits.WithDefaults().Drain() != 30*time.Second || config.ListenAddress.IsValid() {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestConfigMistakes(t *testing.T) {
	change := func(path, value string) string {
		data, _ := testConfig().Marshal()
		var tree map[string]any
		_ = json.Unmarshal(data, &tree)
		var parsed any
		if err := json.Unmarshal([]byte(value), &parsed); err != nil {
			t.Fatal(err)
		}
		node := tree
		keys := strings.Split(path, ".")
		for _, key := range keys[:len(keys)-1] {
			node = node[key].(map[string]any)
		}
		node[keys[len(keys)-1]] = parsed
		out, _ := json.Marshal(tree)
		return string(out)
	}
	for _, c := range []struct{ name, text, want string }{
		{"not JSON", `listenPort: 1080`, "not a configuration in JSON"},
		{"empty", ``, "not a configuration in JSON"},
		{"newer", change("version", `2`), "version 2 is not known to this agent"},
		{"no version", `{}`, "version 0"},
		{"unknown field", change("listenPorts", `1`), `unknown field "listenPorts"`},
		{"unknown field below", change("destinations.allowed", `[]`), `unknown field "allowed"`},
		{"something behind", change("version", `1`) + "{}", "after top-level value"},
		{"port", change("listenPort", `65536`), "listenPort: must be 1 to 65535, is 65536"},
		{"port as text", change("listenPort", `"1080"`), "listenPort: must be of another type"},
		{"key missing", change("controlKey", `""`), "a control key has 32 bytes, this one has 0"},
		{"key short", change("controlKey", `"c2VjcmV0"`), "this one has 6"},
		{"key not base64", change("controlKey", `"secret!"`), "a control key is base64"},
		{"no credentials", change("credentials", `[]`), "there must be 1 to 8, there are 0"},
		{"password missing", change("credentials", `[{"username":"u"}]`), "credentials[0]: the password must have 1 to 255 bytes"},
		{"colon", change("credentials", `[{"username":"u:v","password":"secret"}]`), "colon"},
		{"control character", change("credentials", `[{"username":"u","password":"secret\n"}]`), "the password contains a control character"},
		{"twice the same", change("credentials", `[{"username":"u","password":"secret"},{"username":"u","password":"secret"}]`), "credentials[1]: the same as credentials[0]"},
		{"too long", change("credentials", `[{"username":"u","password":"`+strings.Repeat("secret", 50)+`"}]`), "it has 300"},
		{"reflector", change("destinations.reflectors", `["http://x/"]`), `destinations.reflectors: "http://x/"`},
		{"network", change("destinations.allow", `["10.0.0.0/33"]`), "10.0.0.0/33"},
		{"limit", change("limits.drainSeconds", `-1`), "limits.drainSeconds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseConfig([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes a secret: %v", err)
			}
		})
	}
	t.Run("all mistakes at once", func(t *testing.T) {
		err := Config{ListenPort: -1, Limits: Limits{DrainSeconds: -1}}.Validate()
		for _, want := range []string{"version", "listenPort", "controlKey", "credentials", "drainSeconds"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("no %s in: %v", want, err)
			}
		}
	})
}

func TestSecretsDoNotPrint(t *testing.T) {
	config := testConfig()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		text := fmt.Sprintf(verb, config)
		if strings.Contains(text, "first secret") || strings.Contains(text, "7, 7, 7") || strings.Contains(text, "0707") || strings.Contains(text, "0x7, 0x7") || strings.Contains(text, "BwcH") || strings.Contains(text, fmt.Sprintf("%x", "first secret")) {
			t.Errorf("%s prints a secret: %s", verb, text)
		}
	}
}

func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.json")
	config := testConfig()
	newer := []Credential{{Username: "user", Password: "second secret"}}
	passwords := func(credentials []Credential) (list []string) {
		for _, c := range credentials {
			list = append(list, c.Password)
		}
		return list
	}
	openStore := func(t *testing.T, config Config) (*Store, []string) {
		t.Helper()
		store, inForce, err := OpenStore(path, config)
		if err != nil {
			t.Fatal(err)
		}
		return store, passwords(inForce)
	}

	store, inForce := openStore(t, config)
	if diff := cmp.Diff([]string{"first secret"}, inForce); diff != "" {
		t.Errorf("at first: %s", diff)
	}
	if err := store.Save(newer); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path + ".state"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("state file: %v, %v", info, err)
	}
	if _, inForce = openStore(t, config); inForce[0] != "second secret" {
		t.Errorf("after a restart, or a reboot that wrote the old seed again: %v", inForce)
	}
	reseeded := config
	reseeded.Credentials = []Credential{{Username: "user", Password: "third secret"}}
	if _, inForce = openStore(t, reseeded); inForce[0] != "third secret" {
		t.Errorf("after a new seed: %v", inForce)
	}
	if _, inForce = openStore(t, config); inForce[0] != "first secret" {
		t.Errorf("a new seed did not end the old state: %v", inForce)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 0 {
		t.Errorf("left over: %v", entries)
	}
	for _, broken := range []string{"", "{", `{"version":9}`, `{"version":1,"configDigest":"x","credentials":[]}`} {
		_ = os.WriteFile(path+".state", []byte(broken), 0o600)
		if _, _, err := OpenStore(path, config); err == nil || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("state %q: %v", broken, err)
		}
	}
}

func TestSaveThatFailsLeavesTheOldState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone", "agent.json")
	store, _, err := OpenStore(path, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Save(testConfig().Credentials); err == nil {
		t.Error("saved into a folder that does not exist")
	}
}

func FuzzParseConfig(f *testing.F) {
	data, err := testConfig().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":1,"limits":{"drainSeconds":1e9}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := ParseConfig(data)
		if err != nil {
			return
		}
		again, err := config.Marshal()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := ParseConfig(again); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}
