// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

const (
	namespace = "default"
	// most Proxies at once.
	most = 5
	// longest time between a start and the kill after it, and between two operations.
	longestLife  = 2500 * time.Millisecond
	longestPause = 250 * time.Millisecond
	// settleTimeout bounds what comes after a kill: some retries with their backoff, on a busy machine.
	settleTimeout = 2 * time.Minute
)

// drill kills in one world.
type drill struct {
	world
	standalone *standalone
	random     *rand.Rand
	cluster    string
	untouched  string
	made       int
	// acknowledged by the API: Proxies that there must be, and Proxies that were deleted.
	created map[string]types.UID
	deleted map[types.UID]bool
	tally   tally
}

func newDrill(w world, dir string, seed uint64) *drill {
	return &drill{
		world: w, random: rand.New(rand.NewPCG(seed, 0)), created: map[string]types.UID{}, deleted: map[types.UID]bool{},
		standalone: &standalone{program: w.program(), args: w.serve(), data: filepath.Join(dir, "data")},
	}
}

func (d *drill) run(ctx context.Context, kills int) (err error) {
	if d.untouched, err = d.foreign(ctx); err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		return err
	}
	for i := range kills {
		life := time.Duration(d.random.Int64N(int64(longestLife)))
		operations := d.untilKilled(ctx, life)
		d.tally.kills++
		if err := d.standalone.start(ctx); err != nil {
			return err
		}
		begun := time.Now()
		if err := d.settle(ctx); err != nil {
			return fmt.Errorf("kill %d, after %s and %s: %w", i+1, life.Round(time.Millisecond), operations, err)
		}
		d.tally.converged++
		fmt.Printf("%s: kill %d after %s (%s): %d Proxies, settled within %s\n", d.name(), i+1, life.Round(time.Millisecond), operations, len(d.created), time.Since(begun).Round(100*time.Millisecond))
	}
	return d.end(ctx)
}

// begin makes one Proxy, so that images are on their host, and learns the cluster's ID.
func (d *drill) begin(ctx context.Context) error {
	if err := d.standalone.start(ctx); err != nil {
		return err
	}
	if err := d.create(ctx); err != nil {
		return err
	}
	err := lab.Until(ctx, settleTimeout, "the cluster's ID", func(ctx context.Context) (bool, error) {
		var identity corev1.ConfigMap
		err := d.standalone.client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.ConfigMapName}, &identity)
		d.cluster = identity.Data[cluster.ConfigMapKey]
		return d.cluster != "", client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	return d.settle(ctx)
}

// untilKilled creates and deletes Proxies until the standalone is killed under it, and says what was acknowledged.
func (d *drill) untilKilled(ctx context.Context, life time.Duration) string {
	kill := time.AfterFunc(life, d.standalone.kill)
	defer kill.Stop()
	created, deleted := 0, 0
	for {
		count, operate := &created, d.create
		if len(d.created) > 0 && (len(d.created) >= most || d.random.IntN(2) == 0) {
			count, operate = &deleted, d.remove
		}
		if operate(ctx) != nil {
			break
		}
		*count++
		select {
		case <-d.standalone.process.Ended():
		case <-ctx.Done():
		case <-time.After(time.Duration(d.random.Int64N(int64(longestPause)))):
			continue
		}
		break
	}
	<-d.standalone.process.Ended()
	return fmt.Sprintf("%d created, %d deleted", created, deleted)
}

func (d *drill) create(ctx context.Context) error {
	d.made++
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("crash-%d", d.made)}, Spec: d.spec()}
	if err := d.standalone.client.Create(ctx, p); err != nil {
		return err
	}
	d.created[p.Name] = p.UID
	return nil
}

func (d *drill) remove(ctx context.Context) error {
	names := make([]string, 0, len(d.created))
	for name := range d.created {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[d.random.IntN(len(names))]
	uid := d.created[name]
	err := d.standalone.client.Delete(ctx, &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	// Without an acknowledgement it is not known whether it was deleted: either will do.
	delete(d.created, name)
	if err == nil {
		d.deleted[uid] = true
	}
	return err
}

// settle waits until each Proxy has what it should, nothing else of ours is there, and what is not ours is as it was.
func (d *drill) settle(ctx context.Context) error {
	var wrong error
	err := lab.Until(ctx, settleTimeout, "everything to be as it should", func(ctx context.Context) (bool, error) {
		now, fatal := d.wrong(ctx)
		if ctx.Err() == nil {
			wrong = now
		}
		return now == nil && fatal == nil, fatal
	})
	if touched, foreignErr := d.foreign(ctx); foreignErr != nil || touched != d.untouched {
		d.tally.touched++
		err = errors.Join(err, foreignErr, fmt.Errorf("what is not ours was touched; before:\n%s\nafter:\n%s", d.untouched, touched))
	}
	if err != nil {
		err = errors.Join(err, wrong)
	}
	return err
}

// wrong says what is not as it should be yet; a fatal one will not become better.
func (d *drill) wrong(ctx context.Context) (wrong, fatal error) {
	var list v1alpha1.ProxyList
	if err := d.standalone.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return err, nil
	}
	var want []string
	there, stays := map[string]types.UID{}, map[string]types.UID{}
	for i := range list.Items {
		p := &list.Items[i]
		there[p.Name] = p.UID
		if p.DeletionTimestamp.IsZero() {
			stays[p.Name] = p.UID
		}
		switch {
		case d.deleted[p.UID] && p.DeletionTimestamp.IsZero():
			return nil, fmt.Errorf("lost: the acknowledged deletion of Proxy %s", p.Name)
		case !p.DeletionTimestamp.IsZero() || !d.done(p):
			wrong = errors.Join(wrong, fmt.Errorf("proxy %s (deleted %v): %s", p.Name, p.DeletionTimestamp, conditions(p)))
		}
		want = append(want, d.expected(d.cluster, string(p.UID))...)
	}
	for name, uid := range d.created {
		if there[name] != uid {
			return nil, fmt.Errorf("lost: the acknowledged Proxy %s", name)
		}
	}
	// What was created or deleted without an acknowledgement is known from here on.
	d.created = stays
	if wrong != nil {
		return wrong, nil
	}
	return d.compare(ctx, want), nil
}

func (d *drill) compare(ctx context.Context, want []string) error {
	held, err := d.held(ctx, d.cluster)
	if err != nil {
		return err
	}
	slices.Sort(want)
	slices.Sort(held)
	if !slices.Equal(want, held) {
		return fmt.Errorf("there is %q, and should be %q", held, want)
	}
	return nil
}

func conditions(p *v1alpha1.Proxy) string {
	var all []string
	for _, c := range p.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(all, "; ")
}

// end deletes every Proxy, and counts what is left after it.
func (d *drill) end(ctx context.Context) error {
	for len(d.created) > 0 {
		if err := d.remove(ctx); err != nil {
			return err
		}
	}
	settled := d.settle(ctx)
	left, err := d.held(ctx, d.cluster)
	d.tally.leaked += len(left)
	return errors.Join(settled, err)
}
