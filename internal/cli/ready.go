// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/egress-proxies/egress-proxies-operator/internal/registry"
)

// syncedWithin is how long a question may wait for the cache.
const syncedWithin = time.Second

// addChecks serves /healthz, which says that the process answers, and /readyz, which says that it does its work, or would on being elected.
func addChecks(mgr manager.Manager, providers *registry.Registry) error {
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("cache", func(request *http.Request) error {
			ctx, cancel := context.WithTimeout(request.Context(), syncedWithin)
			defer cancel()
			if !mgr.GetCache().WaitForCacheSync(ctx) {
				return errors.New("the objects of the API server have not been read yet")
			}
			return nil
		}),
		mgr.AddReadyzCheck("providers", func(*http.Request) error {
			select {
			case <-mgr.Elected():
			default:
				return nil // another one works
			}
			if _, ok := providers.Now(); !ok {
				return errors.New("the providers have not been made yet")
			}
			return nil
		}),
	)
}
