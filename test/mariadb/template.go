package mariadb

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// smallServer makes servers small and quick to start. The data directory must be
// installed with the same sizes.
var smallServer = [...]string{
	"innodb-data-file-path=ibdata1:10M:autoextend",
	"innodb-buffer-pool-size=32M",
	"innodb-log-file-size=8M",
	"innodb-doublewrite=0",
	"performance-schema=0",
	"key-buffer-size=1M",
	"aria-pagecache-buffer-size=1M",
}

// templateFormat changes when templates made by older code must not be used.
const templateFormat = "1"

// template returns the data directory to copy, installing it if this machine
// has none for this version and these options. Processes that want the same one
// wait for each other.
func (k *Kit) template(ctx context.Context, anonymous bool) (string, error) {
	version, err := exec.CommandContext(ctx, k.binaries.server, "--no-defaults", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("test kit: version of %s: %w", k.binaries.server, err)
	}
	key := sha256.Sum256(fmt.Append(nil, templateFormat, string(version), smallServer, k.user, anonymous, AdminUser, AdminPassword))
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, fmt.Sprintf("%x", key[:8]))
	unlock, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("test kit: template: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	work, err := os.MkdirTemp(base, "new-")
	if err != nil {
		return "", fmt.Errorf("test kit: template: %w", err)
	}
	data := filepath.Join(work, "data")
	if err := k.install(ctx, data, anonymous); err != nil {
		return "", errors.Join(err, os.RemoveAll(work))
	}
	if err := os.Rename(data, dir); err != nil {
		return "", fmt.Errorf("test kit: template: %w", err)
	}
	return dir, os.RemoveAll(work)
}

// install makes a fresh data directory with the administrator in it.
func (k *Kit) install(ctx context.Context, data string, anonymous bool) error {
	tmp := data + ".tmp"
	if err := errors.Join(os.Mkdir(data, 0o700), os.Mkdir(tmp, 0o700)); err != nil {
		return err
	}
	// A server that starts removes all temporary tables from its tmpdir, also
	// those of another server, so that no two may share one.
	options := []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + tmp}
	for _, o := range smallServer {
		options = append(options, "--"+o)
	}
	// The installation runs as ourselves, whatever the servers run as: copies
	// are given to the servers' account.
	if os.Geteuid() == 0 {
		options = append(options, "--user=root")
	}
	args := options[:len(options):len(options)]
	if !anonymous {
		// The test database comes together with the anonymous accounts.
		args = append(args, "--skip-test-db")
	}
	if out, err := exec.CommandContext(ctx, k.binaries.install, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("test kit: mariadb-install-db: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, k.binaries.server, append(options, "--bootstrap", "--silent-startup")...)
	// 'localhost' too: were there only 'admin'@'%', the anonymous account at
	// localhost would shadow it.
	var sql strings.Builder
	sql.WriteString("FLUSH PRIVILEGES;\n")
	for _, host := range []string{"%", "localhost"} {
		fmt.Fprintf(&sql, "CREATE USER '%s'@'%s' IDENTIFIED BY '%s';\n", AdminUser, host, AdminPassword)
		fmt.Fprintf(&sql, "GRANT ALL PRIVILEGES ON *.* TO '%s'@'%s' WITH GRANT OPTION;\n", AdminUser, host)
	}
	cmd.Stdin = strings.NewReader(sql.String())
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "ERROR") {
		return fmt.Errorf("test kit: bootstrap: %w\n%s", err, out)
	}
	return nil
}

// cacheDir is where templates are kept from run to run.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("repld-cache-%d", os.Getuid()))
	}
	dir := filepath.Join(base, "repld-test", "templates")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("test kit: cache: %w", err)
	}
	return dir, nil
}

// lockFile takes an exclusive lock that ends with the process at the latest.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for lock %s: %w", path, ctx.Err()), f.Close())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
