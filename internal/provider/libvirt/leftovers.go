// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

const (
	volumeSuffix = ".img"
	uniqueLength = len("-") + 12 + len(volumeSuffix)
)

var (
	baseRest  = regexp.MustCompile(`^[0-9a-f]{32}-[0-9a-f]{12}\.img$`)
	agentRest = regexp.MustCompile(`^(?:` + archX86 + `|` + archARM + `)-[0-9a-f]{32}-[0-9a-f]{12}\.img$`)
)

// sourceOf is the source of a base or an agent of the entry, by the volume's whole name. ok is false for every other name, those of other
// entries and clusters included: no part of a name can be taken for another, as all but the entry have their length, and the entry has to fit exactly.
func (n Names) sourceOf(entry, volume string) (s Source, ok bool) {
	base, isBase := strings.CutPrefix(volume, n.bases(entry))
	agent, isAgent := strings.CutPrefix(volume, n.agents(entry))
	if isBase && baseRest.MatchString(base) || isAgent && agentRest.MatchString(agent) {
		return Source{volume[:len(volume)-uniqueLength]}, true
	}
	return Source{}, false
}

// markedBy is the volume that the name of a marker begins with, whatever follows; ok is false where it is none of the entry's.
func (n Names) markedBy(entry, marker string) (volume string, ok bool) {
	stem, _, isMarker := strings.Cut(marker, volumeSuffix+".")
	if !isMarker {
		return "", false
	}
	_, ok = n.sourceOf(entry, stem+volumeSuffix)
	return stem + volumeSuffix, ok
}

// holding is a published volume as the names in a pool tell of it.
type holding struct {
	// there: the volume itself is in the pool.
	there   bool
	markers []string
	// unreadable is a marker that cannot be understood, and why.
	unreadable, why string
}

// leftovers are the volumes of an entry that look as if nothing needed them, by the names in a pool. wanted says of a source whether a Create
// would look for it now, busy of a volume whether it is being written. A volume with a marker that cannot be understood is left alone, and so is
// all that is of the same source.
func (n Names) leftovers(entry string, volumes []string, wanted func(Source) bool, busy func(volume string) bool) []provider.Leftover {
	held := n.holdings(entry, volumes)
	unclear := map[Source]bool{}
	for volume, h := range held {
		if h.unreadable != "" {
			source, _ := n.sourceOf(entry, volume)
			unclear[source] = true
		}
	}
	published := map[Source]string{} // the one that Create uses: the lowest name
	var found []provider.Leftover
	for _, volume := range slices.Sorted(maps.Keys(held)) {
		h := held[volume]
		source, _ := n.sourceOf(entry, volume)
		switch {
		case h.unreadable != "":
			found = append(found, provider.Leftover{Kind: provider.LeftoverUnreadable, Object: h.unreadable, Why: h.why})
		case unclear[source] || busy(volume):
		case len(h.markers) == 0:
			found = append(found, provider.Leftover{Kind: provider.LeftoverUnfinished, Object: volume, Why: "it has no marker"})
		case !h.there:
			found = appendEach(found, provider.LeftoverMarker, h.markers, "volume "+volume+" is gone")
		case !wanted(source):
			found = appendEach(found, provider.LeftoverUnwanted, h.markers, "its source is not in the providers file")
		case published[source] != "":
			found = appendEach(found, provider.LeftoverUnwanted, h.markers, "the same is published as "+published[source])
		default:
			published[source] = volume
		}
	}
	return found
}

func appendEach(all []provider.Leftover, kind provider.LeftoverKind, objects []string, why string) []provider.Leftover {
	for _, object := range objects {
		all = append(all, provider.Leftover{Kind: kind, Object: object, Why: why})
	}
	return all
}

// holdings are the entry's volumes and markers, by volume.
func (n Names) holdings(entry string, volumes []string) map[string]*holding {
	held := map[string]*holding{}
	of := func(volume string) *holding {
		if held[volume] == nil {
			held[volume] = &holding{}
		}
		return held[volume]
	}
	for _, name := range volumes {
		if _, ok := n.sourceOf(entry, name); ok {
			of(name).there = true
			continue
		}
		volume, ok := n.markedBy(entry, name)
		if !ok {
			continue
		}
		h := of(volume)
		if _, _, err := ParseMarker(name); err != nil {
			h.unreadable, h.why = name, err.Error()
			continue
		}
		h.markers = append(h.markers, name)
	}
	return held
}

// volumeOf is the volume that an object of a leftover is about: itself, or the one that it marks.
func (n Names) volumeOf(entry, object string) string {
	if volume, ok := n.markedBy(entry, object); ok {
		return volume
	}
	return object
}
