// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// api is where calls go that are not for a host.
const api = "api"

var errRefused = errors.New("the API server did not take it this time")

// Client is an operator's way to the API server. Every write is a step; reads only end with the operator.
func (l *Life) Client(to client.WithWatch) client.WithWatch {
	write := func(ctx context.Context, verb string, o client.Object, effect func() error) error {
		return l.do(ctx, call{to: api, method: verb, object: kindOf(o)}, effect)
	}
	return interceptor.NewClient(to, interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := errors.Join(l.alive(), ctx.Err()); err != nil {
				return err
			}
			return to.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := errors.Join(l.alive(), ctx.Err()); err != nil {
				return err
			}
			return to.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(ctx, "Create", o, func() error { return to.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(ctx, "Update", o, func() error { return to.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(ctx, "Delete", o, func() error { return to.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, to client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(ctx, "Patch", o, func() error { return to.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, to client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(ctx, "Patch-"+sub, o, func() error { return to.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

// kindOf an object, by its Go type.
func kindOf(o client.Object) string {
	name := fmt.Sprintf("%T", o)
	return name[strings.LastIndex(name, ".")+1:]
}
