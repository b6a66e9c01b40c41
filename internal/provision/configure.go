package provision

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
)

// configure gives the server the settings of its role: certificate, drop-in,
// and a restart or the live settings, whatever is missing. Afterwards the
// session has a new connection and new facts, and everything that can be seen
// is in effect. What repld may not do itself ends in a fault of kind Partly that
// carries what a person needs, with nothing more changed.
func (s *session) configure(ctx context.Context, plan Plan) error {
	n := plan.Needs
	if err := s.mayWrite(n); err != nil {
		return err
	}
	if n.Certificate {
		if err := s.deliver(ctx); err != nil {
			return err
		}
	}
	if n.WriteFile {
		s.p.step(StepConfig, s.r.Name, "run", "write the drop-in "+placeName(s.facts.Places))
		if err := s.writeDropIn(ctx, n.DropIn); err != nil {
			return err
		}
		s.p.step(StepConfig, s.r.Name, "done", "the drop-in is written")
	}
	switch {
	case len(n.Restart) > 0:
		if err := s.mayRestart(plan); err != nil {
			return err
		}
		return s.restart(ctx, plan)
	case len(n.Live) > 0 || n.Reload:
		return s.setLive(ctx, plan)
	}
	return nil
}

// mayWrite stops before anything is changed if the drop-in cannot be written.
func (s *session) mayWrite(n Needs) error {
	if !n.WriteFile || s.facts.Places.ConfigProblem == "" {
		return nil
	}
	do := fmt.Sprintf("write the printed text to %s on the server's host, restart the server, and run the command again", s.facts.Places.ConfigFile)
	if n.Certificate {
		folder, err := s.stage()
		if err != nil {
			return err
		}
		do = fmt.Sprintf("copy %s; %s", s.copies(folder), do)
	}
	return &fault.Error{
		Kind: fault.Partly, Code: "config_not_writable", What: "the server's configuration cannot be written", Server: s.r.Name,
		Cause: s.facts.Places.ConfigProblem, State: "nothing on the server was changed", Do: do, Document: n.DropIn,
	}
}

// stage makes the server's certificate in repld's own folder.
func (s *session) stage() (string, error) {
	_, err := s.ca.Issue(s.r.Cluster, s.r.Name, Names(s.facts.Host, s.facts.Identity.Hostname), time.Now())
	return s.ca.folderOf(s.r.Cluster, s.r.Name), err
}

// copies says which files a person must copy where.
func (s *session) copies(folder string) string {
	to := TLSOf(s.r, s.facts)
	return fmt.Sprintf("%s to %s, %s to %s and %s to %s (readable by the server only)",
		filepath.Join(folder, "ca.pem"), to.CA, filepath.Join(folder, "cert.pem"), to.Cert, filepath.Join(folder, "key.pem"), to.Key)
}

// deliver puts the certificate where the server reads it: into its data
// directory if that is here, owned by the directory's owner. On another host a
// person must copy the files, for a private key travels neither in an option
// file nor on a command's input; repld goes on once the server sees them.
func (s *session) deliver(ctx context.Context) error {
	s.p.step(StepCertificate, s.r.Name, "run", "make and deliver a certificate for "+s.facts.Host)
	m, err := s.ca.Issue(s.r.Cluster, s.r.Name, Names(s.facts.Host, s.facts.Identity.Hostname), time.Now())
	if err != nil {
		return err
	}
	to := TLSOf(s.r, s.facts)
	err = s.deliverHere(m, to)
	if err != nil {
		if ok, seen := s.delivered(ctx, m, to); seen == nil && ok {
			err = nil
		}
	}
	if err != nil {
		return &fault.Error{
			Kind: fault.Partly, Code: "certificate_not_delivered", What: "the server's certificate cannot be written", Server: s.r.Name, Cause: fault.Brief(err),
			State: "the certificate is made; nothing on the server was changed",
			Do: "copy " + s.copies(s.ca.folderOf(s.r.Cluster, s.r.Name)) +
				", and run the command again; or give your own files by --ssl-ca, --ssl-cert and --ssl-key", Err: err,
		}
	}
	s.p.step(StepCertificate, s.r.Name, "done", "the certificate is valid until "+m.NotAfter.Format("2006-01-02"))
	return nil
}

// deliverHere writes the files. The key comes before the certificate, so that
// an interrupted delivery never leaves a new certificate without its key for
// long; a re-run writes all three again.
func (s *session) deliverHere(m Material, to TLSPaths) error {
	if !s.facts.Local {
		return fmt.Errorf("the server's data directory %s is on another host", s.facts.Identity.DataDir)
	}
	for _, f := range []struct {
		path string
		text []byte
		mode os.FileMode
	}{{to.Key, m.Key, 0o600}, {to.CA, m.CA, 0o644}, {to.Cert, m.Cert, 0o644}} {
		if err := writeOwned(f.path, f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}

// delivered tells whether the server sees the very files that repld made. The
// key is never read; it was copied with them.
func (s *session) delivered(ctx context.Context, m Material, to TLSPaths) (bool, error) {
	ctx, cancel := s.statement(ctx)
	defer cancel()
	for path, want := range map[string][]byte{to.CA: m.CA, to.Cert: m.Cert} {
		have, err := mysql.ReadFile(ctx, s.conn, path)
		if err != nil || string(have) != string(want) {
			return false, err
		}
	}
	return true, nil
}

// writeOwned writes a file for the owner of its folder, who is the server's
// account or the administrator.
func writeOwned(path string, text []byte, mode os.FileMode) error {
	if err := writeFile(path, text, mode); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		return os.Chown(path, int(owner.Uid), int(owner.Gid))
	}
	return nil
}

func (s *session) writeDropIn(ctx context.Context, text string) error {
	var output string
	var err error
	if len(s.r.ConfigCommand) > 0 {
		output, err = runCommand(ctx, s.r.ConfigCommand, text, s.p.Timeouts.withDefaults().Command)
	} else {
		err = writeOwned(s.facts.Places.ConfigFile, []byte(text), 0o644)
	}
	if err == nil {
		return nil
	}
	cause := err.Error()
	if len(s.r.ConfigCommand) > 0 {
		cause = withOutput(err, output)
	}
	return &fault.Error{
		Kind: fault.Partly, Code: "config_not_writable", What: "the server's configuration cannot be written", Server: s.r.Name, Cause: cause,
		State: "the running server was not changed", Do: "put the cause right, or write the printed text by hand and restart the server; then run the command again",
		Document: text, Err: err,
	}
}

// setLive sets what needs no restart. A setting that the command line gives is
// refused by the rules before, for it would come back.
func (s *session) setLive(ctx context.Context, plan Plan) error {
	s.p.step(StepLive, s.r.Name, "run", describeSettings(plan.Needs.Live, s.facts))
	before := map[string]string{}
	for _, set := range plan.Needs.Live {
		bounded, cancel := s.statement(ctx)
		err := mysql.SetGlobal(bounded, s.conn, set.Variable, set.want())
		cancel()
		if err != nil {
			return s.fail("setting_failed", "the setting "+set.Variable+" could not be changed", err, s.undo(before))
		}
		before[set.Variable] = s.facts.Value(set.Variable)
	}
	if plan.Needs.Reload {
		bounded, cancel := s.statement(ctx)
		err := mysql.FlushSSL(bounded, s.conn)
		cancel()
		if err != nil {
			return s.fail("reload_failed", "the new certificate could not be loaded", err, "the files are in place; "+s.undo(before))
		}
	}
	s.p.step(StepLive, s.r.Name, "done", "set")
	return s.verify(ctx, plan)
}

// undo sets variables back and says how it went. The connection may be the
// problem, so this is the best that can be done; the drop-in stays.
func (s *session) undo(before map[string]string) string {
	ctx, cancel := context.WithTimeout(context.Background(), s.p.Timeouts.withDefaults().Statement)
	defer cancel()
	var left []string
	for name, value := range before {
		if err := mysql.SetGlobal(ctx, s.conn, name, value); err != nil {
			left = append(left, name)
		}
	}
	text := "the drop-in is at " + placeName(s.facts.Places) + "; the running server was set back"
	if len(left) > 0 {
		text = "the drop-in is at " + placeName(s.facts.Places) + "; still changed on the running server: " + strings.Join(left, ", ")
	}
	return text
}

// verify looks at the server again: everything must be in effect, and its
// certificate must be accepted by the name that will be used.
func (s *session) verify(ctx context.Context, plan Plan) error {
	if err := s.gather(ctx); err != nil {
		return err
	}
	var wrong []string
	for _, set := range plan.Needs.Settings {
		if !set.Holds(s.facts) {
			wrong = append(wrong, fmt.Sprintf("%s is %s, not %s%s", set.Variable, orWord(s.facts.Value(set.Variable), "not set"), set.want(), winner(s.facts, set.Variable, s.facts.Places.ConfigFile)))
		}
	}
	if len(wrong) > 0 {
		return &fault.Error{
			Kind: fault.Failed, Code: "setting_overridden", What: "the server does not run with the settings of the drop-in", Server: s.r.Name,
			Cause: strings.Join(wrong, "; "), State: "the drop-in is at " + placeName(s.facts.Places) + s.reopened(ctx),
			Do: "remove those settings from where they are set, or choose a --config-file that the server reads last; then run the command again",
		}
	}
	if !s.facts.TLS.Verified {
		return &fault.Error{
			Kind: fault.Failed, Code: "tls_not_verified", What: "the server's certificate is not accepted", Server: s.r.Name, Cause: s.facts.TLS.Problem,
			State: "the drop-in and the certificate are in place" + s.reopened(ctx),
			Do:    "look into the server's error log for SSL; then run the command again",
		}
	}
	return nil
}

// winner names what overrides the drop-in.
func winner(f Facts, variable, dropIn string) string {
	set := f.Settings[variable]
	switch {
	case set.Path != "" && set.Path != dropIn:
		return ": " + set.Path + " wins"
	case set.Origin == "COMMAND-LINE":
		return ": the server's command line wins"
	case set.Path == "":
		return ": no option file that the server read sets it, so it does not read the drop-in"
	}
	return ""
}
