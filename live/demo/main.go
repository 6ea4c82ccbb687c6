// SPDX-License-Identifier: Apache-2.0

//go:build live

// Command demo makes one Proxy a working exit on a real libvirt host of its own, shows each step, and takes everything down
// again. It exits with 1 where anything that it says does not hold.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// hostNumber is the demo's own host: live tests use others.
const hostNumber = 9

const readyTimeout = 5 * time.Minute

const manifest = `apiVersion: egressproxies.dev/v1alpha1
kind: Proxy
metadata:
  name: %s
  namespace: default
spec:
  provider: kvm2-lab
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "egress-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	say("bringing up a libvirt host, the Kubernetes API and a reflector")
	l, err := lab.Start(ctx, dir, hostNumber)
	if err != nil {
		return err
	}
	host := l.Hosts[0]
	defer func() { err = errors.Join(err, l.Close(), takeDown(host)) }()
	say("host %s, API and reflector %s are up; starting the operator", host.SSHAddress, l.ReflectorURL())
	if err := l.StartOperator(); err != nil {
		return err
	}
	if err := cacheBase(ctx, l); err != nil {
		return fmt.Errorf("%w\n%s", err, operatorLog(l))
	}
	d := &demonstration{lab: l, host: host}
	if err := d.show(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, operatorLog(l))
	}
	return d.verdict()
}

// takeDown leaves nothing of the demo's host, whatever ended the demo.
func takeDown(host *kvmhost.Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return host.Down(ctx, true)
}

func operatorLog(l *lab.Lab) string {
	if l.Operator == nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(l.Operator.Output()), "\n")
	return "the operator's last lines:\n" + strings.Join(lines[max(0, len(lines)-20):], "\n")
}

func say(format string, args ...any) {
	fmt.Printf("[%s] %s\n", time.Now().Format("15:04:05.00"), fmt.Sprintf(format, args...))
}

// cacheBase makes a Proxy only until its instance exists, so that the base and the agent are on the host: what follows is what
// every Proxy but a host's first one costs.
func cacheBase(ctx context.Context, l *lab.Lab) error {
	start := time.Now()
	if _, err := l.Kubectl(ctx, fmt.Sprintf(manifest, "first"), "apply", "-f", "-"); err != nil {
		return err
	}
	err := lab.Until(ctx, readyTimeout, "the base and the agent to be on the host", func(ctx context.Context) (bool, error) {
		p, err := get(ctx, l, "first")
		return p.Status.ProviderID != "" && meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionProvisioned) ||
			strings.Contains(condition(p, v1alpha1.ConditionProvisioned).Reason, v1alpha1.ReasonBooting), err
	})
	if err != nil {
		return err
	}
	say("base image and agent fetched, verified and published within %.1f s (a host's first Proxy waits for that)", time.Since(start).Seconds())
	_, err = l.Kubectl(ctx, "", "delete", "proxy", "first", "--timeout=60s")
	return err
}

// demonstration is what the demo saw.
type demonstration struct {
	lab  *lab.Lab
	host *kvmhost.Host

	address      string
	ready, boot  time.Duration
	seen         []string
	left         lab.Holdings
	leftVolumes  []string
	leftInstance []string
}

func (d *demonstration) show(ctx context.Context) error {
	applied := time.Now()
	if _, err := d.lab.Kubectl(ctx, fmt.Sprintf(manifest, "demo"), "apply", "-f", "-"); err != nil {
		return err
	}
	say("applied Proxy default/demo")
	boots := make(chan bootResult, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() { boots <- d.watchBoot(watching) }()
	p, err := d.untilReady(ctx)
	if err != nil {
		return err
	}
	d.ready, d.address = time.Since(applied), p.Status.IP
	boot := <-boots
	if boot.err != nil {
		return boot.err
	}
	d.boot = boot.took
	if err := d.request(ctx, p); err != nil {
		return err
	}
	return d.remove(ctx)
}

// untilReady prints each condition as it turns.
func (d *demonstration) untilReady(ctx context.Context) (p *v1alpha1.Proxy, err error) {
	shown := map[string]string{}
	err = lab.Until(ctx, readyTimeout, "Proxy default/demo to be Ready", func(ctx context.Context) (bool, error) {
		if p, err = get(ctx, d.lab, "demo"); err != nil {
			return false, err
		}
		for _, c := range p.Status.Conditions {
			now := fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
			if shown[c.Type] != now {
				shown[c.Type] = now
				say("  %s", now)
			}
		}
		return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady), nil
	})
	return p, err
}

// request goes through the proxy as two kinds of clients would, and looks at what the target saw.
func (d *demonstration) request(ctx context.Context, p *v1alpha1.Proxy) error {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: p.Namespace, Name: p.Status.CredentialsSecret}
	if err := d.lab.Client.Get(ctx, key, &secret); err != nil {
		return err
	}
	user := url.UserPassword(string(secret.Data[v1alpha1.SecretKeyUsername]), string(secret.Data[v1alpha1.SecretKeyPassword]))
	for _, scheme := range []string{"http", "socks5"} {
		before := len(d.lab.ReflectorLog())
		answer, err := lab.Fetch(ctx, &url.URL{Scheme: scheme, User: user, Host: p.Status.Endpoint}, d.lab.ReflectorURL())
		if err != nil {
			return fmt.Errorf("a request by %s: %w", scheme, err)
		}
		say("a request by %s through %s: %d %s", scheme, p.Status.Endpoint, answer.Status, strings.TrimSpace(answer.Body))
		if answer.Status != http.StatusOK {
			return fmt.Errorf("a request by %s was answered with %d", scheme, answer.Status)
		}
		address, err := answer.Address()
		if err != nil {
			return err
		}
		d.seen = append(d.seen, address.String())
		for _, line := range d.lab.ReflectorLog()[before:] {
			say("  the target's log: %s", line)
		}
	}
	return nil
}

// remove deletes the Proxy and asks the host itself what it still holds.
func (d *demonstration) remove(ctx context.Context) (err error) {
	if _, err := d.lab.Kubectl(ctx, "", "delete", "proxy", "demo", "--timeout=60s"); err != nil {
		return err
	}
	say("deleted Proxy default/demo; the host holds:")
	if d.left, err = lab.Hold(ctx, d.host); err != nil {
		return err
	}
	for _, domain := range d.left.Domains {
		say("  domain %s", domain)
	}
	for _, volume := range d.left.Volumes {
		say("  volume %s", volume)
	}
	d.leftInstance, d.leftVolumes = d.left.Domains, d.left.Loose()
	return nil
}

// verdict is the last line, and whether it holds.
func (d *demonstration) verdict() error {
	ours := d.ready - d.boot
	fmt.Printf("demo: Ready in %.1f s (guest boot %.1f s, ours %.1f s); exit seen by the target: %s; left on the host: %d domains, %d volumes besides base and agent\n",
		d.ready.Seconds(), d.boot.Seconds(), ours.Seconds(), strings.Join(slices.Compact(slices.Clone(d.seen)), " and "), len(d.leftInstance), len(d.leftVolumes))
	guests := netip.MustParsePrefix(d.host.GuestCIDR)
	var wrong []string
	for _, seen := range d.seen {
		if seen != d.address || !guests.Contains(netip.MustParseAddr(seen)) {
			wrong = append(wrong, fmt.Sprintf("the target saw %s, and the VM has %s", seen, d.address))
		}
	}
	if len(d.leftInstance)+len(d.leftVolumes) > 0 {
		wrong = append(wrong, "something was left on the host")
	}
	if d.boot <= 0 || ours < 0 {
		wrong = append(wrong, "the times make no sense")
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

func get(ctx context.Context, l *lab.Lab, name string) (*v1alpha1.Proxy, error) {
	p := &v1alpha1.Proxy{}
	return p, l.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, p)
}

func condition(p *v1alpha1.Proxy, kind string) (c struct{ Reason, Message string }) {
	if found := meta.FindStatusCondition(p.Status.Conditions, kind); found != nil {
		c.Reason, c.Message = found.Reason, found.Message
	}
	return c
}
