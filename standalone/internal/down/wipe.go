// SPDX-License-Identifier: Apache-2.0

// Package down takes a server down, and everything that it has made with it where that is asked for.
package down

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/progress"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/providersfile"
)

const poll = 100 * time.Millisecond

// DeleteProxies deletes the Proxies of all namespaces and returns when they are gone. What cannot be deleted before ctx ends is
// named in the error, with its host.
func DeleteProxies(ctx context.Context, c client.Client, tell *progress.Printer) error {
	var proxies v1alpha1.ProxyList
	if err := c.List(ctx, &proxies); err != nil {
		return fmt.Errorf("list the Proxies: %w", err)
	}
	for i := range proxies.Items {
		p := &proxies.Items[i]
		if p.Spec.DeletionPolicy == v1alpha1.DeletionRetain && p.Status.Host != "" {
			tell.Say("Proxy %s/%s has deletionPolicy Retain: its instance stays on host %s", p.Namespace, p.Name, p.Status.Host)
		}
		if err := c.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Proxy %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	count := len(proxies.Items)
	for {
		var left v1alpha1.ProxyList
		err := c.List(ctx, &left)
		switch {
		case err == nil && len(left.Items) == 0:
			tell.Say("Proxies deleted: %d", count)
			return nil
		case err == nil:
			proxies = left
			tell.Waiting(fmt.Sprintf("%d of %d Proxies to be deleted, %s", len(left.Items), count, where(&left.Items[0])))
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d Proxies could not be deleted, so nothing else was: %w", len(proxies.Items), context.Cause(ctx)),
				errors.New(inTheWay(proxies.Items)))
		case <-time.After(poll):
		}
	}
}

func where(p *v1alpha1.Proxy) string {
	name := p.Namespace + "/" + p.Name
	if p.Status.Host == "" {
		return name
	}
	return fmt.Sprintf("%s on host %s of entry %s", name, p.Status.Host, p.Spec.Provider)
}

func inTheWay(proxies []v1alpha1.Proxy) string {
	var lines []string
	for i := range proxies {
		message := "the operator says nothing about it"
		if c := meta.FindStatusCondition(proxies[i].Status.Conditions, v1alpha1.ConditionProvisioned); c != nil {
			message = c.Reason + ": " + c.Message
		}
		lines = append(lines, where(&proxies[i])+": "+message)
	}
	return strings.Join(lines, "\n")
}

// Erase deletes the data of a directory that the caller holds: what a server has written there, and nothing else. A providers file that
// somebody has changed is kept.
func Erase(dir *datadir.Dir, tell *progress.Printer) error {
	// A database that is gone in part could never be opened again, so it is put out of the way in one step.
	gone := dir.Etcd() + ".erased"
	if err := os.Rename(dir.Etcd(), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("erase the data: %w", err)
	}
	paths := []string{gone, dir.Sockets(), dir.PKI(), dir.Kubeconfig(), dir.KubectlCache(), dir.Port(), dir.Log(), dir.Log() + ".1", dir.Restoring(), dir.Version()}
	if providersfile.Unchanged(dir.Providers()) {
		paths = append(paths, dir.Providers())
	}
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("erase the data: %w", err)
		}
	}
	left, err := os.ReadDir(dir.Root())
	if err != nil {
		return fmt.Errorf("erase the data: %w", err)
	}
	for _, entry := range left {
		if path := filepath.Join(dir.Root(), entry.Name()); !dir.IsLock(path) {
			tell.Say("kept: %s", path)
		}
	}
	return nil
}
