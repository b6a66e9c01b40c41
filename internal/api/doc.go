// Package api is how replctl speaks with repld: the types on the wire, the HTTP
// server on a unix socket, and the client.
//
// It knows no server of a cluster and decides nothing: [Reader] and [Changer]
// are what repld does behind it, implemented by internal/app. Changes are made by POST only.
// Every error is JSON with the four parts of a fault.
//
// A change is asked for twice. First with DryRun, which answers with the
// [Plan] and changes nothing; then, once the user has agreed, with Confirmed. A
// dry run ends when its client goes away. A change does not: it has begun to
// alter servers, and to leave it half done because a terminal closed would be
// worse than to finish it. It ends early only if repld itself is stopped.
//
// Start reading at [Status], [Reader] and [Changer], then [Server] and [Client].
package api
