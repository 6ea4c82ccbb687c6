// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seedPart is a part of user data as cloud-init takes it.
type seedPart struct{ Name, Type, Merge, Content string }

func partsOf(t *testing.T, data string) (all []seedPart) {
	t.Helper()
	message, err := mail.ReadMessage(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	mediaType, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || mediaType != "multipart/mixed" || message.Header.Get("MIME-Version") != "1.0" {
		t.Fatalf("not a multipart message: %q, %v", mediaType, err)
	}
	parts := multipart.NewReader(message.Body, parameters["boundary"])
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		l := leaf{part.Header, body}
		content, err := l.content()
		if err != nil {
			t.Fatal(err)
		}
		mediaType, err := l.mediaType()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, seedPart{part.FileName(), mediaType, part.Header.Get("Merge-Type"), string(content)})
	}
}

func TestAllGoesTogether(t *testing.T) {
	spec := agentSpec()
	spec.InstallGuestAgent = true
	spec.UserData = []byte("#cloud-config\nruncmd: [own]\n")
	spec.EntryUserData = []byte("#cloud-config\nruncmd: [entry]\n# Grüße\n")
	spec.VendorData = []byte("#!/bin/sh\necho vendor\n")
	files := contents(t, spec)
	if files["vendor-data"] != string(spec.VendorData) {
		t.Errorf("vendor data: %q", files["vendor-data"])
	}
	parts := partsOf(t, files["user-data"])
	var got []seedPart
	for _, part := range parts {
		if strings.HasPrefix(part.Name, "10-") || strings.HasPrefix(part.Name, "20-") || strings.HasPrefix(part.Name, "30-") {
			if !strings.HasPrefix(part.Content, "#!/bin/sh\n") {
				t.Errorf("%s is no script: %.40q", part.Name, part.Content)
			}
			part.Content = ""
		}
		got = append(got, part)
	}
	want := []seedPart{
		{Name: "10-egress-machine-id", Type: typeScript},
		{Name: "20-egress-agent", Type: typeScript},
		{Name: "30-egress-guest-agent", Type: typeScript},
		{Type: typeCloudConfig, Content: string(spec.UserData)},
		{Type: typeCloudConfig, Merge: mergeType, Content: string(spec.EntryUserData)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(parts[1].Content, agentConfig) || !strings.HasSuffix(parts[1].Content, "exec sh /usr/local/lib/egress-agent/install.sh\n") {
		t.Error("the agent's script lacks its configuration, or does not install")
	}
	if err := CheckUserData([]byte(files["user-data"])); err != nil {
		t.Errorf("what we make is not what we ask of others: %v", err)
	}
	again, err := Seed(spec)
	first, firstErr := Seed(spec)
	if err != nil || firstErr != nil || !bytes.Equal(again, first) {
		t.Errorf("the same spec gave another seed (%v, %v)", err, firstErr)
	}
}

func TestMessagesAreTakenApart(t *testing.T) {
	inner := "Content-Type: multipart/mixed; boundary=inner\n\n--inner\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n" +
		"IyEvYmluL3No\n--inner\n\n#cloud-config\na: 1\n--inner--\n"
	spec := SeedSpec{
		UID: "u", Name: "n", Software: SoftwareCloudInit,
		UserData:      []byte("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=outer\n\n--outer\n" + inner + "--outer--\n"),
		EntryUserData: []byte(zipped("MIME-Version: 1.0\nContent-Type: text/cloud-config\nMerge-Type: dict()\n\nb: 1\n")),
	}
	want := []seedPart{
		{Type: typeScript, Content: "#!/bin/sh"},
		{Type: typeCloudConfig, Content: "#cloud-config\na: 1"},
		{Type: typeCloudConfig, Merge: "dict()", Content: "b: 1\n"},
	}
	if diff := cmp.Diff(want, partsOf(t, contents(t, spec)["user-data"])[1:]); diff != "" {
		t.Error(diff)
	}
}

func TestEveryKindOfDataGoesBesideTheAgent(t *testing.T) {
	for _, data := range []string{
		"#cloud-config\na: 1\n", "#!/bin/sh\nexit\n", "#include\nhttps://example.com/\n", "#include-once https://example.com/\n", "#cloud-boothook\n#!/bin/sh\n",
		"#cloud-config-archive\n- content: x\n", "#part-handler\n", "## template: jinja\n#cloud-config\n", "#cloud-config-jsonp\n[]\n",
	} {
		spec := agentSpec()
		spec.UserData = []byte(data)
		parts := partsOf(t, contents(t, spec)["user-data"])
		if last := parts[len(parts)-1]; last.Content != data || last.Type == typePlain {
			t.Errorf("%q became %+v", data, last)
		}
	}
}

func TestTheLargestDataFitsTogether(t *testing.T) {
	spec := agentSpec()
	spec.InstallGuestAgent = true
	fill := func(size int) []byte {
		return []byte("#!/bin/sh\n#" + strings.Repeat("ü", (size-12)/2) + "\n")
	}
	spec.UserData, spec.EntryUserData, spec.VendorData = fill(MaxUserDataBytes), fill(MaxEntryDataBytes), fill(MaxEntryDataBytes)
	if _, err := Seed(spec); err != nil {
		t.Error(err)
	}
}

func TestNetworkConfig(t *testing.T) {
	spec := agentSpec()
	spec.Network = &Network{
		MAC:         "02:00:00:00:00:01",
		Addresses:   []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
		Gateways:    []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")},
		Nameservers: []netip.Addr{netip.MustParseAddr("198.51.100.2")},
	}
	want := `version: 2
ethernets:
    eth0:
        match:
            macaddress: "02:00:00:00:00:01"
        dhcp4: false
        dhcp6: false
        accept-ra: false
        addresses:
            - 198.51.100.7/24
            - 2001:db8::7/64
        routes:
            - to: 0.0.0.0/0
              via: 198.51.100.1
            - to: ::/0
              via: 2001:db8::1
        nameservers:
            addresses:
                - 198.51.100.2
`
	if diff := cmp.Diff(want, contents(t, spec)["network-config"]); diff != "" {
		t.Error(diff)
	}
}
