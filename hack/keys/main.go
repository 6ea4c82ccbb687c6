// SPDX-License-Identifier: Apache-2.0

// Command keys writes what the types say that the providers file is decoded into, and their comments: the reference, a table of every key, which
// replaces what stands between two marks in a page; and a JSON Schema for editors.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

const (
	begin = "<!-- keys: written by `make generate` from internal/config/types.go -->\n"
	end   = "<!-- end of keys -->\n"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: keys TYPES.go PAGE.md SCHEMA.json")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

func run(source, page, schema string) error {
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(content), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no marks %q and %q", page, begin, end)
	}
	r := reference{structs: structsOf(file)}
	r.section("", "File")
	if err := os.WriteFile(page, []byte(before+begin+r.text.String()+end+after), 0o600); err != nil {
		return err
	}
	return r.writeSchema(schema, config.Types())
}

type field struct {
	name, key, types, doc, of string
	list, keyed               bool
}

func structsOf(file *ast.File) map[string][]field {
	all := map[string][]field{}
	for _, d := range file.Decls {
		general, ok := d.(*ast.GenDecl)
		if !ok || general.Tok != token.TYPE {
			continue
		}
		for _, s := range general.Specs {
			spec, ok := s.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				all[spec.Name.Name] = fieldsOf(fields)
			}
		}
	}
	return all
}

func fieldsOf(s *ast.StructType) []field {
	var all []field
	for _, f := range s.Fields.List {
		text, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			panic(err) // the parser took it
		}
		tag := reflect.StructTag(text)
		one := field{name: f.Names[0].Name, key: tag.Get("yaml"), types: tag.Get("types"), doc: firstParagraph(f.Doc)}
		switch t := f.Type.(type) {
		case *ast.Ident:
			one.of = t.Name
		case *ast.ArrayType:
			one.of, one.list = ident(t.Elt), true
		case *ast.MapType:
			one.of, one.keyed = ident(t.Value), true
		case *ast.StarExpr:
			one.of = ident(t.X)
		}
		all = append(all, one)
	}
	return all
}

func ident(e ast.Expr) string {
	if i, ok := e.(*ast.Ident); ok {
		return i.Name
	}
	return ""
}

// firstParagraph is what a comment says to those who write the file; what follows is for those who read the code.
func firstParagraph(doc *ast.CommentGroup) string {
	first, _, _ := strings.Cut(doc.Text(), "\n\n")
	return strings.Join(strings.Fields(first), " ")
}

type reference struct {
	structs map[string][]field
	text    strings.Builder
}

// section writes the table of one struct, and after it those of the structs that it holds.
func (r *reference) section(path, name string) {
	fields := r.structs[name]
	title := "Top level"
	if path != "" {
		title = "`" + path + "`"
	}
	typed := false
	for _, f := range fields {
		typed = typed || f.types != ""
	}
	fmt.Fprintf(&r.text, "\n## %s\n\n", title)
	if typed {
		r.text.WriteString("| key | entries of type | meaning |\n|---|---|---|\n")
	} else {
		r.text.WriteString("| key | meaning |\n|---|---|\n")
	}
	for _, f := range fields {
		types := ""
		if typed {
			types = " " + strings.ReplaceAll(f.types, ",", ", ") + " |"
			if f.types == "" {
				types = " all |"
			}
		}
		fmt.Fprintf(&r.text, "| `%s` |%s %s |\n", f.key, types, meaning(fields, f))
	}
	for _, f := range fields {
		if _, ok := r.structs[f.of]; !ok {
			continue
		}
		at := strings.TrimPrefix(path+"."+f.key, ".")
		switch {
		case f.list:
			at += "[]"
		case f.keyed:
			at += ".KEY"
		}
		r.section(at, f.of)
	}
}

var (
	word  = regexp.MustCompile(`[A-Za-z0-9]+`)
	start = regexp.MustCompile(`^[,:]? *(is |are )?`)
)

// meaning is a field's comment without the field's name at its start, and with keys for the names of other fields.
func meaning(fields []field, f field) string {
	keys := map[string]string{}
	for _, other := range fields {
		keys[other.name] = other.key
	}
	text := start.ReplaceAllString(strings.TrimPrefix(f.doc, f.name), "")
	return strings.ReplaceAll(word.ReplaceAllStringFunc(text, func(w string) string {
		if key, ok := keys[w]; ok {
			return "`" + key + "`"
		}
		return w
	}), "|", `\|`)
}
