// SPDX-License-Identifier: MIT

// Package serve, which links a library of its own, reaches what it needs of this one by these functions.

package moe

import (
	"unsafe"

	"moe/internal/bridge"
)

func init() {
	bridge.Model = func(model any) (unsafe.Pointer, func(), error) {
		m, _ := model.(*Model)
		if m == nil {
			return nil, nil, failed(StatusArgument, "model: expected a model, found nil")
		}
		pointer, err := m.h.acquire()
		return pointer, m.h.release, err
	}
	bridge.Failed = func(status int32, text string, cause error) error {
		return &Error{Status(status), text, cause}
	}
}
