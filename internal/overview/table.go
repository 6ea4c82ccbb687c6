// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/egress-proxies/egress-proxies-operator/internal/text"
)

// Style of a table.
type Style struct {
	// All shows the Proxies that are Ready, too.
	All bool
	// Colours are for terminals.
	Colours bool
	// Now is what ages are counted to.
	Now time.Time
}

const (
	red, yellow, plain = "\x1b[31m", "\x1b[33m", "\x1b[0m"
	// maxMessage is how much of a message a line shows; `-o json` and kubectl show all of it.
	maxMessage = 160
)

// Table writes hosts and proxies for people.
func (o Overview) Table(w io.Writer, style Style) error {
	hosts := section{header: "ENTRY\tHOST\tSTATE\tINSTANCES\tPOOL FREE\tFOR\tMESSAGE"}
	for _, h := range o.Hosts {
		colour := ""
		switch {
		case !h.Ready():
			colour = red
		case h.Unschedulable:
			colour = yellow
		}
		hosts.add(colour, h.Entry, h.Name, h.state(), strconv.Itoa(int(h.Instances)), h.room(), style.since(h.Since), short(h.Message))
	}
	proxies := section{header: "NAMESPACE\tPROXY\tSTATE\tENTRY\tHOST\tEXIT\tENDPOINT\tFOR\tMESSAGE"}
	for _, p := range o.Proxies {
		if p.Ready && !style.All {
			continue
		}
		proxies.add(p.colour(), p.Namespace, p.Name, p.state(), p.Entry, p.Host, strings.Join(p.ExitIPs, ","), p.Endpoint, style.since(p.Since), short(p.Message))
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d of %d hosts ready, %d of %d proxies ready\n", o.readyHosts(), len(o.Hosts), o.readyProxies(), len(o.Proxies))
	hosts.write(&out, style)
	proxies.write(&out, style)
	for _, n := range o.Notes {
		fmt.Fprintf(&out, "\n%s: %s for %s (%s): %s\n", n.Entry, n.Type, style.since(n.Since), n.Reason, n.Message)
	}
	_, err := w.Write(out.Bytes())
	return err
}

func (h Host) state() string {
	if h.Unschedulable {
		return h.Reason + ",Unschedulable"
	}
	return h.Reason
}

func (h Host) room() string {
	if h.PoolAvailableGiB == nil {
		return ""
	}
	return fmt.Sprintf("%d GiB", *h.PoolAvailableGiB)
}

func (p Proxy) state() string {
	if p.Deleting {
		return p.Reason + ",Deleting"
	}
	return p.Reason
}

func (p Proxy) colour() string {
	switch {
	case p.Ready:
		return ""
	case p.Cordoned || p.Deleting:
		return yellow
	}
	return red
}

func (s Style) since(t metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(s.Now.Sub(t.Time))
}

// short is a message on one line.
func short(message string) string {
	line := []rune(text.Line(message))
	if len(line) > maxMessage {
		return string(line[:maxMessage-1]) + "…"
	}
	return string(line)
}

// section is a table with a header, and a colour for each line.
type section struct {
	header  string
	lines   []string
	colours []string
}

func (s *section) add(colour string, cells ...string) {
	for i := range cells {
		cells[i] = cmp.Or(cells[i], "-")
	}
	s.lines, s.colours = append(s.lines, strings.Join(cells, "\t")), append(s.colours, colour)
}

// write lays the lines out, and colours them afterwards: a colour has no width.
func (s *section) write(out *bytes.Buffer, style Style) {
	if len(s.lines) == 0 {
		return
	}
	var laid bytes.Buffer
	w := tabwriter.NewWriter(&laid, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, s.header)
	for _, line := range s.lines {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush() // into memory
	out.WriteByte('\n')
	for i, line := range strings.Split(strings.TrimSuffix(laid.String(), "\n"), "\n") {
		line = strings.TrimRight(line, " ")
		if style.Colours && i > 0 && s.colours[i-1] != "" {
			line = s.colours[i-1] + line + plain
		}
		out.WriteString(line + "\n")
	}
}
