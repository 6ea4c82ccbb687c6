// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/bench/internal/kit"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// tool of the three.
type tool string

const (
	ours  tool = "ours"
	virsh tool = "virsh"
	cat   tool = "ssh"
)

// bench is one run of the benchmark.
type bench struct {
	dir  string
	host *kvmhost.Host
	// peak is the most memory that one of our uploads took above what the process has idle, in bytes.
	peak int64
}

// compare lets the tools take turns, each round another one first, and returns how long each took, in order of the rounds. An empty cipher leaves each
// tool its own; ours has one way only.
func (b *bench) compare(ctx context.Context, what string, p picture, cipher string, tools ...tool) (map[tool][]time.Duration, error) {
	took := map[tool][]time.Duration{}
	for round := range *rounds {
		line := fmt.Sprintf("%s, round %d:", what, round+1)
		for i := range tools {
			t := tools[(round+i)%len(tools)]
			d, err := b.upload(ctx, t, p, cipher, what)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", what, t, err)
			}
			took[t] = append(took[t], d)
			line += fmt.Sprintf(" %s %.2f s", t, d.Seconds())
		}
		kit.Say("%s", line)
	}
	return took, nil
}

// upload measures one upload, looks at what it left, and removes that.
func (b *bench) upload(ctx context.Context, t tool, p picture, cipher, what string) (took time.Duration, err error) {
	name := "bench.img"
	switch t {
	case ours:
		took, name, err = b.ours(ctx, p)
	case virsh:
		took, err = b.virsh(ctx, name, p, cipher)
	case cat:
		took, err = b.cat(ctx, name, p, cipher)
	}
	if err == nil {
		err = b.check(ctx, name, p)
	}
	return took, errors.Join(err, b.clean(ctx))
}

// virsh uploads into a volume that is there already: making it is not counted.
func (b *bench) virsh(ctx context.Context, name string, p picture, cipher string) (time.Duration, error) {
	if _, err := b.host.Virsh(ctx, "vol-create-as", b.host.PoolName, name, strconv.FormatInt(*mib<<20, 10), "--allocation", "0", "--format", "raw"); err != nil {
		return 0, err
	}
	config, err := b.sshConfig(cipher)
	if err != nil {
		return 0, err
	}
	wrapper := filepath.Join(b.dir, "ssh")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nexec ssh -F '"+config+"' \"$@\"\n"), 0o700); err != nil {
		return 0, err
	}
	args := []string{"-q", "-c", fmt.Sprintf("qemu+ssh://%s/system?command=%s", kit.SSHHost(b.host), wrapper), "vol-upload", "--pool", b.host.PoolName, name, p.path}
	if p.holes {
		args = append(args, "--sparse")
	}
	return kit.Timed(exec.CommandContext(ctx, "virsh", args...))
}

func (b *bench) cat(ctx context.Context, name string, p picture, cipher string) (time.Duration, error) {
	config, err := b.sshConfig(cipher)
	if err != nil {
		return 0, err
	}
	f, err := os.Open(p.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "ssh", "-F", config, kit.SSHHost(b.host), "cat > /var/lib/libvirt/images/"+name)
	cmd.Stdin = f
	return kit.Timed(cmd)
}

// sshConfig is a file for ssh, with the cipher, if any.
func (b *bench) sshConfig(cipher string) (string, error) {
	if cipher == "" {
		return kit.SSHConfig(b.dir, b.host)
	}
	return kit.SSHConfig(b.dir, b.host, "Ciphers "+cipher)
}

// ours runs a process that holds nothing but what a fetch needs, so that its memory can be told.
func (b *bench) ours(ctx context.Context, p picture) (time.Duration, string, error) {
	program, err := os.Executable()
	if err != nil {
		return 0, "", err
	}
	text, err := json.Marshal(task{Host: *b.host, Image: p.path, Profile: *profile})
	if err != nil {
		return 0, "", err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), taskVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, "", err
	}
	var r outcome
	if err := json.Unmarshal(out, &r); err != nil {
		return 0, "", err
	}
	b.peak = max(b.peak, r.Peak-r.Idle)
	volumes, err := filepath.Glob(filepath.Join(b.pool(), "*-base-*.img"))
	if err != nil || len(volumes) != 1 {
		return 0, "", fmt.Errorf("there are bases %q, %w", volumes, err)
	}
	return r.Took, filepath.Base(volumes[0]), nil
}

func (b *bench) pool() string { return filepath.Join(b.host.Dir, "lib", "images") }

// check compares what is on the host, byte for byte; where the image has holes, so has the volume.
func (b *bench) check(ctx context.Context, name string, p picture) error {
	out, err := b.host.Exec(ctx, "sha256sum", "/var/lib/libvirt/images/"+name)
	if err != nil {
		return err
	}
	if digest, _, _ := strings.Cut(out, " "); digest != p.sha256 {
		return fmt.Errorf("the host has other content: sha256 %s instead of %s", digest, p.sha256)
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(filepath.Join(b.pool(), name), &stat); err != nil {
		return err
	}
	if stored := stat.Blocks * 512; p.holes && stored > p.stored+p.stored/8 {
		return fmt.Errorf("the volume takes %d bytes, and the image has %d of data", stored, p.stored)
	}
	return nil
}

// clean removes what was uploaded, before it is written to the disk.
func (b *bench) clean(ctx context.Context) error {
	volumes, err := filepath.Glob(filepath.Join(b.pool(), "*"))
	if err != nil {
		return err
	}
	for _, v := range volumes {
		err = errors.Join(err, os.Remove(v))
	}
	_, refreshErr := b.host.Virsh(ctx, "pool-refresh", b.host.PoolName)
	return errors.Join(err, refreshErr)
}
