// SPDX-License-Identifier: MIT

// Session: evaluating, scoring, encoding, translating, saving and forking, over moe_session_*.

package moe

/*
#include <moe_c.h>
bool moeGoRead(void* user, uint64_t offset, void* buffer, size_t bytes);
bool moeGoWrite(void* user, const void* bytes, size_t n_bytes);
bool moeGoProgress(void* user, uint64_t done, uint64_t total, const char* what);
*/
import "C"

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"syscall"
	"unsafe"
)

// SessionOptions are the options of a Session; zero values are the library's defaults.
type SessionOptions struct {
	Context, Chunk int
	KV             KVType
	MaxBeam        int // of an encoder-decoder: the largest beam of its searches
}

func (o SessionOptions) params(a *arena) (*C.moe_session_params, error) {
	context, err := count(o.Context, "context")
	if err != nil {
		return nil, err
	}
	chunk, err := count(o.Chunk, "chunk")
	if err != nil {
		return nil, err
	}
	beam, err := count(o.MaxBeam, "MaxBeam")
	if err != nil {
		return nil, err
	}
	var p C.moe_session_params
	p.max_beam = beam
	p.struct_size = C.uint32_t(C.sizeof_moe_session_params)
	p.context, p.chunk, p.kv = context, chunk, C.moe_kv_type(o.KV)
	return put(a, p), nil
}

// TranslateOptions are the options of Translate; zero values are the library's defaults.
type TranslateOptions struct {
	Beam, NBest          int
	MinTokens, MaxTokens int     // MinTokens -1: a text may be empty
	LengthPenalty        float32 // a score is the sum of log-probabilities / tokens ^ this; 0: 1
	Score                BeamScore
	Stop                 BeamStop
	Prefix               []int32                        // what every text begins with; nil: what the model file says
	Progress             func(tokens, most uint64) bool // before each token; false stops. May be nil
}

// Translation is one result of Translate.
type Translation struct {
	Tokens []int32 // with the end-of-text token
	Score  float32
}

// EncodeOptions select the results of Encode.
type EncodeOptions struct {
	Hidden    bool // what the head sees
	Pooled    bool
	Pooling   Pooling
	Normalize Normalize
	Outputs   bool    // those of the head
	Rows      []int32 // ascending tokens whose outputs are wanted; nil: of all
}

// Encoded contains the requested results, row by row.
type Encoded struct {
	Hidden  []float32 // (tokens, DModel)
	Pooled  []float32 // (DModel)
	Outputs []float32 // (rows, NOutputs)
}

// Perplexity of a text.
type Perplexity struct {
	NScored             uint64
	MeanNLL, Perplexity float64 // nats per token; its exponential
}

// Session is one text being evaluated: a KV cache and a position.
type Session struct {
	h       *handle
	model   *Model
	vocab   int
	one     *single
	watched *watched
}

// watched is the callback that the native session holds, if any.
type watched struct {
	memory arena
	w      *watcher
}

// Session creates a session of the model.
func (m *Model) Session(options SessionOptions) (*Session, error) {
	info, err := m.Info()
	if err != nil {
		return nil, err
	}
	var s *Session
	err = m.withSession(options, func(model *C.moe_model, params *C.moe_session_params, e *C.moe_error) C.moe_status {
		var p *C.moe_session
		status := C.moe_session_create(model, params, &p, e)
		if status == C.MOE_OK {
			s = newSession(m, p, m.h, info.VocabSize)
		}
		return status
	})
	return s, err
}

// newSession: the parent is held by a call in progress.
func newSession(m *Model, p *C.moe_session, parent *handle, vocab int) *Session {
	s := &Session{model: m, vocab: vocab, one: new(single), watched: new(watched)}
	kept := s.watched
	free := func(p unsafe.Pointer) { C.moe_session_free((*C.moe_session)(p)); kept.memory.free() }
	s.h = newHandle("session", unsafe.Pointer(p), parent, free)
	return collected(s)
}

// Close frees the memory once its chats are closed too. A call in progress completes normally.
func (s *Session) Close() { s.h.close() }

// Model is the model of the session.
func (s *Session) Model() *Model { return s.model }

// Cancel makes the call in progress fail with StatusCancelled within one layer's time. From any
// goroutine; without a call it does nothing.
func (s *Session) Cancel() {
	if p, err := s.h.acquire(); err == nil {
		defer s.h.release()
		C.moe_session_cancel((*C.moe_session)(p))
	}
}

func (s *Session) use() (*C.moe_session, func(), error) {
	p, err := s.h.acquire()
	if err != nil {
		return nil, nil, err
	}
	if err := s.one.enter("session"); err != nil {
		s.h.release()
		return nil, nil, err
	}
	return (*C.moe_session)(p), func() { s.one.leave(); s.h.release() }, nil
}

// goOn repanics if the routing callback panicked.
func (w *watched) goOn() {
	if w.w != nil {
		w.w.goOn()
	}
}

type sessionCall func(session *C.moe_session, e *C.moe_error) C.moe_status

// run makes a call for which the session is used.
func (s *Session) run(ctx context.Context, call sessionCall) error {
	p, release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	err = during(ctx, func() { C.moe_session_cancel(p) }, func() error {
		var e C.moe_error
		return check(call(p, &e), &e)
	})
	s.watched.goOn()
	return err
}

// Position is the number of tokens evaluated so far.
func (s *Session) Position() (int, error) {
	p, release, err := s.use()
	if err != nil {
		return 0, err
	}
	defer release()
	return int(C.moe_session_position(p)), nil
}

// Context is the maximum number of tokens in the session; of an encoder, in one text: its chunk
// limits them as well.
func (s *Session) Context() (int, error) {
	p, release, err := s.use()
	if err != nil {
		return 0, err
	}
	defer release()
	return int(C.moe_session_context(p)), nil
}

// fitting returns n, the number of tokens of a call, or 0 if the context is shorter. The library
// refuses such a call, and there may be no memory for its results.
func (s *Session) fitting(n int) (int, error) {
	context, err := s.Context()
	if err != nil || n > context {
		return 0, err
	}
	return n, nil
}

func (s *Session) evaluate(ctx context.Context, tokens []int32, rows int) ([]float32, error) {
	which := RowsAll
	if rows == 0 {
		which = RowsNone
	} else if rows == 1 {
		which = RowsLast
	}
	logits := make([]float32, rows*s.vocab)
	err := s.run(ctx, func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_eval(p, tokensOf(tokens), C.size_t(len(tokens)), C.moe_rows(which), floatsOf(logits), e)
	})
	if err != nil {
		return nil, err
	}
	return logits, nil
}

// Append appends tokens to the text.
func (s *Session) Append(ctx context.Context, tokens []int32) error {
	_, err := s.evaluate(ctx, tokens, 0)
	return err
}

// Eval appends tokens and returns the logits of the next token: (VocabSize).
func (s *Session) Eval(ctx context.Context, tokens []int32) ([]float32, error) {
	return s.evaluate(ctx, tokens, 1)
}

// EvalAll appends tokens and returns the logits after each: (len(tokens), VocabSize).
func (s *Session) EvalAll(ctx context.Context, tokens []int32) ([]float32, error) {
	rows, err := s.fitting(len(tokens))
	if err != nil {
		return nil, err
	}
	return s.evaluate(ctx, tokens, rows)
}

// Score appends tokens and returns the log-probability of each given the preceding text. In an empty
// session the first token has no predecessor, hence no value: (len(tokens) - 1).
func (s *Session) Score(ctx context.Context, tokens []int32) ([]float32, error) {
	var logprobs []float32
	err := s.run(ctx, func(p *C.moe_session, e *C.moe_error) C.moe_status {
		n := len(tokens)
		if n > 0 && C.moe_session_position(p) == 0 {
			n--
		}
		logprobs = make([]float32, n)
		return C.moe_session_score(p, tokensOf(tokens), C.size_t(len(tokens)), floatsOf(logprobs), C.size_t(n), e)
	})
	if err != nil {
		return nil, err
	}
	return logprobs, nil
}

// Step appends one token to each of several distinct sessions of one model in a single pass; the
// logits are (len(sessions), VocabSize). On failure none has advanced.
func Step(ctx context.Context, sessions []*Session, tokens []int32) ([]float32, error) {
	if len(tokens) != len(sessions) || len(tokens) == 0 {
		return nil, failed(StatusArgument, fmt.Sprintf("tokens: expected one for each of %d sessions, found %d", len(sessions), len(tokens)))
	}
	return together(ctx, sessions, func(pointers []*C.moe_session, logits *C.float, e *C.moe_error) C.moe_status {
		return C.moe_sessions_eval(&pointers[0], tokensOf(tokens), nil, C.size_t(len(tokens)), logits, e)
	})
}

// EvalEach is Step with several tokens for some of the sessions: parts of prompts together with
// single decode steps. A pass has at most as many tokens as the first session's chunk; more take
// several. The logits are those after the last token of each piece.
func EvalEach(ctx context.Context, sessions []*Session, pieces [][]int32) ([]float32, error) {
	if len(pieces) != len(sessions) || len(pieces) == 0 {
		return nil, failed(StatusArgument, fmt.Sprintf("pieces: expected one for each of %d sessions, found %d", len(sessions), len(pieces)))
	}
	counts := make([]C.size_t, len(pieces))
	var tokens []int32
	for i, piece := range pieces {
		counts[i] = C.size_t(len(piece))
		tokens = append(tokens, piece...)
	}
	return together(ctx, sessions, func(pointers []*C.moe_session, logits *C.float, e *C.moe_error) C.moe_status {
		return C.moe_sessions_eval(&pointers[0], tokensOf(tokens), &counts[0], C.size_t(len(counts)), logits, e)
	})
}

func together(ctx context.Context, sessions []*Session, call func([]*C.moe_session, *C.float, *C.moe_error) C.moe_status) ([]float32, error) {
	pointers := make([]*C.moe_session, len(sessions))
	for i, s := range sessions {
		p, release, err := s.use()
		if err != nil {
			return nil, err
		}
		defer release()
		pointers[i] = p
	}
	cancel := func() {
		for _, p := range pointers {
			C.moe_session_cancel(p)
		}
	}
	logits := make([]float32, len(sessions)*sessions[0].vocab)
	err := during(ctx, cancel, func() error {
		var e C.moe_error
		return check(call(pointers, floatsOf(logits), &e), &e)
	})
	for _, s := range sessions {
		s.watched.goOn()
	}
	if err != nil {
		return nil, err
	}
	return logits, nil
}

// Encode runs the model over a text without changing the session. In an encoder every token sees
// every other; in a decoder, which has no outputs here, the tokens before it.
func (s *Session) Encode(ctx context.Context, tokens []int32, o EncodeOptions) (Encoded, error) {
	info, err := s.model.Info()
	if err != nil {
		return Encoded{}, err
	}
	n, err := s.fitting(len(tokens))
	if err != nil {
		return Encoded{}, err
	}
	rows := n
	if o.Rows != nil {
		rows = len(o.Rows)
	} else if info.Head == "classes" {
		rows = 1
	}
	var a arena
	defer a.free()
	room := func(wanted bool, n int) []float32 {
		if !wanted || n == 0 {
			return nil
		}
		return unsafe.Slice((*float32)(a.bytes(uintptr(n)*4)), n)
	}
	hidden, pooled := room(o.Hidden, n*info.DModel), room(o.Pooled, info.DModel)
	outputs := room(o.Outputs, rows*info.NOutputs)
	var params C.moe_encode_params
	params.struct_size = C.uint32_t(C.sizeof_moe_encode_params)
	params.pooling, params.normalize = C.moe_pooling(o.Pooling), C.moe_normalize(o.Normalize)
	params.hidden, params.pooled, params.outputs = floatsOf(hidden), floatsOf(pooled), floatsOf(outputs)
	if o.Outputs {
		params.rows, params.n_rows = (*C.int32_t)(put(&a, o.Rows...)), C.size_t(rows)
	}
	err = s.run(ctx, func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_encode(p, tokensOf(tokens), C.size_t(len(tokens)), &params, e)
	})
	if err != nil {
		return Encoded{}, err
	}
	copied := func(c []float32) []float32 { return append([]float32(nil), c...) }
	return Encoded{copied(hidden), copied(pooled), copied(outputs)}, nil
}

func (o TranslateOptions) params(a *arena) (C.moe_translate_params, error) {
	var p C.moe_translate_params
	p.struct_size = C.uint32_t(C.sizeof_moe_translate_params)
	var err error
	for _, c := range []struct {
		to   *C.int32_t
		from int
		name string
	}{{&p.beam, o.Beam, "Beam"}, {&p.n_best, o.NBest, "NBest"}, {&p.max_tokens, o.MaxTokens, "MaxTokens"}} {
		if *c.to, err = count(c.from, c.name); err != nil {
			return p, err
		}
	}
	p.min_tokens = -1
	if o.MinTokens != -1 {
		if p.min_tokens, err = count(o.MinTokens, "MinTokens"); err != nil {
			return p, err
		}
	}
	p.length_penalty, p.stop = C.float(o.LengthPenalty), C.moe_beam_stop(o.Stop)
	p.score = C.moe_beam_score(o.Score)
	p.prefix, p.n_prefix = (*C.int32_t)(put(a, o.Prefix...)), C.size_t(len(o.Prefix))
	return p, nil
}

// Translate returns an encoder-decoder's best texts for a source's tokens, best first. Afterwards the
// session has read the source and is empty.
func (s *Session) Translate(ctx context.Context, source []int32, o TranslateOptions) ([]Translation, error) {
	var a arena
	defer a.free()
	params, err := o.params(&a)
	if err != nil {
		return nil, err
	}
	call := &progressCall{f: o.Progress}
	if o.Progress != nil {
		params.progress, params.progress_user = C.moe_progress_fn(C.moeGoProgress), a.ref(call)
	}
	var n C.size_t
	var found []Translation
	err = s.run(ctx, func(p *C.moe_session, e *C.moe_error) C.moe_status {
		status := C.moe_session_translate(p, tokensOf(source), C.size_t(len(source)), &params, &n, e)
		for i := C.size_t(0); status == C.MOE_OK && i < n; i++ {
			var t C.moe_translation
			t.struct_size = C.uint32_t(C.sizeof_moe_translation)
			status = C.moe_session_get_translation(p, i, &t, e)
			if status == C.MOE_OK { // the tokens are the session's
				tokens := unsafe.Slice((*int32)(t.tokens), int(t.n_tokens))
				found = append(found, Translation{append([]int32(nil), tokens...), float32(t.score)})
			}
		}
		return status
	})
	call.goOn()
	return found, err
}

// ReadSource reads a source and empties the session, which then works like a decoder's whose text
// attends to the source and begins with ModelInfo.StartToken. It returns the encoder's output,
// (tokens, DModel).
func (s *Session) ReadSource(ctx context.Context, source []int32) ([]float32, error) {
	info, err := s.model.Info()
	if err != nil {
		return nil, err
	}
	var hidden []float32
	if len(source) <= info.SourceLength { // otherwise the library refuses the call
		hidden = make([]float32, len(source)*info.DModel)
	}
	err = s.run(ctx, func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_read_source(p, tokensOf(source), C.size_t(len(source)), floatsOf(hidden), e)
	})
	if err != nil {
		return nil, err
	}
	return hidden, nil
}

func (s *Session) tokens(text string, how EncodeText) ([]int32, error) {
	tokenizer, err := s.model.Tokenizer()
	if err != nil {
		return nil, err
	}
	return tokenizer.EncodeWith(text, how)
}

// Embed returns one vector per text: (DModel); with PoolDefault as the model file says, its length included. The
// caller puts a prompt of the model (Model.Prompts) before the text. An empty text is an error.
func (s *Session) Embed(ctx context.Context, text string, pooling Pooling) ([]float32, error) {
	if text == "" {
		return nil, failed(StatusArgument, "text: expected a text, found an empty one")
	}
	tokens, err := s.tokens(text, EncodeText{})
	if err != nil {
		return nil, err
	}
	options := EncodeOptions{Pooled: true, Pooling: pooling}
	if pooling == PoolDefault {
		options.Normalize = NormalizeDefault
	}
	encoded, err := s.Encode(ctx, tokens, options)
	return encoded.Pooled, err
}

// Save writes the text with its keys and values, to be resumed later or elsewhere. The caller flushes a
// bufio.Writer and closes a file, and checks both for errors.
func (s *Session) Save(w io.Writer) error {
	var a arena
	defer a.free()
	call := &writeCall{w: w}
	writer := C.moe_writer{struct_size: C.uint32_t(C.sizeof_moe_writer), write: (*[0]byte)(C.moeGoWrite), user: a.ref(call)}
	err := s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_save(p, &writer, e)
	})
	call.goOn()
	return causedBy(call.err, err)
}

// SaveFile is Save to a file, which is replaced when the new one is complete and keeps its mode and
// owner. It fails while another program that uses the library writes the file.
func (s *Session) SaveFile(path string) error {
	var a arena
	defer a.free()
	name, err := a.given(path, "path")
	if err != nil {
		return err
	}
	var file *C.moe_replacement
	if err := called(func(e *C.moe_error) C.moe_status { return C.moe_replacement_open(name, &file, e) }); err != nil {
		return err
	}
	defer C.moe_replacement_free(file)
	var descriptor C.int
	if err := called(func(e *C.moe_error) C.moe_status { return C.moe_replacement_begin(file, &descriptor, e) }); err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(descriptorWriter(descriptor), 1<<20)
	if err := s.Save(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return called(func(e *C.moe_error) C.moe_status { return C.moe_replacement_commit(file, e) })
}

// descriptorWriter writes to a file descriptor, which it does not own.
type descriptorWriter int

func (d descriptorWriter) Write(data []byte) (done int, err error) {
	for done < len(data) {
		n, err := syscall.Write(int(d), data[done:])
		if n > 0 {
			done += n
		}
		if err != nil && err != syscall.EINTR {
			return done, err
		}
	}
	return done, nil
}

// Load replaces the text by a saved one of that size, which may be untrusted. The source must not
// call this package.
func (s *Session) Load(source io.ReaderAt, size int64) error {
	if size < 0 {
		return failed(StatusRange, fmt.Sprintf("size: %d is negative", size))
	}
	var a arena
	defer a.free()
	call := &readCall{source: source}
	reader := C.moe_reader{struct_size: C.uint32_t(C.sizeof_moe_reader), size: C.uint64_t(size), read: (*[0]byte)(C.moeGoRead), user: a.ref(call)}
	return call.outcome(s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_load(p, &reader, e)
	}))
}

// Fork copies the session with its text, parameters and router. The two continue independently.
func (s *Session) Fork() (*Session, error) {
	var fork *Session
	err := s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		var out *C.moe_session
		status := C.moe_session_fork(p, &out, e)
		if status == C.MOE_OK {
			fork = newSession(s.model, out, s.h.parent, s.vocab)
		}
		return status
	})
	return fork, err
}

// Copy replaces the text by the first n tokens of another session of the model, without evaluating
// them again. The router is unchanged.
func (s *Session) Copy(source *Session, n int) error {
	positions, err := count(n, "n")
	if err != nil {
		return err
	}
	to, release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	return source.run(context.Background(), func(from *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_copy(from, positions, to, e)
	})
}

// Rewind drops everything from position on.
func (s *Session) Rewind(position int) error {
	to, err := count(position, "position")
	if err != nil {
		return err
	}
	return s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_rewind(p, to, e)
	})
}

// Perplexity of a text's tokens (EncodeText.NoSpecial), in windows of the context. The session must
// be empty, and is empty afterwards. progress may be nil; it returns false to stop.
func (s *Session) Perplexity(ctx context.Context, tokens []int32, progress func(done, total uint64) bool) (Perplexity, error) {
	var out C.moe_perplexity
	out.struct_size = C.uint32_t(C.sizeof_moe_perplexity)
	var a arena
	defer a.free()
	var callback C.moe_progress_fn
	var user unsafe.Pointer
	call := &progressCall{f: progress}
	if progress != nil {
		callback, user = C.moe_progress_fn(C.moeGoProgress), a.ref(call)
	}
	err := s.run(ctx, func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_perplexity(p, tokensOf(tokens), C.size_t(len(tokens)), callback, user, &out, e)
	})
	call.goOn()
	return Perplexity{uint64(out.n_scored), float64(out.mean_nll), float64(out.perplexity)}, err
}
