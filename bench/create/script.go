// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/egress-proxies/egress-proxies-operator/bench/internal/kit"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

const scripted = "script"

const poolDir = "/var/lib/libvirt/images"

// script is make-vm.sh with its SSH connection, which stays open.
type script struct {
	host        *kvmhost.Host
	environment []string
	ssh         []string // arguments of ssh
	made        []string
}

func (*script) name() string { return scripted }

// newScript learns from one instance of ours what the script's are to be like: the same definition, the same seed, the same base.
func newScript(ctx context.Context, dir string, host *kvmhost.Host, o *provided) (_ *script, err error) {
	uid := uuid.NewString()
	if _, err := o.Create(ctx, spec(uid)); err != nil {
		return nil, err
	}
	base, err := describe(ctx, dir, host, o.names.Domain(uid))
	if err != nil {
		return nil, err
	}
	if err := o.Delete(ctx, spec(uid).InstanceRef); err != nil {
		return nil, err
	}
	config, err := kit.SSHConfig(dir, host, "ControlMaster auto", "ControlPersist yes", "ControlPath "+filepath.Join(dir, "ssh-%C"))
	if err != nil {
		return nil, err
	}
	s := &script{host: host, ssh: []string{"-F", config}}
	s.environment = append(os.Environ(), "SSH_CONFIG="+config, "HOST="+kit.SSHHost(host), "BASE="+base, "POOL_DIR="+poolDir, "DISK=1G",
		"SEED="+dir, "TEMPLATE="+filepath.Join(dir, "domain.xml"))
	return s, s.run(ctx, "true") // opens the connection
}

// A domain's own: what libvirt chooses for a new one, and our mark.
var ownParts = regexp.MustCompile(`(?s)\s*<uuid>.*?</uuid>|\s*<metadata>.*?</metadata>|\s*<mac address=[^>]*/>`)

// describe writes the template of a domain and its user data into dir, and returns the path of its base on the host.
func describe(ctx context.Context, dir string, host *kvmhost.Host, domain string) (base string, err error) {
	xml, err := host.Virsh(ctx, "dumpxml", "--inactive", domain)
	if err != nil {
		return "", err
	}
	xml = strings.ReplaceAll(ownParts.ReplaceAllString(xml, ""), domain, "@NAME@")
	if err := os.WriteFile(filepath.Join(dir, "domain.xml"), []byte(xml), 0o600); err != nil {
		return "", err
	}
	seed := filepath.Join(host.Dir, "lib", "images", domain+".seed.iso")
	userData, err := exec.CommandContext(ctx, "isoinfo", "-R", "-i", seed, "-x", "/user-data").Output()
	if err != nil || len(userData) == 0 {
		return "", fmt.Errorf("no user data in %s: %w", seed, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "user-data"), userData, 0o600); err != nil {
		return "", err
	}
	out, err := host.Exec(ctx, "sh", "-c", "qemu-img info -U "+poolDir+"/"+domain+".qcow2 | sed -n 's/^backing file: //p'")
	return strings.TrimSpace(out), err
}

func (s *script) make(ctx context.Context, n int) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	for range n {
		s.made = append(s.made, "vm-"+uuid.NewString())
	}
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, name := range s.made {
		g.Go(func() error {
			cmd := exec.CommandContext(ctx, filepath.Join("bench", "create", "make-vm.sh"), name)
			cmd.Env = s.environment
			_, err := kit.Timed(cmd)
			took[i] = time.Since(start)
			return err
		})
	}
	return took, g.Wait()
}

func (s *script) remove(ctx context.Context) error {
	var commands strings.Builder
	for _, name := range s.made {
		fmt.Fprintf(&commands, "virsh -q destroy %[1]s; virsh -q undefine %[1]s; rm -f %[2]s/%[1]s.*; ", name, poolDir)
	}
	s.made = nil
	return s.run(ctx, commands.String())
}

// run has the host run a command line over the script's connection.
func (s *script) run(ctx context.Context, line string) error {
	_, err := kit.Timed(exec.CommandContext(ctx, "ssh", append(s.ssh, kit.SSHHost(s.host), line)...))
	return err
}

// close ends the connection.
func (s *script) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := kit.Timed(exec.CommandContext(ctx, "ssh", append(s.ssh, "-O", "exit", kit.SSHHost(s.host))...))
	return err
}
