// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// element is one child of a domain's metadata.
type element struct {
	namespace string
	// bare is the element without any namespace, as the daemon hands it out.
	bare string
}

func metadataOf(def libvirtxml.Domain) (map[string]string, error) {
	all := map[string]string{}
	if def.Metadata == nil {
		return all, nil
	}
	elements, err := splitElements(def.Metadata.XML)
	for _, e := range elements {
		if _, there := all[e.namespace]; e.namespace != "" && !there {
			all[e.namespace] = e.bare // the daemon drops what has no namespace, and a second of one
		}
	}
	return all, err
}

// splitElements splits what stands in a metadata element, and takes the namespaces off.
func splitElements(text string) ([]element, error) {
	var all []element
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if start, ok := token.(xml.StartElement); ok {
			bare, err := bareElement(decoder, start)
			if err != nil {
				return nil, err
			}
			all = append(all, element{start.Name.Space, bare})
		}
	}
}

func bareElement(decoder *xml.Decoder, start xml.StartElement) (string, error) {
	var out bytes.Buffer
	encoder := xml.NewEncoder(&out)
	depth := 0
	for token := xml.Token(start); ; {
		switch t := token.(type) {
		case xml.StartElement:
			depth++
			token = stripped(t)
		case xml.EndElement:
			depth--
			token = xml.EndElement{Name: xml.Name{Local: t.Name.Local}}
		}
		if err := encoder.EncodeToken(token); err != nil {
			return "", err
		}
		if depth == 0 {
			err := encoder.Close()
			return out.String(), err
		}
		var err error
		if token, err = decoder.Token(); err != nil {
			return "", err
		}
	}
}

func stripped(t xml.StartElement) xml.StartElement {
	s := xml.StartElement{Name: xml.Name{Local: t.Name.Local}}
	for _, a := range t.Attr {
		if a.Name.Local != "xmlns" && a.Name.Space != "xmlns" {
			s.Attr = append(s.Attr, xml.Attr{Name: xml.Name{Local: a.Name.Local}, Value: a.Value})
		}
	}
	return s
}

// withNamespace puts the namespace back, for a definition.
func withNamespace(bare, namespace string) string {
	at := strings.IndexAny(bare, " />")
	var quoted bytes.Buffer
	_ = xml.EscapeText(&quoted, []byte(namespace)) // a bytes.Buffer takes everything
	return bare[:at] + ` xmlns="` + quoted.String() + `"` + bare[at:]
}
