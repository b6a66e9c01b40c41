package gtid

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GTID names one transaction: the replication domain, the server_id of the
// server that first wrote it, and its sequence number in the domain. The zero
// value names no transaction.
type GTID struct {
	Domain uint32
	Server uint32
	Seq    uint64
}

// IsZero tells whether g names no transaction. Sequence numbers start at 1.
func (g GTID) IsZero() bool { return g.Seq == 0 }

// String gives MariaDB's notation, for example "0-1-482133"; "" for the zero value.
func (g GTID) String() string {
	if g.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d", g.Domain, g.Server, g.Seq)
}

// Compare orders by domain, then sequence, then server; it is a sort order for
// printing and says nothing about which server has more: see [Lineage].
func (g GTID) Compare(o GTID) int {
	return cmp.Or(cmp.Compare(g.Domain, o.Domain), cmp.Compare(g.Seq, o.Seq), cmp.Compare(g.Server, o.Server))
}

// Parse reads one identifier in MariaDB's notation.
func Parse(s string) (GTID, error) {
	parts := strings.Split(strings.TrimSpace(s), "-")
	if len(parts) != 3 {
		return GTID{}, fmt.Errorf("gtid %q: want domain-server-sequence, for example 0-1-42", s)
	}
	domain, err := strconv.ParseUint(parts[0], 10, 32)
	if err != nil {
		return GTID{}, fmt.Errorf("gtid %q: bad domain: %w", s, err)
	}
	server, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return GTID{}, fmt.Errorf("gtid %q: bad server_id: %w", s, err)
	}
	seq, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return GTID{}, fmt.Errorf("gtid %q: bad sequence: %w", s, err)
	}
	if seq == 0 {
		return GTID{}, fmt.Errorf("gtid %q: sequence numbers start at 1", s)
	}
	return GTID{Domain: uint32(domain), Server: uint32(server), Seq: seq}, nil
}

// parseList reads a comma-separated list, empty for blank input.
func parseList(s string) ([]GTID, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var out []GTID
	for part := range strings.SplitSeq(s, ",") {
		g, err := Parse(part)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// printList prints identifiers sorted by domain and sequence.
func printList(list []GTID) string {
	slices.SortFunc(list, GTID.Compare)
	words := make([]string, len(list))
	for i, g := range list {
		words[i] = g.String()
	}
	return strings.Join(words, ",")
}
