// SPDX-License-Identifier: MIT

// Routers as text, over moe_router_parse and moe_router_format.

package moe

// #include <moe_c.h>
import "C"

// parseRouter puts the library's reading of a text, "topk:2,renormalised", into a; "": nil, the
// library's default.
func parseRouter(a *arena, text string) (*C.moe_router, error) {
	given, err := a.text(text, "router")
	if given == nil || err != nil {
		return nil, err
	}
	var router C.moe_router
	router.struct_size = C.uint32_t(C.sizeof_moe_router)
	var e C.moe_error
	if err := check(C.moe_router_parse(given, &router, &e), &e); err != nil {
		return nil, err
	}
	return put(a, router), nil
}

// routerText is the reverse.
func routerText(router *C.moe_router) (string, error) {
	var text [512]C.char
	var n C.size_t
	var e C.moe_error
	err := check(C.moe_router_format(router, &text[0], C.size_t(len(text)), &n, &e), &e)
	return C.GoString(&text[0]), err
}
