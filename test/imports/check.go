package imports

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Check loads the module in dir and returns its violations, sorted, each as one
// line. Files of tests are bound by no rule.
func Check(dir string) ([]string, error) {
	cfg := &packages.Config{
		Dir: dir,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedModule |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
	}
	pkgs, err := packages.Load(cfg, "./...")
	if err != nil {
		return nil, fmt.Errorf("load packages: %w", err)
	}
	if len(pkgs) == 0 {
		return nil, fmt.Errorf("no packages in %s", dir)
	}
	for _, p := range pkgs {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("package %s: %v", p.PkgPath, p.Errors[0])
		}
	}
	out := direction(pkgs)
	files, unmatched, err := pureFiles(pkgs)
	if err != nil {
		return nil, err
	}
	out = slices.Concat(out, unmatched, files.violations(pkgs))
	slices.Sort(out)
	return slices.Compact(out), nil
}

// inside is the path of a package within the module, false if it is foreign.
func inside(path string) (string, bool) {
	if path == Module {
		return "", true
	}
	return strings.CutPrefix(path, Module+"/")
}

// direction checks the imports of each package.
func direction(pkgs []*packages.Package) []string {
	var out []string
	for _, p := range pkgs {
		from, ok := inside(p.PkgPath)
		if !ok || isFree(from) {
			continue
		}
		if _, placed := allowed[from]; !placed && !isLeaf(from) {
			out = append(out, fmt.Sprintf("%s has no place in the order of imports: give it one in rules.go", from))
		}
		for path := range p.Imports {
			if to, ok := inside(path); ok {
				if !mayImport(from, to) {
					out = append(out, fmt.Sprintf("%s imports %s", from, to))
				}
				continue
			}
			if who, bound := speakers[path]; bound && !slices.Contains(who, from) {
				out = append(out, fmt.Sprintf("%s imports %s, which belongs to %s", from, path, orNobody(who)))
			}
		}
	}
	return out
}

func mayImport(from, to string) bool {
	return isLeaf(to) || slices.Contains(allowed[from], to)
}

func orNobody(who []string) string {
	if len(who) == 0 {
		return "nobody"
	}
	return strings.Join(who, ", ")
}

// relative is a file's path within the module, with slashes.
func relative(p *packages.Package, file string) (string, error) {
	rel, err := filepath.Rel(p.Module.Dir, file)
	return filepath.ToSlash(rel), err
}
