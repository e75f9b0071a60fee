// SPDX-License-Identifier: MIT

// Sampling, and generation token by token or to the end, over moe_session_generate and
// moe_session_sample.

package moe

/*
#include <moe_c.h>
bool moeGoPiece(void* user, const moe_piece* piece);
bool moeGoLogits(void* user, const int32_t* tokens, size_t n_tokens, float* logits, size_t n_logits);
*/
import "C"

import (
	"context"
	"strings"
	"unsafe"
)

// LogitBias is added to a token's logit before anything else; negative infinity bans the token.
type LogitBias struct {
	Token int32
	Bias  float32
}

// TokenLogprob is a token and the natural logarithm of its probability, before sampling filters.
type TokenLogprob struct {
	Token   int32
	Logprob float32
}

// Sampling selects how a token is sampled. Zero is greedy, and switches each filter off.
type Sampling struct {
	Temperature                   float32
	TopK                          int
	TopP, MinP, RepetitionPenalty float32
	RepetitionWindow              int    // last tokens that are penalised; 0: 64
	Seed                          uint64 // same seed, same text
	Bias                          []LogitBias
}

func (o Sampling) params(a *arena) (*C.moe_sampling, error) {
	topK, err := count(o.TopK, "TopK")
	if err != nil {
		return nil, err
	}
	window, err := count(o.RepetitionWindow, "RepetitionWindow")
	if err != nil {
		return nil, err
	}
	bias := make([]C.moe_logit_bias, len(o.Bias))
	for i, b := range o.Bias {
		bias[i] = C.moe_logit_bias{token: C.int32_t(b.Token), bias: C.float(b.Bias)}
	}
	var p C.moe_sampling
	p.struct_size = C.uint32_t(C.sizeof_moe_sampling)
	p.temperature, p.top_k, p.top_p, p.min_p = C.float(o.Temperature), topK, C.float(o.TopP), C.float(o.MinP)
	p.repetition_penalty, p.repetition_window = C.float(o.RepetitionPenalty), window
	p.seed, p.bias = C.uint64_t(o.Seed), put(a, bias...)
	if p.n_bias, err = count(len(bias), "Bias"); err != nil {
		return nil, err
	}
	return put(a, p), nil
}

// Sampling is how to sample a conversation where the user says nothing; inFile: the model file says so, as it stores what
// the checkpoint's authors recommend. Nothing uses these settings by itself.
func (m *Model) Sampling() (sampling Sampling, inFile bool, err error) {
	var s C.moe_sampling
	var stored C.bool
	s.struct_size = C.uint32_t(C.sizeof_moe_sampling)
	err = m.ask(func(model *C.moe_model, e *C.moe_error) C.moe_status {
		return C.moe_model_get_sampling(model, &s, &stored, e)
	})
	return Sampling{
		Temperature: float32(s.temperature), TopK: int(s.top_k), TopP: float32(s.top_p), MinP: float32(s.min_p),
		RepetitionPenalty: float32(s.repetition_penalty), RepetitionWindow: int(s.repetition_window),
	}, bool(stored), err
}

// Sample is the result of Session.Sample.
type Sample struct {
	TokenLogprob
	Top []TokenLogprob // candidates, best first
}

// Sample samples the next token; the session does not advance. nTop: at most 64 candidates.
func (s *Session) Sample(sampling Sampling, nTop int) (Sample, error) {
	if _, err := count(nTop, "nTop"); err != nil {
		return Sample{}, err
	}
	var a arena
	defer a.free()
	params, err := sampling.params(&a)
	if err != nil {
		return Sample{}, err
	}
	var out C.moe_token_logprob
	top := make([]C.moe_token_logprob, nTop)
	err = s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_sample(p, params, &out, first(top), C.size_t(nTop), e)
	})
	if err != nil {
		return Sample{}, err
	}
	return Sample{logprobOf(out), logprobsOf(top)}, nil
}

func logprobOf(t C.moe_token_logprob) TokenLogprob {
	return TokenLogprob{int32(t.token), float32(t.logprob)}
}

func logprobsOf(from []C.moe_token_logprob) []TokenLogprob {
	to := make([]TokenLogprob, len(from))
	for i, t := range from {
		to[i] = logprobOf(t)
	}
	return to
}

// GenerateOptions are the options of a generation. Zero: greedy, until the text ends or the context
// is full.
type GenerateOptions struct {
	MaxTokens int // 0: until the context is full
	Sampling  Sampling
	Stop      []string // strings that end the text; nothing of them is given out
	IgnoreEOS bool     // go on after end-of-text tokens
	NTop      int      // candidates reported with each piece, at most 64
	// 0 to 16: up to this many tokens at once are drafted from earlier text and checked together. The
	// result is the same; text that repeats is generated faster. Not with Logits, an expert capacity or a
	// router with "resident".
	MaxDraft int
	// Grammar, if set, is satisfied by the text. With FinishEOS the text is complete; after another end it
	// may not be.
	Grammar *Grammar
	// Logits, if set, receives the tokens so far and may change the logits of the next one until it
	// returns: negative infinity bans a token. It returns false to stop.
	Logits func(tokens []int32, logits []float32) bool
}

// Grammar is a set of texts, such as those that a JSON schema describes, compiled for a model. Any number of
// goroutines may use it.
type Grammar struct{ h *handle }

// NewGrammar compiles a text. An error names the place in it that is wrong.
func (m *Model) NewGrammar(kind GrammarKind, text string) (*Grammar, error) {
	var a arena
	defer a.free()
	data, err := a.text(text, "text")
	if err != nil {
		return nil, err
	}
	var p *C.moe_grammar
	err = m.ask(func(model *C.moe_model, e *C.moe_error) C.moe_status {
		return C.moe_grammar_create(model, C.moe_grammar_kind(kind), data, C.size_t(len(text)), &p, e)
	})
	if err != nil {
		return nil, err
	}
	free := func(p unsafe.Pointer) { C.moe_grammar_free((*C.moe_grammar)(p)) }
	return collected(&Grammar{newHandle("grammar", unsafe.Pointer(p), nil, free)}), nil
}

// Close frees the memory. A call in progress completes normally.
func (g *Grammar) Close() { g.h.close() }

// Piece is a piece of generated text.
type Piece struct {
	Token    int32 // -1: text that was held back, without a new token
	Logprob  float32
	Text     string // whole characters that can be shown at once; may be empty
	Top      []TokenLogprob
	Thinking bool      // of a chat: not part of the answer
	ToolCall *ToolCall // of a chat with tools: a whole call; the piece has no Text then. nil: none
}

func pieceOf(p *C.moe_piece) Piece {
	piece := Piece{
		Token: int32(p.token), Logprob: float32(p.logprob),
		Top: logprobsOf(unsafe.Slice(p.top, int(p.n_top))), Thinking: p.flags&C.MOE_PIECE_THINKING != 0,
		ToolCall: toolCallOf(p),
	}
	if piece.ToolCall == nil {
		piece.Text = goText(p.text, p.n_bytes)
	}
	return piece
}

// GenerateResult describes a generation.
type GenerateResult struct {
	Finish                         Finish
	NPrompt, NGenerated            int
	PromptSeconds, GenerateSeconds float64
	NDrafted, NAccepted            int // tokens drafted (MaxDraft); of these, generated
}

// withParams makes a call with the parameters as a C struct, and with the guard of its callbacks.
// callback may be nil.
func (o GenerateOptions) withParams(callback func(Piece) bool, call func(*C.moe_generate_params, *guard) error) error {
	var a arena
	defer a.free()
	var p C.moe_generate_params
	p.struct_size = C.uint32_t(C.sizeof_moe_generate_params)
	p.ignore_eos = flag(o.IgnoreEOS)
	var err error
	if p.sampling, err = o.Sampling.params(&a); err != nil {
		return err
	}
	if p.stop, p.n_stop, err = a.list(o.Stop, "Stop"); err != nil {
		return err
	}
	if p.max_tokens, err = count(o.MaxTokens, "MaxTokens"); err != nil {
		return err
	}
	if p.n_top, err = count(o.NTop, "NTop"); err != nil {
		return err
	}
	if p.max_draft, err = count(o.MaxDraft, "MaxDraft"); err != nil {
		return err
	}
	if o.Grammar != nil {
		pointer, err := o.Grammar.h.acquire()
		if err != nil {
			return err
		}
		defer o.Grammar.h.release()
		p.grammar = (*C.moe_grammar)(pointer)
	}
	callbacks := &generateCall{piece: callback, logits: o.Logits}
	user := a.ref(callbacks)
	if callback != nil {
		p.piece, p.piece_user = C.moe_piece_fn(C.moeGoPiece), user
	}
	if o.Logits != nil {
		p.logits, p.logits_user = C.moe_logits_fn(C.moeGoLogits), user
	}
	err = call(&p, &callbacks.guard)
	callbacks.goOn()
	return err
}

// Generate appends the prompt, then generates. The callback, which may be nil, receives each piece and
// returns false to stop.
func (s *Session) Generate(ctx context.Context, prompt []int32, o GenerateOptions, callback func(Piece) bool) (GenerateResult, error) {
	var out C.moe_generate_result
	out.struct_size = C.uint32_t(C.sizeof_moe_generate_result)
	err := o.withParams(callback, func(params *C.moe_generate_params, _ *guard) error {
		return s.run(ctx, func(p *C.moe_session, e *C.moe_error) C.moe_status {
			return C.moe_session_generate(p, tokensOf(prompt), C.size_t(len(prompt)), params, &out, e)
		})
	})
	return GenerateResult{
		Finish: Finish(out.finish), NPrompt: int(out.n_prompt), NGenerated: int(out.n_generated),
		PromptSeconds: float64(out.prompt_seconds), GenerateSeconds: float64(out.generate_seconds),
		NDrafted: int(out.n_drafted), NAccepted: int(out.n_accepted),
	}, err
}

// Complete generates the continuation of a text. Special tokens that begin a sequence are added only
// if the session is empty.
func (s *Session) Complete(ctx context.Context, prompt string, o GenerateOptions) (string, error) {
	position, err := s.Position()
	if err != nil {
		return "", err
	}
	tokens, err := s.tokens(prompt, EncodeText{NoSpecial: position > 0})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	_, err = s.Generate(ctx, tokens, o, func(p Piece) bool { text.WriteString(p.Text); return true })
	return text.String(), err
}
