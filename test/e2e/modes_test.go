package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/rig"
)

// setDurability changes the mode and waits for repld's word that the master
// keeps it.
func setDurability(t *testing.T, r *rig.Rig, mode string) {
	t.Helper()
	if err := r.Ctl(within(t), "durability", "set", mode).Err(); err != nil {
		t.Fatal(err)
	}
	st := status(t, r)
	want := map[string]string{"async": "off", "semi-sync": "armed", "lossless": "armed"}[mode]
	if st.Durability.Configured != mode || st.Durability.State != want {
		t.Fatalf("after set %s: %+v", mode, st.Durability)
	}
}

// Every mode can be reached from every other one while clients write, the
// server is as repld says when the command returns, and a master killed in
// lossless loses nothing.
func TestDurabilityIsChangedUnderLoad(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	db1 := r.Server("db1")
	for _, mode := range []string{"lossless", "semi-sync", "async", "lossless", "async", "semi-sync", "lossless"} {
		setDurability(t, r, mode)
		row, err := db1.Row(within(t), "SELECT @@rpl_semi_sync_master_enabled AS enabled, @@rpl_semi_sync_master_timeout AS timeout, @@rpl_semi_sync_master_wait_no_slave AS waits, @@rpl_semi_sync_master_wait_point AS point")
		if err != nil {
			t.Fatal(err)
		}
		enabled := map[string]string{"async": "0", "semi-sync": "1", "lossless": "1"}[mode]
		if row["enabled"] != enabled || mode == "semi-sync" && row["timeout"] != "30000" || mode == "lossless" && len(row["timeout"]) < 12 ||
			mode != "async" && (row["waits"] != "1" || row["point"] != "AFTER_SYNC") {
			t.Fatalf("in %s: %v", mode, row)
		}
		if err := l.WaitCount(within(t), len(l.Acks())+20); err != nil {
			t.Fatalf("in %s: %v", mode, err)
		}
	}
	again := r.Ctl(within(t), "durability", "set", "lossless", "-o", "json")
	if again.Code != 0 || strings.Contains(again.Stdout, `"changed": true`) {
		t.Errorf("again: %+v", again)
	}
	if op := operation(t, r, "durability"); op.Result != "done" {
		t.Errorf("history: %+v", op)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	if err := db1.Kill(); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	if row, err := r.Server(*status(t, r).Master).Row(within(t), "SELECT @@rpl_semi_sync_master_timeout AS timeout"); err != nil || len(row["timeout"]) < 12 {
		t.Errorf("the new master: %v, %v", row, err)
	}
	if err := db1.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
	if op := operation(t, r, "failover"); op.LostTransactions == nil || *op.LostTransactions != 0 {
		t.Errorf("history: %+v", op)
	}
}

// In lossless a commit waits however long no acker is there; it is never let
// through, and goes on when one is back.
func TestLosslessWaitsUntilAnAckerIsBack(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"durability: lossless", "semi_sync: {ack_timeout: 1s, server_timeout: 2s}"}})
	l := write(t, r)
	if err := l.WaitCount(within(t), 50); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db2").Kill(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitStatus(within(t), "no acker", func(st *api.Status) bool { return strings.Contains(problemCodes(st.Problems), "no_acker") })
	if err != nil {
		t.Fatal(err)
	}
	if st.Health != "degraded" || st.Durability.State != "armed" {
		t.Errorf("health %s, durability %+v", st.Health, st.Durability)
	}
	time.Sleep(200 * time.Millisecond) // acknowledgements that are on their way arrive
	have := len(l.Acks())
	time.Sleep(5 * time.Second) // longer than both timeouts: what may not happen has its chance
	if now := len(l.Acks()); now != have {
		t.Errorf("%d commits were acknowledged by nobody", now-have)
	}
	if r.Ctl(within(t), "durability", "set", "lossless").Code != 5 {
		t.Error("lossless is accepted although no acker is there")
	}
	if err := r.Server("db2").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitCount(within(t), have+50); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// Of two servers the master dies: the other one is opened armed, its commits
// wait until the old master follows as an acker.
func TestLosslessOfTwoWaitsForTheOldMaster(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"durability: lossless"}})
	l := write(t, r)
	if err := l.WaitCount(within(t), 50); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "db2 open", func(st *api.Status) bool {
		return st.Master != nil && *st.Master == "db2" && serverStatus(st, "db2").State == "writable"
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := l.WaitAck(ctx, func(a ledger.Ack) bool { return a.ServerID == 2 }); err == nil {
		t.Error("db2 acknowledged a commit that nobody else has")
	}
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	settle(t, r, l)
}

// In lossless a restarted master is not opened while an acker cannot be asked;
// in semi-sync after ack_timeout. A person can choose.
func TestLosslessReopensOnlyWhenEveryAckerWasAsked(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"durability: lossless", "semi_sync: {ack_timeout: 1s}"}})
	for _, name := range []string{"db1", "db2"} {
		if err := r.Server(name).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	db1 := r.Server("db1")
	if err := db1.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "db2 awaited", func(st *api.Status) bool {
		return st.Health == "blocked" && strings.Contains(problemCodes(st.Problems), "acker_unreachable")
	}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // longer than ack_timeout
	if v := db1.MustValue(t, "SELECT @@read_only"); v != "1" {
		t.Fatal("db1 was opened although db2 may have more")
	}
	setMode := r.Ctl(within(t), "durability", "set", "semi-sync")
	if setMode.Err() != nil {
		t.Fatal(setMode.Err())
	}
	if _, err := r.WaitStatus(within(t), "db1 open", func(st *api.Status) bool { return serverStatus(st, "db1").State == "writable" }); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db2").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
}

// An asynchronous master that is gone is replaced on order only, as nothing
// keeps one that merely refuses repld from serving others; what the new one
// lacks is counted.
func TestAsyncFailsOverOnOrderAndCountsTheLoss(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3, Repld: []string{"durability: async"}})
	l := write(t, r)
	if err := l.WaitCount(within(t), 100); err != nil {
		t.Fatal(err)
	}
	if st := status(t, r); st.Health != "healthy" || st.Durability.State != "off" || len(st.Durability.Ackers) != 0 {
		t.Errorf("health %s, durability %+v", st.Health, st.Durability)
	}
	for _, name := range []string{"db2", "db3"} {
		if err := r.Server(name).Exec(within(t), "STOP SLAVE IO_THREAD"); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.WaitCount(within(t), len(l.Acks())+50); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "missing transactions", func(st *api.Status) bool {
		n := st.Forecast.TransactionsAtRisk
		return n != nil && *n >= 50
	}); err != nil {
		t.Fatal(err)
	}
	l.Stop()
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitHealth(within(t), "blocked")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(problemCodes(st.Problems), "unfenced") {
		t.Errorf("problems: %+v", st.Problems)
	}
	if err := r.Ctl(within(t), "failover", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	op := operation(t, r, "failover")
	if op.LostTransactions == nil || *op.LostTransactions < 50 || op.Result != "done" {
		t.Errorf("history: %+v", op)
	}
}
