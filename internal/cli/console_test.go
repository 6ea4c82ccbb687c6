// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/proxy"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// oneProxy is an API with one Proxy.
type oneProxy struct {
	client.Reader
	proxy v1alpha1.Proxy
}

func (o oneProxy) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if key != client.ObjectKeyFromObject(&o.proxy) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "proxies"}, key.Name)
	}
	o.proxy.DeepCopyInto(into.(*v1alpha1.Proxy))
	return nil
}

// talker is a provider whose one guest says something, and goes on when somebody follows.
type talker struct {
	provider.Provider
	refused error
	goOn    chan string
}

func (t *talker) HoldConsole(provider.InstanceRef)    {}
func (t *talker) ReleaseConsole(provider.InstanceRef) {}

func (t *talker) Console(ctx context.Context, ref provider.InstanceRef, follow bool, w io.Writer) error {
	if t.refused != nil {
		return t.refused
	}
	if ref.Host != "h1" || ref.UID != "uid-1" {
		return errors.New("the wrong instance")
	}
	_, err := io.WriteString(w, "boot \x1b[2Jing\r\n\u00e9\u009b\tok\n")
	for follow && err == nil {
		select {
		case text, more := <-t.goOn:
			if !more {
				return errors.New("the host is gone")
			}
			_, err = io.WriteString(w, text)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func consoleSocket(t *testing.T, p provider.Provider) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &consoleServer{
		socket: filepath.Join(dir, "c.sock"), log: slog.New(slog.DiscardHandler),
		proxies: oneProxy{proxy: v1alpha1.Proxy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "exit-1", UID: "uid-1"},
			Spec:       v1alpha1.ProxySpec{Provider: "home"}, Status: v1alpha1.ProxyStatus{Host: "h1"},
		}},
		current: func() proxy.Set { return proxy.Set{Providers: map[string]provider.Provider{"home": p}} },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	deadline := time.Now().Add(10 * time.Second)
	for {
		conn, err := net.Dial("unix", s.socket)
		if err == nil {
			_ = conn.Close()
			return s.socket
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func runConsole(ctx context.Context, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = Run(ctx, append([]string{"console"}, args...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestConsoleCommand(t *testing.T) {
	t.Run("what is kept is shown, without what could change a terminal", func(t *testing.T) {
		socket := consoleSocket(t, &talker{})
		if code, out, errOut := runConsole(t.Context(), "-n", "team-a", "exit-1", "--socket", socket); code != ExitOK || out != "boot [2Jing\n\u00e9\tok\n" {
			t.Errorf("code %d, %q, %q", code, out, errOut)
		}
		if _, out, _ := runConsole(t.Context(), "-n", "team-a", "exit-1", "--socket", socket, "--raw"); !strings.Contains(out, "\x1b[2J") {
			t.Errorf("raw: %q", out)
		}
	})
	t.Run("one that follows sees each piece when it comes, and why it ends", func(t *testing.T) {
		p := &talker{goOn: make(chan string)}
		socket := consoleSocket(t, p)
		read, write := io.Pipe()
		result := make(chan error, 1)
		go func() {
			err := showConsole(t.Context(), socket, "team-a", "exit-1", true, func(from io.Reader) error { return plainText(write, from) })
			_ = write.Close()
			result <- err
		}()
		expect := func(want string) {
			t.Helper()
			got := make([]byte, len(want))
			if _, err := io.ReadFull(read, got); err != nil || string(got) != want {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		expect("boot [2Jing\n\u00e9\tok\n")
		p.goOn <- "more"
		expect("more")
		close(p.goOn)
		if err := <-result; err == nil || err.Error() != "the host is gone" {
			t.Errorf("ended with %v", err)
		}
	})
	for name, c := range map[string]struct {
		provider provider.Provider
		args     []string
		says     string
	}{
		"no such Proxy":           {&talker{}, []string{"-n", "team-a", "exit-2"}, "there is no Proxy team-a/exit-2"},
		"a provider without them": {struct{ provider.Provider }{}, []string{"-n", "team-a", "exit-1"}, "have no console"},
		"a provider that refuses": {&talker{refused: errors.New("it is somebody else's")}, []string{"-n", "team-a", "exit-1"}, "somebody else's"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runConsole(t.Context(), append(c.args, "--socket", consoleSocket(t, c.provider))...)
			if code != ExitFailed || out != "" || !strings.Contains(errOut, c.says) {
				t.Errorf("code %d, %q, %q", code, out, errOut)
			}
		})
	}
	t.Run("no operator", func(t *testing.T) {
		code, _, errOut := runConsole(t.Context(), "x", "--socket", filepath.Join(t.TempDir(), "none"))
		if code != ExitFailed || !strings.Contains(errOut, "no operator answers") {
			t.Errorf("code %d, %q", code, errOut)
		}
	})
}

func TestConsoleSocketIsPrivate(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if l, err := listenPrivately(t.Context(), filepath.Join(open, "c.sock")); err == nil {
		_ = l.Close()
		t.Error("it listens in a folder that others can enter")
	}
	private := filepath.Join(t.TempDir(), "new")
	socket := filepath.Join(private, "c.sock")
	first, err := listenPrivately(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
	if l, err := listenPrivately(t.Context(), socket); err == nil {
		_ = l.Close()
		t.Error("it takes the place of an operator that serves")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as a process leaves it that is killed
	_ = first.Close()
	second, err := listenPrivately(t.Context(), socket)
	if err != nil {
		t.Fatalf("after a process that was killed: %v", err)
	}
	_ = second.Close()
}
