package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Codes finds every stable code that the packages in the given folders, each
// read with its sub-folders, can report, with the places where they stand. These
// are string constants that become
//
//   - the field Code or code of a struct, or an assignment to a field Code,
//   - the argument for a parameter called code of a function of the same package,
//   - the first field of a Rule.
//
// Names of steps (constants Step…) and a server's own error numbers are no codes.
// A code that is put together from a constant and something else is given as
// the constant with a star: master_*. What cannot be resolved is an error, so
// that no code escapes.
func Codes(root string, folders ...string) (map[string][]string, error) {
	c := &collector{root: root, fset: token.NewFileSet(), codes: map[string][]string{}}
	byDir := map[string][]*ast.File{}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(c.fset, path, nil, parser.SkipObjectResolution)
			byDir[filepath.Dir(path)] = append(byDir[filepath.Dir(path)], file)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, files := range byDir {
		c.pkg(files)
	}
	if len(c.unresolved) > 0 {
		slices.Sort(c.unresolved)
		return nil, fmt.Errorf("codes that cannot be read from the source:\n%s", strings.Join(c.unresolved, "\n"))
	}
	return c.codes, nil
}

// collector walks through one package at a time.
type collector struct {
	root       string
	fset       *token.FileSet
	codes      map[string][]string
	unresolved []string
	// takes gives, for the functions that have a parameter called code, its
	// position. A method's key begins with a dot, a closure's with its file.
	takes map[string]int
	file  string
	// coded gives, for the struct types of the package with a field called code, its
	// position.
	coded map[string]int
	// values are the string constants of the package and what local variables
	// called code are set to.
	values map[string][]ast.Expr
}

func (c *collector) pkg(files []*ast.File) {
	c.takes, c.coded, c.values = map[string]int{}, map[string]int{}, map[string][]ast.Expr{}
	for _, step := range []func(ast.Node) bool{c.declare, c.use} {
		for _, f := range files {
			c.file = c.fset.Position(f.Pos()).Filename + ":"
			ast.Inspect(f, step)
		}
	}
}

// declare notes functions with a parameter called code, and values.
func (c *collector) declare(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Recv != nil {
			c.function("."+n.Name.Name, n.Type)
		} else {
			c.function(n.Name.Name, n.Type)
		}
	case *ast.Field: // a parameter that is a function: add func(code, do string, …)
		if t, ok := n.Type.(*ast.FuncType); ok {
			for _, name := range n.Names {
				c.function(c.file+name.Name, t)
			}
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			name, ok := left.(*ast.Ident)
			if !ok || len(n.Lhs) != len(n.Rhs) {
				continue
			}
			if lit, ok := n.Rhs[i].(*ast.FuncLit); ok {
				c.function(c.file+name.Name, lit.Type)
			}
			if name.Name == "code" {
				c.values["code"] = append(c.values["code"], n.Rhs[i])
			}
		}
	case *ast.TypeSpec:
		if t, ok := n.Type.(*ast.StructType); ok {
			c.structure(n.Name.Name, t)
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i < len(n.Values) && strings.HasPrefix(strings.ToLower(name.Name), "code") {
				c.values[name.Name] = append(c.values[name.Name], n.Values[i])
			}
		}
	}
	return true
}

func (c *collector) function(name string, t *ast.FuncType) {
	i := 0
	for _, field := range t.Params.List {
		for _, p := range field.Names {
			if p.Name == "code" {
				c.takes[name] = i
			}
			i++
		}
	}
}

func (c *collector) structure(name string, t *ast.StructType) {
	i := 0
	for _, field := range t.Fields.List {
		for _, f := range field.Names {
			if strings.EqualFold(f.Name, "code") {
				c.coded[name] = i
			}
			i++
		}
		i += max(0, 1-len(field.Names)) // an embedded field has no name
	}
}

// use collects what becomes a code.
func (c *collector) use(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Code" || key.Name == "code") {
			c.add(n.Value)
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == "Code" && len(n.Lhs) == len(n.Rhs) {
				c.add(n.Rhs[i])
			}
		}
	case *ast.CallExpr:
		if i, ok := c.takesCode(n.Fun); ok && i < len(n.Args) {
			c.add(n.Args[i])
		}
	case *ast.CompositeLit:
		c.rules(n)
	}
	return true
}

// takesCode tells which argument of a call is a code, if any.
func (c *collector) takesCode(fun ast.Expr) (int, bool) {
	switch f := fun.(type) {
	case *ast.Ident:
		if i, ok := c.takes[c.file+f.Name]; ok {
			return i, true
		}
		i, ok := c.takes[f.Name]
		return i, ok
	case *ast.SelectorExpr:
		i, ok := c.takes["."+f.Sel.Name]
		return i, ok
	}
	return 0, false
}

// rules reads structs that are written without the names of their fields:
// Rule{"code", judge}, and lists and maps of such.
func (c *collector) rules(n *ast.CompositeLit) {
	switch t := n.Type.(type) {
	case *ast.Ident:
		c.unnamed(t, n)
	case *ast.ArrayType:
		for _, e := range n.Elts {
			c.unnamed(t.Elt, e)
		}
	case *ast.MapType:
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				c.unnamed(t.Value, kv.Value)
			}
		}
	}
}

// unnamed takes the code out of a struct of a type.
func (c *collector) unnamed(t, e ast.Expr) {
	name, isName := t.(*ast.Ident)
	lit, isLit := e.(*ast.CompositeLit)
	if !isName || !isLit || len(lit.Elts) == 0 || lit.Type != nil && lit.Type != t {
		return
	}
	i, coded := c.coded[name.Name]
	if _, named := lit.Elts[0].(*ast.KeyValueExpr); coded && !named && i < len(lit.Elts) {
		c.add(lit.Elts[i])
	}
}

// add takes in one expression.
func (c *collector) add(e ast.Expr) {
	where := c.fset.Position(e.Pos())
	file, err := filepath.Rel(c.root, where.Filename)
	if err != nil {
		file = where.Filename
	}
	place := fmt.Sprintf("%s:%d", file, where.Line)
	switch e := e.(type) {
	case *ast.BasicLit:
		c.note(e, "", place)
		return
	case *ast.BinaryExpr:
		if lit, ok := e.X.(*ast.BasicLit); ok && e.Op == token.ADD {
			c.note(lit, "*", place)
			return
		}
	case *ast.Ident:
		for _, v := range c.values[e.Name] {
			if _, isName := v.(*ast.Ident); !isName {
				c.add(v)
			}
		}
		if e.Name == "code" || strings.HasPrefix(e.Name, "Step") || len(c.values[e.Name]) > 0 {
			return // a parameter: its callers are looked at
		}
	case *ast.SelectorExpr:
		if e.Sel.Name == "Code" || e.Sel.Name == "code" || strings.HasSuffix(e.Sel.Name, "Errno") {
			return // handed on from where it was looked at, or the server's
		}
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Uint16" {
			return // the server's
		}
		if f, ok := e.Fun.(*ast.Ident); ok && f.Name == "string" && len(e.Args) == 1 {
			c.note(&ast.BasicLit{Kind: token.STRING, Value: `""`}, "*", place)
			return // a word of another type: *
		}
	}
	c.unresolved = append(c.unresolved, place)
}

func (c *collector) note(lit *ast.BasicLit, suffix, place string) {
	text, err := strconv.Unquote(lit.Value)
	if err != nil || lit.Kind != token.STRING {
		return // a number: the server's error, not ours
	}
	if text += suffix; text != "" {
		c.codes[text] = append(c.codes[text], place)
	}
}
