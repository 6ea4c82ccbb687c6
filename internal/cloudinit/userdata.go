// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	cloudConfigHeader = "#cloud-config"
	jinjaHeader       = "## template: jinja"
	archiveHeader     = "#cloud-config-archive"
	handlerHeader     = "#part-handler"

	typePlain       = "text/plain"
	typeCloudConfig = "text/cloud-config"
	typeScript      = "text/x-shellscript"
	typeArchive     = "text/cloud-config-archive"
	typeHandler     = "text/part-handler"
)

// headers by which cloud-init knows what a part is, and the media type that says the same; anything else it drops without failing.
var headers = []struct{ header, mediaType string }{
	{cloudConfigHeader, typeCloudConfig},
	{"#!", typeScript},
	{"#include", "text/x-include-url"},
	{"#include-once", "text/x-include-once-url"},
	{"#cloud-boothook", "text/cloud-boothook"},
	{archiveHeader, typeArchive},
	{"#cloud-config-jsonp", "text/cloud-config-jsonp"},
	{handlerHeader, typeHandler},
	{jinjaHeader, "text/jinja2"},
}

// Media types of which the first line is what counts, and those whose content is gzip.
var (
	sniffedTypes = []string{typePlain, "text/x-not-multipart"}
	scriptTypes  = []string{typeScript, "text/x-shellscript-per-boot", "text/x-shellscript-per-instance", "text/x-shellscript-per-once"}
	packedTypes  = []string{
		"application/gzip", "application/gzip-compressed", "application/gzipped", "application/x-compress", "application/x-compressed",
		"application/x-gunzip", "application/x-gzip", "application/x-gzip-compressed",
	}
)

// CheckUserData refuses what cloud-init would ignore without failing, or would fail on in the guest, where nobody looks. Plain, gzip
// and MIME multipart data are looked into. Errors never quote the data.
func CheckUserData(data []byte) error {
	if len(data) > MaxUserDataBytes {
		return fmt.Errorf("has %d bytes: at most %d are allowed; let it fetch the rest", len(data), MaxUserDataBytes)
	}
	parts, err := leaves(data)
	if err != nil {
		return err
	}
	if len(parts) == 1 && parts[0].header == nil {
		return checkPlain(parts[0].body)
	}
	custom := slices.ContainsFunc(parts, isHandler)
	for i, part := range parts {
		if err := checkPart(part, custom); err != nil {
			return fmt.Errorf("part %d of %d %w", i+1, len(parts), err)
		}
	}
	return nil
}

// isHandler says whether a part teaches cloud-init other media types.
func isHandler(part leaf) bool {
	mediaType, err := part.mediaType()
	if err != nil {
		return false
	}
	content, err := part.content()
	return err == nil && (mediaType == typeHandler || mediaType == typePlain && strings.HasPrefix(strings.ToLower(string(content)), handlerHeader))
}

// checkPart holds one part of a message to what its media type promises.
func checkPart(part leaf, custom bool) error {
	mediaType, err := part.mediaType()
	if err != nil {
		return err
	}
	content, err := part.content()
	if err != nil {
		return err
	}
	if slices.Contains(packedTypes, mediaType) {
		if content, err = unpacked(content); err != nil {
			return err
		}
		return checkPlain(content)
	}
	if len(bytes.TrimSpace(content)) == 0 {
		return errors.New("is empty")
	}
	switch {
	case slices.Contains(sniffedTypes, mediaType):
		return checkPlain(content)
	case mediaType == typeCloudConfig:
		return checkMapping(content)
	case mediaType == typeArchive:
		return checkList(content)
	case slices.Contains(scriptTypes, mediaType):
		return checkScript(content)
	case custom || slices.ContainsFunc(headers, func(h struct{ header, mediaType string }) bool { return h.mediaType == mediaType }):
		return nil
	}
	return fmt.Errorf("has the type %.60q, which cloud-init ignores: use %s, %s or another that it knows", mediaType, typeCloudConfig, typeScript)
}

func checkScript(content []byte) error {
	if !bytes.HasPrefix(content, []byte("#!")) {
		return errors.New("is a script whose first line does not start with #!: nothing would run it")
	}
	if line, _, _ := bytes.Cut(content, []byte("\n")); bytes.HasSuffix(line, []byte("\r")) {
		return errors.New("is a script with Windows line ends (CR LF), which no shell starts: convert it")
	}
	return nil
}

func checkPlain(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("is empty")
	}
	if first := data[0]; bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) || strings.ContainsRune(" \t\r\n", rune(first)) {
		return errors.New("must start with its header line: remove the space, empty line or byte order mark before it")
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	if strings.HasPrefix(strings.ToLower(string(line)), "content-type:") {
		return errors.New("looks like a MIME message without the line \"MIME-Version: 1.0\" in its header: cloud-init would ignore it")
	}
	switch header := headerOf(line); header {
	case "":
		return fmt.Errorf("its first line is none that cloud-init knows, so it would be ignored: start it with %s, or make it a MIME multipart message", knownHeaders())
	case cloudConfigHeader:
		return checkMapping(data)
	case archiveHeader:
		return checkList(data)
	case "#!":
		return checkScript(data)
	default:
		return nil
	}
}

// headerOf is the known header that a first line is; empty where it is none.
func headerOf(line []byte) string {
	kind := strings.ToLower(strings.TrimSpace(string(line)))
	for _, known := range headers {
		if kind == known.header || strings.HasPrefix(kind, known.header+" ") || known.header == "#!" && strings.HasPrefix(kind, known.header) {
			return known.header
		}
	}
	return ""
}

func knownHeaders() string {
	all := make([]string, len(headers))
	for i, known := range headers {
		all[i] = known.header
	}
	return strings.Join(all, ", ")
}

// checkMapping holds YAML to the one form that cloud-init takes for a cloud-config.
func checkMapping(data []byte) error {
	return checkYAML(data, yaml.MappingNode, "a YAML mapping (key: value)")
}

func checkList(data []byte) error { return checkYAML(data, yaml.SequenceNode, "a YAML list") }

// checkYAML holds YAML to one document of one kind; the parser's own message may quote the document, so only its line is kept.
func checkYAML(data []byte, kind yaml.Kind, wanted string) error {
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
	if root := document.Content[0]; root.Kind != kind {
		return fmt.Errorf("line %d: must be %s: cloud-init would ignore all of it", root.Line, wanted)
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
