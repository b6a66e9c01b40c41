package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/repld/repld/test/mariadb"
)

// The account that Install makes. It can write to the ledger's own schema only,
// and not to a read-only server.
const (
	User     = "ledger"
	Password = "ledger-writer-1"
)

// Install makes the ledger's schema, table and account on the master, from where
// they reach the slaves. What is there already is kept.
func Install(ctx context.Context, master *mariadb.Server) error {
	account := fmt.Sprintf("'%s'@'%%'", User)
	return master.Exec(ctx,
		"CREATE DATABASE IF NOT EXISTS ledger",
		"CREATE TABLE IF NOT EXISTS ledger.`rows` (id BIGINT NOT NULL PRIMARY KEY, writer INT NOT NULL, n INT NOT NULL, payload VARCHAR(4000) NOT NULL) ENGINE=InnoDB",
		fmt.Sprintf("CREATE USER IF NOT EXISTS %s IDENTIFIED BY '%s'", account, Password),
		"GRANT SELECT, INSERT ON ledger.* TO "+account,
	)
}

// answerTimeout is how long one server is given to say whether it is writable:
// a frozen one must not keep the writers from the new master.
const answerTimeout = 500 * time.Millisecond

// Writable is a Locate function that asks all servers at once and takes the
// first that is not read-only. It needs no help from repld and so cannot share
// its errors. It sees through every network, for it asks by the servers' sockets.
func Writable(servers ...*mariadb.Server) func(context.Context) (string, error) {
	return writable(servers, func(ctx context.Context, s *mariadb.Server) (string, error) {
		return s.Value(ctx, "SELECT @@global.read_only")
	})
}

// WritableFrom is as Writable for clients that reach the servers by dial, with
// the account that [Install] makes.
func WritableFrom(dial Dialer, servers ...*mariadb.Server) func(context.Context) (string, error) {
	return writable(servers, func(ctx context.Context, s *mariadb.Server) (string, error) {
		connector, err := mysql.NewConnector(login(User, Password, s.Addr(), dial))
		if err != nil {
			return "", err
		}
		db := sql.OpenDB(connector)
		defer db.Close()
		var v string
		if err := db.QueryRowContext(ctx, "SELECT @@global.read_only").Scan(&v); err != nil {
			return "", fmt.Errorf("server %s: %w", s.Name, err)
		}
		return v, nil
	})
}

func writable(servers []*mariadb.Server, ask func(context.Context, *mariadb.Server) (string, error)) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		answers := make(chan error, len(servers))
		found := make(chan string, len(servers))
		for _, s := range servers {
			wg.Go(func() {
				v, err := ask(ctx, s)
				switch {
				case err != nil:
					answers <- err
				case v == "0":
					found <- s.Addr()
				default:
					answers <- fmt.Errorf("server %s: read-only", s.Name)
				}
			})
		}
		var errs []error
		for range servers {
			select {
			case addr := <-found:
				return addr, nil
			case err := <-answers:
				errs = append(errs, err)
			}
		}
		return "", fmt.Errorf("no server takes writes: %w", errors.Join(errs...))
	}
}
