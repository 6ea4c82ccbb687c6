// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/build/constraint"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// made are the variables of the Makefile that say with what lint vets the tree.
func made(t *testing.T, name string) []string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindSubmatch(makefile)
	if found == nil {
		t.Fatalf("the Makefile has no %s", name)
	}
	return strings.FieldsFunc(string(found[1]), func(r rune) bool { return r == ',' || r == ' ' })
}

func TestEverythingIsVetted(t *testing.T) {
	t.Run("L23: lint compiles and vets every file with a build tag, on each system that has files of its own", func(t *testing.T) {
		tags, systems := made(t, "TAGS"), append(made(t, "OTHER_SYSTEMS"), "linux")
		files := 0
		err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			expr := constraintOf(t, path)
			if expr == nil {
				return nil
			}
			files++
			vetted := slices.ContainsFunc(systems, func(system string) bool {
				return expr.Eval(func(tag string) bool {
					return tag == system || tag == "unix" && system != "windows" || slices.Contains(tags, tag)
				})
			})
			if !vetted {
				t.Errorf("%s is for %s, which lint does not vet", path, expr)
			}
			return nil
		})
		if err != nil || files < 50 {
			t.Errorf("%d files with build tags: %v", files, err)
		}
	})
}

// constraintOf is a file's build constraint; nil where it has none.
func constraintOf(t *testing.T, path string) constraint.Expr {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(content), "\npackage ")
	for line := range strings.Lines(head) {
		if line = strings.TrimSpace(line); constraint.IsGoBuild(line) {
			expr, err := constraint.Parse(line)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			return expr
		}
	}
	return nil
}
