// SPDX-License-Identifier: MIT

// Package bridge gives package serve what package moe keeps to itself. Package moe sets it.
package bridge

import "unsafe"

var (
	// Model is the moe_model of a *moe.Model, which stays valid until release.
	Model func(model any) (pointer unsafe.Pointer, release func(), err error)
	// Failed makes a *moe.Error; cause may be nil.
	Failed func(status int32, text string, cause error) error
)
