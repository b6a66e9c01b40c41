package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

const root = "../.."

// source are the folders whose codes reach a user.
var source = []string{"failover", "internal", "binlog", "cmd"}

// composed are the codes that the source puts together.
var composed = map[string][]string{
	"master_*": {
		"master_" + string(health.StateDead), "master_" + string(health.StateHung), "master_" + string(health.StateSuspect),
		"master_" + string(health.StateVetoed), "master_" + string(health.StateCutOff), "master_" + string(health.StateUnknown),
	},
	"durability_*": {"durability_" + string(topology.DurabilityDegraded), "durability_" + string(topology.DurabilityOff)},
	// How a failover that was ordered ended.
	"*": {string(topology.ResultRolledBack), string(topology.ResultFailed)},
}

// Every code that the source can report is explained in docs/problems.md, and
// every code that is explained there exists.
func TestEveryCodeIsExplained(t *testing.T) {
	found, err := Codes(root, source...)
	if err != nil {
		t.Fatal(err)
	}
	never := topology.Server{Promotion: topology.PromotionNever, Delay: time.Hour, ReplicateDoDB: []string{"a"}, SkipErrors: "all", Joining: true}
	for _, code := range never.NeverPromotable() {
		found[code] = append(found[code], "topology")
	}
	for pattern, codes := range composed {
		if len(found[pattern]) == 0 {
			t.Errorf("the source puts no code %s together any more", pattern)
		}
		for _, code := range codes {
			found[code] = append(found[code], found[pattern]...)
		}
		delete(found, pattern)
	}
	explained := map[string]bool{}
	for line := range strings.SplitSeq(read(t, "docs/problems.md"), "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for _, m := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
				if explained[m[1]] {
					t.Errorf("docs/problems.md explains %s twice", m[1])
				}
				explained[m[1]] = true
			}
		}
	}
	for code, places := range found {
		if !explained[code] {
			t.Errorf("docs/problems.md lacks %s (%s)", code, strings.Join(places, ", "))
		}
		delete(explained, code)
	}
	for code := range explained {
		t.Errorf("docs/problems.md explains %s, which the source does not have", code)
	}
}

// Every code that can be seen by eye as a constant is found by [Codes]: a new
// way to write one must not escape it.
func TestCodesFindsWhatIsPlainlyThere(t *testing.T) {
	found, err := Codes(root, source...)
	if err != nil {
		t.Fatal(err)
	}
	plain := regexp.MustCompile(`Code: "([a-z_]+)"`)
	n := 0
	goFiles(t, func(path, text string) {
		for _, m := range plain.FindAllStringSubmatch(text, -1) {
			n++
			if len(found[m[1]]) == 0 && len(found[m[1]+"*"]) == 0 {
				t.Errorf("%s: %s is not found", path, m[1])
			}
		}
	})
	if n < 50 || len(found) < 150 {
		t.Errorf("only %d codes by eye, %d found", n, len(found))
	}
}

// What users are told to type exists: every replctl verb that a page or a
// message of the program names.
func TestNamedVerbsExist(t *testing.T) {
	verbs := []string{"help", "completion", "was"} // "replctl was told to stop" is prose
	use := regexp.MustCompile(`Use: +"([a-z]+)`)
	check := func(path, text string) {
		for _, m := range regexp.MustCompile("(?m)(?:[`\"(]|^|sudo |then: )replctl (?:--[a-z]+ \\S+ )*([a-z]+)").FindAllStringSubmatch(text, -1) {
			if !slices.Contains(verbs, m[1]) {
				t.Errorf("%s: there is no replctl %s", path, m[1])
			}
		}
	}
	goFiles(t, func(path, text string) {
		if strings.HasPrefix(path, "cmd/replctl") {
			for _, m := range use.FindAllStringSubmatch(text, -1) {
				verbs = append(verbs, m[1])
			}
		}
	})
	if len(verbs) < 10 {
		t.Fatalf("only these verbs were found: %v", verbs)
	}
	goFiles(t, check)
	for _, page := range pages(t) {
		check(page, read(t, page))
	}
}

// Links between pages lead to files and headings that exist.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
			} else if anchor != "" && !slices.Contains(headings(read(t, target)), anchor) {
				t.Errorf("%s: %s has no heading %s", page, target, anchor)
			}
		}
	}
}

// headings are the anchors of a page.
func headings(text string) []string {
	var out []string
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.SplitSeq(text, "\n") {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			out = append(out, strings.ReplaceAll(strings.ToLower(drop.ReplaceAllString(title, "")), " ", "-"))
		}
	}
	return out
}

// A test that a page names as proof exists.
func TestNamedTestsExist(t *testing.T) {
	tests := map[string]bool{}
	walk(t, func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				tests[fn.Name.Name] = true
			}
		}
	})
	n := 0
	for _, page := range pages(t) {
		for _, m := range regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(read(t, page), -1) {
			n++
			if !tests[m[1]] {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
	if n == 0 {
		t.Error("no page names a test")
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	out := []string{"README.md"}
	walk(t, func(path string) {
		if strings.HasPrefix(path, "docs/") && strings.HasSuffix(path, ".md") {
			out = append(out, path)
		}
	})
	return out
}

// goFiles gives the program's own source, without tests.
func goFiles(t *testing.T, visit func(path, text string)) {
	t.Helper()
	walk(t, func(path string) {
		top, _, _ := strings.Cut(path, "/")
		if slices.Contains(source, top) && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			visit(path, read(t, path))
		}
	})
}

func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "testdata"):
			return fs.SkipDir
		case e.IsDir():
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err == nil {
			visit(rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The recording in the README is one of the present demonstration: its chapters
// and its commands are the same.
func TestTheRecordingIsOfThisDemonstration(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, "README.md"), "<!-- recording of make demo: begin -->")
	recording, _, ok2 := strings.Cut(rest, "<!-- recording of make demo: end -->")
	if !ok || !ok2 {
		t.Fatal("README.md has no recording")
	}
	play := read(t, "test/demo/play.go")
	heads := regexp.MustCompile(`d\.head\("([^"]+)"\)`).FindAllStringSubmatch(play, -1)
	if len(heads) < 5 {
		t.Fatalf("the demonstration has %d chapters", len(heads))
	}
	for i, m := range heads {
		if want := "== " + string(rune('1'+i)) + ". " + m[1]; !strings.Contains(recording, want) {
			t.Errorf("the recording lacks %q: record it again", want)
		}
	}
	for _, want := range []string{"$ replctl init master db1", "$ replctl init slave db3", "$ replctl status", "$ replctl history", "0 lost", "Nothing was lost"} {
		if !strings.Contains(recording, want) {
			t.Errorf("the recording lacks %q", want)
		}
	}
}
