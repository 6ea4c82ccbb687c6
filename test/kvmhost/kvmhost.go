package kvmhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Host is one libvirt host of this machine.
type Host struct {
	Number         int
	SSHAddress     string // host:port
	User           string
	KeyFile        string // the private key that sshd accepts
	KnownHostsFile string // the ed25519 and RSA keys of every host that is up
	Socket         string // libvirtd's, on the host
	PoolName       string // a pool of type dir
	Network        string // a libvirt network with DHCP ...
	Bridge         string // ... and its bridge
	GuestCIDR      string
	Outside        string // this machine's address as the host and its guests reach it
	Dir            string // the host's state: etc, lib (lib/images is the pool), log
}

// Part is something of a host that Cut takes away.
type Part string

// Libvirtd and SSHD are killed, with their sessions; what is sent over a cut Network is lost without an answer.
const (
	Libvirtd Part = "libvirtd"
	SSHD     Part = "sshd"
	Network  Part = "network"
)

// ImageSet holds the paths of the guest images, all qcow2.
type ImageSet struct {
	Tiny  string // boots in seconds; the guest agent is real, a stand-in does the seed's write_files and runcmd
	Cloud string // Debian 12 with systemd and cloud-init
	Empty string // a few KiB; the boot sector halts the processor
}

// Check says in one sentence what this machine lacks, and the command that mends it.
func Check(ctx context.Context) error {
	_, err := script(ctx, "check")
	return err
}

// Start brings up host n, from 1 to 250, within seconds; it does nothing when the host is up.
func Start(ctx context.Context, n int) (*Host, error) {
	if _, err := script(ctx, "up", strconv.Itoa(n)); err != nil {
		return nil, err
	}
	state := stateDir()
	return &Host{
		Number:         n,
		SSHAddress:     fmt.Sprintf("10.77.%d.2:22", n),
		User:           "root",
		KeyFile:        filepath.Join(state, "id_ed25519"),
		KnownHostsFile: filepath.Join(state, "known_hosts"),
		Socket:         "/var/run/libvirt/libvirt-sock",
		PoolName:       "default",
		Network:        "egress",
		Bridge:         "br-egress",
		GuestCIDR:      fmt.Sprintf("10.88.%d.0/24", n),
		Outside:        fmt.Sprintf("10.77.%d.1", n),
		Dir:            filepath.Join(state, "hosts", strconv.Itoa(n)),
	}, nil
}

// BuildImages returns the guest images, and builds them first, for minutes, where the cache has none.
func BuildImages(ctx context.Context) (ImageSet, error) {
	out, err := script(ctx, "images")
	if err != nil {
		return ImageSet{}, err
	}
	dir := strings.TrimSpace(out)
	return ImageSet{
		Tiny:  filepath.Join(dir, "tiny.qcow2"),
		Cloud: filepath.Join(dir, "cloud.qcow2"),
		Empty: filepath.Join(dir, "empty.qcow2"),
	}, nil
}

// Trees are folders with Debian in them. They are shared and must not be written to: mount something over them.
type Trees struct {
	// Cloud has systemd and cloud-init, OpenRC has OpenRC instead. Both have qemu-guest-agent.
	Cloud, OpenRC string
}

// BuildTrees returns the trees, and makes them first, for minutes, where the cache has none.
func BuildTrees(ctx context.Context) (Trees, error) {
	out, err := script(ctx, "trees")
	if err != nil {
		return Trees{}, err
	}
	folders := strings.Fields(out)
	if len(folders) != 2 {
		return Trees{}, fmt.Errorf("test/kvmhost/trees printed %q", out)
	}
	return Trees{folders[0], folders[1]}, nil
}

// Down ends the host with all its processes, as a power cut would. Wipe removes its disks, domains and host keys too.
func (h *Host) Down(ctx context.Context, wipe bool) error {
	args := []string{strconv.Itoa(h.Number)}
	if wipe {
		args = append(args, "wipe")
	}
	_, err := script(ctx, "down", args...)
	return err
}

// Exec runs a command inside the host and returns its standard output.
func (h *Host) Exec(ctx context.Context, args ...string) (string, error) {
	return script(ctx, "exec", append([]string{strconv.Itoa(h.Number)}, args...)...)
}

// Virsh runs virsh against the host's libvirtd and returns its standard output.
func (h *Host) Virsh(ctx context.Context, args ...string) (string, error) {
	return h.Exec(ctx, append([]string{"virsh", "-q", "-c", "qemu:///system"}, args...)...)
}

// RestartLibvirtd stops libvirtd in good order and starts it again; guests go on running.
func (h *Host) RestartLibvirtd(ctx context.Context) error {
	_, err := script(ctx, "restart-libvirtd", strconv.Itoa(h.Number))
	return err
}

// Cut takes a part of the host away until Mend.
func (h *Host) Cut(ctx context.Context, part Part) error {
	_, err := script(ctx, "cut", strconv.Itoa(h.Number), string(part))
	return err
}

// Mend brings back what Cut took away, and returns when it answers.
func (h *Host) Mend(ctx context.Context, part Part) error {
	_, err := script(ctx, "mend", strconv.Itoa(h.Number), string(part))
	return err
}

// Listen opens a TCP listener inside the host's network namespace: a server that runs on the hypervisor itself, say at
// the bridge's address. A server beside the hypervisor needs only net.Listen at h.Outside.
func (h *Host) Listen(ctx context.Context, address string) (net.Listener, error) {
	type result struct {
		listener net.Listener
		err      error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine, and its namespace with it
		listener, err := listenIn(ctx, fmt.Sprintf("/run/netns/egress-host%d", h.Number), address)
		results <- result{listener, err}
	}()
	r := <-results
	return r.listener, r.err
}

func listenIn(ctx context.Context, namespace, address string) (net.Listener, error) {
	file, err := os.Open(namespace)
	if err != nil {
		return nil, fmt.Errorf("the host is not up: %w", err)
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter %s: %w", namespace, err)
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

func stateDir() string {
	if dir := os.Getenv("EGRESS_KVMHOST_DIR"); dir != "" {
		return dir
	}
	return "/tmp/egress-kvmhost"
}

func script(ctx context.Context, name string, args ...string) (string, error) {
	dir, err := scriptDir()
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(dir, name), args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	command.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // a cancelled build ends with all its steps
	command.Cancel = func() error { return unix.Kill(-command.Process.Pid, unix.SIGTERM) }
	command.WaitDelay = 5 * time.Second
	if err := command.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return stdout.String(), fmt.Errorf("%s: %w", text, err)
		}
		return stdout.String(), fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return stdout.String(), nil
}

// scriptDir finds this folder from any working directory inside the repository.
func scriptDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		candidate := filepath.Join(dir, "test", "kvmhost")
		if _, err := os.Stat(filepath.Join(candidate, "up")); err == nil {
			return candidate, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("kvmhost: run this inside the repository: test/kvmhost is not found above the working directory")
		}
		dir = parent
	}
}
