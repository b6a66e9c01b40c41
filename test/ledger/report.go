package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what a comparison found.
type Report struct {
	// Acknowledged counts the commits that were answered OK, Unknown those
	// without an answer, of which UnknownCommitted are there; Refused those that
	// a read-only server turned down.
	Acknowledged, Unknown, UnknownCommitted, Refused int
	// Lost are the acknowledged rows that a server does not have; Extra the rows
	// that no writer wrote. By server, empty if all is well.
	Lost, Extra map[string][]int64
	// Writable are the servers that take writes; there must be exactly one.
	Writable []string
	// Tables is the number of tables compared, Differences what differs.
	Tables      int
	Differences []string
	// LateAcks are commits that an old master acknowledged after another server
	// was opened.
	LateAcks []Ack
	// LongestOutage is the longest time without an acknowledged commit, from
	// OutageBegan on.
	LongestOutage time.Duration
	OutageBegan   time.Time
}

// Err is everything that must not be, nil if there is nothing.
func (r *Report) Err() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.Lost)) {
		errs = append(errs, fmt.Errorf("%d acknowledged rows are not on %s: %s", len(r.Lost[name]), name, some(r.Lost[name])))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		errs = append(errs, fmt.Errorf("%d rows on %s were never written: %s", len(r.Extra[name]), name, some(r.Extra[name])))
	}
	if len(r.Writable) != 1 {
		errs = append(errs, fmt.Errorf("%d servers are writable, not 1: %s", len(r.Writable), strings.Join(r.Writable, ", ")))
	}
	for _, d := range r.Differences {
		errs = append(errs, errors.New(d))
	}
	for _, a := range r.LateAcks {
		errs = append(errs, fmt.Errorf("the old master %s (server_id %d) acknowledged row %d at %s, after another server was opened",
			a.Addr, a.ServerID, a.ID, a.After.Format(time.StampMicro)))
	}
	return errors.Join(errs...)
}

// String is one line for people.
func (r *Report) String() string {
	lost := 0
	for _, ids := range r.Lost {
		lost = max(lost, len(ids))
	}
	return fmt.Sprintf("%d commits acknowledged, %d lost; %d unanswered of which %d are there, %d refused; %d tables compared; longest outage %d ms",
		r.Acknowledged, lost, r.Unknown, r.UnknownCommitted, r.Refused, r.Tables, r.LongestOutage.Milliseconds())
}

// some prints the first few ids.
func some(ids []int64) string {
	const few = 10
	words := make([]string, 0, few+1)
	for _, id := range ids[:min(few, len(ids))] {
		words = append(words, fmt.Sprint(id))
	}
	if len(ids) > few {
		words = append(words, "…")
	}
	return strings.Join(words, ", ")
}
