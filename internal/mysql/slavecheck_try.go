package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/failover"
)

// CheckConnection is the named connection of a trial.
const CheckConnection = "repld_check"

// Trial is an attempt to replicate, made to see whether a slave could.
type Trial struct {
	Source         failover.Source
	User, Password string
	// FromSlavePos makes the trial fail if the source no longer has what follows
	// the slave's gtid_slave_pos; without it only the way to the source, its
	// certificate and the login are tried.
	FromSlavePos bool
}

// TrialError is a slave's own word on why it cannot replicate.
type TrialError struct {
	Errno   uint16
	Message string
}

// Error gives the slave's message.
func (e *TrialError) Error() string { return e.Message }

// TryReplication lets a server's IO thread connect to a source, by a named
// connection beside its default one, and removes it again: whether name
// resolution, route, certificate, account and position are right is seen from
// nowhere but the slave itself. Nothing is applied, and nothing is acknowledged.
// It fails with a [*TrialError] if the slave says why; the server must not be a
// slave of the same source already, for a source serves one stream per
// server_id.
func TryReplication(ctx context.Context, c *Conn, t Trial) (err error) {
	if err := c.Exec(ctx, "SET GLOBAL rpl_semi_sync_slave_enabled=OFF"); err != nil {
		return wrap("trial of replication", err)
	}
	// An earlier trial that was cut short may have left its connection.
	if err := EndTrial(ctx, c); err != nil {
		return err
	}
	// By GTID always: an IO thread that starts at a file and position asks its
	// source for the GTID there and sets gtid_slave_pos to it, so that whatever
	// stands before it would be skipped later without any error.
	change := fmt.Sprintf(`CHANGE MASTER %s TO MASTER_HOST=?, MASTER_PORT=%d, MASTER_USER=?, MASTER_PASSWORD=?, MASTER_CONNECT_RETRY=1,
		MASTER_HEARTBEAT_PERIOD=0.5, MASTER_SSL=1, MASTER_SSL_VERIFY_SERVER_CERT=1, MASTER_SSL_CA=?, MASTER_SSL_CERT=?, MASTER_SSL_KEY=?,
		MASTER_SSL_CAPATH='', MASTER_SSL_CIPHER='', MASTER_SSL_CRL='', MASTER_SSL_CRLPATH='', MASTER_USE_GTID=slave_pos`,
		QuoteString(CheckConnection), t.Source.Port)
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if endErr := EndTrial(clean, c); err == nil {
			err = endErr
		}
	}()
	if err := c.Exec(ctx, change, t.Source.Host, t.User, Secret(t.Password), t.Source.CAFile, t.Source.CertFile, t.Source.KeyFile); err != nil {
		return wrap("trial of replication", err)
	}
	if err := c.Exec(ctx, "START SLAVE "+QuoteString(CheckConnection)+" IO_THREAD"); err != nil {
		return wrap("trial of replication", err)
	}
	err = awaitTrial(ctx, c)
	var refused *TrialError
	// 1236: the source let the slave in and looked for its position.
	if !t.FromSlavePos && errors.As(err, &refused) && refused.Errno == 1236 {
		return nil
	}
	return err
}

// awaitTrial waits until the trial's IO thread has been given the first event
// of the stream, or has failed.
func awaitTrial(ctx context.Context, c *Conn) error {
	var last *TrialError
	for {
		row, err := c.QueryRow(ctx, "SHOW SLAVE "+QuoteString(CheckConnection)+" STATUS")
		if err != nil {
			if last != nil && ctx.Err() != nil {
				return last
			}
			return wrap("trial of replication", err)
		}
		if row == nil {
			return fmt.Errorf("trial of replication: the connection %s has vanished", CheckConnection)
		}
		io, errno := row.String("Slave_IO_Running"), uint16(row.Uint("Last_IO_Errno"))
		if errno != 0 {
			last = &TrialError{Errno: errno, Message: row.String("Last_IO_Error")}
			return last
		}
		// The state after the source has accepted the request and sent its first
		// event; Yes alone comes before it.
		if io == "Yes" && strings.HasPrefix(row.String("Slave_IO_State"), "Waiting for master to send event") {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("trial of replication: the slave's IO thread is %q (%s): %w", io, row.String("Slave_IO_State"), err)
		}
	}
}

// EndTrial removes what a trial leaves when it is cut short; it changes nothing
// where nothing is left.
func EndTrial(ctx context.Context, c *Conn) error {
	const errNoSuchConnection = 1617
	name := QuoteString(CheckConnection)
	for _, s := range []string{"STOP SLAVE " + name, "RESET SLAVE " + name + " ALL"} {
		if err := c.Exec(ctx, s); err != nil && Errno(err) != errNoSuchConnection {
			return wrap("end trial of replication", err)
		}
	}
	return nil
}

// GrantsMatching are the grants of the account that a client from host would be
// matched with; none if it would be matched with none.
func GrantsMatching(ctx context.Context, c *Conn, logins []Login, user, host string) ([]string, error) {
	l := matchLogin(logins, user, host)
	if l == nil {
		return nil, nil
	}
	return column(ctx, c, "SHOW GRANTS FOR "+QuoteAccount(l.User, l.Host))
}
