// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package lab puts a whole installation on this machine: real libvirt hosts, a real Kubernetes API, a reflector, and the operator
// as a process. Live tests and the demo work in it. Nothing in it is a stand-in.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
	"github.com/egress-proxies/egress-proxies-operator/test/process"
)

// Entry is the name of the lab's entry in the providers file.
const Entry = "kvm2-lab"

const (
	reflectorPort = "8089"
	stopTimeout   = 30 * time.Second
	startTimeout  = 2 * time.Minute
)

// Lab is one installation.
type Lab struct {
	// Dir holds the lab's files: data of the API server, providers file, logs.
	Dir string
	// Root of the repository.
	Root string
	// Hosts of the lab's entry, in order.
	Hosts []*kvmhost.Host
	// Images of the hosts' guests.
	Images kvmhost.ImageSet
	// Kubeconfig of the API, and a client for it.
	Kubeconfig string
	Client     client.Client
	// Operator is the process that runs now, or nil.
	Operator *process.Process

	// Standalone is the standalone's program, which serves the API and is also kubectl.
	Standalone string
	// Providers is the providers file.
	Providers string

	api       *process.Process
	reflector *process.Process
}

// Start brings up the hosts with these numbers (each keeps what it holds from before), the API and a reflector; not yet the
// operator. dir is an empty folder of the caller's. Close ends what was started.
func Start(ctx context.Context, dir string, hosts ...int) (*Lab, error) {
	l, err := StartHosts(ctx, dir, hosts...)
	if err != nil {
		return nil, err
	}
	if err := l.startAPI(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// StartHosts is Start without the API: for a standalone, which has its own.
func StartHosts(ctx context.Context, dir string, hosts ...int) (_ *Lab, err error) {
	l := &Lab{Dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.Root, err = moduleRoot(); err != nil {
		return nil, err
	}
	if l.Images, err = kvmhost.BuildImages(ctx); err != nil {
		return nil, err
	}
	for _, n := range hosts {
		h, err := kvmhost.Start(ctx, n)
		if err != nil {
			return nil, err
		}
		l.Hosts = append(l.Hosts, h)
		if h == l.Hosts[0] {
			continue
		}
		// The reflector listens at this machine's end of the first host's wire: guests of the others need the way there.
		if _, err := h.Exec(ctx, "ip", "route", "replace", l.Hosts[0].Outside+"/32", "via", h.Outside); err != nil {
			return nil, err
		}
	}
	if l.Standalone, err = BuildStandalone(ctx); err != nil {
		return nil, err
	}
	if err := l.startReflector(ctx); err != nil {
		return nil, err
	}
	return l, l.WriteProviders(l.ProvidersYAML())
}

// Close ends the operator, the reflector and the API; hosts stay up for the next lab.
func (l *Lab) Close() error {
	var errs []error
	for _, p := range []*process.Process{l.Operator, l.reflector, l.api} {
		if p != nil {
			errs = append(errs, stop(p))
		}
	}
	l.Operator, l.reflector, l.api = nil, nil, nil
	return errors.Join(errs...)
}

// stop ends a process that may have ended already because a test killed it.
func stop(p *process.Process) error {
	select {
	case <-p.Ended():
		return nil
	default:
		return p.Stop(stopTimeout)
	}
}

func (l *Lab) startAPI(ctx context.Context) error {
	data := filepath.Join(l.Dir, "api")
	var err error
	if l.api, err = process.Start(exec.Command(l.Standalone, "serve", "--api-only", "--data-dir", data), nil); err != nil {
		return err
	}
	err = Until(ctx, startTimeout, "the API server to be ready", func(context.Context) (bool, error) {
		return strings.Contains(l.api.Output(), "ready:"), ended(l.api)
	})
	if err != nil {
		return err
	}
	l.Kubeconfig = filepath.Join(data, "kubeconfig")
	if _, err := l.Kubectl(ctx, "", "apply", "-f", filepath.Join(l.Root, "config", "crd")); err != nil {
		return err
	}
	if _, err := l.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=30s", "crd/proxies.egressproxies.dev"); err != nil {
		return err
	}
	l.Client, err = NewClient(l.Kubeconfig)
	return err
}

// Backup writes what the API has into a file.
func (l *Lab) Backup(ctx context.Context, file string) error {
	return l.standalone(ctx, "backup", file)
}

// RestoreAPI ends the API, and starts one with what a backup has. No operator may run.
func (l *Lab) RestoreAPI(ctx context.Context, file string) error {
	if err := stop(l.api); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(l.Dir, "api")); err != nil {
		return err
	}
	if err := l.standalone(ctx, "restore", file); err != nil {
		return err
	}
	return l.startAPI(ctx)
}

func (l *Lab) standalone(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, l.Standalone, append([]string{"--data-dir", filepath.Join(l.Dir, "api")}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%q: %w: %s", args, err, out)
	}
	return nil
}

// NewClient is a client without a rate limit, for what a kubeconfig names.
func NewClient(kubeconfig string) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// BuildStandalone builds the standalone where it is not built yet, and returns the path of its program.
func BuildStandalone(ctx context.Context) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(root, "hack", "build-standalone.sh")).Output()
	if err != nil {
		return "", fmt.Errorf("build the standalone: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (l *Lab) startReflector(ctx context.Context) (err error) {
	address := net.JoinHostPort(l.Hosts[0].Outside, reflectorPort)
	if l.reflector, err = process.Start(exec.Command(l.OperatorBinary(), "reflector", "--listen", address), nil); err != nil {
		return err
	}
	return Until(ctx, stopTimeout, "the reflector to listen on "+address, func(ctx context.Context) (bool, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil, ended(l.reflector)
	})
}

// ReflectorURL is what probes and clients ask for.
func (l *Lab) ReflectorURL() string {
	return "http://" + net.JoinHostPort(l.Hosts[0].Outside, reflectorPort) + "/"
}

// ReflectorLog is what the reflector has logged, a line a request.
func (l *Lab) ReflectorLog() []string {
	return strings.FieldsFunc(l.reflector.Output(), func(r rune) bool { return r == '\n' })
}

// OperatorBinary is the program that `make build` made.
func (l *Lab) OperatorBinary() string { return filepath.Join(l.Root, "bin", "egress-proxies") }

// OperatorArgs are the operator's arguments in this lab.
func (l *Lab) OperatorArgs() []string {
	return []string{
		"operator", "--kubeconfig", l.Kubeconfig, "--providers", l.Providers, "--agent-dir", filepath.Join(l.Root, "bin"),
		"--console-socket", l.consoleSocket(),
	}
}

func (l *Lab) consoleSocket() string { return filepath.Join(l.Dir, "run", "console.sock") }

// Console is what the operator's command shows of a guest's console.
func (l *Lab) Console(ctx context.Context, namespace, proxy string) (string, error) {
	cmd := exec.CommandContext(ctx, l.OperatorBinary(), "console", "-n", namespace, proxy, "--socket", l.consoleSocket())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// StartOperator starts the program that `make build` made.
func (l *Lab) StartOperator() error {
	return l.StartOperatorAs(exec.Command(l.OperatorBinary(), l.OperatorArgs()...))
}

// StartOperatorAs starts the operator as another program, say one that dies at a chosen step, and returns once it works.
func (l *Lab) StartOperatorAs(cmd *exec.Cmd) error {
	if l.Operator != nil && ended(l.Operator) == nil {
		return errors.New("an operator runs already")
	}
	log, err := os.OpenFile(filepath.Join(l.Dir, "operator.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if l.Operator, err = process.Start(cmd, log); err != nil {
		return err
	}
	return Until(context.Background(), startTimeout, "the operator to start", func(context.Context) (bool, error) {
		return strings.Contains(l.Operator.Output(), "operator starts"), ended(l.Operator)
	})
}

// StopOperator ends the operator in good order.
func (l *Lab) StopOperator() error {
	err := stop(l.Operator)
	l.Operator = nil
	return err
}

// Kubectl runs the kubectl that the API server's binary carries.
func (l *Lab) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.Standalone, append([]string{"kubectl", "--kubeconfig", filepath.Join(l.Dir, "api", "kubeconfig")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Until polls a condition until it holds, fails, or the time is over.
func Until(ctx context.Context, timeout time.Duration, what string, condition func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := condition(ctx)
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s in vain for %s", timeout, what)
		case <-tick.C:
		}
	}
}

func ended(p *process.Process) error {
	select {
	case <-p.Ended():
		return fmt.Errorf("the process ended: %s", p.Output())
	default:
		return nil
	}
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, statErr := os.Stat(filepath.Join(dir, "test", "kvmhost", "up")); statErr == nil {
			return dir, nil
		}
	}
	return "", errors.Join(err, errors.New("run this inside the repository"))
}
