// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/egress-proxies/egress-proxies-operator/internal/cloudinit"
)

// AllNamespaces in AllowUserData is every namespace that may use the entry.
const AllNamespaces = "*"

// guestData is what an entry gives every guest, inline or by file.
type guestData struct {
	key            string
	content, file  *string
	contentKeyFile string
}

func (e *Entry) guestData() []guestData {
	return []guestData{
		{"vendorData", &e.VendorData, &e.VendorDataFile, "vendorDataFile"},
		{"userData", &e.UserData, &e.UserDataFile, "userDataFile"},
	}
}

// validateGuestData checks what stands in the file itself; readGuestData does the rest.
func (d *document) validateGuestData(path string, e *Entry, folder string) {
	for _, data := range e.guestData() {
		at, fileAt := path+"."+data.key, path+"."+data.contentKeyFile
		if *data.file != "" {
			d.validatePath(fileAt, data.file, folder)
			if d.has(at) {
				d.failf(fileAt, "stands beside %s: remove one of the two", data.key)
			}
		}
		if *data.content != "" {
			d.checkGuestData(at, []byte(*data.content))
		}
	}
}

// readGuestData reads the files that hold guests' data, and checks it.
func (d *document) readGuestData(f *File) {
	for i := range f.Entries {
		for _, data := range f.Entries[i].guestData() {
			if *data.file == "" {
				continue
			}
			at := item("entries", i) + "." + data.contentKeyFile
			content, err := readAtMost(*data.file, cloudinit.MaxEntryDataBytes+1)
			if err != nil {
				d.failf(at, "cannot be read: %s", err)
				continue
			}
			d.checkGuestData(at, content)
			*data.content = string(content)
		}
	}
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// checkGuestData reports what cloud-init would ignore in the guest without a word.
func (d *document) checkGuestData(at string, content []byte) {
	if len(content) > cloudinit.MaxEntryDataBytes {
		d.failf(at, "has more than %d bytes; let it fetch the rest", cloudinit.MaxEntryDataBytes)
		return
	}
	if err := cloudinit.CheckUserData(content); err != nil {
		d.failf(at, "%s", err)
	}
}

func (d *document) validateAllowUserData(path string, e *Entry) {
	if slices.Equal(e.AllowUserData, []string{AllNamespaces}) {
		return
	}
	d.validateNamespaces(path, e.AllowUserData)
	for i, namespace := range e.AllowUserData {
		if d.sound(item(path, i)) && !e.AllowsNamespace(namespace) {
			d.failf(item(path, i), "is not in allowedNamespaces: its Proxies cannot use the entry at all")
		}
	}
}

// AllowsUserData says whether Proxies of that namespace may bring user data of their own.
func (e *Entry) AllowsUserData(namespace string) bool {
	return slices.Contains(e.AllowUserData, namespace) || slices.Contains(e.AllowUserData, AllNamespaces) && e.AllowsNamespace(namespace)
}

// GuestDataSHA256 tells what every guest of the entry is given, in hexadecimal; empty where that is nothing.
func (e *Entry) GuestDataSHA256() string {
	if e.VendorData == "" && e.UserData == "" && !e.InstallGuestAgent {
		return ""
	}
	digest := sha256.New()
	_, _ = fmt.Fprintf(digest, "%d %s %d %s %t", len(e.VendorData), e.VendorData, len(e.UserData), e.UserData, e.InstallGuestAgent)
	return hex.EncodeToString(digest.Sum(nil))
}
