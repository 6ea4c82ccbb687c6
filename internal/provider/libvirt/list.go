// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// listFanOut is how many hosts are listed at once.
const listFanOut = 8

// List returns every instance of this cluster and entry on all hosts, without addresses: complete, or an error.
func (p *Provider) List(ctx context.Context) ([]provider.Instance, error) {
	var mu sync.Mutex
	var all []provider.Instance
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listFanOut)
	for _, h := range p.hosts {
		group.Go(func() error {
			some, err := p.listHost(ctx, h)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, some...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b provider.Instance) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.UID, b.UID))
	})
	return all, nil
}

func (p *Provider) listHost(ctx context.Context, h *host) ([]provider.Instance, error) {
	domains, err := h.backend.Domains(ctx)
	if err != nil {
		return nil, translate(h.name, "", "listing the domains", err)
	}
	var some []provider.Instance
	for _, info := range domains {
		uid, ok := p.names.InstanceUID(info.Name)
		if !ok || info.Name != p.names.Domain(uid) {
			continue
		}
		mark, ok, err := p.readMark(ctx, h, info.Name)
		if err != nil {
			return nil, err
		}
		if !ok || !mark.Owned(p.names.cluster, p.entry.Name, uid) {
			continue
		}
		h.learn(info.Name, mark)
		t := target{h, mark.UID, info.Name}
		some = append(some, t.instance(found{info, mark}))
	}
	return some, nil
}

// readMark reads a mark; ok is false where there is none, or one that is not ours to read. One of a newer version of the operator is an
// error: the list would not be complete without it.
func (p *Provider) readMark(ctx context.Context, h *host, domain string) (mark Mark, ok bool, err error) {
	element, err := h.backend.Metadata(ctx, domain, MarkNamespace)
	if IsCode(err, CodeNoDomain) || IsCode(err, CodeNoMetadata) {
		return Mark{}, false, nil
	}
	if err != nil {
		return Mark{}, false, translate(h.name, "domain "+domain, "reading the mark", err)
	}
	mark, err = DecodeMark(element)
	if errors.Is(err, ErrNewer) {
		return Mark{}, false, &provider.Error{
			Kind: provider.Permanent, Host: h.name, Object: "domain " + domain, Message: err.Error(), Next: "use an operator of that version", Err: err,
		}
	}
	return mark, err == nil, nil
}
