// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// guests is the minimal file with keys about guests in its entry.
func guests(t *testing.T, keys string) string {
	return with(t, "    type: kvm2\n", "    type: kvm2\n"+keys)
}

func TestGuestDataInTheFile(t *testing.T) {
	f := parse(t, guests(t, "    vendorData: |\n      #cloud-config\n      runcmd: [a]\n    userData: |\n      #!/bin/sh\n      b\n    installGuestAgent: true\n"))
	e := f.Entries[0]
	if e.VendorData != "#cloud-config\nruncmd: [a]\n" || e.UserData != "#!/bin/sh\nb\n" || !e.InstallGuestAgent {
		t.Errorf("%+v", e)
	}
	if len(e.GuestDataSHA256()) != 64 || (&Entry{}).GuestDataSHA256() != "" || (&Entry{VendorData: "x"}).GuestDataSHA256() == (&Entry{UserData: "x"}).GuestDataSHA256() {
		t.Error("the digest does not tell what guests are given")
	}
}

func TestGuestDataThatCloudInitWouldIgnore(t *testing.T) {
	for name, test := range map[string]struct{ content, says string }{
		"missing header": {"runcmd: [secret]\n", "first line is none that cloud-init knows"},
		"list":           {"#cloud-config\n- secret\n", "must be a YAML mapping"},
		"bad YAML":       {"#cloud-config\nsecret: [\n", "not valid YAML"},
		"wrong MIME": {
			"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/html\n\nsecret\n--b--\n", "which cloud-init ignores",
		},
		"over its limit": {"#!/bin/sh\n# " + strings.Repeat("x", 64<<10) + "\n", "has more than 65536 bytes"},
	} {
		t.Run("L13: vendorData, "+name, func(t *testing.T) {
			inline := "    vendorData: |\n      " + strings.ReplaceAll(strings.TrimSuffix(test.content, "\n"), "\n", "\n      ") + "\n"
			refusedOnce(t, guests(t, inline), "entries[0].vendorData", test.says)
			refusedOnce(t, guests(t, strings.Replace(inline, "vendorData", "userData", 1)), "entries[0].userData", test.says)

			folder := t.TempDir()
			for name, content := range map[string]string{"data": test.content, "providers.yaml": guests(t, "    vendorDataFile: data\n")} {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Load(filepath.Join(folder, "providers.yaml"))
			var errs Errors
			if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Path != "entries[0].vendorDataFile" || errs[0].Line != 7 || !strings.Contains(errs[0].Message, test.says) {
				t.Errorf("by file: %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes the data: %v", err)
			}
		})
	}
}

func TestGuestDataInFiles(t *testing.T) {
	folder := t.TempDir()
	for name, content := range map[string]string{
		"v": "#cloud-config\na: 1\n", "u": "#!/bin/sh\n", "providers.yaml": guests(t, "    vendorDataFile: v\n    userDataFile: u\n"),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Load(filepath.Join(folder, "providers.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if e := f.Entries[0]; e.VendorData != "#cloud-config\na: 1\n" || e.UserData != "#!/bin/sh\n" || e.VendorDataFile != filepath.Join(folder, "v") {
		t.Errorf("%+v", e)
	}
	if err := os.Remove(filepath.Join(folder, "u")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(filepath.Join(folder, "providers.yaml")); err == nil || !strings.Contains(err.Error(), "entries[0].userDataFile: cannot be read") {
		t.Errorf("a file that is gone: %v", err)
	}
	refusedOnce(t, guests(t, "    vendorData: |\n      #!/bin/sh\n    vendorDataFile: v\n"), "entries[0].vendorDataFile", "stands beside vendorData")
	refusedOnce(t, guests(t, "    userDataFile: ~/v\n"), "entries[0].userDataFile", "~ is not expanded")
}

func TestAllowUserData(t *testing.T) {
	allowed := func(text string) (all []string) {
		e := parse(t, text).Entries[0]
		for _, namespace := range []string{"a", "b", "c"} {
			if e.AllowsUserData(namespace) {
				all = append(all, namespace)
			}
		}
		return all
	}
	for keys, want := range map[string][]string{
		"":                             nil,
		"    allowUserData: [a]\n":     {"a"},
		"    allowUserData: [\"*\"]\n": {"a", "b", "c"},
		"    allowedNamespaces: [a, b]\n    allowUserData: [b]\n":     {"b"},
		"    allowedNamespaces: [a, b]\n    allowUserData: [\"*\"]\n": {"a", "b"},
	} {
		if diff := cmp.Diff(want, allowed(guests(t, keys))); diff != "" {
			t.Errorf("%s: %s", keys, diff)
		}
	}
	refusedOnce(t, guests(t, "    allowUserData: []\n"), "entries[0].allowUserData", "empty list")
	refusedOnce(t, guests(t, "    allowUserData: [a, \"*\"]\n"), "entries[0].allowUserData[1]", "the name of a namespace")
	refusedOnce(t, guests(t, "    allowedNamespaces: [a]\n    allowUserData: [b]\n"), "entries[0].allowUserData[0]", "cannot use the entry at all")
	refusedOnce(t, entry("type: simulated", "hosts: [{name: a, addresses: 127.20.0.0/24}]", "allowUserData: [a]"), "entries[0].allowUserData", "belongs to entries of type kvm2")
}
