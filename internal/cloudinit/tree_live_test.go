// SPDX-License-Identifier: Apache-2.0

//go:build live

package cloudinit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// tree is a Debian tree of this test's own, in namespaces of its own. Nothing of the machine outside is seen or changed.
type tree struct {
	t    *testing.T
	root string
	// init is process 1 in the namespaces.
	init   *exec.Cmd
	output bytes.Buffer
}

func trees(t *testing.T) kvmhost.Trees {
	t.Helper()
	kvmhost.Require(t)
	trees, err := kvmhost.BuildTrees(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return trees
}

// grow mounts a tree under a writable layer, and starts an init in it that does nothing but take in orphans. mounts is shell code that
// runs before, with $root.
func grow(t *testing.T, lower, mounts string) *tree {
	t.Helper()
	work := t.TempDir()
	tr := &tree{t: t, root: filepath.Join(work, "root")}
	for _, dir := range []string{"layer", "root", "layer/upper", "layer/work"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := `set -eu
work=$1 lower=$2 root=$1/root
mount -t tmpfs layer "$work/layer"
mkdir "$work/layer/upper" "$work/layer/work"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$work/layer/upper,workdir=$work/layer/work" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs run "$root/run"
mount -t tmpfs dev "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/virtio-ports" "$root/run/lock"
for device in null zero full random urandom; do
	: >"$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
: >"$root/dev/console"
ip link set lo up
` + mounts + `
exec chroot "$root" /bin/sh -c 'echo ready; while :; do sleep 1 & wait; done'
`
	tr.init = exec.CommandContext(context.WithoutCancel(t.Context()), "unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child",
		"sh", "-c", script, "sh", work, lower)
	tr.init.Stdout, tr.init.Stderr = &tr.output, &tr.output
	if err := tr.init.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tr.init.Process.Kill()
		_ = tr.init.Wait()
	})
	await(t, "the tree", func() bool { return tr.pid() != "" && strings.Contains(tr.read("/proc/1/cmdline"), "echo ready") })
	return tr
}

// pid of the init, as this machine sees it; empty before it is there.
func (tr *tree) pid() string {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", tr.init.Process.Pid, tr.init.Process.Pid))
	return strings.TrimSpace(string(children))
}

// path of a file in the tree, from outside.
func (tr *tree) path(file string) string { return "/proc/" + tr.pid() + "/root" + file }

func (tr *tree) read(file string) string {
	data, _ := os.ReadFile(tr.path(file))
	return string(data)
}

func (tr *tree) write(file string, content []byte, mode os.FileMode) {
	tr.t.Helper()
	if err := os.MkdirAll(filepath.Dir(tr.path(file)), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(tr.path(file), content, mode); err != nil {
		tr.t.Fatal(err)
	}
}

// try runs a command in the tree.
func (tr *tree) try(args ...string) (string, error) {
	enter := []string{"-t", tr.pid(), "-m", "-p", "-n", "-u", "-i", "--root=" + tr.path("/"), "--wd=" + tr.path("/"), "--",
		"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE=1", "LC_ALL=C.UTF-8"}
	ctx, cancel := context.WithTimeout(tr.t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", append(enter, args...)...).CombinedOutput()
	return string(out), err
}

func (tr *tree) run(args ...string) string {
	tr.t.Helper()
	out, err := tr.try(args...)
	if err != nil {
		tr.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
