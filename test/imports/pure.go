package imports

import (
	"fmt"
	"go/ast"
	"go/types"
	"path"
	"strconv"

	"golang.org/x/tools/go/packages"
)

// pureSet are the parsed pure files by their path within the module.
type pureSet map[string]*ast.File

// pureFiles finds the files that the patterns name, and lists the patterns that
// name none: a renamed file would otherwise lose its protection unnoticed.
func pureFiles(pkgs []*packages.Package) (set pureSet, unmatched []string, err error) {
	set = pureSet{}
	matched := map[string]bool{}
	for _, p := range pkgs {
		for _, f := range p.Syntax {
			rel, err := relative(p, p.Fset.Position(f.Package).Filename)
			if err != nil {
				return nil, nil, err
			}
			for _, pattern := range pure {
				if ok, err := path.Match(pattern, rel); err != nil {
					return nil, nil, fmt.Errorf("pattern %s: %w", pattern, err)
				} else if ok {
					set[rel], matched[pattern] = f, true
				}
			}
		}
	}
	for _, pattern := range pure {
		if !matched[pattern] {
			unmatched = append(unmatched, fmt.Sprintf("no file matches %s: correct rules.go if it was renamed", pattern))
		}
	}
	return set, unmatched, nil
}

// violations lists what the pure files import or reach that they must not.
func (set pureSet) violations(pkgs []*packages.Package) []string {
	reach := newReach(pkgs)
	var out []string
	for _, p := range pkgs {
		for _, f := range p.Syntax {
			rel, err := relative(p, p.Fset.Position(f.Package).Filename)
			if err != nil || set[rel] == nil {
				continue
			}
			for _, spec := range f.Imports {
				if name, err := strconv.Unquote(spec.Path.Value); err == nil && isEffect(name) {
					out = append(out, fmt.Sprintf("%s is to be pure and imports %s", rel, name))
				}
			}
			for _, fn := range functions(p.TypesInfo, f) {
				if via := reach.effect(fn); via != "" {
					out = append(out, fmt.Sprintf("%s is to be pure and uses %s", rel, via))
				}
			}
		}
	}
	return out
}

// reach answers whether a function of the module ends in an effect, through
// whatever functions of the module it uses. Calls through interfaces are not
// followed: what stands behind one is its caller's choice.
type reach struct {
	uses map[string][]*types.Func // by the full name of the using function
	memo map[string]string
}

func newReach(pkgs []*packages.Package) *reach {
	r := &reach{uses: map[string][]*types.Func{}, memo: map[string]string{}}
	for _, p := range pkgs {
		for _, f := range p.Syntax {
			for _, d := range f.Decls {
				decl, ok := d.(*ast.FuncDecl)
				if !ok || decl.Body == nil {
					continue
				}
				if fn, ok := p.TypesInfo.Defs[decl.Name].(*types.Func); ok {
					r.uses[fn.FullName()] = functions(p.TypesInfo, decl.Body)
				}
			}
		}
	}
	return r
}

// effect names the effect that fn is or reaches, "" if none.
func (r *reach) effect(fn *types.Func) string {
	if fn.Pkg() == nil {
		return ""
	}
	pkg, name := fn.Pkg().Path(), fn.FullName()
	if pkg == "time" {
		// Methods such as Time.After compare; only the functions read the clock.
		if fn.Signature().Recv() == nil && clock[fn.Name()] {
			return name
		}
		return ""
	}
	if isEffect(pkg) {
		return name
	}
	if _, ours := inside(pkg); !ours {
		return ""
	}
	if via, known := r.memo[name]; known {
		return via
	}
	r.memo[name] = "" // ends recursion
	for _, used := range r.uses[name] {
		if via := r.effect(used); via != "" {
			r.memo[name] = fmt.Sprintf("%s, which uses %s", name, via)
			break
		}
	}
	return r.memo[name]
}

// functions lists the functions and methods that a piece of source mentions.
func functions(info *types.Info, node ast.Node) []*types.Func {
	var out []*types.Func
	ast.Inspect(node, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if fn, ok := info.Uses[id].(*types.Func); ok {
				out = append(out, fn.Origin())
			}
		}
		return true
	})
	return out
}
