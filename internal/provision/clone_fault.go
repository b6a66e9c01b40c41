package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
)

// foreignSchemas are the schemas of a server that are somebody's data: not the
// server's own, not repld's, and not what an unfinished copy of repld's made.
func foreignSchemas(h mysql.Holdings, unfinished *mysql.CopyState) []mysql.SchemaInfo {
	ours := map[string]bool{}
	if unfinished != nil {
		for _, s := range unfinished.Schemas {
			ours[s] = true
		}
	}
	var out []mysql.SchemaInfo
	for _, s := range h.Data() {
		if !ours[s.Name] {
			out = append(out, s)
		}
	}
	return out
}

func foreignDataFault(server string, foreign []mysql.SchemaInfo) *fault.Error {
	return &fault.Error{
		Kind: fault.Refused, Code: "foreign_data", Server: server,
		What:  "the server already holds data, which becoming a slave would destroy",
		Cause: "schemas on it: " + describeSchemas(foreign),
		State: "nothing was changed",
		Do:    "back up what you need; then give --replace-data to let it be replaced by the master's, or --clone none if it is a restored backup of the master",
	}
}

func describeSchemas(list []mysql.SchemaInfo) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = fmt.Sprintf("%s (%d objects, about %s)", s.Name, s.Objects, sizeText(s.Bytes))
	}
	return shorten(words)
}

// sizeText is a number of bytes for a person.
func sizeText(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// remember writes on the target why the attempt ended. It is a courtesy to the
// next reader: the record itself, written before the first change, is what the
// next attempt relies on.
func (r *copyRun) remember(ctx context.Context, cause error) {
	if !r.begun {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	to, err := mysql.Dial(ctx, r.To.Target)
	if err != nil {
		return
	}
	defer to.Close()
	r.state.Failed = cause.Error()
	if err := mysql.WriteCopyState(ctx, to, r.state); err != nil {
		r.Log.Warn("the failure of a copy could not be recorded on the server", "server", r.To.Target.Label(), "err", err)
	}
}

// fault puts the failure of an attempt into words for a user.
func (r *copyRun) fault(ctx context.Context, err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	out := &fault.Error{
		Kind: fault.Failed, Code: "copy_failed", Server: r.To.Target.Label(),
		What:  fmt.Sprintf("the copy of %s to %s failed", r.Source, r.To.Target.Label()),
		Cause: fault.Brief(err), Errno: mysql.Errno(err), Err: err,
		State: "nothing was changed on either server",
		Do:    "remove the cause and run the same command again",
	}
	var p *mysql.ProgramError
	if errors.As(err, &p) {
		out.Errno = p.Errno()
	}
	if r.begun {
		out.State = fmt.Sprintf("%s holds an incomplete copy (%s loaded), is read-only and replicates from nobody; %s is unchanged",
			r.To.Target.Label(), sizeText(r.bytes), r.Source)
		out.Do = "remove the cause and run the same command again: the copy starts anew and replaces what this one left"
	}
	switch {
	case ctx.Err() != nil:
		out.Code, out.What = "copy_cancelled", "the copy was cancelled"
		out.Do = "run the same command again: the copy starts anew"
	case errors.Is(err, errChanged):
		out.Code = "schema_changed"
		out.Do = fmt.Sprintf("run the command again while nobody changes schemas, accounts or tables without transactions on %s; or restore a physical backup and use --clone none", r.Source)
	}
	return out
}
