package explorer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Play carries out a script on the model of three servers and returns the
// script with what came of each line written below it. A line of the script
// begins with "> "; what else stands in it is left out, so that the result is
// itself a script. "#" begins a comment that is kept.
//
//	repld              decide and act until there is only to wait
//	step               one turn of that
//	crash db1          and any other event on a server: restart, freeze, thaw,
//	                   write, receive, apply, lag, unlag, cut, heal, stale, seen
//	crash repld        its memory is lost
//	pass N             the Nth of the spans that can pass (see longs)
//	order db2          a person orders a failover, to a server or "any"
//	switchover db2     a person orders one
//	accept N           a person orders a failover that may lose N transactions
//	chain              db3 is a slave of db2 from the beginning
//	pause, resume, manual, window 24h
func Play(script string) (string, error) {
	e := New(Bounds{Servers: 3, Writes: maxLog, Faults: 200, Crashes: 200, Chain: strings.Contains(script, "\n> chain\n")}, Guards{})
	s, err := e.start()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.SplitSeq(script, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, "> "):
			fmt.Fprintln(&out, line)
			said, err := e.line(s, strings.Fields(line[2:]))
			if err != nil {
				return "", fmt.Errorf("%q: %w", line, err)
			}
			out.WriteString(said)
		}
	}
	return out.String(), nil
}

var words = map[string]kind{
	"crash": evCrash, "restart": evRestart, "freeze": evFreeze, "thaw": evThaw, "write": evWrite, "receive": evReceive,
	"apply": evApply, "lag": evLag, "unlag": evUnlag, "cut": evCut, "heal": evHeal, "stale": evStale, "seen": evUnstale, "late": evGhost, "fetch": evFetch,
}

// line carries out one line of a script.
func (e *Explorer) line(s *state, f []string) (string, error) {
	switch strings.Join(f, " ") {
	case "chain":
		return "", nil
	case "repld":
		return e.turns(s, patience)
	case "step":
		return e.turns(s, 1)
	case "crash repld":
		e.crashRepld(s)
		return "", nil
	case "pause":
		return "", e.command(s, topology.SetPause{Cluster: clusterName, Paused: true, At: now})
	case "resume":
		return "", e.command(s, topology.SetPause{Cluster: clusterName, At: now})
	case "manual":
		e.Policy.Automatic = false
		e.decided = map[uint64]failover.Action{}
		return "", nil
	}
	if len(f) != 2 {
		return "", fmt.Errorf("unknown line")
	}
	switch f[0] {
	case "pass":
		for i, what := range longs {
			if fmt.Sprint(i) == f[1] {
				if !e.pass(s, i) {
					return "", fmt.Errorf("it does not count this span now")
				}
				return "   (" + what + ")\n", nil
			}
		}
		return "", fmt.Errorf("no such span")
	case "window":
		d, err := time.ParseDuration(f[1])
		e.Policy.BlockWindow = d
		e.decided = map[uint64]failover.Action{}
		return "", err
	case "switchover":
		e.Order = &failover.Order{To: strings.TrimPrefix(f[1], "any"), Switchover: true}
		e.decided = map[uint64]failover.Action{}
		return "", nil
	case "accept":
		n, err := strconv.ParseUint(f[1], 10, 8)
		e.Order = &failover.Order{AcceptLoss: &n}
		e.decided = map[uint64]failover.Action{}
		return "", err
	case "order":
		e.Order = &failover.Order{To: strings.TrimPrefix(f[1], "any")}
		e.decided = map[uint64]failover.Action{}
		return "", nil
	}
	return e.eventLine(s, f)
}

func (e *Explorer) eventLine(s *state, f []string) (string, error) {
	k, ok := words[f[0]]
	if !ok || len(f[1]) != 3 {
		return "", fmt.Errorf("unknown line")
	}
	x := index(f[1])
	ev := event{k: k, x: uint8(x)}
	if k == evHeal {
		ev.y = ev.x
	}
	done, _, broken := e.apply(s, ev)
	if broken = first(broken, e.check(s)); broken != "" {
		return "", fmt.Errorf("violated: %s", broken)
	}
	if !done {
		return "", fmt.Errorf("it cannot happen now:\n%s", e.show(s))
	}
	return "", nil
}

func (e *Explorer) command(s *state, cmds ...topology.Command) error {
	if refused := e.journal(&s.r, cmds...); refused != "" {
		return fmt.Errorf("%s", refused)
	}
	return nil
}

// turns lets repld work until it waits, or for so many turns, and tells what it
// saw and did.
func (e *Explorer) turns(s *state, most int) (string, error) {
	var out strings.Builder
	for range most {
		e.observe(s)
		in := e.input(&s.r)
		fmt.Fprintf(&out, "   view: epoch %d, master %s, %s%s\n%s", in.View.Cluster.Epoch, in.View.Cluster.Master, in.Verdict.State, intentWords(in.View.Cluster.Intent), e.show(s))
		_, a, broken := e.turn(s, false)
		fmt.Fprintf(&out, "   %s\n", tell(a))
		if broken = first(broken, e.check(s)); broken != "" {
			return "", fmt.Errorf("violated: %s\n%s", broken, out.String())
		}
		if e.Order != nil && (a.Kind == failover.KindBegin || a.Kind == failover.KindWait) {
			e.Order = nil // an order that cannot be followed is void
			e.decided = map[uint64]failover.Action{}
		}
		if a.Kind == failover.KindWait {
			e.observe(s)
			fmt.Fprintf(&out, "   status: %s\n", e.status(s))
			e.forget(s)
			return out.String(), nil
		}
	}
	if most == 1 {
		return out.String(), nil
	}
	return "", fmt.Errorf("repld does not come to rest:\n%s", out.String())
}

func (e *Explorer) status(s *state) string {
	r := failover.Assess(e.input(&s.r))
	codes := []string{string(r.Health)}
	for _, p := range r.Problems {
		codes = append(codes, strings.TrimSpace(p.Code+" "+p.Server))
	}
	return strings.Join(codes, ", ")
}

func intentWords(in *topology.Intent) string {
	switch {
	case in == nil:
		return ""
	case !in.Opened.IsZero():
		return fmt.Sprintf(", intent %s: opened %s", in.Kind, in.Opening.Server)
	case in.Opening != nil:
		return fmt.Sprintf(", intent %s: opening %s after %s", in.Kind, in.Opening.Server, in.Opening.Applied)
	}
	return fmt.Sprintf(", intent %s%s", in.Kind, word(in.Bound == gtid.GTID{}, "", ": bound "+in.Bound.String()))
}
