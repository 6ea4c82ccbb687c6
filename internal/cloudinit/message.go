// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"
)

const (
	maxUnpackedUserData = 4 << 20
	// Where cloud-init looks for the header that makes data a MIME message.
	mimeWindow = 4096
	// maxParts bounds the parts of a message, and maxNesting how deep messages may stand in each other.
	maxParts   = 256
	maxNesting = 4

	headerType     = "Content-Type"
	headerEncoding = "Content-Transfer-Encoding"
)

// leaf is one part of user data or vendor data that holds no others: as cloud-init hands it on.
type leaf struct {
	// header as it was written; nil where the data was no message.
	header textproto.MIMEHeader
	// body as it was written, in its transfer encoding.
	body []byte
}

// mediaType of the part, in lower case; text/plain where it says none, as cloud-init has it.
func (l leaf) mediaType() (string, error) {
	written := l.header.Get(headerType)
	if written == "" {
		return typePlain, nil
	}
	mediaType, _, err := mime.ParseMediaType(written)
	if err != nil {
		return "", errors.New("has a Content-Type that cannot be read")
	}
	return mediaType, nil
}

// content is the body without its transfer encoding.
func (l leaf) content() ([]byte, error) {
	switch encoding := strings.ToLower(strings.TrimSpace(l.header.Get(headerEncoding))); encoding {
	case "", "7bit", "8bit", "binary":
		return l.body, nil
	case "base64":
		text := strings.Map(func(r rune) rune {
			if strings.ContainsRune(" \t\r\n", r) {
				return -1
			}
			return r
		}, string(l.body))
		content, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, errors.New("says that it is base64, and is not")
		}
		return content, nil
	case "quoted-printable":
		content, err := io.ReadAll(quotedprintable.NewReader(bytes.NewReader(l.body)))
		if err != nil {
			return nil, errors.New("says that it is quoted-printable, and is not")
		}
		return content, nil
	default:
		return nil, errors.New("has a Content-Transfer-Encoding that cloud-init does not know: use 7bit, 8bit, base64 or quoted-printable")
	}
}

// leaves takes data apart: unpacked, and each part of each message by itself.
func leaves(data []byte) ([]leaf, error) {
	data, err := unpacked(data)
	if err != nil {
		return nil, err
	}
	if !isMessage(data) {
		return []leaf{{body: data}}, nil
	}
	message, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return nil, errors.New("says MIME-Version near its start, and is no MIME message: put the header first, with an empty line after it")
	}
	var all []leaf
	err = explode(textproto.MIMEHeader(message.Header), message.Body, 0, &all)
	return all, err
}

func isMessage(data []byte) bool {
	return bytes.Contains(bytes.ToLower(data[:min(len(data), mimeWindow)]), []byte("mime-version:"))
}

// explode adds the parts of one message.
func explode(header textproto.MIMEHeader, body io.Reader, depth int, into *[]leaf) error {
	mediaType, parameters, err := mime.ParseMediaType(header.Get(headerType))
	if header.Get(headerType) != "" && err != nil {
		return errors.New("is a MIME message whose Content-Type cannot be read")
	}
	if !strings.HasPrefix(mediaType, "multipart/") {
		content, err := io.ReadAll(body)
		*into = append(*into, leaf{header, content})
		return err
	}
	if depth >= maxNesting {
		return fmt.Errorf("has multipart messages in each other, more than %d deep", maxNesting)
	}
	parts := multipart.NewReader(body, parameters["boundary"])
	for count := 0; ; count++ {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) && count > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("is a multipart message that breaks off after %d parts: check its boundary lines", count)
		}
		if len(*into) >= maxParts {
			return fmt.Errorf("has more than %d parts", maxParts)
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return fmt.Errorf("is a multipart message whose part %d breaks off: check its boundary lines", count+1)
		}
		if err := explode(part.Header, bytes.NewReader(content), depth+1, into); err != nil {
			return err
		}
	}
}

// unpacked is data that may be gzip, unpacked.
func unpacked(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		return data, nil
	}
	content, err := gunzip(data)
	if err != nil {
		return nil, fmt.Errorf("starts like gzip, and cannot be unpacked: %w", err)
	}
	return content, nil
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
