// SPDX-License-Identifier: MIT

// Package serve answers many requests to a model at the same time, in the JSON of OpenAI's and
// Anthropic's APIs; the program around it speaks HTTP, or does not. It wraps moe_service_* and links
// libmoe_serve, which package moe does without. docs/serving.md describes requests and answers.
//
// Any number of goroutines may use a Service. A Request has one reader; Cancel may be called anywhere
// at any time. Close ends what is in progress; a closed service returns a *moe.Error with StatusState.
package serve

/*
#cgo pkg-config: moe_serve
#include <stdlib.h>
#include <moe_c.h>
void moeGoServeEvent(void* user, moe_service_event* event);
void moeGoServeReceipt(void* user, char* json, size_t n_bytes);
*/
import "C"

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/cgo"
	"strings"
	"sync"
	"unsafe"

	"moe"
	"moe/internal/bridge"
)

// Options are the options of a Service; zero values are the library's defaults.
type Options struct {
	Slots        int                // texts evaluated at the same time
	Session      moe.SessionOptions // of each
	Router       string             // in place of the model's, "topk:2"; "": the model's
	Name         string             // of the model in requests and answers; "": the model file's
	ChatTemplate string             // as ChatOptions.Template
	MaxWaiting   int                // texts that wait for a slot; further requests get the status 429
	MaxPrompt    int                // tokens
	Slice        int                // prompt tokens evaluated in a step while texts are being generated
	MaxSeconds   int                // of a request, from Submit on; 0: any
	Draft        int                // tokens drafted at once for a text that is alone, where its request does not say
	NoReuse      bool               // evaluates every prompt whole
	CacheFolder  string             // keeps evaluated texts in files, also for a later service; "": none
	CacheBytes   uint64             // of its files, the most
	// Receipt gets the receipt of every answer just before its last event. It holds up all requests,
	// and must not call the service. A panic in it ends there.
	Receipt func(json []byte)
}

// Event is a part of an answer, or the whole.
type Event struct {
	Status     int    // as HTTP counts them: 200, or that of the error in JSON
	JSON       []byte // an object in one line
	Last       bool   // no further event follows
	RetryAfter int    // seconds after which the request may be tried again; 0: not said
	Name       string // of an event of a stream that has names; "": none
}

// Stats are the counts of a service since it was created, and its state; moe_c.h explains each.
type Stats struct {
	Slots, Context, Running, Waiting               int
	Draining                                       bool
	KVPositions                                    uint64
	Requests, Refused, Answered, Cancelled, Failed uint64
	PromptTokens, GeneratedTokens, Steps           uint64
	FirstTokens                                    uint64
	FirstTokenSeconds, StepSeconds                 float64
	CapBytes, CountedBytes, PeakBytes              uint64
	ExpertUses, ExpertHits, ExpertReadBytes        uint64
	ReusedTokens                                   uint64 // of prompts
	CacheBytes                                     uint64 // of the files in the cache folder
	CacheErrors                                    uint64 // texts that could not be written to it
}

// Service evaluates a model for many requests, in threads of its own.
type Service struct {
	mu      sync.RWMutex // held for writing by Close alone
	pointer *C.moe_service
	release func() // of the model
	receipt *reference
}

// reference is C memory by which callbacks find a Go value.
type reference struct {
	user   unsafe.Pointer
	handle cgo.Handle
}

func refer(value any) *reference {
	r := &reference{C.malloc(C.size_t(unsafe.Sizeof(cgo.Handle(0)))), cgo.NewHandle(value)}
	*(*cgo.Handle)(r.user) = r.handle
	return r
}

func (r *reference) free() {
	if r != nil {
		r.handle.Delete()
		C.free(r.user)
	}
}

func referred[T any](user unsafe.Pointer) T { return (*(*cgo.Handle)(user)).Value().(T) }

func failed(status moe.Status, text string) error { return bridge.Failed(int32(status), text, nil) }

// called is the outcome of a call.
func called(call func(e *C.moe_error) C.moe_status) error {
	var e C.moe_error
	status := call(&e)
	if status == C.MOE_OK {
		return nil
	}
	return failed(moe.Status(status), C.GoString(&e.text[0]))
}

// memory is C memory for one call.
type memory struct{ blocks []unsafe.Pointer }

func (m *memory) free() {
	for _, block := range m.blocks {
		C.free(block)
	}
}

func put[T any](m *memory, value T) *T {
	p := (*T)(C.malloc(C.size_t(unsafe.Sizeof(value))))
	m.blocks = append(m.blocks, unsafe.Pointer(p))
	*p = value
	return p
}

// text: NULL for "".
func (m *memory) text(to **C.char, s, what string) error {
	if s == "" {
		return nil
	}
	if strings.IndexByte(s, 0) >= 0 {
		return failed(moe.StatusArgument, fmt.Sprintf("%s: contains a zero byte: %q", what, s))
	}
	*to = C.CString(s)
	m.blocks = append(m.blocks, unsafe.Pointer(*to))
	return nil
}

func number(to *C.int32_t, n int, what string) error {
	if n < math.MinInt32 || n > math.MaxInt32 {
		return failed(moe.StatusRange, fmt.Sprintf("%s: %d is out of range", what, n))
	}
	*to = C.int32_t(n)
	return nil
}

func (o *Options) params(m *memory) (*C.moe_service_params, error) {
	var p C.moe_service_params
	var session C.moe_session_params
	p.struct_size = C.uint32_t(C.sizeof_moe_service_params)
	session.struct_size = C.uint32_t(C.sizeof_moe_session_params)
	for _, n := range []struct {
		to   *C.int32_t
		n    int
		what string
	}{
		{&p.n_slots, o.Slots, "Slots"}, {&p.max_waiting, o.MaxWaiting, "MaxWaiting"},
		{&p.max_prompt, o.MaxPrompt, "MaxPrompt"}, {&p.slice, o.Slice, "Slice"},
		{&p.max_seconds, o.MaxSeconds, "MaxSeconds"}, {&p.max_draft, o.Draft, "Draft"},
		{&session.context, o.Session.Context, "Context"},
		{&session.chunk, o.Session.Chunk, "Chunk"}, {&session.max_beam, o.Session.MaxBeam, "MaxBeam"},
	} {
		if err := number(n.to, n.n, n.what); err != nil {
			return nil, err
		}
	}
	var router *C.char
	for _, t := range []struct {
		to      **C.char
		s, what string
	}{
		{&router, o.Router, "Router"}, {&p.name, o.Name, "Name"},
		{&p.chat_template, o.ChatTemplate, "ChatTemplate"}, {&p.cache_folder, o.CacheFolder, "CacheFolder"},
	} {
		if err := m.text(t.to, t.s, t.what); err != nil {
			return nil, err
		}
	}
	if router != nil {
		var parsed C.moe_router
		parsed.struct_size = C.uint32_t(C.sizeof_moe_router)
		if err := called(func(e *C.moe_error) C.moe_status { return C.moe_router_parse(router, &parsed, e) }); err != nil {
			return nil, err
		}
		p.router = put(m, parsed)
	}
	session.kv = C.moe_kv_type(o.Session.KV)
	p.session = put(m, session)
	p.cache_bytes = C.uint64_t(o.CacheBytes)
	if o.NoReuse {
		p.no_reuse = 1
	}
	return put(m, p), nil
}

// New creates a service, which keeps the model; nil: default options.
func New(model *moe.Model, options *Options) (*Service, error) {
	var o Options
	if options != nil {
		o = *options
	}
	var m memory
	defer m.free()
	params, err := o.params(&m)
	if err != nil {
		return nil, err
	}
	pointer, release, err := bridge.Model(model)
	if err != nil {
		return nil, err
	}
	s := &Service{release: release}
	if o.Receipt != nil {
		s.receipt = refer(o.Receipt)
		params.receipt, params.receipt_user = C.moe_service_receipt_fn(C.moeGoServeReceipt), s.receipt.user
	}
	err = called(func(e *C.moe_error) C.moe_status {
		return C.moe_service_create((*C.moe_model)(pointer), params, &s.pointer, e)
	})
	if err != nil {
		s.receipt.free()
		release()
		return nil, err
	}
	// A request in progress keeps the service. What is freed waits for a thread, so not in the collector's goroutine.
	runtime.SetFinalizer(s, func(s *Service) { go s.Close() })
	return s, nil
}

// Close ends all requests, with the status 503 for their last events, and frees the service. When it
// returns, every request has its last event. It may be called any number of times.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pointer == nil {
		return
	}
	C.moe_service_free(s.pointer)
	s.pointer = nil
	s.receipt.free()
	s.release()
}

// ask makes a call while the service is open.
func (s *Service) ask(call func(service *C.moe_service, e *C.moe_error) C.moe_status) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.pointer == nil {
		return failed(moe.StatusState, "the service is closed")
	}
	return called(func(e *C.moe_error) C.moe_status { return call(s.pointer, e) })
}

// Stats reads the counts.
func (s *Service) Stats() (Stats, error) {
	var c C.moe_service_stats
	c.struct_size = C.uint32_t(C.sizeof_moe_service_stats)
	err := s.ask(func(service *C.moe_service, e *C.moe_error) C.moe_status {
		return C.moe_service_get_stats(service, &c, e)
	})
	return Stats{
		Slots: int(c.n_slots), Context: int(c.context), Running: int(c.n_running), Waiting: int(c.n_waiting),
		Draining: c.draining != 0, KVPositions: uint64(c.kv_positions),
		Requests: uint64(c.n_requests), Refused: uint64(c.n_refused), Answered: uint64(c.n_answered),
		Cancelled: uint64(c.n_cancelled), Failed: uint64(c.n_failed),
		PromptTokens: uint64(c.prompt_tokens), GeneratedTokens: uint64(c.generated_tokens), Steps: uint64(c.n_steps),
		FirstTokens: uint64(c.n_first_tokens), FirstTokenSeconds: float64(c.first_token_seconds),
		StepSeconds: float64(c.step_seconds), CapBytes: uint64(c.cap_bytes), CountedBytes: uint64(c.counted_bytes),
		PeakBytes: uint64(c.peak_bytes), ExpertUses: uint64(c.expert_uses), ExpertHits: uint64(c.expert_hits),
		ExpertReadBytes: uint64(c.expert_read_bytes), ReusedTokens: uint64(c.reused_tokens),
		CacheBytes: uint64(c.cache_bytes), CacheErrors: uint64(c.cache_errors),
	}, err
}

// Drain refuses requests from now on, with the status 503, and waits until those taken have ended and
// the cache folder has their texts. If the context is done first, it returns the context's error in a
// *moe.Error with StatusCancelled; the service still drains.
func (s *Service) Drain(ctx context.Context) error {
	for {
		var empty C.bool
		seconds := C.double(0.02) // so that neither the context nor Close waits for the requests
		if ctx.Err() != nil {
			seconds = 0
		}
		err := s.ask(func(service *C.moe_service, e *C.moe_error) C.moe_status {
			return C.moe_service_drain(service, seconds, &empty, e)
		})
		switch {
		case err != nil || bool(empty):
			return err
		case ctx.Err() != nil:
			return ended(ctx)
		}
	}
}

func ended(ctx context.Context) error {
	return bridge.Failed(int32(moe.StatusCancelled), ctx.Err().Error(), ctx.Err())
}

// Request is a request that was submitted, and its events: `for r.Next() { r.Event() }`. They are kept
// until they are read, however many they are.
type Request struct {
	service *Service
	user    *reference
	id      C.uint64_t
	stream  bool
	current Event
	ended   chan struct{}

	mu     sync.Mutex
	arrive sync.Cond
	unread []Event
}

// Submit takes a request, a JSON object; a refused one too has an event, with the API's error. When
// the context is done the request is cancelled: its last event has the status 499.
func (s *Service) Submit(ctx context.Context, endpoint moe.Endpoint, body []byte) (*Request, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	r := &Request{service: s, ended: make(chan struct{})}
	r.arrive.L = &r.mu
	r.user = refer(r)
	var ticket C.moe_service_ticket
	ticket.struct_size = C.uint32_t(C.sizeof_moe_service_ticket)
	err := s.ask(func(service *C.moe_service, e *C.moe_error) C.moe_status {
		var text *C.char
		if len(body) > 0 {
			text = (*C.char)(unsafe.Pointer(&body[0]))
		} else {
			text = C.CString("")
			defer C.free(unsafe.Pointer(text))
		}
		return C.moe_service_submit(service, C.moe_endpoint(endpoint), text, C.size_t(len(body)),
			C.moe_service_event_fn(C.moeGoServeEvent), r.user.user, &ticket, e)
	})
	if err != nil {
		r.user.free()
		return nil, err
	}
	r.id, r.stream = ticket.id, ticket.stream != 0
	if r.id != 0 && ctx.Done() != nil {
		go func() {
			select {
			case <-ctx.Done():
				r.Cancel()
			case <-r.ended:
			}
		}()
	}
	return r, nil
}

// Stream reports whether the request asks for a stream, and was not refused.
func (r *Request) Stream() bool { return r.stream }

// Next waits for the next event; false: the last one has been read.
func (r *Request) Next() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current.Last {
		return false
	}
	for len(r.unread) == 0 {
		r.arrive.Wait()
	}
	r.current, r.unread = r.unread[0], r.unread[1:]
	return true
}

// Event is the one that Next has found.
func (r *Request) Event() Event { return r.current }

// Answer waits for the last event: the whole answer of a request that asks for no stream, or why there
// is none.
func (r *Request) Answer() Event {
	for r.Next() {
	}
	return r.current
}

// Cancel ends the request within a step: its last event has the status 499. It does nothing if the
// request has ended.
func (r *Request) Cancel() {
	if r.id == 0 {
		return
	}
	_ = r.service.ask(func(service *C.moe_service, e *C.moe_error) C.moe_status {
		C.moe_service_cancel(service, r.id)
		return C.MOE_OK
	}) // a closed service has ended it
}
