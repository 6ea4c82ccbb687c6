// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

func TestWhoWantsAFetch(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, r *rig, unreachable *atomic.Bool)
		ended     bool
	}{
		"it goes on while its host cannot be asked": {func(t *testing.T, r *rig, unreachable *atomic.Bool) {
			unreachable.Store(true)
			_, err := r.Create(t.Context(), r.spec())
			want(t, err, provider.Transient)
			unreachable.Store(false)
		}, false},
		"it ends when its Proxy is deleted": {func(t *testing.T, r *rig, _ *atomic.Bool) {
			want(t, r.Delete(t.Context(), r.ref()), provider.NotFound)
		}, true},
		"it ends when its Proxy wants what cannot be": {func(t *testing.T, r *rig, _ *atomic.Bool) {
			spec := r.spec()
			spec.Image.Name = "no such image"
			_, err := r.Create(t.Context(), spec)
			want(t, err, provider.Permanent)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var unreachable, ended atomic.Bool
				gate := make(chan struct{})
				r := newRig(t, libvirttest.Config{})
				r.daemon.SetFaults(func(ctx context.Context, method, object string) error {
					switch {
					case method == "Upload" && strings.Contains(object, "-base-"):
						select {
						case <-gate:
						case <-ctx.Done():
							ended.Store(true)
						}
					case unreachable.Load():
						return errLink
					}
					return ctx.Err()
				}, nil)
				_, err := r.Create(t.Context(), r.spec())
				want(t, err, provider.InProgress)
				test.meanwhile(t, r, &unreachable)
				time.Sleep(time.Minute)
				synctest.Wait()
				if ended.Load() != test.ended {
					t.Errorf("the upload was ended: %v", ended.Load())
				}
				close(gate)
			})
		})
	}
}
