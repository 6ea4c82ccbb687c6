package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const userData = `#cloud-config
write_files:
  - path: /etc/agent/start
    permissions: "0755"
    content: |
      #!/bin/sh
      echo 'it''s "here"'
  - path: /etc/agent/key
    encoding: b64
    content: c2VjcmV0
bootcmd:
  - echo early
runcmd:
  - [/etc/agent/start, it's, "two words"]
  - echo $HOME | cat
`

func TestParseSeed(t *testing.T) {
	parsed, err := parseSeed([]byte("instance-id: one\nlocal-hostname: guest\n"), []byte(userData))
	if err != nil {
		t.Fatal(err)
	}
	if parsed.Hostname != "guest" {
		t.Errorf("host name %q", parsed.Hostname)
	}
	want := "#!/bin/sh\n'/etc/agent/start' 'it'\\''s' 'two words'\necho $HOME | cat\n"
	if diff := cmp.Diff(want, script(parsed.RunCmd)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("#!/bin/sh\necho early\n", script(parsed.BootCmd)); diff != "" {
		t.Error(diff)
	}

	root := t.TempDir()
	if err := writeFiles(root, parsed.WriteFiles); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct{ content, mode string }{
		"etc/agent/start": {"#!/bin/sh\necho 'it''s \"here\"'\n", "-rwxr-xr-x"},
		"etc/agent/key":   {"secret", "-rw-r--r--"},
	} {
		content, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if string(content) != want.content || info.Mode().String() != want.mode {
			t.Errorf("%s: %q %s, want %q %s", path, content, info.Mode(), want.content, want.mode)
		}
	}
}

func TestParseSeedRefuses(t *testing.T) {
	tests := []struct {
		name, userData, want string
	}{
		{"multipart", "Content-Type: multipart/mixed\n", "use the cloud guest"},
		{"a command that is a map", "#cloud-config\nruncmd:\n  - {a: b}\n", "a string or a list of strings"},
		{"broken yaml", "#cloud-config\nruncmd: [\n", "user-data"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := parseSeed(nil, []byte(test.userData)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestWriteFilesRefuses(t *testing.T) {
	files := []file{{Path: "/a", Encoding: "gz"}, {Path: "/b", Permissions: "rwx"}, {Path: "/c", Content: "kept"}}
	root := t.TempDir()
	err := writeFiles(root, files)
	if err == nil || !strings.Contains(err.Error(), "/a") || !strings.Contains(err.Error(), "/b") {
		t.Errorf("error %v, want one that names /a and /b", err)
	}
	if content, err := os.ReadFile(filepath.Join(root, "c")); err != nil || string(content) != "kept" {
		t.Errorf("the good file: %q, %v", content, err)
	}
}

func TestISOLabel(t *testing.T) {
	image := make([]byte, 17*2048)
	copy(image[16*2048:], "\x01CD001")
	copy(image[16*2048+40:], "cidata"+strings.Repeat(" ", 26))
	path := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if label, err := isoLabel(path); err != nil || label != "cidata" {
		t.Errorf("label %q, %v", label, err)
	}
}
