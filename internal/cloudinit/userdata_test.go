// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const multipartData = "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n" +
	"--b\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n\n--b\nContent-Type: text/cloud-config\n\na: 1\n--b--\n"

func TestCheckUserData(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		says string // "" means accepted
	}{
		"cloud-config":                {"#cloud-config\nruncmd: [ls]\n", ""},
		"cloud-config, comments only": {"#cloud-config\n# nothing\n", ""},
		"cloud-config, repeated keys": {"#cloud-config\na: 1\na: 2\n", ""},
		"cloud-config, CR LF":         {"#cloud-config\r\na: 1\r\n", ""},
		"script":                      {"#!/bin/sh\n", ""},
		"include":                     {"#include\nhttps://example.com/x\n", ""},
		"include, same line":          {"#include https://example.com/x\n", ""},
		"boothook":                    {"#cloud-boothook\n#!/bin/sh\n", ""},
		"part handler":                {"#part-handler\n", ""},
		"archive":                     {"#cloud-config-archive\n- content: x\n", ""},
		"jinja":                       {"## template: jinja\n#cloud-config\na: {{ x }}\n", ""},
		"multipart":                   {multipartData, ""},
		"part without a type":         {message("", "#!/bin/sh\n"), ""},
		"part of plain text":          {message("Content-Type: text/plain", "#cloud-config\na: 1\n"), ""},
		"part without a header line":  {message("Content-Type: text/cloud-config", "a: 1\n"), ""},
		"part in base64":              {message("Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64", "YTog\nMQ==\n"), ""},
		"part that is gzip":           {message("Content-Type: application/gzip\nContent-Transfer-Encoding: base64", base64.StdEncoding.EncodeToString([]byte(zipped("#!/bin/sh\n")))), ""},
		"part for its own handler":    {message("Content-Type: application/x-ours", "x", "Content-Type: text/part-handler", "#part-handler\n"), ""},
		"one typed message":           {"MIME-Version: 1.0\nContent-Type: text/cloud-config\n\na: 1\n", ""},
		"gzip":                        {zipped(multipartData), ""},

		"empty":                        {"", "is empty"},
		"blank":                        {" \n\n", "is empty"},
		"no header":                    {"secret: 1\n", "first line is none that cloud-init knows"},
		"misspelled header":            {"#cloudconfig\nsecret: 1\n", "first line is none"},
		"header with a suffix":         {"#cloud-configuration\nsecret: 1\n", "first line is none"},
		"empty line first":             {"\n#cloud-config\nsecret: 1\n", "must start with its header"},
		"byte order mark":              {"\xef\xbb\xbf#cloud-config\nsecret: 1\n", "must start with its header"},
		"not YAML":                     {"#cloud-config\nok: 1\nsecret: [\n", "not valid YAML"},
		"tab":                          {"#cloud-config\na:\n\tsecret: 1\n", "not valid YAML near line"},
		"list":                         {"#cloud-config\n- secret\n", "line 2: must be a YAML mapping"},
		"two documents":                {"#cloud-config\na: 1\n---\nsecret: 1\n", "more than one YAML document"},
		"script, CR LF":                {"#!/bin/sh\r\nsecret\r\n", "Windows line ends"},
		"multipart without version":    {"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nsecret\n--b--\n", "without the line"},
		"multipart cut off":            {multipartData[:len(multipartData)-8], "breaks off"},
		"multipart without parts":      {"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\nsecret\n", "breaks off after 0 parts"},
		"version in a comment":         {"#cloud-config\n# MIME-Version: 1.0\nsecret: 1\n", "no MIME message"},
		"broken gzip":                  {zipped(multipartData)[:30], "cannot be unpacked"},
		"gzip of nothing known":        {zipped("secret"), "first line is none"},
		"gzip that unpacks to no end":  {zipped("#!" + strings.Repeat("x", maxUnpackedUserData)), "more than"},
		"too long":                     {"#!" + strings.Repeat("x", MaxUserDataBytes), "at most 524288"},
		"part of no known type":        {message("Content-Type: application/x-other-kind", "x", "Content-Type: text/cloud-config", "a: 1"), "part 1 of 2 has the type"},
		"part of HTML":                 {message("Content-Type: text/html", "secret"), "which cloud-init ignores"},
		"plain part of nothing known":  {message("Content-Type: text/plain", "secret"), "part 1 of 1 its first line is none"},
		"part that is a list":          {message("Content-Type: text/cloud-config", "- secret\n"), "must be a YAML mapping"},
		"script part without #!":       {message("Content-Type: text/x-shellscript", "secret\n"), "does not start with #!"},
		"script part, CR LF":           {message("Content-Type: text/x-shellscript-per-boot", "#!/bin/sh\r\nsecret\r\n"), "Windows line ends"},
		"empty part":                   {message("Content-Type: text/cloud-config", "\n"), "is empty"},
		"part in bad base64":           {message("Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64", "secret!"), "says that it is base64"},
		"part in another encoding":     {message("Content-Type: text/cloud-config\nContent-Transfer-Encoding: x-secret", "a: 1"), "Content-Transfer-Encoding"},
		"archive that is no list":      {"#cloud-config-archive\nsecret: 1\n", "must be a YAML list"},
		"messages without end":         {nested(maxNesting + 1), "in each other"},
		"parts without end":            {message(slices.Repeat([]string{"Content-Type: text/x-shellscript", "#!/bin/sh\n"}, maxParts+1)...), "more than 256 parts"},
		"Content-Type cannot be read ": {"MIME-Version: 1.0\nContent-Type: ;;\n\n", "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckUserData([]byte(test.data))
			switch {
			case test.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
				t.Errorf("error %v, want one that says %q", err, test.says)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("the error quotes the data: %v", err)
			}
		})
	}
}

// message has parts of these headers and contents, in turns.
func message(headersAndContents ...string) string {
	var out strings.Builder
	out.WriteString("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"b\"\n")
	for i := 0; i < len(headersAndContents); i += 2 {
		header := headersAndContents[i]
		if header != "" {
			header += "\n"
		}
		out.WriteString("\n--b\n" + header + "\n" + headersAndContents[i+1])
	}
	return out.String() + "\n--b--\n"
}

// nested is a message in a message, as deep.
func nested(depth int) string {
	text := "Content-Type: text/x-shellscript\n\n#!/bin/sh\n"
	for i := range depth {
		text = fmt.Sprintf("Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n%s\n--b%d--\n", i, i, text, i)
	}
	return "MIME-Version: 1.0\n" + text
}

func FuzzCheckUserData(f *testing.F) {
	for _, seed := range []string{"", "#cloud-config\na: 1\n", multipartData, zipped(multipartData), "#cloud-config\n&a [*a]\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := CheckUserData(data); err != nil {
			return
		}
		if len(data) == 0 {
			t.Error("empty data accepted")
		}
		parts, err := leaves(data)
		if err != nil {
			t.Fatal(err)
		}
		together := combine(parts)
		if len(together) > MaxUserDataBytes {
			return // it was gzip
		}
		if err := CheckUserData(together); err != nil {
			t.Errorf("accepted, and not once it was combined: %v", err)
		}
	})
}

func zipped(s string) string {
	out := new(bytes.Buffer)
	w := gzip.NewWriter(out)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return out.String()
}
