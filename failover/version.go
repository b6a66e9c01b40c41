package failover

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// release is a server's version as major, minor and patch; all zero if unknown.
type release [3]int

// parseRelease reads @@version, for example "10.11.19-MariaDB-log". What cannot
// be read is unknown, which is newer than nothing.
func parseRelease(text string) release {
	// Some clients' MariaDB greets as 5.5.5-10.11.…
	number, _, _ := strings.Cut(strings.TrimPrefix(text, "5.5.5-"), "-")
	var r release
	for i, part := range strings.SplitN(number, ".", len(r)) {
		n, err := strconv.Atoi(part)
		if err != nil {
			return release{}
		}
		r[i] = n
	}
	return r
}

func (r release) compare(o release) int { return slices.Compare(r[:], o[:]) }

// series compares what decides whether one server can replicate from another:
// within a series of patches both ways work, from a newer series to an older one
// does not.
func (r release) series(o release) int {
	return cmp.Or(cmp.Compare(r[0], o[0]), cmp.Compare(r[1], o[1]))
}

func (m *member) release() release { return parseRelease(cmpOr(m.sv.LastOK.Version, m.s.Version)) }

// newerThan names the servers that would have to follow m although they are of
// an older series.
func newerThan(m *member, ms []*member) []string {
	var out []string
	mine := m.release()
	for _, o := range ms {
		theirs := o.release()
		if o != m && !o.s.Joining && len(o.s.Diverged) == 0 && theirs != (release{}) && mine.series(theirs) > 0 {
			out = append(out, o.name)
		}
	}
	return out
}
