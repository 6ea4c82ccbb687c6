// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A published volume is a base or an agent: shared by many guests, read only, and never changed. It is published by an empty
// volume beside it, its marker, whose name says what the volume holds. The pool offers no rename, and creating a volume is atomic:
// a volume without a marker is unfinished or given up, and nobody's to use.

// markerVersion is the version of markers that this program writes, and the newest that it reads.
const markerVersion = 1

// maxVolumeName is what a file system of a pool takes.
const maxVolumeName = 255

// ErrNewer says that something of ours was written by a newer version of the operator: it is left alone.
var ErrNewer = errors.New("written by a newer version of the operator")

// Source is where the content of a published volume comes from: all that names of one source have in common.
type Source struct{ stem string }

// Base is the source of an image: its URL and the digest that pins it, if any.
func (n Names) Base(entry, url, pin string) Source {
	sum := sha256.Sum256([]byte(url + "\n" + strings.ToLower(strings.TrimSpace(pin))))
	return Source{n.bases(entry) + hex.EncodeToString(sum[:16])}
}

// agentLayout changes when the same agent is to be put into a volume of another form.
const agentLayout = "1"

// Agent is the source of an agent for an architecture: the digest of its content, in hexadecimal.
func (n Names) Agent(entry, arch, sha256hex string) Source {
	sum := sha256.Sum256([]byte(agentLayout + "\n" + sha256hex))
	return Source{n.agents(entry) + arch + "-" + hex.EncodeToString(sum[:16])}
}

func (n Names) bases(entry string) string { return n.ours() + "base-" + entry + "-" }

func (n Names) agents(entry string) string { return n.ours() + "agent-" + entry + "-" }

// NewVolume is a name that nobody else makes.
func (s Source) NewVolume() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return s.stem + "-" + hex.EncodeToString(b[:]) + ".img"
}

// owns says whether the volume, not its marker, is of this source.
func (s Source) owns(volume string) bool {
	unique, ok := strings.CutPrefix(volume, s.stem+"-")
	return ok && uniquePattern.MatchString(unique)
}

var uniquePattern = regexp.MustCompile(`^[0-9a-f]{12}\.img$`)

// Content is what a marker says of its volume.
type Content struct {
	// SHA256 of the content, in hexadecimal.
	SHA256 string
	// Unpacked: SHA256 is of what was unpacked from the served file, and not of the file as served.
	Unpacked bool
	// Size of the volume's file in bytes.
	Size int64
	// Format is qcow2 or raw, as read from the content.
	Format string
	// VirtualSize is the size of the disk in bytes, as the guest sees it.
	VirtualSize int64
}

// Marker is the name of the marker of a volume.
func Marker(volume string, c Content) (string, error) {
	digest := "served"
	if c.Unpacked {
		digest = "unpacked"
	}
	name := fmt.Sprintf("%s.v%d.%s-sha256-%s.size-%d.%s-%d", volume, markerVersion, digest, c.SHA256, c.Size, c.Format, c.VirtualSize)
	if len(name) > maxVolumeName {
		return "", fmt.Errorf("the marker's name would have %d characters; a pool takes %d", len(name), maxVolumeName)
	}
	volumeAgain, got, err := ParseMarker(name)
	if err != nil || volumeAgain != volume || got != c {
		return "", fmt.Errorf("no marker for volume %s with content %+v can be named", volume, c)
	}
	return name, nil
}

var (
	markerPattern  = regexp.MustCompile(`^(served|unpacked)-sha256-([0-9a-f]{64})\.size-([1-9][0-9]{0,15})\.(qcow2|raw)-([1-9][0-9]{0,15})$`)
	versionPattern = regexp.MustCompile(`^[1-9][0-9]{0,5}$`)
)

// ParseMarker reads the name of a marker. It is total: every name is a marker that is understood, or an error; the error wraps
// ErrNewer where a newer version of the operator made it.
func ParseMarker(name string) (volume string, c Content, err error) {
	stem, rest, ok := strings.Cut(name, ".img.v")
	if !ok {
		return "", Content{}, fmt.Errorf("volume %q is no marker", name)
	}
	volume = stem + ".img"
	version, rest, _ := strings.Cut(rest, ".")
	if !versionPattern.MatchString(version) {
		return "", Content{}, fmt.Errorf("the marker %q cannot be read: it has no version", name)
	}
	if version != strconv.Itoa(markerVersion) {
		return "", Content{}, fmt.Errorf("the marker %q has version %s: %w", name, version, ErrNewer)
	}
	m := markerPattern.FindStringSubmatch(rest)
	if m == nil {
		return "", Content{}, fmt.Errorf("the marker %q cannot be read", name)
	}
	c = Content{SHA256: m[2], Unpacked: m[1] == "unpacked", Format: m[4]}
	c.Size, _ = strconv.ParseInt(m[3], 10, 64)        // at most 16 digits
	c.VirtualSize, _ = strconv.ParseInt(m[5], 10, 64) // at most 16 digits
	return volume, c, nil
}

// Published is a volume that may be used.
type Published struct {
	Volume, Marker string
	Content        Content
}

// FindPublished finds what is published of a source in a complete list of volumes: the lowest name, so that all who look choose
// the same. ok is false where nothing is. A marker of this source that cannot be read is an error, and so is one of a newer
// version: neither means that nothing is there.
func FindPublished(volumes []string, s Source) (p Published, ok bool, err error) {
	there := make(map[string]bool, len(volumes))
	for _, v := range volumes {
		there[v] = true
	}
	sorted := slices.Sorted(slices.Values(volumes))
	for _, marker := range sorted {
		if !strings.HasPrefix(marker, s.stem+"-") || s.owns(marker) {
			continue
		}
		volume, content, err := ParseMarker(marker)
		if err != nil {
			return Published{}, false, err
		}
		if !s.owns(volume) {
			return Published{}, false, fmt.Errorf("volume %q has a name of ours, and is neither an image nor a marker", marker)
		}
		if !ok && there[volume] {
			p, ok = Published{volume, marker, content}, true
		}
	}
	return p, ok, nil
}
