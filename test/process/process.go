// SPDX-License-Identifier: Apache-2.0

// Package process runs the programs of a test: each dies with the test's own process, however that ends, and what it printed
// can be read at any time.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is one running program.
type Process struct {
	name   string
	cmd    *exec.Cmd
	ended  chan struct{}
	err    error // set before ended is closed
	output *output
}

// Start starts cmd. What it prints is kept, and copied to also where that is not nil.
func Start(cmd *exec.Cmd, also io.Writer) (*Process, error) {
	p := &Process{name: filepath.Base(cmd.Path), cmd: cmd, ended: make(chan struct{}), output: &output{also: also}}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		// The kernel sends the death signal when the thread that started the child ends, so it must not end before the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// Pid of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Output is what the process has printed.
func (p *Process) Output() string { return p.output.String() }

// Stop ends the process in good order, or the hard way after timeout, and reports when it did not end well.
func (p *Process) Stop(timeout time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(timeout):
		return errors.Join(fmt.Errorf("%s did not stop within %s; it printed:\n%s", p.name, timeout, p.Output()), p.Kill())
	}
	if p.err != nil {
		return fmt.Errorf("%s stopped with an error: %w; it printed:\n%s", p.name, p.err, p.Output())
	}
	return nil
}

// Kill ends the process the hard way, as a power cut would, and returns when it is gone.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended
	return nil
}

func (p *Process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s to %s: %w", s, p.name, err)
	}
	return nil
}

// output keeps what a process prints.
type output struct {
	also io.Writer

	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if o.also != nil {
		return o.also.Write(b)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
