// SPDX-License-Identifier: MIT

// Error: a status of the library with its text, and the cause that it stands for.

package moe

// #include <moe_c.h>
import "C"

import "errors"

// String is the spelling in moe_c.h, such as "MOE_ERR_RANGE".
func (s Status) String() string { return C.GoString(C.moe_status_name(C.moe_status(s))) }

// Error describes a failed call: the status, and one line that names the faulty item.
type Error struct {
	Status Status
	Text   string
	cause  error // of a context that was cancelled, or of a reader or a writer
}

func (e *Error) Error() string { return e.Status.String() + ": " + e.Text }

// Unwrap returns the error of the context that ended the call, or of the reader or writer that failed.
func (e *Error) Unwrap() error { return e.cause }

// StatusOf is the status of an *Error anywhere in err's chain, StatusOK for nil, and StatusInternal
// for any other error.
func StatusOf(err error) Status {
	var e *Error
	switch {
	case err == nil:
		return StatusOK
	case errors.As(err, &e):
		return e.Status
	}
	return StatusInternal
}

func failed(status Status, text string) error { return &Error{Status: status, Text: text} }

// causedBy is the error of a call that failed because of `cause`; nil: because of something else.
func causedBy(cause, err error) error {
	if err == nil || cause == nil {
		return err
	}
	return &Error{StatusIO, cause.Error(), cause}
}

// called is the outcome of a call.
func called(call func(e *C.moe_error) C.moe_status) error {
	var e C.moe_error
	return check(call(&e), &e)
}

// check converts a call's status to an error.
func check(status C.moe_status, e *C.moe_error) error {
	if status == C.MOE_OK {
		return nil
	}
	code := status
	if e.code != C.MOE_OK {
		code = e.code
	}
	return failed(Status(code), C.GoString(&e.text[0]))
}
