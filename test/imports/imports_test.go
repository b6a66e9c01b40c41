package imports

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestImportsPointOneWayAndDecisionsArePure(t *testing.T) {
	violations, err := Check("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

// The fixture is a module that breaks each rule once and obeys it nearby.
func TestEachKindOfViolationIsFound(t *testing.T) {
	got, err := Check("testdata/module")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"binlog imports health",
		"cmd/replctl imports internal/app",
		"cmd/replctl imports internal/mysql",
		"cmd/replctl imports internal/provision",
		"failover/decide.go is to be pure and uses (*github.com/repld/repld/topology.Cluster).Age, which uses time.Since",
		"failover/decide.go is to be pure and uses github.com/repld/repld/failover.helper, which uses github.com/repld/repld/failover.now, which uses time.Now",
		"failover/decide_more.go is to be pure and imports log/slog",
		"failover/decide_more.go is to be pure and uses log/slog.Info",
		"health imports database/sql, which belongs to internal/mysql",
		"health/detector.go is to be pure and uses time.NewTimer",
		"health/detector.go is to be pure and uses time.Now",
		"internal/fault imports topology",
		"internal/gtid/gtid.go is to be pure and imports math/rand/v2",
		"internal/gtid/gtid.go is to be pure and imports os",
		"internal/gtid/gtid.go is to be pure and uses math/rand/v2.IntN",
		"internal/gtid/gtid.go is to be pure and uses os.Getpid",
		"topology imports health",
		"web has no place in the order of imports: give it one in rules.go",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

func TestARenamedPureFileIsNoticed(t *testing.T) {
	got, err := Check("testdata/renamed")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(pure) || !slices.Contains(got, "no file matches internal/gtid/*.go: correct rules.go if it was renamed") {
		t.Errorf("violations are %q", got)
	}
}
