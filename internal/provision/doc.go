// Package provision.
package provision
