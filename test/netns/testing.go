package netns

import (
	"errors"
	"os"
	"testing"
)

// Start makes a network that ends with the test. Where network namespaces cannot
// be made, the test is skipped, but not where CI is set: there every test runs.
func Start(t testing.TB, names ...string) *Network {
	t.Helper()
	n, err := New(names...)
	if errors.Is(err, os.ErrPermission) && os.Getenv("CI") == "" {
		t.Skipf("NOT RUN, for it needs to be root: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}
