// Package imports checks how the packages of this module depend on each other:
// that imports point one way, that only the packages meant for it talk to
// servers or speak SQL, and that the files which decide read no clock, open no
// connection and log nothing, be it by way of a function elsewhere in the
// module.
//
// It reads source and types only and runs nothing. Start reading at [Check];
// rules.go holds the rules themselves.
package imports
