// Generated from include/moe_c.h by bindings/generate.py; do not edit.
// SPDX-License-Identifier: MIT

//! The enums of `moe_c.h`.
#![allow(dead_code)] // an enum of the header that no wrapper shows yet

use crate::sys;

/// Result of every fallible call. Numbers never change; new codes are appended to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// null pointer, bad struct_size, unknown option, unknown field set
    Argument,
    /// a number outside its stated range
    Range,
    /// shapes that do not match
    Shape,
    /// NaN or infinity where a finite number is required
    NonFinite,
    /// the call is not allowed now (session in use, poisoned, empty)
    State,
    /// more tokens than the context holds, or a buffer that is too small
    TooLong,
    /// valid, but this build, machine or model cannot do it
    Unsupported,
    /// a file operation (the text gives errno) or the caller's own failed
    Io,
    /// no such file, tensor, token or template
    NotFound,
    /// not a file of this kind, or its structure is damaged
    Format,
    /// written in a newer format version
    Version,
    /// a checksum or the content contradicts the metadata
    Corrupt,
    /// text that cannot be encoded or decoded
    Text,
    /// an allocation failed
    Memory,
    /// the memory cap or GPU limit is too small; the text itemises it
    Budget,
    /// device missing, lost or failed
    Device,
    Cancelled,
    /// 60..: bugs in this library; please report
    Internal,
    /// A number that this crate does not know.
    Other(i32),
}

impl Status {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            Status::Argument => sys::MOE_ERR_ARGUMENT,
            Status::Range => sys::MOE_ERR_RANGE,
            Status::Shape => sys::MOE_ERR_SHAPE,
            Status::NonFinite => sys::MOE_ERR_NON_FINITE,
            Status::State => sys::MOE_ERR_STATE,
            Status::TooLong => sys::MOE_ERR_TOO_LONG,
            Status::Unsupported => sys::MOE_ERR_UNSUPPORTED,
            Status::Io => sys::MOE_ERR_IO,
            Status::NotFound => sys::MOE_ERR_NOT_FOUND,
            Status::Format => sys::MOE_ERR_FORMAT,
            Status::Version => sys::MOE_ERR_VERSION,
            Status::Corrupt => sys::MOE_ERR_CORRUPT,
            Status::Text => sys::MOE_ERR_TEXT,
            Status::Memory => sys::MOE_ERR_MEMORY,
            Status::Budget => sys::MOE_ERR_BUDGET,
            Status::Device => sys::MOE_ERR_DEVICE,
            Status::Cancelled => sys::MOE_ERR_CANCELLED,
            Status::Internal => sys::MOE_ERR_INTERNAL,
            Status::Other(code) => code,
        }
    }

    pub(crate) fn of(code: sys::moe_status) -> Status {
        match code {
            sys::MOE_ERR_ARGUMENT => Status::Argument,
            sys::MOE_ERR_RANGE => Status::Range,
            sys::MOE_ERR_SHAPE => Status::Shape,
            sys::MOE_ERR_NON_FINITE => Status::NonFinite,
            sys::MOE_ERR_STATE => Status::State,
            sys::MOE_ERR_TOO_LONG => Status::TooLong,
            sys::MOE_ERR_UNSUPPORTED => Status::Unsupported,
            sys::MOE_ERR_IO => Status::Io,
            sys::MOE_ERR_NOT_FOUND => Status::NotFound,
            sys::MOE_ERR_FORMAT => Status::Format,
            sys::MOE_ERR_VERSION => Status::Version,
            sys::MOE_ERR_CORRUPT => Status::Corrupt,
            sys::MOE_ERR_TEXT => Status::Text,
            sys::MOE_ERR_MEMORY => Status::Memory,
            sys::MOE_ERR_BUDGET => Status::Budget,
            sys::MOE_ERR_DEVICE => Status::Device,
            sys::MOE_ERR_CANCELLED => Status::Cancelled,
            sys::MOE_ERR_INTERNAL => Status::Internal,
            other => Status::Other(other),
        }
    }
}

/// How important a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogLevel {
    Error,
    Warning,
    Info,
    Debug,
    /// A number that this crate does not know.
    Other(i32),
}

impl LogLevel {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            LogLevel::Error => sys::MOE_LOG_ERROR,
            LogLevel::Warning => sys::MOE_LOG_WARNING,
            LogLevel::Info => sys::MOE_LOG_INFO,
            LogLevel::Debug => sys::MOE_LOG_DEBUG,
            LogLevel::Other(code) => code,
        }
    }

    pub(crate) fn of(code: sys::moe_log_level) -> LogLevel {
        match code {
            sys::MOE_LOG_ERROR => LogLevel::Error,
            sys::MOE_LOG_WARNING => LogLevel::Warning,
            sys::MOE_LOG_INFO => LogLevel::Info,
            sys::MOE_LOG_DEBUG => LogLevel::Debug,
            other => LogLevel::Other(other),
        }
    }
}

/// How a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Io {
    /// direct if the file is larger than the available memory
    #[default]
    Auto,
    /// bypasses the page cache (O_DIRECT), so weights are in memory only once. MOE_ERR_UNSUPPORTED if
    /// the file system does not support it
    Direct,
    /// through the page cache, which may still hold data that is read again
    Buffered,
}

impl Io {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            Io::Auto => sys::MOE_IO_AUTO,
            Io::Direct => sys::MOE_IO_DIRECT,
            Io::Buffered => sys::MOE_IO_BUFFERED,
        }
    }
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// f16
    #[default]
    Default,
    F16,
    /// one scale per head and position; half the memory. Encoders always use f32
    Int8,
    /// CPU only: twice the memory, no rounding
    F32,
    /// CPU only, for models with multi-head latent attention (DeepSeek, Kimi-K2): stores the latent
    /// (kv_lora_rank) that keys and values are computed from, as f16. Uses a fraction of the memory;
    /// long prompts take longer. MOE_ERR_UNSUPPORTED for other models. The first such session creates
    /// f16 matrices that remain allocated with the model.
    Latent,
}

impl KvType {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            KvType::Default => sys::MOE_KV_DEFAULT,
            KvType::F16 => sys::MOE_KV_F16,
            KvType::Int8 => sys::MOE_KV_INT8,
            KvType::F32 => sys::MOE_KV_F32,
            KvType::Latent => sys::MOE_KV_LATENT,
        }
    }
}

/// The rows of logits that a call writes, of vocab_size floats each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rows {
    /// none; `logits` must be NULL
    #[default]
    None,
    /// one: of the last token
    Last,
    /// of every token, in order
    All,
}

impl Rows {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            Rows::None => sys::MOE_ROWS_NONE,
            Rows::Last => sys::MOE_ROWS_LAST,
            Rows::All => sys::MOE_ROWS_ALL,
        }
    }
}

/// Pooling to one vector per text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// as the model file says, the mean if it says nothing; for texts of at most
    /// moe_model_info.vector_tokens tokens
    #[default]
    Default,
    /// the mean over all tokens, including special ones
    Mean,
    /// the first token's vector
    First,
    /// the last token's
    Last,
}

impl Pooling {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            Pooling::Default => sys::MOE_POOL_DEFAULT,
            Pooling::Mean => sys::MOE_POOL_MEAN,
            Pooling::First => sys::MOE_POOL_FIRST,
            Pooling::Last => sys::MOE_POOL_LAST,
        }
    }
}

/// Length of a pooled vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Normalize {
    /// as the model file says, off if it says nothing
    #[default]
    Default,
    /// as it is
    Off,
    /// 1, so that the dot product of two vectors is their cosine
    On,
}

impl Normalize {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            Normalize::Default => sys::MOE_NORMALIZE_DEFAULT,
            Normalize::Off => sys::MOE_NORMALIZE_OFF,
            Normalize::On => sys::MOE_NORMALIZE_ON,
        }
    }
}

/// When a beam search ends, and which finished texts it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BeamStop {
    /// when `beam` texts have finished; later ones of the same step are rejected (fairseq)
    #[default]
    Count,
    /// when no text can still beat the worst of the `beam` best finished ones (transformers,
    /// early_stopping=False)
    Bound,
    /// after the step in which `beam` texts have finished; returns the best of them (transformers 5,
    /// early_stopping=True)
    Step,
}

impl BeamStop {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            BeamStop::Count => sys::MOE_BEAM_STOP_COUNT,
            BeamStop::Bound => sys::MOE_BEAM_STOP_BOUND,
            BeamStop::Step => sys::MOE_BEAM_STOP_STEP,
        }
    }
}

/// The score of a finished text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BeamScore {
    /// its sum of log-probabilities / tokens^length_penalty
    #[default]
    Power,
    /// the plain sum; length_penalty must be 0
    Sum,
}

impl BeamScore {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            BeamScore::Power => sys::MOE_BEAM_SCORE_POWER,
            BeamScore::Sum => sys::MOE_BEAM_SCORE_SUM,
        }
    }
}

/// The language of a grammar's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrammarKind {
    /// JSON Schema 2020-12 or draft 7; docs/structured.md says how much
    JsonSchema,
    /// GBNF, as llama.cpp's grammar files; begins with the rule "root"
    Gbnf,
    /// a regular expression for the whole text
    Regex,
}

impl GrammarKind {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            GrammarKind::JsonSchema => sys::MOE_GRAMMAR_JSON_SCHEMA,
            GrammarKind::Gbnf => sys::MOE_GRAMMAR_GBNF,
            GrammarKind::Regex => sys::MOE_GRAMMAR_REGEX,
        }
    }
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Finish {
    /// max_tokens were generated
    Length,
    /// an end-of-text token, not reported; or a grammar allows no more text
    Eos,
    /// a stop string, no part of which is reported
    Stop,
    /// the context is full
    Context,
    /// a callback stopped the call
    Callback,
    /// A number that this crate does not know.
    Other(i32),
}

impl Finish {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            Finish::Length => sys::MOE_FINISH_LENGTH,
            Finish::Eos => sys::MOE_FINISH_EOS,
            Finish::Stop => sys::MOE_FINISH_STOP,
            Finish::Context => sys::MOE_FINISH_CONTEXT,
            Finish::Callback => sys::MOE_FINISH_CALLBACK,
            Finish::Other(code) => code,
        }
    }

    pub(crate) fn of(code: sys::moe_finish) -> Finish {
        match code {
            sys::MOE_FINISH_LENGTH => Finish::Length,
            sys::MOE_FINISH_EOS => Finish::Eos,
            sys::MOE_FINISH_STOP => Finish::Stop,
            sys::MOE_FINISH_CONTEXT => Finish::Context,
            sys::MOE_FINISH_CALLBACK => Finish::Callback,
            other => Finish::Other(other),
        }
    }
}

/// If a model thinks before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Thinking {
    /// the template's own default
    #[default]
    Default,
    On,
    Off,
}

impl Thinking {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            Thinking::Default => sys::MOE_THINKING_DEFAULT,
            Thinking::On => sys::MOE_THINKING_ON,
            Thinking::Off => sys::MOE_THINKING_OFF,
        }
    }
}

/// Whether a reply must call a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ToolChoice {
    /// the model decides
    #[default]
    Auto,
    /// the reply is calls and no text, behind the model's thinking
    Required,
    /// the same, and one call alone
    One,
}

impl ToolChoice {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            ToolChoice::Auto => sys::MOE_TOOLS_AUTO,
            ToolChoice::Required => sys::MOE_TOOLS_REQUIRED,
            ToolChoice::One => sys::MOE_TOOLS_ONE,
        }
    }
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// /v1/chat/completions
    Chat,
    /// /v1/completions
    Completions,
    /// /tokenize: answered before moe_service_submit returns
    Tokenize,
    /// /v1/messages, in the shapes of Anthropic's API
    Messages,
    /// /v1/messages/count_tokens: also answered at once
    CountTokens,
    /// /v1/responses
    Responses,
    /// /v1/embeddings: vectors of texts
    Embeddings,
    /// /statistics: counts, settings, and how often each expert was used; the body has no meaning.
    /// Answered at once
    Statistics,
    /// /v1/rerank: how well documents answer a query
    Rerank,
}

impl Endpoint {
    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            Endpoint::Chat => sys::MOE_ENDPOINT_CHAT,
            Endpoint::Completions => sys::MOE_ENDPOINT_COMPLETIONS,
            Endpoint::Tokenize => sys::MOE_ENDPOINT_TOKENIZE,
            Endpoint::Messages => sys::MOE_ENDPOINT_MESSAGES,
            Endpoint::CountTokens => sys::MOE_ENDPOINT_COUNT_TOKENS,
            Endpoint::Responses => sys::MOE_ENDPOINT_RESPONSES,
            Endpoint::Embeddings => sys::MOE_ENDPOINT_EMBEDDINGS,
            Endpoint::Statistics => sys::MOE_ENDPOINT_STATISTICS,
            Endpoint::Rerank => sys::MOE_ENDPOINT_RERANK,
        }
    }
}
