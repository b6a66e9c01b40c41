package api

import (
	"encoding/json"
	"net/http"

	"github.com/repld/repld/internal/fault"
)

// Error is a fault on the wire, and what -o json prints on stderr.
type Error struct {
	Code        string  `json:"code"`
	What        string  `json:"what"`
	Server      *string `json:"server"`
	ServerErrno *uint16 `json:"server_errno"`
	Cause       string  `json:"cause"`
	State       string  `json:"state"`
	Do          string  `json:"do"`
	// Kind is replctl's exit code, Document a text for stdout; both stay off
	// what replctl prints as the error.
	Kind     fault.Kind `json:"kind,omitempty"`
	Document string     `json:"document,omitempty"`
}

// ErrorBody is the body of every answer that is an error.
type ErrorBody struct {
	Error Error `json:"error"`
}

// NewError turns any error into its form on the wire.
func NewError(err error) Error {
	f := fault.As(err)
	e := Error{Code: f.Code, What: f.What, Cause: f.Cause, State: f.State, Do: f.Do, Kind: f.Kind, Document: f.Document}
	if f.Server != "" {
		e.Server = &f.Server
	}
	if f.Errno != 0 {
		e.ServerErrno = &f.Errno
	}
	return e
}

// Fault is the way back.
func (e Error) Fault() *fault.Error {
	f := &fault.Error{Kind: e.Kind, Code: e.Code, What: e.What, Cause: e.Cause, State: e.State, Do: e.Do, Document: e.Document}
	if e.Server != nil {
		f.Server = *e.Server
	}
	if e.ServerErrno != nil {
		f.Errno = *e.ServerErrno
	}
	if f.Kind == 0 {
		f.Kind = fault.Failed
	}
	return f
}

// httpStatus is for tools that look at the status only; replctl uses the kind.
func httpStatus(k fault.Kind) int {
	switch k {
	case fault.Usage:
		return http.StatusBadRequest
	case fault.Refused, fault.Unconfirmed, fault.Partly:
		return http.StatusConflict
	case fault.Unreachable:
		return http.StatusServiceUnavailable
	case fault.Timeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

func writeError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, ErrorBody{Error: NewError(err)})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	// An error here is a client that went away; there is nobody to tell.
	_ = enc.Encode(body)
}
