// Package config reads repld's configuration: flags, environment, a YAML file
// and defaults, in this order of precedence.
//
// It is strict. An unknown key, a value out of its bounds or a missing file
// that the user named is an error that says which key, in which line of which
// file, and nothing starts. It never opens the things that it names: no
// directory is made, no socket is bound.
//
// Start reading at [Config], whose fields say what each key does, then
// [Keys], the table behind the flags, the defaults and the documentation, then
// [Load].
package config
