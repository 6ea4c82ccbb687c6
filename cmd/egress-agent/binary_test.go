// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const module = "github.com/egress-proxies/egress-proxies-operator/"

// The agent runs in every guest: what it is made of is a decision.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, path := range strings.Fields(string(out)) {
		allowed := false
		for _, prefix := range []string{
			"golang.org/x/sys/unix", module + "cmd/egress-agent",
			module + "internal/agent", module + "internal/agentapi", module + "internal/destination", module + "internal/proxyproto",
		} {
			allowed = allowed || path == prefix || strings.HasPrefix(path, prefix+"/")
		}
		if !allowed {
			t.Errorf("the agent imports %s", path)
		}
	}
}

func TestBinaryIsSmallAndStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("an ELF file is made on Linux")
	}
	path := filepath.Join(t.TempDir(), "egress-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MB", float64(info.Size())/1e6)
	if info.Size() >= 10_000_000 {
		t.Errorf("%d bytes are not under 10 MB", info.Size())
	}
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary is dynamic: %v", segment.Type)
		}
	}
}
