// SPDX-License-Identifier: Apache-2.0

// Package docs holds the documentation to the code: what can be seen must be explained, and links must lead somewhere.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func TestEveryReasonHasAnEntry(t *testing.T) {
	t.Parallel()
	headings := headingsOf(read(t, "troubleshooting.md"))
	reasons := stringConstants(t, "../api/v1alpha1/conditions.go", "Reason")
	reasons = append(reasons, stringConstants(t, "../internal/provider/host.go", "Host")...)
	for _, kind := range provider.Kinds() {
		reasons = append(reasons, kind.String())
	}
	if len(reasons) < 40 {
		t.Fatalf("only %d reasons were found: the constants are somewhere else now", len(reasons))
	}
	for _, reason := range reasons {
		if !headings[anchor(reason)] {
			t.Errorf("troubleshooting.md has no heading %q", reason)
		}
	}
}

var (
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence = regexp.MustCompile("(?ms)^```.*?^```")
)

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages (%v)", err)
	}
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md", "../test/kvmhost/README.md") {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
				if wrong := dead(t, page, found[1]); wrong != "" {
					t.Errorf("%s: the link %s leads nowhere: %s", page, found[1], wrong)
				}
			}
		})
	}
}

var providersFile = regexp.MustCompile("(?ms)^```yaml\n(version: 1\n.*?)^```")

func TestProvidersFilesInPagesAreUsable(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "../README.md") {
		for _, file := range providersFile.FindAllStringSubmatch(read(t, page), -1) {
			found++
			if _, err := config.Parse([]byte(file[1]), page); err != nil {
				t.Error(err)
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d providers files were found in the pages", found)
	}
}

// dead says why a relative link leads nowhere, or is empty.
func dead(t *testing.T, page, target string) string {
	t.Helper()
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	file, heading, _ := strings.Cut(target, "#")
	path := page
	if file != "" {
		path = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(path); err != nil {
		return "there is no such file"
	}
	if heading != "" && !headingsOf(read(t, path))[heading] {
		return "that page has no such heading"
	}
	return ""
}

// stringConstants are the values of a file's constants whose names start with prefix.
func stringConstants(t *testing.T, path, prefix string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if !strings.HasPrefix(name.Name, prefix) || i >= len(spec.Values) {
				continue
			}
			literal, ok := spec.Values[i].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return true
	})
	return values
}

var heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)

// headingsOf are the anchors of a page's headings.
func headingsOf(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		anchors[anchor(found[1])] = true
	}
	return anchors
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchor is how GitHub names a heading in links.
func anchor(heading string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
