package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// dropInMark is the first line of every drop-in: a file without it is not
// repld's and is never overwritten.
const dropInMark = "# Written by repld. Do not edit: repld replaces the whole file."

// RenderDropIn is the option file: each line with its reason, no secrets.
func RenderDropIn(cluster, server string, list []Setting) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n# Server %s of cluster %s. \"replctl remove %s --purge-config\" removes it.\n", dropInMark, server, cluster, server)
	b.WriteString("# rpl_semi_sync_master_enabled and rpl_semi_sync_slave_enabled must never stand in a\n# file: repld switches them by role.\n\n[mysqld]\n")
	for _, s := range list {
		fmt.Fprintf(&b, "# %s\n%s = %s\n", s.Why, s.Option, optionValue(s.Value))
	}
	return b.String()
}

// optionValue quotes what an option file would not take as it is.
func optionValue(v string) string {
	if !strings.ContainsAny(v, " \t#;\"'\\") {
		return v
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(v) + `"`
}

// isOurs tells whether a file's text was written by repld.
func isOurs(text string) bool { return strings.HasPrefix(text, dropInMark) }

// sumOf is the checksum by which a drop-in that cannot be read is recognised.
func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
