package mariadb

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// guardian is a small process that waits until this one is gone, however it
// went, and then ends the kit's servers and removes the kit's folder. A parent
// death signal would not do: it is lost when a server changes its user, and
// servers that a restart script started have another parent.
type guardian struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// guardianScript recognises the kit's servers by their option file, which lies
// in the kit's folder. The pattern goes through a pipe so that no process but
// theirs has it in its command line.
const guardianScript = `
sweep() {
	while :; do
		found=$(printf '%s\n' "--defaults-file=$REPLD_KIT_DIR/" | grep -lsaF -f - /proc/[0-9]*/cmdline)
		[ -n "$found" ] || return 0
		for f in $found; do
			pid=${f#/proc/}
			kill -9 "${pid%/cmdline}" 2>/dev/null
		done
		sleep 0.02
	done
}
read -r _
sweep
rm -rf "$REPLD_KIT_DIR"
sweep
rm -rf "$REPLD_KIT_DIR"
`

func newGuardian(dir string) (*guardian, error) {
	cmd := exec.Command("/bin/sh", "-c", guardianScript, "repld-kit-guardian")
	cmd.Env = append(os.Environ(), "REPLD_KIT_DIR="+dir)
	cmd.Dir = "/"
	// A session of its own: an interrupt from the terminal must not end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("test kit: guardian: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("test kit: guardian: %w", err)
	}
	return &guardian{cmd, stdin}, nil
}

// finish lets the guardian do its work now and waits for it.
func (g *guardian) finish() error {
	_ = g.stdin.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("test kit: guardian: %w", err)
	}
	return nil
}
