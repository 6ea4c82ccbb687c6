// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	cloudConfigHeader   = "#cloud-config"
	jinjaHeader         = "## template: jinja"
	maxUnpackedUserData = 4 << 20
	// Where cloud-init looks for the header that makes data a MIME message.
	mimeWindow = 4096
)

// headers by which cloud-init knows what user data is; anything else it drops without failing.
var headers = []string{cloudConfigHeader, "#!", "#include", "#include-once", "#cloud-boothook", "#cloud-config-archive", "#cloud-config-jsonp", "#part-handler", jinjaHeader}

// CheckUserData refuses what cloud-init would ignore without failing, or would fail on in the guest, where nobody looks. Plain, gzip
// and MIME multipart data are looked into. Errors never quote the data.
func CheckUserData(data []byte) error {
	if len(data) > MaxUserDataBytes {
		return fmt.Errorf("has %d bytes: at most %d are allowed; let it fetch the rest", len(data), MaxUserDataBytes)
	}
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		unpacked, err := gunzip(data)
		if err != nil {
			return fmt.Errorf("starts like gzip, and cannot be unpacked: %w", err)
		}
		data = unpacked
	}
	if bytes.Contains(bytes.ToLower(data[:min(len(data), mimeWindow)]), []byte("mime-version:")) {
		return checkMessage(data)
	}
	return checkPlain(data)
}

func gunzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, maxUnpackedUserData+1))
	if err == nil && len(out) > maxUnpackedUserData {
		err = fmt.Errorf("more than %d bytes come out", maxUnpackedUserData)
	}
	return out, err
}

func checkPlain(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("is empty")
	}
	if first := data[0]; bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) || strings.ContainsRune(" \t\r\n", rune(first)) {
		return errors.New("must start with its header line: remove the space, empty line or byte order mark before it")
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	header := strings.ToLower(string(line))
	if strings.HasPrefix(header, "content-type:") {
		return errors.New("looks like a MIME message without the line \"MIME-Version: 1.0\" in its header: cloud-init would ignore it")
	}
	if strings.HasPrefix(header, "#!") && strings.HasSuffix(header, "\r") {
		return errors.New("is a script with Windows line ends (CR LF), which no shell starts: convert it")
	}
	kind := strings.TrimSpace(header)
	if kind == cloudConfigHeader || strings.HasPrefix(kind, cloudConfigHeader+" ") {
		return checkMapping(data)
	}
	for _, known := range headers {
		if kind == known || strings.HasPrefix(kind, known+" ") || known == "#!" && strings.HasPrefix(kind, known) {
			return nil
		}
	}
	return fmt.Errorf("its first line is none that cloud-init knows, so it would be ignored: start it with %s, or make it a MIME multipart message", strings.Join(headers, ", "))
}

// checkMapping holds YAML to the one form that cloud-init takes; the parser's own message may quote the document, so only its line is kept.
func checkMapping(data []byte) error {
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil // comments only
	case err != nil:
		return fmt.Errorf("is not valid YAML%s: cloud-init would ignore all of it", lineOf(err))
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return errors.New("holds more than one YAML document (---): cloud-init would ignore all of it")
	}
	if root := document.Content[0]; root.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: must be a YAML mapping (key: value): cloud-init would ignore all of it", root.Line)
	}
	return nil
}

// lineOf is the place in a parser's message, without what follows.
func lineOf(err error) string {
	var line int
	if _, scanErr := fmt.Sscanf(err.Error(), "yaml: line %d:", &line); scanErr != nil {
		return ""
	}
	return fmt.Sprintf(" near line %d", line)
}

func checkMessage(data []byte) error {
	message, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return errors.New("says MIME-Version near its start, and is no MIME message: put the header first, with an empty line after it")
	}
	mediaType, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return errors.New("is a MIME message whose Content-Type cannot be read")
	}
	if !strings.HasPrefix(mediaType, "multipart/") {
		return nil // one part, which cloud-init takes by its type
	}
	parts := multipart.NewReader(message.Body, parameters["boundary"])
	for count := 0; ; count++ {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) && count > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("is a multipart message that breaks off after %d parts: check its boundary lines", count)
		}
		if _, err := io.Copy(io.Discard, part); err != nil {
			return fmt.Errorf("is a multipart message whose part %d breaks off: check its boundary lines", count+1)
		}
	}
}
