package mariadb

import (
	"context"
	"testing"
	"time"
)

func TestStartGivesAPlainServer(t *testing.T) {
	begun := time.Now()
	s := Start(t, Options{})
	t.Logf("started in %v", time.Since(begun))
	if got := s.MustValue(t, "SELECT @@log_bin"); got != "0" {
		t.Errorf("log_bin = %s, want 0", got)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if s.Running() {
		t.Fatal("runs after Kill")
	}
	if err := s.StartAgain(context.Background()); err != nil {
		t.Fatal(err)
	}
}
