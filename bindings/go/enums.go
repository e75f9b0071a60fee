// Generated from include/moe_c.h by bindings/generate.py; do not edit.
// SPDX-License-Identifier: MIT

package moe

// #include <moe_c.h>
import "C"

import "strconv"

// Status is moe_status of the C API. Result of every fallible call. Numbers never change; new codes
// are appended to a group.
type Status int32

const (
	StatusOK Status = C.MOE_OK
	// null pointer, bad struct_size, unknown option, unknown field set
	StatusArgument Status = C.MOE_ERR_ARGUMENT
	// a number outside its stated range
	StatusRange Status = C.MOE_ERR_RANGE
	// shapes that do not match
	StatusShape Status = C.MOE_ERR_SHAPE
	// NaN or infinity where a finite number is required
	StatusNonFinite Status = C.MOE_ERR_NON_FINITE
	// the call is not allowed now (session in use, poisoned, empty)
	StatusState Status = C.MOE_ERR_STATE
	// more tokens than the context holds, or a buffer that is too small
	StatusTooLong Status = C.MOE_ERR_TOO_LONG
	// valid, but this build, machine or model cannot do it
	StatusUnsupported Status = C.MOE_ERR_UNSUPPORTED
	// a file operation (the text gives errno) or the caller's own failed
	StatusIO Status = C.MOE_ERR_IO
	// no such file, tensor, token or template
	StatusNotFound Status = C.MOE_ERR_NOT_FOUND
	// not a file of this kind, or its structure is damaged
	StatusFormat Status = C.MOE_ERR_FORMAT
	// written in a newer format version
	StatusVersion Status = C.MOE_ERR_VERSION
	// a checksum or the content contradicts the metadata
	StatusCorrupt Status = C.MOE_ERR_CORRUPT
	// text that cannot be encoded or decoded
	StatusText Status = C.MOE_ERR_TEXT
	// an allocation failed
	StatusMemory Status = C.MOE_ERR_MEMORY
	// the memory cap or GPU limit is too small; the text itemises it
	StatusBudget Status = C.MOE_ERR_BUDGET
	// device missing, lost or failed
	StatusDevice Status = C.MOE_ERR_DEVICE

	StatusCancelled Status = C.MOE_ERR_CANCELLED
	// 60..: bugs in this library; please report
	StatusInternal Status = C.MOE_ERR_INTERNAL
)

// LogLevel is moe_log_level of the C API. How important a message is.
type LogLevel int32

const (
	LogError LogLevel = C.MOE_LOG_ERROR

	LogWarning LogLevel = C.MOE_LOG_WARNING

	LogInfo LogLevel = C.MOE_LOG_INFO

	LogDebug LogLevel = C.MOE_LOG_DEBUG
)

// String is the name in small letters, or the number if this package does not know it.
func (l LogLevel) String() string {
	switch l {
	case LogError:
		return "error"
	case LogWarning:
		return "warning"
	case LogInfo:
		return "info"
	case LogDebug:
		return "debug"
	}
	return strconv.Itoa(int(l))
}

// IO is moe_io of the C API. How a file is read.
type IO int32

const (
	// direct if the file is larger than the available memory
	IOAuto IO = C.MOE_IO_AUTO
	// bypasses the page cache (O_DIRECT), so weights are in memory only once. MOE_ERR_UNSUPPORTED if
	// the file system does not support it
	IODirect IO = C.MOE_IO_DIRECT
	// through the page cache, which may still hold data that is read again
	IOBuffered IO = C.MOE_IO_BUFFERED
)

// String is the name in small letters, or the number if this package does not know it.
func (i IO) String() string {
	switch i {
	case IOAuto:
		return "auto"
	case IODirect:
		return "direct"
	case IOBuffered:
		return "buffered"
	}
	return strconv.Itoa(int(i))
}

// KVType is moe_kv_type of the C API. How keys and values are stored.
type KVType int32

const (
	// f16
	KVDefault KVType = C.MOE_KV_DEFAULT

	KVF16 KVType = C.MOE_KV_F16
	// one scale per head and position; half the memory. Encoders always use f32
	KVInt8 KVType = C.MOE_KV_INT8
	// CPU only: twice the memory, no rounding
	KVF32 KVType = C.MOE_KV_F32
	// CPU only, for models with multi-head latent attention (DeepSeek, Kimi-K2): stores the latent
	// (kv_lora_rank) that keys and values are computed from, as f16. Uses a fraction of the memory;
	// long prompts take longer. MOE_ERR_UNSUPPORTED for other models. The first such session creates
	// f16 matrices that remain allocated with the model.
	KVLatent KVType = C.MOE_KV_LATENT
)

// String is the name in small letters, or the number if this package does not know it.
func (k KVType) String() string {
	switch k {
	case KVDefault:
		return "default"
	case KVF16:
		return "f16"
	case KVInt8:
		return "int8"
	case KVF32:
		return "f32"
	case KVLatent:
		return "latent"
	}
	return strconv.Itoa(int(k))
}

// Rows is moe_rows of the C API. The rows of logits that a call writes, of vocab_size floats each.
type Rows int32

const (
	// none; `logits` must be NULL
	RowsNone Rows = C.MOE_ROWS_NONE
	// one: of the last token
	RowsLast Rows = C.MOE_ROWS_LAST
	// of every token, in order
	RowsAll Rows = C.MOE_ROWS_ALL
)

// String is the name in small letters, or the number if this package does not know it.
func (r Rows) String() string {
	switch r {
	case RowsNone:
		return "none"
	case RowsLast:
		return "last"
	case RowsAll:
		return "all"
	}
	return strconv.Itoa(int(r))
}

// Pooling is moe_pooling of the C API. Pooling to one vector per text.
type Pooling int32

const (
	// as the model file says, the mean if it says nothing; for texts of at most
	// moe_model_info.vector_tokens tokens
	PoolDefault Pooling = C.MOE_POOL_DEFAULT
	// the mean over all tokens, including special ones
	PoolMean Pooling = C.MOE_POOL_MEAN
	// the first token's vector
	PoolFirst Pooling = C.MOE_POOL_FIRST
	// the last token's
	PoolLast Pooling = C.MOE_POOL_LAST
)

// String is the name in small letters, or the number if this package does not know it.
func (p Pooling) String() string {
	switch p {
	case PoolDefault:
		return "default"
	case PoolMean:
		return "mean"
	case PoolFirst:
		return "first"
	case PoolLast:
		return "last"
	}
	return strconv.Itoa(int(p))
}

// Normalize is moe_normalize of the C API. Length of a pooled vector.
type Normalize int32

const (
	// as the model file says, off if it says nothing
	NormalizeDefault Normalize = C.MOE_NORMALIZE_DEFAULT
	// as it is
	NormalizeOff Normalize = C.MOE_NORMALIZE_OFF
	// 1, so that the dot product of two vectors is their cosine
	NormalizeOn Normalize = C.MOE_NORMALIZE_ON
)

// String is the name in small letters, or the number if this package does not know it.
func (n Normalize) String() string {
	switch n {
	case NormalizeDefault:
		return "default"
	case NormalizeOff:
		return "off"
	case NormalizeOn:
		return "on"
	}
	return strconv.Itoa(int(n))
}

// BeamStop is moe_beam_stop of the C API. When a beam search ends, and which finished texts it
// returns.
type BeamStop int32

const (
	// when `beam` texts have finished; later ones of the same step are rejected (fairseq)
	BeamStopCount BeamStop = C.MOE_BEAM_STOP_COUNT
	// when no text can still beat the worst of the `beam` best finished ones (transformers,
	// early_stopping=False)
	BeamStopBound BeamStop = C.MOE_BEAM_STOP_BOUND
	// after the step in which `beam` texts have finished; returns the best of them (transformers 5,
	// early_stopping=True)
	BeamStopStep BeamStop = C.MOE_BEAM_STOP_STEP
)

// String is the name in small letters, or the number if this package does not know it.
func (b BeamStop) String() string {
	switch b {
	case BeamStopCount:
		return "count"
	case BeamStopBound:
		return "bound"
	case BeamStopStep:
		return "step"
	}
	return strconv.Itoa(int(b))
}

// BeamScore is moe_beam_score of the C API. The score of a finished text.
type BeamScore int32

const (
	// its sum of log-probabilities / tokens^length_penalty
	BeamScorePower BeamScore = C.MOE_BEAM_SCORE_POWER
	// the plain sum; length_penalty must be 0
	BeamScoreSum BeamScore = C.MOE_BEAM_SCORE_SUM
)

// String is the name in small letters, or the number if this package does not know it.
func (b BeamScore) String() string {
	switch b {
	case BeamScorePower:
		return "power"
	case BeamScoreSum:
		return "sum"
	}
	return strconv.Itoa(int(b))
}

// GrammarKind is moe_grammar_kind of the C API. The language of a grammar's text.
type GrammarKind int32

const (
	// JSON Schema 2020-12 or draft 7; docs/structured.md says how much
	GrammarJsonSchema GrammarKind = C.MOE_GRAMMAR_JSON_SCHEMA
	// GBNF, as llama.cpp's grammar files; begins with the rule "root"
	GrammarGbnf GrammarKind = C.MOE_GRAMMAR_GBNF
	// a regular expression for the whole text
	GrammarRegex GrammarKind = C.MOE_GRAMMAR_REGEX
)

// String is the name in small letters, or the number if this package does not know it.
func (g GrammarKind) String() string {
	switch g {
	case GrammarJsonSchema:
		return "json_schema"
	case GrammarGbnf:
		return "gbnf"
	case GrammarRegex:
		return "regex"
	}
	return strconv.Itoa(int(g))
}

// Finish is moe_finish of the C API. Why a generation ended.
type Finish int32

const (
	// max_tokens were generated
	FinishLength Finish = C.MOE_FINISH_LENGTH
	// an end-of-text token, not reported; or a grammar allows no more text
	FinishEOS Finish = C.MOE_FINISH_EOS
	// a stop string, no part of which is reported
	FinishStop Finish = C.MOE_FINISH_STOP
	// the context is full
	FinishContext Finish = C.MOE_FINISH_CONTEXT
	// a callback stopped the call
	FinishCallback Finish = C.MOE_FINISH_CALLBACK
)

// String is the name in small letters, or the number if this package does not know it.
func (f Finish) String() string {
	switch f {
	case FinishLength:
		return "length"
	case FinishEOS:
		return "eos"
	case FinishStop:
		return "stop"
	case FinishContext:
		return "context"
	case FinishCallback:
		return "callback"
	}
	return strconv.Itoa(int(f))
}

// Thinking is moe_thinking of the C API. If a model thinks before it answers.
type Thinking int32

const (
	// the template's own default
	ThinkingDefault Thinking = C.MOE_THINKING_DEFAULT

	ThinkingOn Thinking = C.MOE_THINKING_ON

	ThinkingOff Thinking = C.MOE_THINKING_OFF
)

// String is the name in small letters, or the number if this package does not know it.
func (t Thinking) String() string {
	switch t {
	case ThinkingDefault:
		return "default"
	case ThinkingOn:
		return "on"
	case ThinkingOff:
		return "off"
	}
	return strconv.Itoa(int(t))
}

// ToolChoice is moe_tool_choice of the C API. Whether a reply must call a tool.
type ToolChoice int32

const (
	// the model decides
	ToolsAuto ToolChoice = C.MOE_TOOLS_AUTO
	// the reply is calls and no text, behind the model's thinking
	ToolsRequired ToolChoice = C.MOE_TOOLS_REQUIRED
	// the same, and one call alone
	ToolsOne ToolChoice = C.MOE_TOOLS_ONE
)

// String is the name in small letters, or the number if this package does not know it.
func (t ToolChoice) String() string {
	switch t {
	case ToolsAuto:
		return "auto"
	case ToolsRequired:
		return "required"
	case ToolsOne:
		return "one"
	}
	return strconv.Itoa(int(t))
}

// Endpoint is moe_endpoint of the C API. The purpose of a request.
type Endpoint int32

const (
	// /v1/chat/completions
	EndpointChat Endpoint = C.MOE_ENDPOINT_CHAT
	// /v1/completions
	EndpointCompletions Endpoint = C.MOE_ENDPOINT_COMPLETIONS
	// /tokenize: answered before moe_service_submit returns
	EndpointTokenize Endpoint = C.MOE_ENDPOINT_TOKENIZE
	// /v1/messages, in the shapes of Anthropic's API
	EndpointMessages Endpoint = C.MOE_ENDPOINT_MESSAGES
	// /v1/messages/count_tokens: also answered at once
	EndpointCountTokens Endpoint = C.MOE_ENDPOINT_COUNT_TOKENS
	// /v1/responses
	EndpointResponses Endpoint = C.MOE_ENDPOINT_RESPONSES
	// /v1/embeddings: vectors of texts
	EndpointEmbeddings Endpoint = C.MOE_ENDPOINT_EMBEDDINGS
	// /statistics: counts, settings, and how often each expert was used; the body has no meaning.
	// Answered at once
	EndpointStatistics Endpoint = C.MOE_ENDPOINT_STATISTICS
	// /v1/rerank: how well documents answer a query
	EndpointRerank Endpoint = C.MOE_ENDPOINT_RERANK
)

// String is the name in small letters, or the number if this package does not know it.
func (e Endpoint) String() string {
	switch e {
	case EndpointChat:
		return "chat"
	case EndpointCompletions:
		return "completions"
	case EndpointTokenize:
		return "tokenize"
	case EndpointMessages:
		return "messages"
	case EndpointCountTokens:
		return "count_tokens"
	case EndpointResponses:
		return "responses"
	case EndpointEmbeddings:
		return "embeddings"
	case EndpointStatistics:
		return "statistics"
	case EndpointRerank:
		return "rerank"
	}
	return strconv.Itoa(int(e))
}
