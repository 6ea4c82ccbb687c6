// SPDX-License-Identifier: Apache-2.0

//go:build !race

package faults_test

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

// cacheBehind is how far a cache may be behind the API server: longer than a controller waits before it looks again.
const cacheBehind = 700 * time.Millisecond

// cachedProxy is a Proxy as it was before its last change.
type cachedProxy struct {
	at    time.Time
	proxy v1alpha1.Proxy
}

// cache is what a controller reads Proxies from. Where the world's is behind it may show what they were; that of the next operator too, whose first list a
// member of the API server answers that is behind itself.
func (w *world) cache(life *faults.Life, api client.WithWatch) client.WithWatch {
	if !w.behind {
		return api
	}
	for key, c := range w.cached {
		c.at = time.Now()
		w.cached[key] = c
	}
	remember := func(ctx context.Context, o client.Object) {
		if life.Dead() {
			return
		}
		var p v1alpha1.Proxy
		if _, ok := o.(*v1alpha1.Proxy); ok && w.api.Get(ctx, client.ObjectKeyFromObject(o), &p) == nil {
			w.cached[client.ObjectKeyFromObject(o)] = cachedProxy{time.Now(), p}
		}
	}
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			p, ok := o.(*v1alpha1.Proxy)
			had, behind := w.cached[key]
			if !ok || !behind || time.Since(had.at) >= cacheBehind {
				return to.Get(ctx, key, o, opts...)
			}
			had.proxy.DeepCopyInto(p)
			return ctx.Err()
		},
		Patch: func(ctx context.Context, to client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			remember(ctx, o)
			return to.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, to client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			remember(ctx, o)
			return to.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}
