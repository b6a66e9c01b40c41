package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// writeFor is how long the load runs before the master is killed, and again
// after it has come back.
const writeFor = 2 * time.Second

// demo is one performance.
type demo struct {
	*screen
	r      *rig.Rig
	ledger *ledger.Ledger
	killed time.Time
	// first is the first commit that the new master acknowledged.
	first ledger.Ack
	// failover is what repld has recorded of it.
	failover *api.Operation
}

// play performs all of it with the programs in bin. Whatever happens, no server
// runs and no file is left when it returns.
func play(ctx context.Context, bin string, out io.Writer) (err error) {
	begun := time.Now()
	r, err := rig.New(ctx, rig.Options{Bin: bin, Servers: 3})
	if err != nil {
		return err
	}
	d := &demo{r: r, screen: &screen{out: out, dir: r.Kit.Dir}}
	defer func() {
		if d.ledger != nil {
			d.ledger.Stop()
		}
		if err != nil && ctx.Err() == nil {
			d.say("\nrepld's log ends:\n%s", r.LogTail(30))
		}
		err = errors.Join(err, r.Close())
	}()
	for _, chapter := range []func(context.Context) error{
		d.servers, d.daemon, d.setUp, d.load, d.kill, d.rejoin, d.compare, d.end,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	d.say("\nNothing was lost. repld has stopped, the servers and the folder are gone. All of it\ntook %.1f s.", time.Since(begun).Seconds())
	return nil
}

// shop is some data of a user: tables that refer to each other, a view, a
// trigger and an account.
var shop = []string{
	"CREATE DATABASE shop", "USE shop",
	"CREATE TABLE customers (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(40) NOT NULL, orders INT NOT NULL DEFAULT 0)",
	"CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT NOT NULL REFERENCES customers (id), item VARCHAR(40) NOT NULL)",
	"CREATE TRIGGER counted AFTER INSERT ON orders FOR EACH ROW UPDATE customers SET orders = orders + 1 WHERE id = NEW.customer",
	"CREATE VIEW regulars AS SELECT name, orders FROM customers WHERE orders > 2",
	"INSERT INTO customers (name) SELECT CONCAT('customer ', seq) FROM seq_1_to_500",
	"INSERT INTO orders (customer, item) SELECT 1 + seq * 7 MOD 500, CONCAT('item ', seq) FROM seq_1_to_2000",
	"CREATE USER shop@localhost IDENTIFIED BY 'shop-1'", "GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO shop@localhost",
}

func (d *demo) servers(ctx context.Context) error {
	version, err := d.r.Servers[0].Value(ctx, "SELECT VERSION()")
	if err != nil {
		return err
	}
	if err := d.r.Servers[0].Exec(ctx, shop...); err != nil {
		return err
	}
	d.head("Three empty-handed servers")
	d.say("MariaDB %s, each with a plain my.cnf:", version)
	d.say("no server_id, no binary log, no TLS. db1 has a user's database, the others are")
	d.say("empty. All is in one temporary folder, which is removed at the end.\n")
	fmt.Fprintf(d.out, "$ D=%s\n", d.r.Kit.Dir)
	return nil
}

func (d *demo) daemon(ctx context.Context) error {
	d.head("repld")
	config, err := os.ReadFile(d.r.Config)
	if err != nil {
		return err
	}
	d.shell("cat", d.r.Config)
	d.output(string(config))
	d.background("repld", "--config", d.r.Config)
	if err := d.r.StartRepld(ctx); err != nil {
		return err
	}
	d.shell("export", "REPLCTL_ENDPOINT="+d.r.Endpoint())
	return nil
}

// initArgs are the arguments that set a server up, in the order that reads best.
func (d *demo) initArgs(verb string, s *mariadb.Server) []string {
	return append(append([]string{"init", verb, s.Name}, d.r.InitFlags(s)...), "--yes")
}

func (d *demo) setUp(ctx context.Context) error {
	d.head("A master and two slaves")
	for i, s := range d.r.Servers {
		verb := "slave"
		if i == 0 {
			verb = "master"
		}
		if err := d.replctl(ctx, d.r, []int{0}, d.initArgs(verb, s)...); err != nil {
			return err
		}
	}
	if _, err := d.r.WaitHealth(ctx, "healthy"); err != nil {
		return err
	}
	return d.replctl(ctx, d.r, []int{0}, "status")
}

func (d *demo) load(ctx context.Context) error {
	d.head("Writes, and the death of the master")
	if err := ledger.Install(ctx, d.r.Servers[0]); err != nil {
		return err
	}
	var err error
	d.ledger, err = ledger.Start(ctx, ledger.Options{Locate: ledger.Writable(d.r.Servers...)})
	if err != nil {
		return err
	}
	if err := pause(ctx, writeFor); err != nil {
		return err
	}
	d.say("Four clients insert row after row and note each commit that was answered OK:")
	d.say("%d in %v.\n", len(d.ledger.Acks()), writeFor)
	return nil
}

func (d *demo) kill(ctx context.Context) error {
	old := d.r.Servers[0]
	d.shell("kill", "-9", fmt.Sprint(old.Pid()))
	d.say("")
	d.killed = time.Now()
	if err := old.Kill(); err != nil {
		return err
	}
	var err error
	if d.first, err = d.ledger.WaitAck(ctx, func(a ledger.Ack) bool { return a.Addr != old.Addr() }); err != nil {
		return err
	}
	st, err := d.r.WaitStatus(ctx, "the end of the failover", func(st *api.Status) bool {
		return st.Epoch == 2 && st.Health != "failing_over"
	})
	if err != nil {
		return err
	}
	d.say("%d ms after the kill the first commit is acknowledged again, by %s.\n",
		d.first.After.Sub(d.killed).Milliseconds(), *st.Master)
	if err := d.recorded(ctx); err != nil {
		return err
	}
	if err := d.replctl(ctx, d.r, []int{0}, "history", d.failover.ID); err != nil {
		return err
	}
	// 3: degraded, since a server is down.
	return d.replctl(ctx, d.r, []int{3}, "status")
}

// recorded waits until repld has recorded the failover and how long no write
// was acknowledged.
func (d *demo) recorded(ctx context.Context) error {
	return mariadb.Wait(ctx, func() error {
		list, err := d.r.History(ctx)
		if err != nil {
			return err
		}
		for i := range list {
			if op := &list[i]; op.Kind == "failover" && op.Result == "done" && op.WriteOutageMS != nil {
				d.failover = op
				return nil
			}
		}
		return errors.New("the history has no failover that is done")
	})
}

func (d *demo) rejoin(ctx context.Context) error {
	d.head("The old master comes back")
	old := d.r.Servers[0]
	d.background("mariadbd", "--defaults-file="+old.ConfigFile)
	d.say("")
	if err := old.StartAgain(ctx); err != nil {
		return err
	}
	begun := time.Now()
	st, err := d.r.WaitHealth(ctx, "healthy")
	if err != nil {
		return err
	}
	d.say("%d ms after it answers again it is a read-only slave of %s; the writes go on.\n",
		time.Since(begun).Milliseconds(), *st.Master)
	if err := pause(ctx, writeFor); err != nil {
		return err
	}
	return d.replctl(ctx, d.r, []int{0}, "status")
}

func (d *demo) compare(ctx context.Context) error {
	d.head("Was anything lost?")
	st, err := d.r.Status(ctx)
	if err != nil {
		return err
	}
	report, err := d.ledger.Compare(ctx, d.r.Servers, ledger.OldMaster{ServerID: serverID(st, d.r.Servers[0].Name), Opened: d.first.After})
	if err != nil {
		return err
	}
	if err := verdict(report, d.failover); err != nil {
		return fmt.Errorf("the cluster did not keep its promises: %w", err)
	}
	d.say("%d commits were acknowledged, and each row is on each of the 3 servers: 0 lost.", report.Acknowledged)
	d.say("%d commits were under way when the master died and got no answer; %d of them are", report.Unknown, report.UnknownCommitted)
	d.say("there. Nobody was told OK for them.")
	d.say("%d tables are the same on all servers, by checksum. One server is writable: %s.", report.Tables, strings.Join(report.Writable, ", "))
	d.say("The old master acknowledged nothing after the new one. Longest time without an")
	d.say("acknowledged commit: %d ms.", report.LongestOutage.Milliseconds())
	return nil
}

// verdict is nil only if nothing was lost, and repld says so too.
func verdict(report *ledger.Report, op *api.Operation) error {
	err := report.Err()
	if report.Acknowledged == 0 {
		err = errors.Join(err, errors.New("nothing was written"))
	}
	if op == nil || op.LostTransactions == nil || *op.LostTransactions != 0 {
		err = errors.Join(err, errors.New("repld's history does not say that nothing was lost"))
	}
	return err
}

func serverID(st *api.Status, name string) uint32 {
	for _, s := range st.Servers {
		if s.Name == name {
			return s.ServerID
		}
	}
	return 0
}

func (d *demo) end(context.Context) error {
	d.say("")
	d.shell("kill", fmt.Sprint(d.r.Repld.Pid()))
	if err := d.r.Repld.Stop(); err != nil {
		return err
	}
	return d.r.Close()
}

func pause(ctx context.Context, t time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(t):
		return nil
	}
}
