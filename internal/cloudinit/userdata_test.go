// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"compress/gzip"
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

func FuzzCheckUserData(f *testing.F) {
	for _, seed := range []string{"", "#cloud-config\na: 1\n", multipartData, zipped(multipartData), "#cloud-config\n&a [*a]\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := CheckUserData(data); err == nil && len(data) == 0 {
			t.Error("empty data accepted")
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
