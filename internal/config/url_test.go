// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// secretURLs hold the password hunter2 where some parser may see userinfo.
var secretURLs = []string{
	"https://user:hunter2@example.org/a",
	"https://hunter2@example.org/a",
	"http://user:hunter2@[2001:db8::1]:80/",
	"http://user:pa ss%zzhunter2@example.org/",
	"http://user:12/hunter2@example.org/",
	"http://user:12?hunter2@example.org/",
	"http://user:12#hunter2@example.org/",
	"https://user:hunter2@other@example.org/a",
	"https://user:o@hunter2@example.org/a",
	"file://user:hunter2@/images/a",
	"https:user:hunter2@example.org/a",
	"//user:hunter2@example.org/a",
	`https:\\user:hunter2@example.org/a`,
	"ftp://user:hunter2@example.org/a",
	"https://user:hunter2@example.org:port/\x01",
}

func TestUserinfoInURLs(t *testing.T) {
	places := map[string]string{
		"reflectors[0].url":            "http://192.0.2.10:8080/",
		"entries[0].images.debian.url": "https://example.org/debian.qcow2",
	}
	for _, secret := range secretURLs {
		quoted, err := yaml.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}
		for path, old := range places {
			t.Run("L24: "+RedactURL(secret)+" in "+path, func(t *testing.T) {
				text := with(t, old, strings.TrimSpace(string(quoted)))
				refusedOnce(t, text, path, "without user or password")
				if errs := refused(t, text); strings.Contains(errs.Error(), "hunter2") {
					t.Errorf("the error shows the password: %v", errs)
				}
			})
		}
		t.Run("L24: redacted "+RedactURL(secret), func(t *testing.T) {
			if got := RedactURL(secret); strings.Contains(got, "hunter2") {
				t.Errorf("RedactURL shows the password: %s", got)
			}
		})
	}
	t.Run("L24: a URL that stands anywhere else is not shown", func(t *testing.T) {
		const url = "'https://user:hunter2@example.org/'"
		for _, text := range []string{
			with(t, "name: home", "name: "+url), with(t, "type: kvm2", "type: "+url), with(t, "- name: a\n", "- name: "+url+"\n"),
			with(t, "address: a.example.org", "address: "+url), with(t, "bridge: br0", "bridge: "+url),
			with(t, "bridge: br0", url+": br0"), with(t, "      debian:", "      "+url+":"),
			minimal + "    defaultImage: " + url + "\n", minimal + "    allowURLImages: [" + url + "]\n",
			minimal + "    allowedNamespaces: [" + url + "]\n", minimal + "    poolReserveGiB: " + url + "\n",
			minimal + "    allowEmulation: " + url + "\n", minimal + "    destinations: {allow: [" + url + "]}\n",
			minimal + "probe: {interval: " + url + "}\n", minimal + url + ": 1\n" + url + ": 2\n",
		} {
			if errs := refused(t, text); strings.Contains(errs.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", errs)
			}
		}
	})
}

func TestRedactURL(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                   "",
		"https://example.org/a/b.qcow2":      "https://example.org/a/b.qcow2",
		"file:///images/a":                   "file:///images/a",
		"https://example.org:8443/?token=x":  "https://example.org:8443/?redacted",
		"https://u:p@example.org/a?token=x":  "https://redacted@example.org/a?redacted",
		"u:p@example.org/a":                  "redacted@example.org/a",
		"not a URL":                          "not a URL",
		"u:p://x@example.org/":               "redacted@example.org/",
		"HTTPS://u:p@EXAMPLE.org/":           "HTTPS://redacted@EXAMPLE.org/",
		"https://example.org/#access_token=": "https://example.org/#redacted",
	} {
		if got := RedactURL(raw); got != want {
			t.Errorf("RedactURL(%q) = %q, want %q", raw, got, want)
		}
	}
}
