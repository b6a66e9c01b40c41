package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestDocumentationListsEveryVerbAndFlagAndNoOther keeps docs/cli.md true.
func TestDocumentationListsEveryVerbAndFlagAndNoOther(t *testing.T) {
	raw, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	root := newRoot(&cli{env: func(string) (string, bool) { return "", false }})
	known := map[string]bool{"--help": true}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		flags := func(f *pflag.Flag) {
			known["--"+f.Name] = true
			if !strings.Contains(doc, "`--"+f.Name) {
				t.Errorf("docs/cli.md lacks --%s of %s", f.Name, cmd.CommandPath())
			}
		}
		cmd.LocalFlags().VisitAll(flags)
		if cmd.Runnable() && cmd.HasParent() && !cmd.HasSubCommands() {
			if path := strings.TrimPrefix(cmd.CommandPath(), "replctl "); !strings.Contains(doc, "`"+path) {
				t.Errorf("docs/cli.md lacks %s", path)
			}
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				walk(sub)
			}
		}
	}
	walk(root)
	for _, m := range regexp.MustCompile("`(--[a-z][a-z-]*)").FindAllStringSubmatch(doc, -1) {
		if !known[m[1]] {
			t.Errorf("docs/cli.md names %s, which does not exist", m[1])
		}
	}
}
