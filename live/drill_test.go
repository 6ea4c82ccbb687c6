// SPDX-License-Identifier: Apache-2.0

//go:build live

package live

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/drills"
)

// TestDrillKilledAtEachStep kills the operator with SIGKILL at each step of a first Create on a host (fetches of base and agent
// included) and of the Delete after it, starts it again, and looks at what the host holds. The steps are discovered. A reduced run takes every fifth of
// them, before and after in turn; a full one all.
func TestDrillKilledAtEachStep(t *testing.T) {
	l := theLab(t)
	d := drill{t, l, l.Hosts[0].Number}
	steps := d.discover()
	if len(steps) < 8 {
		t.Fatalf("only %d steps were found: %v", len(steps), steps)
	}
	kills, converged := 0, 0
	for i, step := range steps {
		for j, when := range []string{"before", "after"} {
			if !drills.Full() && (2*i+j)%5 != 0 {
				continue
			}
			t.Run(when+" "+step, func(t *testing.T) {
				kills++
				drill{t, l, d.host}.kill(when + " " + step)
				converged++
			})
		}
	}
	fmt.Printf("figure: create crash: %d steps, %d kills, %d converged to one instance, then to none\n", len(steps), kills, converged)
}

type drill struct {
	t    *testing.T
	lab  *lab.Lab
	host int
}

const drilled = "drilled"

// discover makes and deletes an instance with an operator that prints its steps.
func (d drill) discover() []string {
	d.t.Helper()
	d.fresh()
	d.startDying(recordOnly)
	create(d.t, d.lab, d.proxy())
	await(d.t, d.lab, drilled, madeWithin, "to have an instance that runs", booting)
	remove(d.t, d.lab, drilled)
	log := d.lab.Operator.Output()
	d.stop()
	var steps []string
	for _, line := range splitLines(log) {
		if step, ok := strings.CutPrefix(line, stepLine); ok {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return slices.Compact(steps)
}

// kill makes and deletes an instance with an operator that dies at a step, and has a whole one go on.
func (d drill) kill(at string) {
	d.fresh()
	d.startDying(at)
	create(d.t, d.lab, d.proxy())
	if d.diesBefore(booting) {
		d.revive()
		await(d.t, d.lab, drilled, madeWithin, "to have an instance that runs", booting)
	}
	if held := holdings(d.t, d.lab); len(held.Instances()) != 1 || len(held.Loose()) != 2 {
		d.t.Errorf("the hosts hold %v and %v: want one domain, one overlay and one seed", held.Instances(), held.Loose())
	}
	if err := d.lab.Client.Delete(d.t.Context(), d.proxy()); err != nil {
		d.t.Fatal(err)
	}
	if d.diesBefore(nil) {
		d.revive()
	}
	d.gone()
	d.stop()
	nothingLeft(d.t, d.lab)
}

func (d drill) proxy() *v1alpha1.Proxy { return proxy(drilled, onImage("empty", lab.HostName(d.host))) }

// fresh stops the operator and empties the host, so that a fetch is part of what follows.
func (d drill) fresh() {
	d.t.Helper()
	d.stop()
	for _, h := range d.lab.Hosts {
		if err := lab.Wipe(d.t.Context(), h); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d drill) stop() {
	d.t.Helper()
	if d.lab.Operator == nil {
		return
	}
	if err := d.lab.StopOperator(); err != nil {
		d.t.Fatal(err)
	}
}

// startDying starts this very test binary as an operator.
func (d drill) startDying(at string) {
	d.t.Helper()
	self, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	cmd := exec.Command(self, d.lab.OperatorArgs()...)
	cmd.Env = append(os.Environ(), asOperator+"="+at)
	if err := d.lab.StartOperatorAs(cmd); err != nil {
		d.t.Fatal(err)
	}
}

// revive starts the operator as everybody has it.
func (d drill) revive() {
	d.t.Helper()
	d.lab.Operator = nil
	if err := d.lab.StartOperator(); err != nil {
		d.t.Fatal(err)
	}
}

// diesBefore waits until the operator is dead (true), or the Proxy is as wanted, or gone where nothing is wanted (false).
func (d drill) diesBefore(wanted func(*v1alpha1.Proxy) bool) (died bool) {
	d.t.Helper()
	p := &v1alpha1.Proxy{}
	err := lab.Until(d.t.Context(), madeWithin, "the operator to die or to finish", func(ctx context.Context) (bool, error) {
		select {
		case <-d.lab.Operator.Ended():
			died = true
			return true, nil
		default:
		}
		err := d.lab.Client.Get(ctx, client.ObjectKeyFromObject(d.proxy()), p)
		if apierrors.IsNotFound(err) {
			return wanted == nil, nil
		}
		return err == nil && wanted != nil && wanted(p), err
	})
	if err != nil {
		d.t.Fatalf("%v; its conditions:\n%s", err, conditions(p))
	}
	return died
}

func (d drill) gone() {
	d.t.Helper()
	if _, err := d.lab.Kubectl(d.t.Context(), "", "wait", "--for=delete", "proxy/"+drilled, fmt.Sprintf("--timeout=%s", deletedWithin)); err != nil {
		d.t.Fatal(err)
	}
}
