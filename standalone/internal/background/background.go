// SPDX-License-Identifier: Apache-2.0

// Package background starts a server that outlives the command that started it, and stops it.
package background

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/progress"
)

const (
	poll = 50 * time.Millisecond
	// Of one question whether the API is ready.
	askTimeout = 2 * time.Second
	// A log larger than this is moved aside at a start.
	maxLogBytes = 4 << 20
	// As much of the log is shown when a start fails.
	tailBytes = 4 << 10
)

// Server is one that may run on a data directory.
type Server struct {
	Paths datadir.Paths
	// Executable, and its arguments that make it serve on the data directory.
	Executable string
	Args       []string
}

// Running is a server that answers.
type Running struct {
	Pid int
	// Started says that Ensure has started it.
	Started bool
	Config  *rest.Config
}

// Ensure starts the server where none runs, and returns once it answers. When ctx ends before, a server that was started goes on.
func (s Server) Ensure(ctx context.Context, tell *progress.Printer) (Running, error) {
	var child *child
	for {
		pid, held, err := s.Paths.Holder()
		if err != nil {
			return Running{}, err
		}
		if !held {
			switch {
			case child == nil:
				tell.Say("starting the server; its log is %s", s.Paths.Log())
				if child, err = s.start(); err != nil {
					return Running{}, err
				}
			case child.hasEnded():
				return Running{}, fmt.Errorf("the server did not start:\n%s", child.printed())
			}
		} else if config, ok := s.answers(ctx); ok && pid != 0 {
			return Running{Pid: pid, Started: child != nil, Config: config}, nil
		}
		tell.Waiting("the server to answer")
		select {
		case <-ctx.Done():
			return Running{}, s.interrupted(ctx, child)
		case <-time.After(poll):
		}
	}
}

func (s Server) interrupted(ctx context.Context, c *child) error {
	err := fmt.Errorf("the server did not answer yet: %w", context.Cause(ctx))
	if c == nil {
		return err
	}
	return fmt.Errorf("%w; it goes on in the background (process %d); what it printed:\n%s", err, c.pid, c.printed())
}

// answers says whether the server of the kubeconfig is ready. A kubeconfig of an earlier start leads nowhere.
func (s Server) answers(ctx context.Context) (*rest.Config, bool) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Paths.Kubeconfig())
	if err != nil {
		return nil, false
	}
	config.QPS = -1
	asked := rest.CopyConfig(config)
	asked.Timeout = askTimeout
	client, err := kubernetes.NewForConfig(asked)
	if err != nil {
		return nil, false
	}
	err = client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	return config, err == nil
}

// child is a server that was started here.
type child struct {
	pid   int
	ended chan struct{}
	log   string
	// from is where its own part of the log begins.
	from int64
}

// start starts the server in a session of its own, so that it outlives the terminal.
func (s Server) start() (*child, error) {
	if info, err := os.Stat(s.Paths.Log()); err == nil && info.Size() > maxLogBytes {
		if err := os.Rename(s.Paths.Log(), s.Paths.Log()+".1"); err != nil {
			return nil, fmt.Errorf("move the old log aside: %w", err)
		}
	}
	log, err := os.OpenFile(s.Paths.Log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the server's log: %w", err)
	}
	// The child has its own descriptor.
	defer func() { _ = log.Close() }()
	end, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("the server's log: %w", err)
	}
	cmd := exec.Command(s.Executable, s.Args...)
	cmd.Dir = s.Paths.Root()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	c := &child{pid: cmd.Process.Pid, ended: make(chan struct{}), log: s.Paths.Log(), from: end}
	// It ends with the child, or with this process.
	go func() {
		// How the child ended stands in its log.
		_ = cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

func (c *child) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// printed is the end of what the child has printed.
func (c *child) printed() string { return tail(c.log, c.from) }

// Tail is the end of the server's log.
func (s Server) Tail() string { return tail(s.Paths.Log(), 0) }

func tail(log string, from int64) string {
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	begin := max(from, size-tailBytes)
	content, err := io.ReadAll(io.NewSectionReader(f, begin, size-begin))
	if err != nil {
		return ""
	}
	text := strings.TrimSpace(string(content))
	if begin > from {
		// It begins within a line.
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// Stop ends the server that runs, in good order, and says whether there was one.
func (s Server) Stop(ctx context.Context, tell *progress.Printer) (stopped bool, err error) {
	var told int
	for {
		pid, held, err := s.Paths.Holder()
		if err != nil || !held {
			return told != 0, err
		}
		if pid != 0 && pid != told {
			if err := terminate(s.Paths, pid); err != nil {
				return false, err
			}
			told = pid
		}
		tell.Waiting(fmt.Sprintf("process %d to end", pid))
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("process %d was told to end and has not ended yet: %w (its log: %s)", pid, context.Cause(ctx), s.Paths.Log())
		case <-time.After(poll):
		}
	}
}

// terminate signals a process that holds the directory also after it was looked up, so that it is not another of the same number.
func terminate(paths datadir.Paths, pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("process %d, which holds data directory %s: %w", pid, paths.Root(), err)
	}
	defer func() { _ = process.Release() }()
	if now, held, err := paths.Holder(); err != nil || !held || now != pid {
		return err
	}
	err = process.Signal(syscall.SIGTERM)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("process %d, which holds data directory %s, is another user's: stop it as that user (%w)", pid, paths.Root(), err)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	return nil
}
