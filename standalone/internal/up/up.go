// SPDX-License-Identifier: Apache-2.0

// Package up brings a server with its sample Proxies up, and says how to use them.
package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/background"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/progress"
)

const (
	poll        = 100 * time.Millisecond
	dialTimeout = time.Second
)

// Options are what is brought up.
type Options struct {
	Server background.Server
	// Samples that are made where they are missing; none where nothing is to be made.
	Samples []*v1alpha1.Proxy
	// Target is a reflector's URL.
	Target string
	// Program is this one, with its version.
	Program string
	// Hints go to Out, progress to Tell.
	Out  io.Writer
	Tell *progress.Printer
}

// Run returns when the server answers and the samples are Ready, or with what is in their way when ctx ends. The server goes on either way.
func Run(ctx context.Context, o Options) error {
	running, err := o.Server.Ensure(ctx, o.Tell)
	if err != nil {
		return err
	}
	if running.Started {
		o.Tell.Say("the server runs: process %d", running.Pid)
	} else {
		o.Tell.Say("the server runs already: process %d", running.Pid)
		if theirs := o.Server.Paths.Program(); theirs != o.Program {
			o.Tell.Say("it is %s, and this is %s: down and then up change over", theirs, o.Program)
		}
	}
	c, err := Client(running.Config)
	if err != nil {
		return err
	}
	made, err := create(ctx, c, o.Samples)
	if err != nil {
		return goesOn(ctx, running.Pid, err)
	}
	if len(made) > 0 {
		o.Tell.Say("made the Proxies %s", strings.Join(made, ", "))
	}
	ready, err := waitReady(ctx, c, o.Samples, o.Tell)
	if err != nil {
		return goesOn(ctx, running.Pid, fmt.Errorf("%w\nthe end of the server's log, %s:\n%s", err, o.Server.Paths.Log(), o.Server.Tail()))
	}
	o.Tell.Say("Ready: %s", describe(ready))
	_, err = io.WriteString(o.Out, hints(o, ready))
	return err
}

// Client is one for Proxies.
func Client(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API: %w", err)
	}
	return c, nil
}

// goesOn tells somebody who interrupted the command that the server was not.
func goesOn(ctx context.Context, pid int, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w\nthe server goes on in the background (process %d); egress-standalone down stops it", err, pid)
}

// waitReady returns the samples as they are once all are Ready.
func waitReady(ctx context.Context, c client.Client, samples []*v1alpha1.Proxy, tell *progress.Printer) ([]v1alpha1.Proxy, error) {
	var waiting []string
	for {
		now, err := get(ctx, c, samples)
		if err == nil {
			waiting = notReady(now)
			if len(waiting) == 0 {
				// After a crash the status is of before, until the operator has looked.
				waiting = notServing(ctx, now)
			}
			if len(waiting) == 0 {
				return now, nil
			}
			tell.Waiting(waiting[0])
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("not every Proxy is Ready: %w", context.Cause(ctx)), errors.New(strings.Join(waiting, "\n")))
		case <-time.After(poll):
		}
	}
}

func get(ctx context.Context, c client.Client, samples []*v1alpha1.Proxy) ([]v1alpha1.Proxy, error) {
	found := make([]v1alpha1.Proxy, len(samples))
	for i, sample := range samples {
		if err := c.Get(ctx, client.ObjectKeyFromObject(sample), &found[i]); err != nil {
			return nil, fmt.Errorf("Proxy %s: %w", sample.Name, err)
		}
	}
	return found, nil
}

// notReady says what each Proxy that is not Ready waits for.
func notReady(proxies []v1alpha1.Proxy) []string {
	var waiting []string
	for i := range proxies {
		p := &proxies[i]
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case ready == nil:
			waiting = append(waiting, fmt.Sprintf("Proxy %s: nothing is known yet", p.Name))
		case ready.Status != "True" || ready.ObservedGeneration != p.Generation:
			waiting = append(waiting, fmt.Sprintf("Proxy %s: %s: %s", p.Name, ready.Reason, ready.Message))
		}
	}
	return waiting
}

// notServing names the Proxies that nothing listens for.
func notServing(ctx context.Context, proxies []v1alpha1.Proxy) []string {
	var waiting []string
	for i := range proxies {
		dialer := net.Dialer{Timeout: dialTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", proxies[i].Status.Endpoint)
		if err != nil {
			waiting = append(waiting, fmt.Sprintf("Proxy %s: it does not answer: %v", proxies[i].Name, err))
			continue
		}
		_ = conn.Close()
	}
	return waiting
}

// describe is one line for people.
func describe(proxies []v1alpha1.Proxy) string {
	if len(proxies) == 0 {
		return "the API"
	}
	var parts []string
	for i := range proxies {
		p := &proxies[i]
		parts = append(parts, fmt.Sprintf("%s at %s, seen as %s", p.Name, p.Status.Endpoint, strings.Join(p.Status.ExitIPs, " and ")))
	}
	return strings.Join(parts, "; ")
}
