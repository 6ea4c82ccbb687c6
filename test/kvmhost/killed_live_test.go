// SPDX-License-Identifier: Apache-2.0

//go:build live

package kvmhost

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sweptHost is the host of a test binary that is killed, and standingHost one beside it. The second is no more than its namespace.
const sweptHost, standingHost = 207, 206

// untilKilled has this binary bring up a host with a guest, say so, and wait for its end.
const untilKilled = "EGRESS_TEST_UNTIL_KILLED"

const heldDomain = "egress-held"

func holdAGuest() int {
	if err := startHeld(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("runs")
	select {}
}

func startHeld(ctx context.Context) error {
	images, err := BuildImages(ctx)
	if err != nil {
		return err
	}
	h, err := Start(ctx, sweptHost)
	if err != nil {
		return err
	}
	disk, err := os.ReadFile(images.Empty)
	if err != nil {
		return err
	}
	xml := fmt.Sprintf(`<domain type='qemu'><name>%[1]s</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/var/lib/libvirt/images/%[1]s.qcow2'/><target dev='vda' bus='virtio'/></disk>
</devices></domain>`, heldDomain)
	for name, data := range map[string][]byte{"lib/images/" + heldDomain + ".qcow2": disk, "lib/held.xml": []byte(xml)} {
		if err := os.WriteFile(filepath.Join(h.Dir, name), data, 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"define", "/var/lib/libvirt/held.xml"}, {"start", heldDomain}} {
		if _, err := h.Virsh(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func TestAKilledTestLeavesNothing(t *testing.T) {
	Require(t)
	Images(t)
	left := &Host{Number: sweptHost, Dir: filepath.Join(stateDir(), "hosts", strconv.Itoa(sweptHost))}
	numbers := []string{strconv.Itoa(sweptHost), strconv.Itoa(standingHost)}
	sweep := func(ctx context.Context, numbers ...string) {
		t.Helper()
		if out, err := script(ctx, "sweep", numbers...); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	sweep(t.Context(), numbers...) // of a run that was killed
	t.Cleanup(func() { sweep(context.WithoutCancel(t.Context()), numbers...) })
	run(t, "ip", "netns", "add", "egress-host"+strconv.Itoa(standingHost))

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), untilKilled+"=1")
	child.Stderr = os.Stderr
	held, err := os.Create(filepath.Join(t.TempDir(), "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	child.ExtraFiles = []*os.File{held}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if killErr := child.Process.Kill(); killErr != nil {
		t.Error(killErr)
	}
	_ = child.Wait() // it was killed
	if err != nil || line != "runs\n" {
		t.Fatalf("it says %q, %v", line, err)
	}
	t.Run("what a test had open does not stay open with its host", func(t *testing.T) {
		for _, pid := range processes(t, left) {
			links, err := filepath.Glob(filepath.Join("/proc", pid, "fd", "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, link := range links {
				if file, _ := os.Readlink(link); file == held.Name() {
					t.Errorf("process %s has %s open", pid, file)
				}
			}
		}
	})
	t.Run("M19: what a test that was killed leaves, a guest that runs and its disk among it, goes by its host's number", func(t *testing.T) {
		pids := processes(t, left)
		if state, err := left.Virsh(t.Context(), "domstate", heldDomain); err != nil || strings.TrimSpace(state) != "running" {
			t.Fatalf("the guest is %q, %v", state, err)
		}
		sweep(t.Context(), numbers[0])
		nothingLeft(t, left, pids)
		if list := run(t, "ip", "netns", "list"); !strings.Contains(list, "egress-host"+numbers[1]) {
			t.Errorf("another host went too: %s", list)
		}
	})
}
