// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

type bootResult struct {
	took time.Duration
	err  error
}

// watchBoot measures, apart from the operator, from the start of the guest's QEMU process to the first connection that the agent's
// port accepts.
func (d *demonstration) watchBoot(ctx context.Context) bootResult {
	var domain, endpoint string
	var started, accepted time.Time
	err := lab.Until(ctx, readyTimeout, "the guest to start", func(ctx context.Context) (bool, error) {
		p, err := get(ctx, d.lab, "demo")
		domain = p.Status.ProviderID[strings.LastIndex(p.Status.ProviderID, "/")+1:]
		return domain != "", err
	})
	if err == nil {
		err = lab.Until(ctx, readyTimeout, "QEMU to run", func(context.Context) (ok bool, err error) {
			started, ok, err = qemuStart(domain)
			return ok, err
		})
	}
	if err == nil {
		err = lab.Until(ctx, readyTimeout, "a lease", func(context.Context) (ok bool, err error) {
			endpoint, ok, err = d.lease()
			return ok, err
		})
	}
	for err == nil && accepted.IsZero() {
		dialer := net.Dialer{Timeout: 200 * time.Millisecond}
		conn, dialErr := dialer.DialContext(ctx, "tcp", endpoint)
		if dialErr == nil {
			accepted = time.Now()
			err = conn.Close()
		} else {
			err = pause(ctx, 20*time.Millisecond)
		}
	}
	return bootResult{accepted.Sub(started), err}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// qemuStart finds the QEMU of a domain on this machine and when the kernel started it, to a hundredth of a second.
func qemuStart(domain string) (time.Time, bool, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return time.Time{}, false, err
	}
	for _, file := range files {
		cmdline, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(cmdline), "guest="+domain+",") {
			continue // ended in between, or another program
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return time.Time{}, false, err
		}
		started, err := startTime(string(stat))
		return started, err == nil, err
	}
	return time.Time{}, false, nil
}

// startTime reads field 22 of /proc/PID/stat: hundredths of a second after the machine's boot (proc(5); USER_HZ is 100 on Linux).
func startTime(stat string) (time.Time, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	ticks, err := strconv.ParseInt(fields[22-3], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Time{}, err
	}
	up, err := time.ParseDuration(strings.Fields(string(uptime))[0] + "s")
	if err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(-up).Add(time.Duration(ticks) * 10 * time.Millisecond), nil
}

// lease reads the DHCP server's own file for the newest lease, and gives the agent's address there.
func (d *demonstration) lease() (string, bool, error) {
	text, err := os.ReadFile(filepath.Join(d.host.Dir, "lib", "dnsmasq", d.host.Bridge+".status"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", false, err
	}
	var leases []struct {
		Address string `json:"ip-address"`
		Expiry  int64  `json:"expiry-time"`
	}
	if !json.Valid(text) {
		return "", false, nil // nothing yet, or being written
	}
	if err := json.Unmarshal(text, &leases); err != nil || len(leases) == 0 {
		return "", false, err
	}
	newest := leases[0]
	for _, l := range leases {
		if l.Expiry > newest.Expiry {
			newest = l
		}
	}
	return fmt.Sprintf("%s:%d", newest.Address, agentPort), true, nil
}

// agentPort is the default of spec.port.
const agentPort = 3128
