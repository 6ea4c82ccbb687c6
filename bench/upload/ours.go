// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// taskVariable holds the task of the process that makes our uploads.
const taskVariable = "EGRESS_BENCH_UPLOAD"

const uploadTime = 5 * time.Minute

type task struct {
	Host    kvmhost.Host
	Image   string
	Profile string
}

type outcome struct {
	// Took is how long the fetch ran, as the operator's own metric has it: with the connection of its own, the room, the volume, and the publication.
	Took time.Duration
	// Idle is the process's memory before, Peak the most until it was done; bytes.
	Idle, Peak int64
}

// ended is told of the fetch's end.
type ended chan outcome

func (e ended) JobEnded(_ string, took time.Duration, _ int64, _ error) { e <- outcome{Took: took} }
func (ended) Received(int)                                              {}
func (ended) Spooled(int64)                                             {}

// perform has an image of this machine published on a host, as `prePull` does, and prints the outcome.
func perform(text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), uploadTime)
	defer cancel()
	done := make(ended, 1)
	depot, err := image.NewDepot(image.DepotOptions{Observer: done})
	if err != nil {
		return err
	}
	defer depot.Close()
	entry := lab.EntryOf(&t.Host, "kvm2-bench", "image", config.Image{URL: "file://" + t.Image})
	entry.PrePull = []string{entry.DefaultImage}
	p, err := libvirt.New(libvirt.Options{Cluster: "benchupload", Entry: entry, Backend: kvm2.Backends(entry.Credentials), Depot: depot})
	if err != nil {
		return err
	}
	defer p.Close()
	if _, err := p.List(ctx); err != nil { // the operator has its link to the host already
		return err
	}
	result, err := fetch(ctx, p, done, t.Profile)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func fetch(ctx context.Context, p *libvirt.Provider, done ended, profile string) (outcome, error) {
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // VmHWM counts from now on
		return outcome{}, err
	}
	idle, err := memory("VmRSS")
	if err != nil {
		return outcome{}, err
	}
	stop, err := startProfile(profile)
	if err != nil {
		return outcome{}, err
	}
	if err := p.PrePull(ctx, lab.EntryHost); provider.KindOf(err) != provider.InProgress {
		return outcome{}, fmt.Errorf("the fetch did not start: %w", err)
	}
	var result outcome
	select {
	case result = <-done:
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	if err := stop(); err != nil {
		return outcome{}, err
	}
	result.Idle = idle
	if result.Peak, err = memory("VmHWM"); err != nil {
		return outcome{}, err
	}
	return result, p.PrePull(ctx, lab.EntryHost) // nil: it is published
}

func startProfile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	stop = func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}
	return stop, pprof.StartCPUProfile(f)
}

// memory reads a figure of this process, in bytes.
func memory(name string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no " + name)
}
