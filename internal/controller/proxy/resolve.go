// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// problem is a spec that cannot be carried out.
type problem struct{ reason, message string }

// resolve finds out what the spec means in terms of the providers file.
func (r *Reconciler) resolve(_ context.Context, p *pass) (bool, error) {
	entry, shape, wrong := resolve(p.proxy, p.set.File)
	if wrong != nil {
		p.refuse(wrong.reason, wrong.message, r.Pace.Slow)
		return false, nil
	}
	made, ok := p.set.Providers[entry.Name]
	if !ok {
		p.refuse(v1alpha1.ReasonUnknownEntry, fmt.Sprintf("entry %s of the providers file has no provider of type %s in this operator", entry.Name, entry.Type), r.Pace.Slow)
		return false, nil
	}
	key, err := r.Identity.ControlKey(string(p.proxy.UID))
	if err != nil {
		return false, err
	}
	p.entry, p.provider = entry, made
	p.spec = provider.InstanceSpec{
		InstanceRef: p.ref(), Namespace: p.proxy.Namespace, Name: p.proxy.Name, Shape: shape, ControlKey: key, Credentials: *p.credentials, UserData: p.userData,
	}
	if digest := p.userDataSHA256(); digest != "" {
		p.spec.UserDataSHA256 = digest
	}
	return true, nil
}

// resolve is the entry and the shape that a Proxy's spec asks for, or what is wrong with it.
func resolve(proxy *v1alpha1.Proxy, file *config.File) (*config.Entry, provider.Shape, *problem) {
	entry, ok := file.Entry(proxy.Spec.Provider)
	if !ok {
		return nil, provider.Shape{}, &problem{v1alpha1.ReasonUnknownEntry, fmt.Sprintf(
			"spec.provider: the providers file has no entry %q; it has: %s", proxy.Spec.Provider, listed(file.EntryNames()))}
	}
	if !entry.AllowsNamespace(proxy.Namespace) {
		return nil, provider.Shape{}, &problem{v1alpha1.ReasonNamespaceNotAllowed, fmt.Sprintf(
			"entry %s does not serve namespace %s; it serves: %s", entry.Name, proxy.Namespace, listed(entry.AllowedNamespaces))}
	}
	placement := v1alpha1.Placement{}
	if proxy.Spec.Placement != nil {
		placement = *proxy.Spec.Placement
	}
	if placement.Host != "" && !entry.AllowsPinning(proxy.Namespace) {
		return nil, provider.Shape{}, &problem{v1alpha1.ReasonNamespaceNotAllowed, fmt.Sprintf(
			"placement.host: entry %s lets namespace %s name no host (allowPinning: %s); remove it", entry.Name, proxy.Namespace, listed(entry.AllowPinning))}
	}
	if placement.Host != "" {
		if wrong := knownHost(entry, "placement.host", placement.Host); wrong != nil {
			return nil, provider.Shape{}, wrong
		}
	}
	if host := proxy.Status.Host; host != "" {
		if wrong := knownHost(entry, "status.host", host); wrong != nil {
			wrong.message += "; the instance is there: put the host back, or delete the Proxy"
			return nil, provider.Shape{}, wrong
		}
	}
	image, wrong := resolveImage(entry, placement.Image)
	if wrong != nil {
		return nil, provider.Shape{}, wrong
	}
	shape := provider.Shape{
		Image:       image,
		VCPUs:       or(int(placement.VCPUs), entry.Defaults.VCPUs),
		MemoryMiB:   or(int(placement.MemoryMiB), entry.Defaults.MemoryMiB),
		DiskSizeGiB: or(int(placement.DiskSizeGb), entry.Defaults.DiskSizeGb),
		Software:    softwareOf(proxy),
		Port:        int(proxy.Spec.Port),
	}
	if shape.Software != provider.SoftwareNone {
		shape.EntryDataSHA256 = entry.GuestDataSHA256()
	}
	if shape.Software == provider.SoftwareAgent {
		shape.DestinationsSHA256 = file.DestinationsSHA256(entry)
	}
	if wrong := machineless(entry, shape); wrong != nil {
		return nil, provider.Shape{}, wrong
	}
	return entry, shape, allowedUserData(proxy, entry)
}

// allowedUserData refuses user data that a Proxy brings where its namespace may not: it is root in the guest.
func allowedUserData(proxy *v1alpha1.Proxy, entry *config.Entry) *problem {
	if proxy.Spec.Software == nil || proxy.Spec.Software.UserDataSecretRef == nil || entry.AllowsUserData(proxy.Namespace) {
		return nil
	}
	if entry.Type != config.TypeKVM2 {
		return &problem{v1alpha1.ReasonInvalidSpec, fmt.Sprintf("entry %s is of type %s and has no cloud-init: remove software.userDataSecretRef", entry.Name, entry.Type)}
	}
	return &problem{v1alpha1.ReasonNamespaceNotAllowed, fmt.Sprintf(
		"software.userDataSecretRef: entry %s takes no user data from Proxies of namespace %s; it does from: %s (allowUserData in the providers file)",
		entry.Name, proxy.Namespace, listed(entry.AllowUserData))}
}

// machineless refuses what only a machine can have, where the entry makes none.
func machineless(entry *config.Entry, shape provider.Shape) *problem {
	if entry.HasMachines() {
		return nil
	}
	fields := shape.MachineFields()
	if shape.Software != provider.SoftwareAgent {
		fields = append(fields, "software.type "+string(shape.Software))
	}
	if len(fields) == 0 {
		return nil
	}
	return &problem{v1alpha1.ReasonInvalidSpec, fmt.Sprintf("entry %s is of type %s and makes no machines: remove %s", entry.Name, entry.Type, listed(fields))}
}

func knownHost(entry *config.Entry, field, host string) *problem {
	if _, ok := entry.Host(host); ok {
		return nil
	}
	return &problem{v1alpha1.ReasonUnknownHost, fmt.Sprintf("%s: entry %s has no host %q; it has: %s", field, entry.Name, host, listed(entry.HostNames()))}
}

func resolveImage(entry *config.Entry, wanted *v1alpha1.Image) (provider.Image, *problem) {
	if !entry.HasCatalogue() {
		if wanted == nil {
			return provider.Image{}, nil
		}
		return provider.Image{}, &problem{v1alpha1.ReasonInvalidSpec, fmt.Sprintf("entry %s is of type %s and boots no images: remove placement.image", entry.Name, entry.Type)}
	}
	if wanted != nil && wanted.URL != "" {
		return resolveURL(entry, wanted)
	}
	name := entry.DefaultImage
	if wanted != nil {
		name = wanted.Name
	}
	if name == "" {
		return provider.Image{}, &problem{v1alpha1.ReasonUnknownImage, fmt.Sprintf(
			"placement.image: entry %s has no defaultImage, so the Proxy must name one of: %s", entry.Name, listed(entry.ImageNames()))}
	}
	if _, ok := entry.Images[name]; !ok {
		return provider.Image{}, &problem{v1alpha1.ReasonUnknownImage, fmt.Sprintf(
			"placement.image.name: entry %s has no image %q; it has: %s", entry.Name, name, listed(entry.ImageNames()))}
	}
	return provider.Image{Name: name}, nil
}

func resolveURL(entry *config.Entry, wanted *v1alpha1.Image) (provider.Image, *problem) {
	at, err := url.Parse(wanted.URL)
	if err != nil || at.User != nil {
		return provider.Image{}, &problem{v1alpha1.ReasonInvalidSpec, "placement.image.url is not an http:// or https:// URL without user or password"}
	}
	if !slices.Contains(entry.AllowURLImages, at.Hostname()) {
		return provider.Image{}, &problem{v1alpha1.ReasonInvalidSpec, fmt.Sprintf(
			"placement.image.url: entry %s fetches no images from %s (allowURLImages: %s); use one of its own images: %s",
			entry.Name, at.Hostname(), listed(entry.AllowURLImages), listed(entry.ImageNames()))}
	}
	return provider.Image{URL: wanted.URL, SHA256: wanted.SHA256}, nil
}

func softwareOf(proxy *v1alpha1.Proxy) provider.Software {
	if proxy.Spec.Software == nil || proxy.Spec.Software.Type == "" {
		return provider.SoftwareAgent
	}
	return provider.Software(proxy.Spec.Software.Type)
}

func or(value, fallback int) int {
	if value == 0 {
		return fallback
	}
	return value
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
