// SPDX-License-Identifier: Apache-2.0

//go:build live

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// Foreign is what somebody else has on a host.
type Foreign struct {
	host             *kvmhost.Host
	domains, volumes []string
}

// Plant defines domains and makes volumes that are not ours, whatever their names. What it made before an error can be removed.
func Plant(ctx context.Context, host *kvmhost.Host, domains, volumes []string) (Foreign, error) {
	f := Foreign{host: host}
	for _, v := range volumes {
		if _, err := host.Virsh(ctx, "vol-create-as", host.PoolName, v, "64K", "--format", "raw"); err != nil {
			return f, err
		}
		f.volumes = append(f.volumes, v)
		if err := os.WriteFile(f.file(v), []byte("not yours: "+v), 0o600); err != nil {
			return f, err
		}
	}
	for _, d := range domains {
		xml := fmt.Sprintf("<domain type='qemu'><name>%s</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os></domain>", d)
		if err := os.WriteFile(filepath.Join(host.Dir, "lib", "foreign.xml"), []byte(xml), 0o600); err != nil {
			return f, err
		}
		if _, err := host.Virsh(ctx, "define", "/var/lib/libvirt/foreign.xml"); err != nil {
			return f, err
		}
		f.domains = append(f.domains, d)
	}
	return f, nil
}

func (f Foreign) file(volume string) string {
	return filepath.Join(f.host.Dir, "lib", "images", volume)
}

// Remove takes it away again.
func (f Foreign) Remove(ctx context.Context) error {
	var errs []error
	for _, d := range f.domains {
		_, err := f.host.Virsh(ctx, "undefine", d)
		errs = append(errs, err)
	}
	for _, v := range f.volumes {
		_, err := f.host.Virsh(ctx, "vol-delete", v, "--pool", f.host.PoolName)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Fingerprint is all of it, to the byte.
func (f Foreign) Fingerprint(ctx context.Context) (string, error) {
	var b strings.Builder
	for _, d := range f.domains {
		for _, command := range []string{"dumpxml", "domstate"} {
			out, err := f.host.Virsh(ctx, command, d)
			if err != nil {
				return "", err
			}
			b.WriteString(out)
		}
	}
	for _, v := range f.volumes {
		text, err := os.ReadFile(f.file(v))
		if err != nil {
			return "", err
		}
		info, err := os.Stat(f.file(v))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s %s %s\n", v, text, info.ModTime())
	}
	return b.String(), nil
}
