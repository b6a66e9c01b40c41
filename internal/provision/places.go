package provision

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The drop-in's default place and the service on Debian-like systems.
const (
	defaultConfigFile = "/etc/mysql/mariadb.conf.d/99-repld.cnf"
	defaultService    = "mariadb"
)

// localServer tells whether the server runs on repld's own host: its process
// and its data directory are here. A loopback address alone proves little (a
// tunnel ends there too).
func localServer(f Facts) (pid int, local bool) {
	text, err := os.ReadFile(pidFile(f))
	if err != nil {
		return 0, false
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0, false
	}
	command := commandLine(pid)
	if len(command) == 0 || !strings.Contains(filepath.Base(command[0]), "mariadbd") && !strings.Contains(filepath.Base(command[0]), "mysqld") {
		return 0, false
	}
	info, err := os.Stat(f.Identity.DataDir)
	return pid, err == nil && info.IsDir()
}

func pidFile(f Facts) string {
	path := f.Value("pid_file")
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.Identity.DataDir, path)
	}
	return path
}

func commandLine(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

// findPlaces decides where the drop-in goes and how the server is restarted.
// The defaults are used only for the very instance that they belong to: another
// one on the same host must not get the first one's files, nor its restart.
func findPlaces(ctx context.Context, r Request, f Facts, pid int) Places {
	p := Places{ConfigFile: r.ConfigFile, ConfigCommand: r.ConfigCommand, RestartCommand: r.RestartCommand}
	if len(p.ConfigCommand) == 0 {
		placeFile(&p, f, pid)
	}
	if len(p.RestartCommand) == 0 {
		switch {
		case !f.Local:
			p.RestartProblem = "the server is on another host: give --restart-command"
		case !isService(ctx, pid):
			p.RestartProblem = "the server is not the system's service " + defaultService + ": give --restart-command"
		default:
			p.RestartCommand = []string{"systemctl", "restart", defaultService}
		}
	}
	return p
}

func placeFile(p *Places, f Facts, pid int) {
	switch {
	case p.ConfigFile != "":
	case !f.Local:
		p.ConfigFile = defaultConfigFile
		p.ConfigProblem = "the server is on another host: give --config-command"
		return
	case readsOtherFiles(commandLine(pid)):
		p.ConfigFile = defaultConfigFile
		p.ConfigProblem = "the server was started with option files of its own: give --config-file, in a folder that they include last"
		return
	default:
		p.ConfigFile = defaultConfigFile
	}
	text, err := os.ReadFile(p.ConfigFile)
	if err == nil {
		p.Current = string(text)
		p.Foreign = len(strings.TrimSpace(p.Current)) > 0 && !isOurs(p.Current)
		return
	}
	if !os.IsNotExist(err) {
		p.ConfigProblem = err.Error()
		return
	}
	if err := syscall.Access(filepath.Dir(p.ConfigFile), 2); err != nil {
		p.ConfigProblem = filepath.Dir(p.ConfigFile) + ": " + err.Error()
	}
}

// readsOtherFiles tells whether a server ignores the system's option files.
func readsOtherFiles(command []string) bool {
	for _, a := range command {
		if strings.HasPrefix(a, "--defaults-file") || a == "--no-defaults" {
			return true
		}
	}
	return false
}

// isService tells whether the process is the main one of the system's service.
func isService(ctx context.Context, pid int) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property=MainPID", "--value", defaultService).Output()
	return err == nil && strings.TrimSpace(string(out)) == strconv.Itoa(pid)
}

// resolve gives the addresses of a host, none if it has none.
func resolve(ctx context.Context, host string) []string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	list, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil
	}
	return list
}
