// SPDX-License-Identifier: Apache-2.0

// Package instance runs a whole standalone server from a data directory: database, control
// plane and controllers.
package instance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/certs"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/controllers"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/controlplane"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/etcd"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/kubeconfig"
)

// A busy machine needs several times the usual three seconds.
const startTimeout = 2 * time.Minute

// Options say where a server keeps its data and where it listens.
type Options struct {
	DataDir string
	// Port on 127.0.0.1; 0 takes a free one.
	Port int
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
	dir, err := datadir.Open(o.DataDir)
	if err != nil {
		return err
	}
	err = serve(ctx, dir, o.Port, ready)
	if errors.Is(err, context.Cause(ctx)) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}

func serve(ctx context.Context, dir *datadir.Dir, port int, ready func(Ready)) error {
	if err := os.Remove(dir.Kubeconfig()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kubeconfig of the last start: %w", err)
	}
	bundle, err := certs.Ensure(dir.PKI(), time.Now())
	if err != nil {
		return err
	}
	listener, err := listen(port)
	if err != nil {
		return err
	}
	// The control plane closes it when it stops; this is for when it does not get that far.
	defer func() { _ = listener.Close() }()
	store, err := etcd.Start(ctx, dir.Etcd(), dir.Sockets())
	if err != nil {
		return err
	}
	defer store.Close()
	api, err := controlplane.New(ctx, controlplane.Options{EtcdEndpoint: store.Endpoint(), Listener: listener, Certs: bundle})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return store.Wait(ctx) })
	group.Go(func() error { return api.Run(ctx) })
	group.Go(func() error {
		if err := waitReady(ctx, api); err != nil {
			return err
		}
		answer := Ready{Server: "https://" + listener.Addr().String(), Kubeconfig: dir.Kubeconfig()}
		credentials := kubeconfig.Credentials{CA: bundle.CA, Cert: bundle.AdminCert, Key: bundle.AdminKey}
		if err := kubeconfig.Write(answer.Kubeconfig, answer.Server, credentials); err != nil {
			return err
		}
		ready(answer)
		return controllers.Run(ctx, api.Config())
	})
	return group.Wait()
}

func listen(port int) (*net.TCPListener, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the API: %w (choose another --port, or 0 for a free one)", err)
	}
	return listener, nil
}

// waitReady gives up after startTimeout, and with the context's cause when that ends before.
func waitReady(ctx context.Context, api *controlplane.Server) error {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := api.WaitReady(starting)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
