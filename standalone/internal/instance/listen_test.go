// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenRemembersThePort(t *testing.T) {
	file := filepath.Join(t.TempDir(), "port")
	first := mustListen(t, 0, file)
	port := first.Addr().(*net.TCPAddr).Port

	t.Run("a port that was asked for and is taken is refused", func(t *testing.T) {
		if _, err := listen(port, file); err == nil || !strings.Contains(err.Error(), "choose another --port") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a remembered port that is taken gives way to a free one", func(t *testing.T) {
		other := mustListen(t, 0, filepath.Join(filepath.Dir(file), "other"))
		if other.Addr().String() == first.Addr().String() {
			t.Error("the same port twice")
		}
	})
	t.Run("the remembered port is taken again", func(t *testing.T) {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if again := mustListen(t, 0, file).Addr().(*net.TCPAddr).Port; again != port {
			t.Errorf("port %d, before %d", again, port)
		}
	})
}

func mustListen(t *testing.T, port int, file string) *net.TCPListener {
	t.Helper()
	listener, err := listen(port, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
