// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUseDataDir(t *testing.T) {
	served := t.TempDir()
	kubeconfig := filepath.Join(served, "kubeconfig")
	if err := os.WriteFile(kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dir, environment string
		byFlag                 bool
		args, want             string
		refused                bool
	}{
		{name: "the server of the directory", dir: served, args: "get proxies", want: kubeconfig},
		{name: "no server there", dir: t.TempDir(), args: "get proxies", refused: true},
		{name: "KUBECONFIG goes first", dir: served, environment: "/other", args: "get proxies", want: "/other"},
		{name: "the flag goes before KUBECONFIG", dir: served, environment: "/other", byFlag: true, args: "get proxies", want: kubeconfig},
		{name: "what kubectl answers by itself", dir: t.TempDir(), args: "version --client"},
		{name: "kubectl's own --kubeconfig", dir: t.TempDir(), args: "--kubeconfig /other get proxies"},
		{name: "the same in one word", dir: t.TempDir(), args: "get proxies --kubeconfig=/other"},
		{name: "kubectl's own --server", dir: t.TempDir(), args: "--server https://127.0.0.1:1 get proxies"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tt.environment)
			t.Setenv("KUBECACHEDIR", "/cache")
			err := UseDataDir(tt.dir, tt.byFlag, strings.Fields(tt.args))
			if (err != nil) != tt.refused {
				t.Fatalf("error %v", err)
			}
			if got := os.Getenv("KUBECONFIG"); got != tt.want {
				t.Errorf("KUBECONFIG is %q, want %q", got, tt.want)
			}
		})
	}
}
