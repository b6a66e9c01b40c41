package e2e

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// faultJSON is an error as -o json prints it.
type faultJSON struct {
	Error struct {
		Code        string  `json:"code"`
		What        string  `json:"what"`
		Server      *string `json:"server"`
		ServerErrno *uint16 `json:"server_errno"`
		Cause       string  `json:"cause"`
		State       string  `json:"state"`
		Do          string  `json:"do"`
	} `json:"error"`
}

// wantFault wants an exit code, the fault's code, all four parts, and some
// fragments in them. With -o json all of stderr must be the one JSON document.
func wantFault(t *testing.T, out rig.Output, exit int, code string, fragments ...string) faultJSON {
	t.Helper()
	var f faultJSON
	if out.Code != exit {
		t.Errorf("exit %d, want %d\n%s%s", out.Code, exit, out.Stdout, out.Stderr)
		return f
	}
	if slices.Contains(out.Args, "json") {
		if err := json.Unmarshal([]byte(out.Stderr), &f); err != nil {
			t.Errorf("stderr is not the JSON error alone: %v\n%s", err, out.Stderr)
			return f
		}
		if f.Error.Code != code {
			t.Errorf("the code is %q, want %q", f.Error.Code, code)
		}
		if f.Error.What == "" || f.Error.Cause == "" || f.Error.State == "" || f.Error.Do == "" {
			t.Errorf("a part is missing: %+v", f.Error)
		}
		if strings.Contains(f.Error.Cause+f.Error.What, "&fault.Error") {
			t.Errorf("not for people: %+v", f.Error)
		}
	} else {
		for _, start := range []string{"\ncause: ", "\nstate: ", "\ndo: "} {
			if strings.Count("\n"+out.Stderr, start) != 1 {
				t.Errorf("want exactly one line that begins %q:\n%s", strings.TrimSpace(start), out.Stderr)
			}
		}
	}
	for _, fragment := range fragments {
		if !strings.Contains(out.Stderr, fragment) {
			t.Errorf("%q is missing in:\n%s", fragment, out.Stderr)
		}
	}
	noSecret(t, out.Stdout+out.Stderr)
	return f
}

// wantFaultBoth runs a verb that is refused in both formats.
func wantFaultBoth(t *testing.T, r *rig.Rig, exit int, code string, args []string, fragments ...string) faultJSON {
	t.Helper()
	wantFault(t, r.Ctl(within(t), args...), exit, code, fragments...)
	return wantFault(t, r.Ctl(within(t), append(slices.Clone(args), "-o", "json")...), exit, code)
}

// noSecret wants the administrator's password nowhere.
func noSecret(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, mariadb.AdminPassword) {
		t.Errorf("the administrator's password stands in:\n%s", text)
	}
}

// initMaster and initSlave are the whole command lines, with changed flags.
func initMaster(r *rig.Rig, s *mariadb.Server, change ...string) []string {
	return changed(append([]string{"init", "master", s.Name, "--yes"}, r.InitFlags(s)...), change)
}

func initSlave(r *rig.Rig, s *mariadb.Server, change ...string) []string {
	return changed(append([]string{"init", "slave", s.Name, "--yes"}, r.InitFlags(s)...), change)
}

// changed replaces the values of flags, or adds them.
func changed(args, change []string) []string {
	for i := 0; i+1 < len(change); i += 2 {
		if at := slices.Index(args, change[i]); at >= 0 {
			args[at+1] = change[i+1]
		} else {
			args = append(args, change[i], change[i+1])
		}
	}
	return args
}

// without takes a word off a command line.
func without(args []string, word string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == word })
}

// variables is all that a server runs with, and its accounts, schemas and
// files beside its data: what a dry run or a refusal must leave alone.
func footprint(t *testing.T, s *mariadb.Server) string {
	t.Helper()
	var b strings.Builder
	for _, query := range []string{
		"SELECT VARIABLE_NAME, VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES ORDER BY 1",
		"SELECT User, Host FROM mysql.global_priv ORDER BY 1, 2",
		"SELECT SCHEMA_NAME FROM information_schema.SCHEMATA ORDER BY 1",
		"SHOW ALL SLAVES STATUS",
	} {
		rows, err := s.Rows(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(rows)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	for _, dir := range []string{s.ConfigDir, filepath.Join(s.DataDir, "repld-tls")} {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			b.WriteString(path + "\n" + string(text))
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return b.String()
}

// sameFootprint wants two footprints to be equal and names the first difference.
func sameFootprint(t *testing.T, what, before, after string) {
	t.Helper()
	if before == after {
		return
	}
	i := 0
	for i < len(before) && i < len(after) && before[i] == after[i] {
		i++
	}
	cut := func(s string) string { return s[max(0, min(i, len(s))-120):min(len(s), i+120)] }
	t.Errorf("%s changed something:\n…%s…\n…%s…", what, cut(before), cut(after))
}

// writeFile makes a file for a test.
func writeFile(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// listener accepts connections and says greeting to each; it ends with the test.
func listener(t *testing.T, greeting string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var open []net.Conn
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, conn)
			_, _ = conn.Write([]byte(greeting))
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	return l.Addr().String()
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}
