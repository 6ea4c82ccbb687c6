// SPDX-License-Identifier: Apache-2.0

// Package instance runs a whole standalone server from a data directory: database, control
// plane and controllers, and what works with them.
package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/certs"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/controllers"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/controlplane"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/etcd"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/kubeconfig"
)

// A busy machine needs several times the usual three seconds.
const startTimeout = 2 * time.Minute

// Options are what a server is made of.
type Options struct {
	// Dir is the data directory, which the caller has opened and closes.
	Dir *datadir.Dir
	// Port on 127.0.0.1; 0 takes that of the last start where it is free, and else a free one.
	Port int
	// Prepare brings the API that answers into shape before anybody is told of it; nil where there is nothing to do.
	Prepare func(context.Context, *rest.Config) error
	// Work works with the API until its context ends; the API ends after it. Nil for the API alone.
	Work func(context.Context, *rest.Config) error
}

// Ready is what clients need to know of a running server.
type Ready struct {
	// Server is the URL of the API.
	Server string
	// Kubeconfig is the path of a file with all rights.
	Kubeconfig string
}

// Run serves until the context ends and calls ready once, when everything answers. It
// returns nil after a stop by the context, also one that comes before the server is ready.
func Run(ctx context.Context, o Options, ready func(Ready)) error {
	err := serve(ctx, o, ready)
	// What a stop cuts short says so in one of two ways.
	if ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

func serve(ctx context.Context, o Options, ready func(Ready)) error {
	if err := os.Remove(o.Dir.Kubeconfig()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kubeconfig of the last start: %w", err)
	}
	bundle, err := certs.Ensure(o.Dir.PKI(), time.Now())
	if err != nil {
		return err
	}
	listener, err := listen(o.Port, o.Dir.Port())
	if err != nil {
		return err
	}
	// The control plane closes it when it stops; this is for when it does not get that far.
	defer func() { _ = listener.Close() }()
	store, err := etcd.Start(ctx, o.Dir.Etcd(), o.Dir.Sockets())
	if err != nil {
		return err
	}
	// It ends last: everything else has ended when serve returns.
	defer store.Close()
	api, err := controlplane.New(ctx, controlplane.Options{EtcdEndpoint: store.Endpoint(), Listener: listener, Certs: bundle})
	if err != nil {
		return err
	}
	answer := Ready{Server: "https://" + listener.Addr().String(), Kubeconfig: o.Dir.Kubeconfig()}
	group, working := errgroup.WithContext(ctx)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	group.Go(func() error { return store.Wait(working) })
	group.Go(func() error { return api.Run(serving) })
	group.Go(func() error {
		defer stopServing()
		if err := start(working, api, o.Prepare); err != nil {
			return err
		}
		credentials := kubeconfig.Credentials{CA: bundle.CA, Cert: bundle.AdminCert, Key: bundle.AdminKey}
		if err := kubeconfig.Write(answer.Kubeconfig, answer.Server, credentials); err != nil {
			return err
		}
		ready(answer)
		return work(working, api, o.Work)
	})
	return group.Wait()
}

// start returns when the API answers and is in shape. It gives up after startTimeout, and with the context's cause when that
// ends before.
func start(ctx context.Context, api *controlplane.Server, prepare func(context.Context, *rest.Config) error) error {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := api.WaitReady(starting)
	if err == nil && prepare != nil {
		err = prepare(starting, api.Config())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// work returns when everything that uses the API has ended.
func work(ctx context.Context, api *controlplane.Server, more func(context.Context, *rest.Config) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return controllers.Run(ctx, api.Config()) })
	if more != nil {
		group.Go(func() error { return more(ctx, api.Config()) })
	}
	return group.Wait()
}
