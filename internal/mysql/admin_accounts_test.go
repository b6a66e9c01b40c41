package mysql

import (
	"slices"
	"testing"
)

// The account that a server picks, where several match, as 10.11 sorts them.
func TestLoginProblemFindsTheAccountThatTheServerPicks(t *testing.T) {
	logins := []Login{{User: "", Host: "localhost"}, {User: "a", Host: "%"}, {User: "b", Host: "10.0.%"}, {User: "b", Host: "10.0.0.7", TLS: "ANY"}, {User: "c", Host: "localhost"}}
	slave := []string{"GRANT REPLICATION SLAVE ON *.* TO x"}
	for _, c := range []struct {
		user, host string
		tls, ok    bool
	}{
		{"a", "localhost", true, false}, {"a", "127.0.0.1", true, false}, {"a", "10.0.0.7", false, true},
		{"b", "10.0.0.8", false, true}, {"b", "10.0.0.7", false, false}, {"b", "10.0.0.7", true, true}, {"b", "10.1.0.1", true, false},
		{"c", "localhost", false, true}, {"d", "10.0.0.7", true, false},
	} {
		if got := LoginProblem(logins, slave, c.user, c.host, c.tls, true); (got == "") != c.ok {
			t.Errorf("%s from %s, tls %v: %q", c.user, c.host, c.tls, got)
		}
	}
}

func TestMissingForAdmin(t *testing.T) {
	if m := MissingForAdmin([]string{"GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` IDENTIFIED VIA x WITH GRANT OPTION"}); m != nil {
		t.Errorf("root lacks %v", m)
	}
	m := MissingForAdmin([]string{"GRANT SELECT, INSERT, SUPER ON *.* TO x", "GRANT ALL PRIVILEGES ON `app`.* TO x WITH GRANT OPTION"})
	for _, p := range []string{"CREATE USER", "GRANT OPTION", "RELOAD"} {
		if !slices.Contains(m, p) {
			t.Errorf("%s is not missing in %v", p, m)
		}
	}
}
