// SPDX-License-Identifier: MIT

// The functions that the service's thread calls.

package serve

// #include <moe_c.h>
import "C"

import "unsafe"

//export moeGoServeEvent
func moeGoServeEvent(user unsafe.Pointer, e *C.moe_service_event) {
	r := referred[*Request](user)
	event := Event{Status: int(e.status), JSON: copied(e.json, e.n_bytes), Last: e.last != 0, RetryAfter: int(e.retry_after)}
	if e.name != nil {
		event.Name = C.GoString(e.name)
	}
	if event.Last {
		r.user.free()
		close(r.ended)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread = append(r.unread, event)
	r.arrive.Signal()
}

//export moeGoServeReceipt
func moeGoServeReceipt(user unsafe.Pointer, json *C.char, n C.size_t) {
	defer func() { _ = recover() }() // nobody waits for it, and a panic cannot pass through C
	referred[func([]byte)](user)(copied(json, n))
}

func copied(data *C.char, n C.size_t) []byte {
	return append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(data)), int(n))...)
}
