package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// constants returns the names of the constants of a type of package model, in the order of their values.
func constants(t *testing.T, of string) []string {
	t.Helper()
	files, err := filepath.Glob("../../../../model/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			if kind, ok := group.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident); !ok || kind.Name != of {
				continue
			}
			for _, s := range group.Specs {
				names = append(names, s.(*ast.ValueSpec).Names[0].Name)
			}
		}
	}
	if len(names) < 2 {
		t.Fatalf("package model has the constants %v of type %s", names, of)
	}
	return names
}

func TestEachValueOfTheModelHasAName(t *testing.T) {
	for kind, texts := range map[string][]string{
		"SNATReason": snatTexts[:], "FrontendKind": roleTexts[:], "Exclusion": exclusions[:],
	} {
		of := map[string]string{}
		for i, c := range constants(t, kind) {
			switch {
			case i >= len(texts), texts[i] == "":
				t.Errorf("nothing is said of model.%s", c)
			case of[texts[i]] != "":
				t.Errorf("%q is said of model.%s and of model.%s", texts[i], of[texts[i]], c)
			default:
				of[texts[i]] = c
			}
		}
	}
}
