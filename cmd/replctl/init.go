package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/duration"
)

func newInit(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a server a cluster's master or slave",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("init makes a master or a slave, not a %q", args[0])
			}
			return fmt.Errorf("init needs master or slave")
		},
	}
	cmd.AddCommand(newInitMaster(c), newInitSlave(c))
	return cmd
}

func newInitMaster(c *cli) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:     "master NAME --address HOST:PORT",
		Aliases: []string{"primary"},
		Short:   "Make a server the cluster's master",
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.request(args[0])
			if err != nil {
				return err
			}
			if err := r.Check(); err != nil {
				return err
			}
			return c.init(cmd.Context(), &f, r)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func newInitSlave(c *cli) *cobra.Command {
	var f serverFlags
	var s api.SlaveOptions
	var delay string
	cmd := &cobra.Command{
		Use:     "slave NAME --address HOST:PORT",
		Aliases: []string{"replica"},
		Short:   "Make a server a slave of the cluster's master",
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.request(args[0])
			if err != nil {
				return err
			}
			if delay != "" {
				d, err := duration.Parse(delay)
				if err != nil {
					return usage("bad_delay", "--delay: "+err.Error(), "give for example --delay 1h")
				}
				s.DelayMS = d.Milliseconds()
			}
			r.Slave = &s
			if err := r.Check(); err != nil {
				return err
			}
			return c.init(cmd.Context(), &f, r)
		},
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.StringVar(&s.Source, "source", "", "replicate from this slave `NAME` instead of from the master; no acker, promoted last")
	flags.StringVar(&s.Clone, "clone", "auto", "how its data gets there: auto, dump or none (it is there, its GTID is checked)")
	flags.BoolVar(&s.ReplaceData, "replace-data", false, "let foreign data on this server be destroyed")
	flags.StringVar(&delay, "delay", "", "stay this `duration` behind the master; never promotable")
	flags.StringArrayVar(&s.ReplicateDoDB, "replicate-do-db", nil, "replicate only this `schema` (repeatable); never promotable")
	flags.StringVar(&s.SkipErrors, "skip-errors", "", "skip these error `numbers`, or all; its data may differ then; never promotable")
	return cmd
}

// init plans and runs the request. The password comes last, so that nobody is
// asked for one only to be told of a mistake in a flag.
func (c *cli) init(ctx context.Context, f *serverFlags, r api.InitRequest) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if r.Admin.Password, err = f.password(ctx, c); err != nil {
		return err
	}
	return c.change(ctx, func(ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
		r.Consent = consent
		return client.Init(ctx, r, p)
	})
}

// serverFlags are the flags that init master, init slave and adopt share.
type serverFlags struct {
	address, adminUser, adminPasswordFile, adminSocket string
	serverID                                           uint32
	configFile, configCommand, restartCommand, restart string
	sslCA, sslCert, sslKey, binlogFormat, promotion    string
}

func (f *serverFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "address", "", "`host:port` as repld and the other servers reach it")
	flags.StringVar(&f.adminUser, "admin-user", "", "`account` that is used once to create repld's own")
	flags.StringVar(&f.adminPasswordFile, "admin-password-file", "", "`file` with its password (else env REPLCTL_ADMIN_PASSWORD, else a prompt)")
	flags.StringVar(&f.adminSocket, "admin-socket", "", "log in by this local socket `path` (unix_socket), as root unless --admin-user is given")
	flags.Uint32Var(&f.serverID, "server-id", 0, "server_id `number` (default: keep a unique one, or the next free one)")
	flags.StringVar(&f.configFile, "config-file", "", "`path` of the configuration file that repld writes")
	flags.StringVar(&f.configCommand, "config-command", "", "`command` that gets that file on stdin, for a server on another host")
	flags.StringVar(&f.restartCommand, "restart-command", "", "`command` that restarts the server")
	flags.StringVar(&f.restart, "restart", "", "what to do if a restart is needed: `now or never` (default: ask)")
	flags.StringVar(&f.sslCA, "ssl-ca", "", "your own authority's `file`, on the server")
	flags.StringVar(&f.sslCert, "ssl-cert", "", "the server's own certificate `file`, on the server")
	flags.StringVar(&f.sslKey, "ssl-key", "", "its key `file`, on the server")
	flags.StringVar(&f.binlogFormat, "binlog-format", "", "`mixed or row` (default mixed)")
	flags.StringVar(&f.promotion, "promotion", "neutral", "wish for the next master: `prefer, neutral, avoid or never`")
}

// request builds the request, without the password.
func (f *serverFlags) request(name string) (api.InitRequest, error) {
	r := api.InitRequest{
		Name: name, Address: f.address, ServerID: f.serverID, ConfigFile: f.configFile, Restart: f.restart,
		SSLCA: f.sslCA, SSLCert: f.sslCert, SSLKey: f.sslKey, BinlogFormat: f.binlogFormat, Promotion: f.promotion,
		Admin: api.Admin{User: f.adminUser, Socket: f.adminSocket},
	}
	if r.Admin.Socket != "" && r.Admin.User == "" {
		r.Admin.User = "root"
	}
	// A path in the server's file system means nothing relative to this shell.
	for flag, path := range map[string]string{"--config-file": r.ConfigFile, "--admin-socket": r.Admin.Socket,
		"--ssl-ca": r.SSLCA, "--ssl-cert": r.SSLCert, "--ssl-key": r.SSLKey} {
		if path != "" && !filepath.IsAbs(path) {
			return r, usage("bad_path", fmt.Sprintf("%s %s is not an absolute path", flag, path), "give the whole path")
		}
	}
	var err error
	if r.ConfigCommand, err = splitFlag("--config-command", f.configCommand); err != nil {
		return r, err
	}
	r.RestartCommand, err = splitFlag("--restart-command", f.restartCommand)
	return r, err
}

// password finds the administrator's: the file, else the environment, else a
// question. It never stands in a flag, which every user of the host can read.
func (f *serverFlags) password(ctx context.Context, c *cli) (string, error) {
	if f.adminPasswordFile != "" {
		text, err := os.ReadFile(f.adminPasswordFile)
		if err != nil {
			return "", usage("bad_password_file", "cannot read --admin-password-file: "+err.Error(), "check the name and the permissions")
		}
		return trimNewline(string(text)), nil
	}
	if text, ok := c.env("REPLCTL_ADMIN_PASSWORD"); ok {
		return text, nil
	}
	if f.adminUser == "" || f.adminSocket != "" {
		return "", nil
	}
	if !isTerminal(c.stdin) {
		return "", noPassword("there is no terminal to ask on")
	}
	return c.secret(ctx, "password of "+f.adminUser+": ")
}

func splitFlag(flag, value string) ([]string, error) {
	words, err := splitWords(value)
	if err == nil && value != "" && len(words) == 0 {
		err = fmt.Errorf("it is empty")
	}
	if err != nil {
		return nil, usage("bad_command", fmt.Sprintf("%s cannot be split into words: %v", flag, err), "quote it as for a shell")
	}
	return words, nil
}
