package failover_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/repld/repld/test/explorer"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// The transcripts in testdata are scenarios on the explorer's model of three
// servers: what Decide saw (verdict, intent, servers) and what it said to do,
// step by step. Each also holds every invariant at every step. A change of the
// rules shows here as a change of what repld would do.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := explorer.Play(string(want))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(want), got); diff != "" && !*update {
				t.Errorf("run with -update if this is intended:\n%s", diff)
			}
		})
	}
}
