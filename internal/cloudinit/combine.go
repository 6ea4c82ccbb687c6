// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"
)

// mergeType keeps what an earlier part says, and puts this part's list items before those of earlier parts. Without it cloud-init lets the
// last part that has a key, such as runcmd, drop what all others have there.
const mergeType = "list(prepend)+dict(no_replace,recurse_list)+str()"

// script of ours for one boot of an instance; unlike runcmd it takes no key away from anybody's cloud-config, vendor data included.
func script(name string, content []byte) leaf {
	return leaf{
		header: textproto.MIMEHeader{
			headerType: {typeScript}, "Content-Disposition": {`attachment; filename="` + name + `"`},
		},
		body: content,
	}
}

// copied is a header that may be added to; there may be none yet.
func copied(header textproto.MIMEHeader) textproto.MIMEHeader {
	if header == nil {
		return textproto.MIMEHeader{}
	}
	return maps.Clone(header)
}

// merged are the parts of data that yield to those before them.
func merged(parts []leaf) []leaf {
	all := make([]leaf, len(parts))
	for i, part := range parts {
		header := copied(part.header)
		if header.Get("Merge-Type") == "" && header.Get("X-Merge-Type") == "" {
			header.Set("Merge-Type", mergeType)
		}
		all[i] = leaf{header, part.body}
	}
	return all
}

// combine is one multipart message of all parts, the same bytes for the same parts.
func combine(parts []leaf) []byte {
	var body bytes.Buffer
	digest := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(digest, "%d ", len(part.body))
		_, _ = digest.Write(part.body)
	}
	boundary := "egress-" + hex.EncodeToString(digest.Sum(nil))[:32]
	_, _ = fmt.Fprintf(&body, "Content-Type: multipart/mixed; boundary=\"%s\"\nMIME-Version: 1.0\n", boundary)
	for _, part := range parts {
		_, _ = fmt.Fprintf(&body, "\n--%s\n", boundary)
		writePart(&body, part)
	}
	_, _ = fmt.Fprintf(&body, "\n--%s--\n", boundary)
	return body.Bytes()
}

// writePart writes headers and content. Content that is not plain ASCII goes as base64: Python's mail parser, which reads it, spoils it
// otherwise.
func writePart(out *bytes.Buffer, part leaf) {
	header := copied(part.header)
	if header.Get(headerType) == "" {
		header.Set(headerType, typeOf(part.body))
	}
	content := part.body
	if header.Get(headerEncoding) == "" && !plainASCII(content) {
		header.Set(headerEncoding, "base64")
		content = wrapped(content)
	}
	header.Del("Mime-Version")
	for _, key := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[key] {
			_, _ = fmt.Fprintf(out, "%s: %s\n", key, value)
		}
	}
	out.WriteString("\n")
	out.Write(content)
}

// typeOf is the media type that a first line stands for.
func typeOf(content []byte) string {
	line, _, _ := bytes.Cut(content, []byte("\n"))
	header := headerOf(line)
	for _, known := range headers {
		if known.header == header {
			return known.mediaType
		}
	}
	return typePlain
}

func plainASCII(content []byte) bool {
	return !bytes.ContainsFunc(content, func(r rune) bool { return r > 0x7e || r < ' ' && r != '\n' && r != '\t' })
}

// wrapped is base64 in lines.
func wrapped(content []byte) []byte {
	const width = 76
	text := base64.StdEncoding.EncodeToString(content)
	var out strings.Builder
	for len(text) > width {
		out.WriteString(text[:width] + "\n")
		text = text[width:]
	}
	out.WriteString(text + "\n")
	return []byte(out.String())
}
