// SPDX-License-Identifier: Apache-2.0

//go:build live

package live

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// A step is one call that changes a host: its method, and which one of that method it is, from 1. Killing at a step happens "before"
// it reaches the host or "after" it took effect there.

// recordOnly makes a dying operator live, and print each step.
const recordOnly = "record"

// stepLine starts the line that a recording operator prints for each step.
const stepLine = "step: "

// killerAt reads "before Define#1", "after Upload#2" or "record".
func killerAt(step string) cli.Decorator {
	when, at, _ := strings.Cut(step, " ")
	counts := &counter{seen: map[string]int{}}
	return func(b libvirt.Backend) libvirt.Backend {
		return &killer{Backend: b, when: when, at: at, counts: counts}
	}
}

type counter struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *counter) next(method string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[method]++
	return fmt.Sprintf("%s#%d", method, c.seen[method])
}

// killer is a Backend whose process ends by SIGKILL at one step.
type killer struct {
	libvirt.Backend
	when, at string
	counts   *counter
}

func (k *killer) step(method string, call func() error) error {
	name := k.counts.next(method)
	if k.when == recordOnly {
		fmt.Fprintln(os.Stderr, stepLine+name)
	}
	if k.at == name && k.when == "before" {
		die()
	}
	err := call()
	if k.at == name && k.when == "after" {
		die()
	}
	return err
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (k *killer) CreateVolume(ctx context.Context, xml string) error {
	return k.step("CreateVolume", func() error { return k.Backend.CreateVolume(ctx, xml) })
}

func (k *killer) Upload(ctx context.Context, name string, r io.Reader, length int64) error {
	return k.step("Upload", func() error { return k.Backend.Upload(ctx, name, r, length) })
}

func (k *killer) DeleteVolume(ctx context.Context, name string) error {
	return k.step("DeleteVolume", func() error { return k.Backend.DeleteVolume(ctx, name) })
}

func (k *killer) Define(ctx context.Context, xml string) error {
	return k.step("Define", func() error { return k.Backend.Define(ctx, xml) })
}

func (k *killer) Start(ctx context.Context, name string) error {
	return k.step("Start", func() error { return k.Backend.Start(ctx, name) })
}

func (k *killer) Destroy(ctx context.Context, name string) error {
	return k.step("Destroy", func() error { return k.Backend.Destroy(ctx, name) })
}

func (k *killer) Undefine(ctx context.Context, name string) error {
	return k.step("Undefine", func() error { return k.Backend.Undefine(ctx, name) })
}

func (k *killer) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	var own libvirt.Backend
	err := k.step("Dedicated", func() (err error) {
		own, err = k.Backend.Dedicated(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &killer{Backend: own, when: k.when, at: k.at, counts: k.counts}, nil
}
