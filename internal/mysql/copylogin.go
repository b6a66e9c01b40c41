package mysql

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
)

// ClientLogin is how MariaDB's own client programs (mariadb-dump, mariadb,
// mariadb-binlog) reach and enter a server.
type ClientLogin struct {
	// Address is host:port; Socket, if set, is a unix socket and is used instead.
	Address  string
	Socket   string
	User     string
	Password string
	// CAFile is the authority by which the server's certificate is verified,
	// together with the host name of Address; CAPEM is the same as text, used if
	// CAFile is empty. One of them is required for an Address: data and passwords
	// never travel in clear text. CertFile and KeyFile are the client pair, if the
	// server asks for one.
	CAFile, CertFile, KeyFile string
	CAPEM                     []byte
}

// String never shows the password.
func (l ClientLogin) String() string {
	if l.Socket != "" {
		return l.User + "@" + l.Socket
	}
	return l.User + "@" + l.Address
}

// GoString is as [ClientLogin.String].
func (l ClientLogin) GoString() string { return l.String() }

// withFile writes the authority to a temporary file, for the programs take no
// other; it is no secret. The function it returns removes it.
func (l ClientLogin) withFile() (ClientLogin, func(), error) {
	if l.Socket != "" || l.CAFile != "" || len(l.CAPEM) == 0 {
		return l, func() {}, nil
	}
	f, err := os.CreateTemp("", "repld-ca-*.pem")
	if err != nil {
		return l, nil, fmt.Errorf("login %s: %w", l, err)
	}
	remove := func() { _ = os.Remove(f.Name()) }
	_, err = f.Write(l.CAPEM)
	if err = errors.Join(err, f.Close()); err != nil {
		remove()
		return l, nil, fmt.Errorf("login %s: %w", l, err)
	}
	l.CAFile = f.Name()
	return l, remove, nil
}

// optionFile is the text of an option file for the login, with more lines for
// the group of one program.
func (l ClientLogin) optionFile(group string, lines ...string) (string, error) {
	var b strings.Builder
	option := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s=%s\n", name, quoteOption(value))
		}
	}
	b.WriteString("[client]\n")
	option("user", l.User)
	// Always, so that no program ever asks at a terminal.
	fmt.Fprintf(&b, "password=%s\n", quoteOption(l.Password))
	switch {
	case l.Socket != "":
		b.WriteString("protocol=socket\n")
		option("socket", l.Socket)
	case l.CAFile == "":
		return "", fmt.Errorf("login %s: no certificate authority to verify the server by", l)
	default:
		host, port, err := net.SplitHostPort(l.Address)
		if err != nil {
			return "", fmt.Errorf("login %s: %w", l, err)
		}
		b.WriteString("protocol=tcp\n")
		option("host", host)
		option("port", port)
		option("ssl-ca", l.CAFile)
		b.WriteString("ssl-verify-server-cert\n")
		option("ssl-cert", l.CertFile)
		option("ssl-key", l.KeyFile)
	}
	fmt.Fprintf(&b, "[%s]\n", group)
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	return b.String(), nil
}

// quoteOption writes a value so that an option file gives it back unchanged: a
// quotation mark, a backslash or a # in a password would otherwise end it.
func quoteOption(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(v) + `"`
}

// giveOptions hands an option file to a program that is about to start, by a
// pipe that only the program inherits: a password stands neither in an argument,
// which every user of the host can read, nor in a file, which a crash would
// leave behind. --defaults-file also keeps the user's own option files out. The
// function it returns closes our end; call it once the program was started or
// failed to.
func giveOptions(cmd *exec.Cmd, text string) (func(), error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	// A pipe holds 64 KiB, more than any login needs: the write never waits.
	if _, err := w.WriteString(text); err != nil {
		_, _ = r.Close(), w.Close()
		return nil, fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	_ = w.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, r)
	file := fmt.Sprintf("--defaults-file=/dev/fd/%d", 2+len(cmd.ExtraFiles))
	// The programs accept it as their first argument only.
	cmd.Args = append([]string{cmd.Args[0], file}, cmd.Args[1:]...)
	return func() { _ = r.Close() }, nil
}
