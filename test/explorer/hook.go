package explorer

import "github.com/repld/repld/failover"

// fenceKey is where Decide looks for the end of hooks.fence: every intent of the
// model is operation 1.
const fenceKey = "hook:fence:1"

// hookState is what repld knows of the fence of the open intent, if the policy
// has one.
type hookState uint8

const (
	hookNone hookState = iota
	hookRuns
	hookDone
	hookFailed
)

// effect is how Decide sees it. One that failed, did so long ago: it may be run
// again at once.
func (h hookState) effect() (failover.Effect, bool) {
	switch h {
	case hookRuns:
		return failover.Effect{Running: failover.KindHook}, true
	case hookDone:
		return failover.Effect{Last: failover.KindHook, At: tExpired}, true
	case hookFailed:
		return failover.Effect{Last: failover.KindHook, Failed: 1, At: tExpired}, true
	}
	return failover.Effect{}, false
}

// endHook lets the fence end. One that works takes the old master's power away,
// whatever state it was in; one that fails has done nothing.
func (e *Explorer) endHook(s *state, works bool) bool {
	in := e.clusters[s.r.cluster].Intent
	if s.r.hook != hookRuns || in == nil {
		return false
	}
	if !works {
		s.r.hook = hookFailed
		return true
	}
	e.observe(s)
	s.r.hook = hookDone
	if old := index(in.OldMaster); s.w.s[old].life != down {
		s.w.crash(old)
		s.r.m[old].ghost = effect{}
	}
	return true
}
