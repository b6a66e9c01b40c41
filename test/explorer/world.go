package explorer

// maxServers and maxLog bound the model; a state is a plain comparable value.
const (
	maxServers = 4
	maxLog     = 6
)

type life uint8

const (
	up life = iota
	down
	frozen
)

type thread uint8

const (
	no thread = iota
	connecting
	yes
)

// point is a transaction of the one domain: who wrote it, and its number.
type point struct{ id, seq uint8 }

// history is a log of transactions: id[k-1] is who wrote number k.
type history struct {
	n  uint8
	id [maxLog]uint8
}

func (h *history) at(seq uint8) uint8 {
	if seq == 0 || seq > h.n {
		return 0
	}
	return h.id[seq-1]
}

func (h *history) add(id uint8) { h.id[h.n] = id; h.n++ }

func (h *history) last() point { return point{h.at(h.n), h.n} }

// has tells whether the very transaction is in the log.
func (h *history) has(p point) bool { return p.seq == 0 || h.at(p.seq) == p.id }

// server is one MariaDB server: what is on its disk and what it is doing.
type server struct {
	life  life
	ro    bool
	young bool // its process is younger than repld's last opening
	log   history
	pos   point // gtid_slave_pos
	// The default connection: source (index+1), mode and threads.
	src            uint8
	gtid           bool
	io, sql        thread
	ioErr, sqlErr  bool
	relay          history // transactions pos.seq+1 to relay.n are received and not applied
	got            point   // Gtid_IO_Pos, if shown
	gotShown       bool
	files          bool // the connection has read something since CHANGE MASTER
	acker, acking  bool // slave_enabled; the IO thread was started with it
	armed, gaveUp  bool // master_enabled; status OFF after a time-out
	waits          uint8
	fetch          uint8 // source of the rescue connection
	fetchOn        bool
	pendingTouched bool // some pending transaction was applied by another way
	locked         bool // a connection of repld holds the global read lock
	lags           bool // its SQL thread is slow: it applies by evApply only
}

func (s *server) pending() bool { return s.relay.n > s.pos.seq }

// received is the last transaction on the server's disk, by any way.
func (s *server) received() point {
	if s.pending() {
		return s.relay.last()
	}
	return s.pos
}

// holds tells whether a transaction is on the server's disk.
func (s *server) holds(p point) bool {
	return s.log.has(p) || p.seq > s.pos.seq && p.seq <= s.relay.n && s.relay.at(p.seq) == p.id
}

// world is all servers, the links, and what clients were told.
type world struct {
	s [maxServers]server
	// cut is a mask of servers that repld cannot reach; apart of pairs that
	// cannot reach each other.
	cut   uint8
	apart [maxServers]uint8
	// acked and exempt, by writer, are masks of sequence numbers: a client was
	// told OK; but it was while durability was not armed.
	acked, exempt [maxServers]uint8
	writes        uint8
	// unpromised: durability is not recorded, and shown, as armed.
	unpromised bool
}

func (w *world) linked(a, b int) bool { return w.apart[a]&(1<<b) == 0 }

func (w *world) ack(p point, exempt bool) {
	w.acked[p.id-1] |= 1 << (p.seq - 1)
	if exempt || w.unpromised {
		w.exempt[p.id-1] |= 1 << (p.seq - 1)
	}
}

// promised tells whether a client was told OK by a commit that an acker had.
func (w *world) promised(p point) bool {
	return p.seq > 0 && w.acked[p.id-1]&^w.exempt[p.id-1]&(1<<(p.seq-1)) != 0
}

// promises calls f for each promised transaction until it returns false.
func (w *world) promises(f func(point) bool) {
	for i := range w.acked {
		for q := uint8(1); q <= maxLog; q++ {
			if w.acked[i]&^w.exempt[i]&(1<<(q-1)) != 0 && !f(point{uint8(i + 1), q}) {
				return
			}
		}
	}
}

// clients counts the connected ackers of a server.
func (w *world) clients(m int) (n uint8) {
	for i := range w.s {
		s := &w.s[i]
		if s.src == uint8(m+1) && s.io == yes && s.acking && s.life != down {
			n++
		}
	}
	return n
}

// mute tells whether commits wait on a server for connected ackers of which none
// can answer.
func (w *world) mute(m int) bool {
	if w.s[m].waits == 0 || w.clients(m) == 0 {
		return false
	}
	for i := range w.s {
		s := &w.s[i]
		if s.src == uint8(m+1) && s.io == yes && s.acking && s.life == up && w.linked(i, m) {
			return false
		}
	}
	return true
}

// write is a client's commit.
func (w *world) write(m int) bool {
	s := &w.s[m]
	if s.life != up || s.ro || s.log.n >= maxLog {
		return false
	}
	s.log.add(uint8(m + 1))
	w.writes++
	if s.armed && !s.gaveUp {
		s.waits++
	} else {
		w.ack(s.log.last(), true)
	}
	return true
}

// release answers OK to all commits that wait and are not after seq.
func (w *world) release(m int, upTo uint8, exempt bool) {
	s := &w.s[m]
	for s.waits > 0 {
		q := s.log.n - s.waits + 1
		if q > upTo {
			return
		}
		w.ack(point{s.log.at(q), q}, exempt)
		s.waits--
	}
}

// connect is an IO thread's successful or refused handshake with its source.
func (w *world) connect(x int) bool {
	s := &w.s[x]
	if s.life != up || s.io != connecting || s.src == 0 {
		return false
	}
	m := &w.s[s.src-1]
	if m.life != up || !w.linked(x, int(s.src-1)) {
		return false
	}
	if !m.log.has(s.received()) { // 1236
		s.io, s.ioErr = no, true
		return true
	}
	s.io, s.files = yes, true
	return true
}

// receive fetches the next transaction into the relay log and acknowledges it.
func (w *world) receive(x int) bool {
	s := &w.s[x]
	if s.life != up || s.io != yes || s.src == 0 {
		return false
	}
	mi := int(s.src - 1)
	m := &w.s[mi]
	next := s.received().seq + 1
	if m.life != up || !w.linked(x, mi) || next > m.log.n {
		return false
	}
	s.relay.id[next-1], s.relay.n = m.log.at(next), next
	s.got, s.gotShown = point{m.log.at(next), next}, true
	if s.acking && m.armed {
		if m.gaveUp && next == m.log.n {
			m.gaveUp = false
		}
		if !m.gaveUp {
			w.release(mi, next, false)
		}
	}
	return true
}

// settle lets happen what nothing delays: handshakes, and applying by a SQL
// thread that does not lag. (A delayed handshake is a cut link.)
func (w *world) settle() {
	for moved := true; moved; {
		moved = false
		for x := range w.s {
			moved = w.connect(x) || !w.s[x].lags && w.apply(x) || moved
		}
	}
}

// apply runs the next transaction of the relay log.
func (w *world) apply(x int) bool {
	s := &w.s[x]
	if s.life != up || s.sql != yes || !s.pending() {
		return false
	}
	k := s.pos.seq + 1
	id := s.relay.at(k)
	if s.pendingTouched || !w.replicate(x, k, id) { // 1950: out of order
		s.sql, s.sqlErr, s.pendingTouched = no, true, false
		return true
	}
	s.relay.id[k-1] = 0
	s.tidy()
	return true
}

// tidy forgets a relay log that is wholly applied.
func (s *server) tidy() {
	if s.relay.n <= s.pos.seq {
		s.relay = history{}
	}
}

// replicate executes transaction k of writer id; an own one is skipped in silence.
func (w *world) replicate(x int, k, id uint8) bool {
	s := &w.s[x]
	if id != uint8(x+1) {
		if s.log.n != k-1 {
			return false
		}
		s.log.add(id)
	}
	s.pos = point{id, k}
	return true
}

// fetchNext lets the rescue connection apply the next transaction.
func (w *world) fetchNext(x int) bool {
	s := &w.s[x]
	if s.life != up || !s.fetchOn || s.fetch == 0 {
		return false
	}
	m := &w.s[s.fetch-1]
	k := s.pos.seq + 1
	if m.life != up || !w.linked(x, int(s.fetch-1)) || !m.log.has(s.pos) || k > m.log.n {
		return false
	}
	double := s.pending()
	if !w.replicate(x, k, m.log.at(k)) {
		s.fetchOn = false
		return true
	}
	if double {
		s.relay.id[k-1] = 0
		s.pendingTouched = s.pending()
		s.tidy()
	}
	return true
}

// crash kills a server; what is not on disk is gone with it.
func (w *world) crash(x int) {
	s := &w.s[x]
	s.life, s.waits = down, 0
	s.io, s.sql, s.ioErr, s.sqlErr = no, no, false, false
	s.got, s.gotShown, s.acker, s.acking = point{}, false, false, false
	s.armed, s.gaveUp, s.fetchOn, s.ro, s.young = false, false, false, true, true
	s.pendingTouched, s.lags, s.locked = false, false, false
	for i := range w.s {
		if t := &w.s[i]; t.src == uint8(x+1) && t.io == yes {
			t.io = connecting
		}
	}
}
