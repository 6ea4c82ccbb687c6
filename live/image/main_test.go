// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package image proves what needs a real host of fetches and bases: mistyped digests, images that lie, failures in mid-upload, two operators on one
// pool, a SIGKILL at each step.
package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

func TestMain(m *testing.M) {
	if os.Getenv(dieAt) != "" {
		os.Exit(dying())
	}
	goleak.VerifyTestMain(m)
}

// imageHost is a host of these tests' own.
const imageHost = 42

// Deadlines, from the steps that they bound: a fetch of a small image and the agent over a busy machine; a boot without KVM besides.
const (
	madeWithin   = 2 * time.Minute
	bootedWithin = 5 * time.Minute
	sweepTime    = time.Minute
)

const hostName, key = lab.EntryHost, "debian"

// operator is one cluster's provider over the host.
type operator struct {
	*libvirt.Provider
	t       *testing.T
	host    *kvmhost.Host
	cluster string
	names   libvirt.Names
	hand    libvirt.Backend // past the provider
}

// cluster of a test: what it makes on the host goes at its end.
func newCluster(t *testing.T, h *kvmhost.Host) string {
	t.Helper()
	cluster := libvirttest.FreshCluster()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), sweepTime)
		defer cancel()
		if err := wipe(ctx, h, cluster); err != nil {
			t.Errorf("what the test made on the host is left: %v", err)
		}
	})
	return cluster
}

// wipe removes what a cluster has on a host, by prefix.
func wipe(ctx context.Context, h *kvmhost.Host, cluster string) error {
	prefix := libvirt.Prefix + "-" + cluster + "-"
	domains, err := h.Virsh(ctx, "list", "--all", "--name")
	if err != nil {
		return err
	}
	for _, d := range strings.Fields(domains) {
		if strings.HasPrefix(d, prefix) {
			_, _ = h.Virsh(ctx, "destroy", d) // it may not run
			if _, err := h.Virsh(ctx, "undefine", d, "--nvram"); err != nil {
				return err
			}
		}
	}
	for _, v := range volumes(ctx, h) {
		if strings.HasPrefix(v, prefix) {
			if _, err := h.Virsh(ctx, "vol-delete", v, "--pool", h.PoolName); err != nil {
				return err
			}
		}
	}
	return nil
}

// volumes of the pool, by what its folder holds: the daemon's view may be old.
func volumes(ctx context.Context, h *kvmhost.Host) []string {
	_, _ = h.Virsh(ctx, "pool-refresh", h.PoolName) // refused while the daemon works there; the list is only for looking
	out, err := h.Virsh(ctx, "vol-list", h.PoolName)
	if err != nil {
		return nil
	}
	var all []string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) == 2 && strings.HasPrefix(fields[1], "/") {
			all = append(all, fields[0])
		}
	}
	return all
}

// operate starts a provider of a cluster; change, if not nil, changes its options.
func operate(t *testing.T, h *kvmhost.Host, cluster string, i config.Image, change func(*libvirt.Options)) *operator {
	t.Helper()
	names, err := libvirt.NewNames(cluster)
	if err != nil {
		t.Fatal(err)
	}
	o, depot, err := options(h, cluster, i, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(depot.Close)
	if change != nil {
		change(&o)
	}
	p, err := libvirt.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	hand := kvm2.Backends(o.Entry.Credentials)(o.Entry.Hosts[0])
	t.Cleanup(hand.Close)
	return &operator{p, t, h, cluster, names, hand}
}

func options(h *kvmhost.Host, cluster string, i config.Image, dir string) (libvirt.Options, *image.Depot, error) {
	depot, err := image.NewDepot(image.DepotOptions{SpoolDir: dir, SpoolBytes: 4 << 30})
	entry := lab.EntryOf(h, "kvm2-images", key, i)
	return libvirt.Options{
		Cluster: cluster, Entry: entry, Backend: kvm2.Backends(entry.Credentials), Agent: libvirttest.Agent, Depot: depot,
	}, depot, err
}

// spec of a small instance that runs no agent.
func spec(uid, name string) provider.InstanceSpec {
	s := libvirttest.Spec(hostName, uid, name)
	s.Software = provider.SoftwareNone
	return s
}

// make makes an instance, and returns how that ended, when nothing is in progress any more.
func (o *operator) make(uid string) (provider.Instance, error) { return o.makeOf(uid, key) }

func (o *operator) makeOf(uid, name string) (provider.Instance, error) {
	ctx, cancel := context.WithTimeout(o.t.Context(), madeWithin)
	defer cancel()
	for {
		i, err := o.Create(ctx, spec(uid, name))
		if err == nil || provider.KindOf(err) != provider.InProgress || ctx.Err() != nil {
			return i, err
		}
		if !rest(ctx) {
			return i, err
		}
	}
}

func (o *operator) mustMake(uid string) {
	o.t.Helper()
	if _, err := o.make(uid); err != nil {
		o.t.Fatal(err)
	}
}

// remove deletes an instance to its end.
func (o *operator) remove(uid string) {
	o.t.Helper()
	o.eventually("instance "+uid+" to be gone", madeWithin, func(ctx context.Context) bool {
		return provider.IsNotFound(o.Delete(ctx, provider.InstanceRef{Host: hostName, UID: uid}))
	})
}

// eventually polls until a condition holds.
func (o *operator) eventually(what string, within time.Duration, holds func(context.Context) bool) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), within)
	defer cancel()
	for !holds(ctx) {
		if !rest(ctx) {
			o.t.Fatalf("not in %s: %s", within, what)
		}
	}
}

// rest between two looks; false when there is no time for another.
func rest(ctx context.Context) bool {
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// own are the cluster's volumes that hold part.
func (o *operator) own(part string) []string {
	return slices.DeleteFunc(volumes(o.t.Context(), o.host), func(v string) bool {
		return !strings.HasPrefix(v, libvirt.Prefix+"-"+o.cluster+"-") || !strings.Contains(v, part)
	})
}

// bases that are published, by name.
func (o *operator) bases() map[string]libvirt.Content {
	o.t.Helper()
	all := map[string]libvirt.Content{}
	for _, v := range o.own("-base-") {
		if !strings.Contains(v, ".img.v") {
			continue
		}
		base, content, err := libvirt.ParseMarker(v)
		if err != nil {
			o.t.Error(err)
		}
		all[base] = content
	}
	return all
}

// backing is the base that an instance's overlay is backed by, and the format that the overlay believes it to have.
func (o *operator) backing(uid string) (base string) {
	o.t.Helper()
	info, err := o.hand.Volume(o.t.Context(), o.names.Overlay(uid))
	if err != nil {
		o.t.Fatal(err)
	}
	return filepath.Base(info.BackingPath)
}

// sum of a volume's bytes, on the host.
func (o *operator) sum(volume string) string {
	o.t.Helper()
	info, err := o.hand.Volume(o.t.Context(), volume)
	if err != nil {
		o.t.Fatal(err)
	}
	out, err := o.host.Exec(o.t.Context(), "sha256sum", info.Path)
	if err != nil {
		o.t.Fatal(err)
	}
	digest, _, _ := strings.Cut(out, " ")
	return digest
}

// runs says whether an instance's domain runs, by the daemon's own word.
func (o *operator) runs(uid string) bool {
	info, err := o.hand.Domain(o.t.Context(), o.names.Domain(uid))
	return err == nil && info.State == 1
}

func newUID() string { return uuid.NewString() }

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// qemuImg runs qemu-img on this machine.
func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %q: %v\n%s", args, err, out)
	}
}

// serve serves what content gives at any path.
func serve(t *testing.T, content func() []byte) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		data := content()
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func wantError(t *testing.T, err error, kind provider.Kind, says ...string) {
	t.Helper()
	if err == nil || provider.KindOf(err) != kind {
		t.Errorf("got %v, want %v", err, kind)
		return
	}
	for _, part := range says {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
