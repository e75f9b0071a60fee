// Generated from include/moe_c.h by bindings/generate.py; do not edit.
// SPDX-License-Identifier: MIT

#![allow(non_camel_case_types, dead_code)]

use std::os::raw::{c_char, c_int, c_void};

pub const MOE_ERROR_TEXT_BYTES: usize = 400;
pub const MOE_VERSION_MAJOR: u32 = 0;
pub const MOE_VERSION_MINOR: u32 = 1;
pub const MOE_VERSION_PATCH: u32 = 0;
/// add nothing before or after the text
pub const MOE_ENCODE_NO_SPECIAL: u32 = 1;
/// convert special tokens spelled out in the text to their ids; otherwise text can never produce
/// them
pub const MOE_ENCODE_PARSE_SPECIAL: u32 = 2;
/// special tokens give no text
pub const MOE_DECODE_SKIP_SPECIAL: u32 = 1;
/// in a chat: not part of the answer
pub const MOE_PIECE_THINKING: u32 = 1;
/// In a chat with tools: `text` is a whole call of one, {"id": "...", "name": "...", "arguments":
/// {...}} in this order, which is valid JSON, and not part of the answer.
pub const MOE_PIECE_TOOL_CALL: u32 = 2;

/// Result of every fallible call. Numbers never change; new codes are appended to a group.
pub type moe_status = c_int;
pub const MOE_OK: moe_status = 0;
/// null pointer, bad struct_size, unknown option, unknown field set
pub const MOE_ERR_ARGUMENT: moe_status = 1;
/// a number outside its stated range
pub const MOE_ERR_RANGE: moe_status = 2;
/// shapes that do not match
pub const MOE_ERR_SHAPE: moe_status = 3;
/// NaN or infinity where a finite number is required
pub const MOE_ERR_NON_FINITE: moe_status = 4;
/// the call is not allowed now (session in use, poisoned, empty)
pub const MOE_ERR_STATE: moe_status = 5;
/// more tokens than the context holds, or a buffer that is too small
pub const MOE_ERR_TOO_LONG: moe_status = 6;
/// valid, but this build, machine or model cannot do it
pub const MOE_ERR_UNSUPPORTED: moe_status = 7;
/// a file operation (the text gives errno) or the caller's own failed
pub const MOE_ERR_IO: moe_status = 20;
/// no such file, tensor, token or template
pub const MOE_ERR_NOT_FOUND: moe_status = 21;
/// not a file of this kind, or its structure is damaged
pub const MOE_ERR_FORMAT: moe_status = 22;
/// written in a newer format version
pub const MOE_ERR_VERSION: moe_status = 23;
/// a checksum or the content contradicts the metadata
pub const MOE_ERR_CORRUPT: moe_status = 24;
/// text that cannot be encoded or decoded
pub const MOE_ERR_TEXT: moe_status = 25;
/// an allocation failed
pub const MOE_ERR_MEMORY: moe_status = 40;
/// the memory cap or GPU limit is too small; the text itemises it
pub const MOE_ERR_BUDGET: moe_status = 41;
/// device missing, lost or failed
pub const MOE_ERR_DEVICE: moe_status = 42;
pub const MOE_ERR_CANCELLED: moe_status = 43;
/// 60..: bugs in this library; please report
pub const MOE_ERR_INTERNAL: moe_status = 60;

/// How important a message is.
pub type moe_log_level = c_int;
pub const MOE_LOG_ERROR: moe_log_level = 1;
pub const MOE_LOG_WARNING: moe_log_level = 2;
pub const MOE_LOG_INFO: moe_log_level = 3;
pub const MOE_LOG_DEBUG: moe_log_level = 4;

/// How a file is read.
pub type moe_io = c_int;
/// direct if the file is larger than the available memory
pub const MOE_IO_AUTO: moe_io = 0;
/// bypasses the page cache (O_DIRECT), so weights are in memory only once. MOE_ERR_UNSUPPORTED if
/// the file system does not support it
pub const MOE_IO_DIRECT: moe_io = 1;
/// through the page cache, which may still hold data that is read again
pub const MOE_IO_BUFFERED: moe_io = 2;

/// How keys and values are stored.
pub type moe_kv_type = c_int;
/// f16
pub const MOE_KV_DEFAULT: moe_kv_type = 0;
pub const MOE_KV_F16: moe_kv_type = 1;
/// one scale per head and position; half the memory. Encoders always use f32
pub const MOE_KV_INT8: moe_kv_type = 2;
/// CPU only: twice the memory, no rounding
pub const MOE_KV_F32: moe_kv_type = 3;
/// CPU only, for models with multi-head latent attention (DeepSeek, Kimi-K2): stores the latent
/// (kv_lora_rank) that keys and values are computed from, as f16. Uses a fraction of the memory;
/// long prompts take longer. MOE_ERR_UNSUPPORTED for other models. The first such session creates
/// f16 matrices that remain allocated with the model.
pub const MOE_KV_LATENT: moe_kv_type = 4;

/// The rows of logits that a call writes, of vocab_size floats each.
pub type moe_rows = c_int;
/// none; `logits` must be NULL
pub const MOE_ROWS_NONE: moe_rows = 0;
/// one: of the last token
pub const MOE_ROWS_LAST: moe_rows = 1;
/// of every token, in order
pub const MOE_ROWS_ALL: moe_rows = 2;

/// Pooling to one vector per text.
pub type moe_pooling = c_int;
/// as the model file says, the mean if it says nothing; for texts of at most
/// moe_model_info.vector_tokens tokens
pub const MOE_POOL_DEFAULT: moe_pooling = 0;
/// the mean over all tokens, including special ones
pub const MOE_POOL_MEAN: moe_pooling = 1;
/// the first token's vector
pub const MOE_POOL_FIRST: moe_pooling = 2;
/// the last token's
pub const MOE_POOL_LAST: moe_pooling = 3;

/// Length of a pooled vector.
pub type moe_normalize = c_int;
/// as the model file says, off if it says nothing
pub const MOE_NORMALIZE_DEFAULT: moe_normalize = 0;
/// as it is
pub const MOE_NORMALIZE_OFF: moe_normalize = 1;
/// 1, so that the dot product of two vectors is their cosine
pub const MOE_NORMALIZE_ON: moe_normalize = 2;

/// When a beam search ends, and which finished texts it returns.
pub type moe_beam_stop = c_int;
/// when `beam` texts have finished; later ones of the same step are rejected (fairseq)
pub const MOE_BEAM_STOP_COUNT: moe_beam_stop = 0;
/// when no text can still beat the worst of the `beam` best finished ones (transformers,
/// early_stopping=False)
pub const MOE_BEAM_STOP_BOUND: moe_beam_stop = 1;
/// after the step in which `beam` texts have finished; returns the best of them (transformers 5,
/// early_stopping=True)
pub const MOE_BEAM_STOP_STEP: moe_beam_stop = 2;

/// The score of a finished text.
pub type moe_beam_score = c_int;
/// its sum of log-probabilities / tokens^length_penalty
pub const MOE_BEAM_SCORE_POWER: moe_beam_score = 0;
/// the plain sum; length_penalty must be 0
pub const MOE_BEAM_SCORE_SUM: moe_beam_score = 1;

/// The language of a grammar's text.
pub type moe_grammar_kind = c_int;
/// JSON Schema 2020-12 or draft 7; docs/structured.md says how much
pub const MOE_GRAMMAR_JSON_SCHEMA: moe_grammar_kind = 1;
/// GBNF, as llama.cpp's grammar files; begins with the rule "root"
pub const MOE_GRAMMAR_GBNF: moe_grammar_kind = 2;
/// a regular expression for the whole text
pub const MOE_GRAMMAR_REGEX: moe_grammar_kind = 3;

/// Why a generation ended.
pub type moe_finish = c_int;
/// max_tokens were generated
pub const MOE_FINISH_LENGTH: moe_finish = 1;
/// an end-of-text token, not reported; or a grammar allows no more text
pub const MOE_FINISH_EOS: moe_finish = 2;
/// a stop string, no part of which is reported
pub const MOE_FINISH_STOP: moe_finish = 3;
/// the context is full
pub const MOE_FINISH_CONTEXT: moe_finish = 4;
/// a callback stopped the call
pub const MOE_FINISH_CALLBACK: moe_finish = 5;

/// If a model thinks before it answers.
pub type moe_thinking = c_int;
/// the template's own default
pub const MOE_THINKING_DEFAULT: moe_thinking = 0;
pub const MOE_THINKING_ON: moe_thinking = 1;
pub const MOE_THINKING_OFF: moe_thinking = 2;

/// Whether a reply must call a tool.
pub type moe_tool_choice = c_int;
/// the model decides
pub const MOE_TOOLS_AUTO: moe_tool_choice = 0;
/// the reply is calls and no text, behind the model's thinking
pub const MOE_TOOLS_REQUIRED: moe_tool_choice = 1;
/// the same, and one call alone
pub const MOE_TOOLS_ONE: moe_tool_choice = 2;

/// The purpose of a request.
pub type moe_endpoint = c_int;
/// /v1/chat/completions
pub const MOE_ENDPOINT_CHAT: moe_endpoint = 1;
/// /v1/completions
pub const MOE_ENDPOINT_COMPLETIONS: moe_endpoint = 2;
/// /tokenize: answered before moe_service_submit returns
pub const MOE_ENDPOINT_TOKENIZE: moe_endpoint = 3;
/// /v1/messages, in the shapes of Anthropic's API
pub const MOE_ENDPOINT_MESSAGES: moe_endpoint = 4;
/// /v1/messages/count_tokens: also answered at once
pub const MOE_ENDPOINT_COUNT_TOKENS: moe_endpoint = 5;
/// /v1/responses
pub const MOE_ENDPOINT_RESPONSES: moe_endpoint = 6;
/// /v1/embeddings: vectors of texts
pub const MOE_ENDPOINT_EMBEDDINGS: moe_endpoint = 7;
/// /statistics: counts, settings, and how often each expert was used; the body has no meaning.
/// Answered at once
pub const MOE_ENDPOINT_STATISTICS: moe_endpoint = 8;
/// /v1/rerank: how well documents answer a query
pub const MOE_ENDPOINT_RERANK: moe_endpoint = 9;

/// Receives each message without a newline, possibly from several threads at once.
pub type moe_log_fn = Option<unsafe extern "C" fn(*mut c_void, moe_log_level, *const c_char)>;

/// Tells the nanoseconds since any moment, which stays the same; never runs backwards. Any thread,
/// also several at once.
pub type moe_clock_fn = Option<unsafe extern "C" fn(*mut c_void) -> u64>;

/// Called from time to time; the caller's parameter says what is counted. Return false to end the
/// call with MOE_ERR_CANCELLED.
pub type moe_progress_fn =
    Option<unsafe extern "C" fn(*mut c_void, u64, u64, *const c_char) -> bool>;

/// Called before the choices are used, and may change them: distinct expert ids of the layer for
/// each token, with finite weights; otherwise MOE_ERR_RANGE, MOE_ERR_ARGUMENT or MOE_ERR_NON_FINITE.
/// A capacity applies afterwards, by the new weights. Return false to end the call with
/// MOE_ERR_CANCELLED. Runs on the caller's thread, also for passes that later fail. Must not call
/// the session, except for moe_session_cancel, nor wait for another thread that uses the model:
/// under a memory cap that thread may wait for this pass. It can evaluate other sessions if memory
/// is left for a second pass; otherwise their calls return MOE_ERR_STATE.
pub type moe_routing_fn =
    Option<unsafe extern "C" fn(*mut c_void, *mut moe_routing_choices) -> bool>;

/// Receives each piece as it is generated. Return false to stop (MOE_FINISH_CALLBACK). May only call
/// moe_session_cancel on the session.
pub type moe_piece_fn = Option<unsafe extern "C" fn(*mut c_void, *const moe_piece) -> bool>;

/// Receives the logits of the next token, n_logits (the vocabulary size) of them, and may change
/// them; -INFINITY bans a token. tokens: the text so far. Sampling and the piece's logprobs use the
/// changed values; the session's own logits are unchanged. Return false to stop
/// (MOE_FINISH_CALLBACK). Runs on the caller's thread, once per token. May only call
/// moe_session_cancel on the session; calls that would change it get MOE_ERR_STATE. NaN or +INFINITY
/// gives MOE_ERR_NON_FINITE, banning every token MOE_ERR_RANGE; in both cases the session does not
/// advance.
pub type moe_logits_fn =
    Option<unsafe extern "C" fn(*mut c_void, *const i32, usize, *mut f32, usize) -> bool>;

/// Receives a JSON object.
pub type moe_report_fn = Option<unsafe extern "C" fn(*mut c_void, *const c_char)>;

/// Receives the receipt of an answer: an object in one line of n_bytes bytes, terminated, valid
/// during the call. Called by the thread of the service just before the last event of the answer; it
/// holds up all requests, and may not call the service.
pub type moe_service_receipt_fn = Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>;

/// Receives the events of a request, one at a time, from the thread of the service or from within
/// moe_service_submit. It holds up all requests, so it must not wait; it may call the service, but
/// not moe_service_drain or moe_service_free.
pub type moe_service_event_fn = Option<unsafe extern "C" fn(*mut c_void, *const moe_service_event)>;

/// Receives a call's error message. Owned by the caller; may be NULL. Unchanged on success.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_error {
    /// what the call returned
    pub code: moe_status,
    /// one line of UTF-8, always terminated
    pub text: [c_char; 400],
}

#[repr(C)]
pub struct moe_env {
    _private: [u8; 0],
}

/// The caller's allocator. `allocate` returns NULL on failure; `align` is a power of two.
/// `deallocate` receives the size that was requested. Called from any thread that calls the library.
/// On Linux the library may advise the kernel to use large pages for blocks that hold weights.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_allocator {
    pub struct_size: u32,
    /// NULL: there is no memory
    pub allocate: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    /// of an earlier `allocate`
    pub deallocate: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize)>,
    /// the callbacks' first argument
    pub user: *mut c_void,
}

/// The options of an environment.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_env_params {
    pub struct_size: u32,
    /// compute threads, including the caller's; 0: as many as affinity and cgroup allow this process;
    /// at most 1024
    pub threads: i32,
    /// NULL: the best one this CPU supports; otherwise a name from moe_isa_name. "amx" requests the
    /// tile registers from Linux: afterwards the process cannot set alternate signal stacks that are
    /// too small for them (11 KiB).
    pub isa: *const c_char,
    /// NULL, "auto" or "cpu": the CPU; "cuda" or "cuda:N": that GPU, or MOE_ERR_DEVICE if it is not
    /// usable. A later version's "auto" may mean a usable GPU.
    pub device: *const c_char,
    /// NULL: malloc; copied
    pub allocator: *const moe_allocator,
    /// NULL: silent
    pub log: moe_log_fn,
    /// its first argument
    pub log_user: *mut c_void,
    /// upper limit of GPU allocations; 0, or above it: 15/16 of the free memory. Experts that do not
    /// fit are offloaded. Not used on the CPU.
    pub gpu_memory_bytes: u64,
    /// measures the times in results (seconds of generation and of waiting for experts) and decides
    /// whether drafting tokens pays; no other result depends on it. NULL: the system's monotonic
    /// clock; in a build without an operating system (MOE_OS=none) times are then 0.
    pub clock: moe_clock_fn,
    /// its first argument
    pub clock_user: *mut c_void,
}

/// The device, threads and instruction set of an environment.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_env_info {
    pub struct_size: u32,
    /// that compute, the caller's included
    pub threads: i32,
    /// "cpu", or for example "cuda:0 (NVIDIA H200)"
    pub device: *const c_char,
    /// "avx512vnni" or another name from moe_isa_name
    pub isa: *const c_char,
}

#[repr(C)]
pub struct moe_model {
    _private: [u8; 0],
}

/// How a model is opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_model_params {
    pub struct_size: u32,
    /// 1: map uncompressed weights instead of reading them. The file must not change while the model
    /// is open: accessing a truncated mapping kills the process.
    pub map_weights: i32,
    /// 1: do not verify checksums of weights (structure is always checked)
    pub skip_checksums: i32,
    /// zero
    pub reserved: i32,
    /// cap on weights, KV caches and scratch memory of this model and its sessions; 0: none. The
    /// remainder is an expert cache: missing experts are read by up to four threads of the model;
    /// results do not change. Mapped weights and models in memory count in full. If the cap is
    /// too small: MOE_ERR_BUDGET with the itemised sum and the smallest possible cap.
    pub memory_bytes: u64,
    /// with a cap: the session that must fit; NULL: the default session
    pub session: *const moe_session_params,
    /// files only; MOE_IO_DIRECT with map_weights, memory or a reader: MOE_ERR_ARGUMENT
    pub io: moe_io,
    /// With a cap, from the first session on. 0: while nothing else is read, the threads also read
    /// experts into free memory of the cache, one at a time. 1: they read only what a token needs.
    pub lazy_experts: i32,
}

/// Source of bytes that are neither a file nor in memory. `read` reads exactly `bytes` bytes at
/// `offset`, or returns false. A model calls it from any thread, also after the open call has
/// returned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_reader {
    pub struct_size: u32,
    /// of the whole, in bytes
    pub size: u64,
    pub read: Option<unsafe extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> bool>,
    /// its first argument
    pub user: *mut c_void,
}

/// A description of a model, as its file has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_model_info {
    pub struct_size: u32,
    /// tokens, and floats in a row of logits
    pub vocab_size: i32,
    /// width of the hidden states
    pub d_model: i32,
    /// all of them
    pub n_layers: i32,
    /// of these, with experts
    pub n_moe_layers: i32,
    /// most positions of a text
    pub context_length: i32,
    /// begins texts; -1: none
    pub bos_token: i32,
    /// end-of-text tokens
    pub n_eos_tokens: i32,
    /// n_eos_tokens of them
    pub eos_tokens: *const i32,
    /// as the checkpoint is called
    pub name: *const c_char,
    /// in all
    pub n_parameters: u64,
    /// upper bound for one token: a threshold router counts with its maximum; moe_routing_stats gives
    /// the actual number
    pub n_active_parameters: u64,
    /// all weights in memory, padding included
    pub weight_bytes: u64,
    /// weights read per token, including routers and head
    pub bytes_per_token: u64,
    /// size of the model file
    pub file_bytes: u64,
    /// The head's predictions: "tokens"; for an encoder also "classes" (of the whole text), "tags" (of
    /// each token), "span" (where an answer begins and ends) or "none".
    pub head: *const c_char,
    /// vocab_size, the number of labels, 2 or 0
    pub n_outputs: i32,
    /// 1: only for moe_session_encode; cannot generate
    pub is_encoder: i32,
    /// marks a token that an encoder is to predict; -1: none
    pub mask_token: i32,
    /// 0
    pub reserved: i32,
    /// 1: for moe_session_translate. The first n_encoder_layers layers are the encoder; context_length
    /// and bytes_per_token refer to the decoder's text.
    pub is_encoder_decoder: i32,
    /// 0: not an encoder-decoder
    pub n_encoder_layers: i32,
    /// maximum tokens of a source
    pub source_length: i32,
    /// begins each text of the decoder; -1: not an encoder-decoder
    pub start_token: i32,
    /// "mean", "first" or "last"; "": nothing, and there are no prompts
    pub pooling: *const c_char,
    /// 1: to length 1
    pub normalized: i32,
    /// maximum tokens of a text; 0: as many as the context holds
    pub vector_tokens: i32,
    /// texts to put before others (moe_model_get_prompt)
    pub n_prompts: i32,
    /// index of the one for texts of no other kind; -1: none
    pub default_prompt: i32,
    /// xxh64 of the file's metadata, which holds the checksums of all weights: tells model files apart
    /// (by accident, not by intent)
    pub file_hash: u64,
    /// that runs it, as in moe_env_info
    pub device: *const c_char,
    /// 1: beside its layers there is one that guesses tokens after the next one (multi-token
    /// prediction), which moe_generate_params.max_draft uses. 0 on devices other than the CPU.
    pub n_predictions: i32,
    /// 0
    pub reserved2: i32,
}

/// The shape of one layer; moe_model_get_router describes its router.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_model_layer_info {
    pub struct_size: u32,
    /// 0, like the next two: the layer has no attention
    pub n_heads: i32,
    /// of keys and values
    pub n_kv_heads: i32,
    /// width of a head
    pub head_dim: i32,
    /// 0: unlimited
    pub window: i32,
    /// of the dense FFN or of one expert; 0: the layer has no FFN
    pub d_ff: i32,
    /// 0: dense
    pub n_experts: i32,
    /// maximum experts per (sub-)token
    pub n_active: i32,
    /// heads of MH-MoE, otherwise 1
    pub n_subheads: i32,
    /// 0: no shared expert
    pub shared_d_ff: i32,
    /// "silu" ...; "" for a layer without an FFN
    pub activation: *const c_char,
    /// X-MoE's sub-layers per expert; 0: an expert is one FFN
    pub n_sublayers: i32,
    /// MH-MoE: 1 if a head layer precedes the split into sub-tokens
    pub has_head: i32,
    /// MH-MoE: 1 if a merge layer follows the experts
    pub has_merge: i32,
    /// of cross attention to the encoder's output; 0: none
    pub n_cross_heads: i32,
    /// Floats per position with MOE_KV_LATENT (kv_lora_rank + rotated dimensions). 0: not possible.
    pub kv_latent: i32,
    /// The token mixer that the layer has in place of attention or, if n_heads is not 0, beside it:
    /// "short_conv"; "" for none.
    pub mixer: *const c_char,
    /// what a session keeps of the layer with a mixer, at one position
    pub state_bytes: u64,
}

/// How a layer selects experts for a (sub-)token, and how it weighs them: as a model file says
/// (moe_model_get_router), in place of that in a session (moe_session_set_router), or in a layer of
/// its own (moe_layer_params). A router whose softmax or sigmoid p is over all experts weighs a
/// selected one by p.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_router {
    pub struct_size: u32,
    /// experts to select; 0: 1, in a session as in the file
    pub k: i32,
    /// "topk" (the k largest logits), "threshold" (by descending p until their sum reaches
    /// `threshold`), "cosine" (the k largest cosines, or by threshold if that is not 0), "sigmoid",
    /// "sparsemixer", "hash", "base" (moe_router_kind). NULL: "topk", in a session as in the file.
    pub kind: *const c_char,
    /// weights of the selected: "raw" (p itself), "renormalised" (p divided by their sum), "chosen"
    /// (softmax over them alone), "one". NULL: "raw", for a cosine router what suits its gate
    pub weights: *const c_char,
    /// what p is of a cosine router: "softmax" or "sigmoid"; NULL: "softmax"
    pub gate: *const c_char,
    /// of the kind "threshold", in 0..1; 0: the best expert alone
    pub threshold: f32,
    /// with a threshold: at least so many; 0: 1, in a session as in the file
    pub min_k: i32,
    /// with a threshold: at most so many; 0: all, in a session as in the file
    pub max_k: i32,
    /// factor of all weights; 0: 1
    pub scale: f32,
    /// "topk", "sigmoid": groups of neighbouring experts; 0: 1
    pub n_groups: i32,
    /// best groups to select from; 0: 1
    pub top_groups: i32,
    /// "cosine": temperature, above 0; 0: 1
    pub tau: f32,
    /// "cosine": least norm of a vector; 0: 1e-4
    pub cosine_eps: f32,
    /// "sparsemixer": half the relative distance that masks; 0: 0.01
    pub jitter: f32,
    /// Capacity factor, the papers' gamma: ceil(gamma n / n_experts) of the n (sub-)tokens of a call
    /// per expert. 0: no limit, in a session as in the file. INFINITY: no limit.
    pub gamma: f32,
    /// least (sub-)tokens per expert with a gamma; 0: 1, or as in the file
    pub min_capacity: i32,
    /// in 0..1, for a memory cap: see moe_session_set_router; 0: off
    pub resident: f32,
}

/// One stored matrix or vector, as the file describes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_tensor_info {
    pub struct_size: u32,
    /// -1: none; n_layers of moe_model_info: one that guesses, for drafts
    pub layer: i32,
    /// -1: none
    pub expert: i32,
    /// outputs
    pub rows: i32,
    /// inputs
    pub cols: i32,
    /// "embedding", "attention", "experts" ...
    pub part: *const c_char,
    /// "q", "gate", "norm" ...
    pub role: *const c_char,
    /// "ternary2" ...
    pub format: *const c_char,
    /// "none", "tensor", "row", "group"
    pub scale: *const c_char,
    /// "f32", "a8", "a8_block", "a8_group"
    pub activations: *const c_char,
    /// "none", "zstd"
    pub codec: *const c_char,
    /// in memory
    pub bytes: u64,
    /// of its segment
    pub file_offset: u64,
}

/// One line of the memory account of a model with sessions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_memory_line {
    /// static text such as "expert weights"
    pub what: *const c_char,
    pub bytes: u64,
}

/// The memory that sessions get under the model's cap.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_memory_plan {
    pub struct_size: u32,
    /// rows evaluated at once, when all sessions exist
    pub chunk: i32,
    /// 0: none
    pub cap_bytes: u64,
    /// the sum of moe_model_get_memory
    pub needed_bytes: u64,
    /// The smallest cap under which all sessions can be created, one by one or from several threads,
    /// and evaluated; with few experts in memory. Without a cap: needed_bytes.
    pub least_bytes: u64,
    /// weights of all experts
    pub expert_bytes: u64,
    /// in all layers
    pub n_experts: u64,
    /// experts that fit in memory at the same time, beside all sessions
    pub n_in_memory: u64,
    /// of each session: further ones take it from the experts in memory
    pub session_bytes: u64,
}

/// Memory of this machine, or of this process's memory cgroup if that is smaller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_memory_info {
    pub struct_size: u32,
    pub reserved: u32,
    /// in all
    pub total_bytes: u64,
    /// available without swapping; the page cache counts as free
    pub available_bytes: u64,
    /// 15/16 of it: the cap that moe_model_suggest_memory suggests
    pub budget_bytes: u64,
}

#[repr(C)]
pub struct moe_tokenizer {
    _private: [u8; 0],
}

/// Two texts in one sequence, such as a question and a passage.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_token_pair {
    pub struct_size: u32,
    /// of both, with the special tokens
    pub n_tokens: usize,
    /// where the second text's type begins, for moe_encode_params; 0: there is none
    pub second: usize,
    /// tokens of the texts that were left out
    pub n_cut: usize,
}

#[repr(C)]
pub struct moe_session {
    _private: [u8; 0],
}

/// The options of a session: how much text it has room for, and how it keeps it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_session_params {
    pub struct_size: u32,
    /// Positions of the KV cache, at most the model's context length; 0: the context length, at most
    /// 4096. Also the limit of an encoder-decoder's source.
    pub context: i32,
    /// rows evaluated at once during prefill, at most 4096. 0: 256; on a GPU with enough memory 1024;
    /// under a memory cap 32 to 4096, depending on the memory left, which changes as sessions come and
    /// go; with an expert capacity, an encoder or an encoder-decoder the context, at most 4096
    pub chunk: i32,
    /// of its cache
    pub kv: moe_kv_type,
    /// encoder-decoder: the largest beam of its searches, 1..64; 0: 5. Each hypothesis has its own KV
    /// cache. Must be 0 for any other model
    pub max_beam: i32,
}

/// The outputs of moe_session_encode. NULL: not requested.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_encode_params {
    pub struct_size: u32,
    /// of `pooled`
    pub pooling: moe_pooling,
    /// (n_tokens, d_model): hidden states after the final norm
    pub hidden: *mut f32,
    /// (d_model)
    pub pooled: *mut f32,
    /// (n_rows, n_outputs) of the head; "classes": one row, of the text
    pub outputs: *mut f32,
    /// n_rows ascending token indices to write outputs for. NULL: all tokens. NULL for "classes".
    pub rows: *const i32,
    /// if `rows` is NULL: n_tokens, or 1 for "classes"
    pub n_rows: usize,
    /// of `pooled`
    pub normalize: moe_normalize,
    /// zero
    pub reserved: i32,
    /// the first token of a second text (moe_token_pair); 0: there is none
    pub second: usize,
}

/// How a beam search runs. Lengths exclude the end-of-text token.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_translate_params {
    pub struct_size: u32,
    /// 0: 5, or the session's max_beam if smaller
    pub beam: i32,
    /// texts to return, at most `beam`; 0: 1
    pub n_best: i32,
    /// 0: 1; -1: no minimum, a text may be empty
    pub min_tokens: i32,
    /// maximum length; 0: 256, or context - 1 if smaller
    pub max_tokens: i32,
    /// alpha: a text's score is its sum of log-probabilities / tokens^alpha, where tokens includes the
    /// end-of-text token; 0: 1
    pub length_penalty: f32,
    /// what length_penalty applies to
    pub score: moe_beam_score,
    /// when the search ends
    pub stop: moe_beam_stop,
    /// Forced beginning of every text, such as a language token. NULL: as in the model file.
    pub prefix: *const i32,
    /// its tokens
    pub n_prefix: usize,
    /// before each token: tokens, max_tokens, "translate"
    pub progress: moe_progress_fn,
    /// its first argument
    pub progress_user: *mut c_void,
}

/// One text that moe_session_translate found.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_translation {
    pub struct_size: u32,
    /// see moe_beam_score; higher is better
    pub score: f32,
    /// without the start token, with the end-of-text token. Owned by the session; valid until its next
    /// translation or until it is freed
    pub tokens: *const i32,
    /// in `tokens`
    pub n_tokens: usize,
}

/// Destination of a saved session: `write` receives its bytes in order, and returns false when it
/// fails.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_writer {
    pub struct_size: u32,
    /// the next n_bytes
    pub write: Option<unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> bool>,
    /// its first argument
    pub user: *mut c_void,
}

/// How well a model predicts a text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_perplexity {
    pub struct_size: u32,
    /// 0
    pub reserved: u32,
    /// tokens scored
    pub n_scored: u64,
    /// mean negative log-probability, nats per token
    pub mean_nll: f64,
    /// exp(mean_nll)
    pub perplexity: f64,
}

/// The routing counts of one MoE layer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_routing_stats {
    pub struct_size: u32,
    /// of the layer
    pub n_experts: i32,
    /// (sub-)tokens routed
    pub n_tokens: u64,
    /// (token, expert) pairs refused by a capacity
    pub n_dropped: u64,
    /// inner activations computed, as in moe_activation_stats
    pub n_activations: u64,
    /// of these, above zero
    pub n_positive: u64,
    /// (n_experts); owned by the session, which updates it; valid until the session is freed
    pub tokens_per_expert: *const u64,
    /// (n_experts + 1): (sub-)tokens routed to i experts
    pub experts_per_token: *const u64,
    /// pairs skipped because of `resident`
    pub n_skipped: u64,
    /// their total probability; at most n_tokens
    pub skipped_probability: f64,
}

/// Inner activations of one layer, dense or of experts: act(gate) of a gated network, otherwise
/// act(up). One per hidden unit and token, or, with experts, per hidden unit and (token, expert)
/// pair; shared experts are not counted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_activation_stats {
    pub struct_size: u32,
    /// 0
    pub reserved: u32,
    /// 0 for a layer without an FFN
    pub n_activations: u64,
    /// of these, above zero
    pub n_positive: u64,
}

/// The routing of one MoE layer for the tokens of one pass.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_routing_choices {
    pub struct_size: u32,
    /// from 0
    pub layer: i32,
    /// of the first token in the text; the others follow
    pub position: i32,
    /// MH-MoE: sub-tokens, one per sub-head of each token
    pub n_tokens: i32,
    /// maximum experts per token
    pub n_slots: i32,
    /// (n_tokens): experts per token, 1..n_slots
    pub counts: *mut i32,
    /// (n_tokens, n_slots), best first; undefined beyond the count
    pub experts: *mut i32,
    /// (n_tokens, n_slots) of the experts' outputs
    pub weights: *mut f32,
    /// The router's input, (n_tokens, d): hidden states after the layer's norm; MH-MoE: sub-tokens.
    pub hidden: *const f32,
    /// (n_tokens, n_experts): cosines, or logits before softmax or sigmoid; NULL for a hash router
    pub scores: *const f32,
    /// width of `hidden`
    pub d: i32,
    /// of the layer
    pub n_experts: i32,
}

/// Expert uses and cache hits. An operation is one MoE layer on one chunk of tokens; it uses an
/// expert once, however many tokens selected it. All zero if every expert is resident.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct moe_expert_stats {
    /// of experts by operations
    pub n_uses: u64,
    /// experts found in memory
    pub n_hits: u64,
    /// for the misses
    pub read_bytes: u64,
    /// time that calls waited for experts to be read
    pub wait_seconds: f64,
}

/// Memory and expert statistics of a model under a cap. The byte counts cover the model and all of
/// its sessions; zero without a cap.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_memory_stats {
    pub struct_size: u32,
    pub reserved: u32,
    /// this session; moe_sessions_eval counts for its first session
    pub session: moe_expert_stats,
    /// all sessions since the model was opened
    pub model: moe_expert_stats,
    pub cap_bytes: u64,
    /// current total that counts against the cap
    pub counted_bytes: u64,
    /// maximum of counted_bytes
    pub peak_bytes: u64,
    /// capacity of the expert cache
    pub arena_bytes: u64,
    /// experts in it
    pub expert_bytes: u64,
    /// read to fill it, not for a miss: see moe_model_params.lazy_experts
    pub filled_bytes: u64,
}

/// Makes a token more or less probable.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct moe_logit_bias {
    /// in 0..vocab_size - 1
    pub token: i32,
    /// added to the logit, at most 1e30; -INFINITY bans the token
    pub bias: f32,
}

/// How a token is chosen. Applied in this order: bias, repetition penalty, temperature, top-k,
/// top-p, min-p.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_sampling {
    pub struct_size: u32,
    /// 0: greedy, ties to the lower id; at most 1e6
    pub temperature: f32,
    /// 0: off
    pub top_k: i32,
    /// 0 or 1: off; in (0, 1]
    pub top_p: f32,
    /// 0: off; in [0, 1): minimum probability relative to the best token's
    pub min_p: f32,
    /// 0 or 1: off; in 0.01..100
    pub repetition_penalty: f32,
    /// number of last tokens that are penalised; 0: 64
    pub repetition_window: i32,
    /// entries of `bias`
    pub n_bias: i32,
    /// the same seed gives the same text
    pub seed: u64,
    /// n_bias of them, or NULL
    pub bias: *const moe_logit_bias,
}

/// A token with its probability.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct moe_token_logprob {
    /// -1: none
    pub token: i32,
    /// natural logarithm, of the model's distribution before sampling filters
    pub logprob: f32,
}

/// A piece of generated text. With a tokenizer `text` holds whole UTF-8 characters; it may be empty
/// while a character is incomplete. Valid during the callback.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_piece {
    pub struct_size: u32,
    /// -1: previously withheld text without a new token
    pub token: i32,
    /// of the token, as in moe_token_logprob
    pub logprob: f32,
    /// MOE_PIECE_*
    pub flags: u32,
    /// not terminated
    pub text: *const c_char,
    /// of `text`
    pub n_bytes: usize,
    /// n_top of them, best first
    pub top: *const moe_token_logprob,
    /// as in moe_generate_params
    pub n_top: usize,
}

/// A set of texts, such as those that a JSON schema describes.
#[repr(C)]
pub struct moe_grammar {
    _private: [u8; 0],
}

/// How text is generated.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_generate_params {
    pub struct_size: u32,
    /// 0: until the context is full
    pub max_tokens: i32,
    /// NULL: greedy
    pub sampling: *const moe_sampling,
    /// At most 64 of at most 4096 bytes each; requires a tokenizer. In a chat none matches across a
    /// special token, nor in the header of a channel.
    pub stop: *const *const c_char,
    /// strings in `stop`
    pub n_stop: i32,
    /// 1: continue after end-of-text tokens
    pub ignore_eos: i32,
    /// candidates reported per piece; at most 64
    pub n_top: i32,
    /// 0..16. Drafts up to this many tokens at once, as earlier text continued after the same last
    /// tokens (prompt lookup decoding), or as the model's own layer for that guesses
    /// (moe_model_info.n_predictions), and checks them in one pass, which costs less than a pass for
    /// each. The result is the same; text that repeats itself or the prompt is generated faster.
    /// Routing and expert statistics include rejected ones. Not with `logits`, nor with an
    /// expert capacity or `resident`, with which results depend on how a text is split. 0: no drafts
    pub max_draft: i32,
    /// NULL: none
    pub piece: moe_piece_fn,
    /// its first argument
    pub piece_user: *mut c_void,
    /// NULL: none
    pub logits: moe_logits_fn,
    /// its first argument
    pub logits_user: *mut c_void,
    /// The text follows this grammar, made for the session's model (otherwise MOE_ERR_ARGUMENT); NULL:
    /// any text. MOE_FINISH_EOS then says that the text is complete; after any other end it may not
    /// be. In a chat the grammar begins after the model's thinking, which is free; with tools it is
    /// MOE_ERR_ARGUMENT, since a call would be no text of the grammar. Together with
    /// `logits`, the grammar has the last word; MOE_ERR_RANGE if `logits` or a bias bans every token
    /// that may follow. With max_draft, text that has no alternative is drafted.
    pub grammar: *mut moe_grammar,
}

/// The outcome of a generation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_generate_result {
    pub struct_size: u32,
    /// why it ended
    pub finish: moe_finish,
    /// tokens of the prompt
    pub n_prompt: i32,
    /// tokens generated
    pub n_generated: i32,
    /// time for the prompt
    pub prompt_seconds: f64,
    /// time after the prompt
    pub generate_seconds: f64,
    /// tokens drafted
    pub n_drafted: i32,
    /// of these, generated
    pub n_accepted: i32,
}

/// A generation whose tokens the caller evaluates, so that one call evaluates those of several
/// sessions (moe_sessions_eval). Its pieces, stop strings and end are those of moe_session_generate,
/// or of moe_chat_reply. Used by one thread at a time, like its session, which it keeps.
#[repr(C)]
pub struct moe_generation {
    _private: [u8; 0],
}

#[repr(C)]
pub struct moe_chat {
    _private: [u8; 0],
}

/// The options of a conversation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_chat_params {
    pub struct_size: u32,
    /// On and off set the template's variables enable_thinking and thinking; MOE_ERR_UNSUPPORTED if it
    /// uses neither.
    pub thinking: moe_thinking,
    /// A name from moe_chat_template_name, or Jinja text. NULL: the model's template;
    /// MOE_ERR_NOT_FOUND if it has none.
    pub chat_template: *const c_char,
    /// first message, with the role "system"; NULL: none
    pub system: *const c_char,
    /// "NAME=VALUE" for the template. true, false, none and integers become values of that type, any
    /// other VALUE is text. "plain" accepts user_prefix and reply_prefix.
    pub variables: *const *const c_char,
    /// entries of `variables`
    pub n_variables: i32,
    /// zero
    pub reserved: i32,
    /// "YYYY-MM-DD" for templates that use strftime_now. NULL: today, UTC. "": no date.
    pub date: *const c_char,
}

/// One message. Its texts are owned by the chat and valid until its messages change.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_chat_message {
    pub struct_size: u32,
    /// 0
    pub reserved: u32,
    /// terminated
    pub role: *const c_char,
    /// not terminated
    pub content: *const c_char,
    /// of `content`
    pub n_bytes: usize,
    /// of a reply; "": none
    pub thinking: *const c_char,
    /// of `thinking`
    pub n_thinking_bytes: usize,
    /// A JSON object of the other members, as moe_chat_add_message takes them: tool_calls of a reply,
    /// tool_call_id of a result ... Terminated; "": none.
    pub members: *const c_char,
}

/// The outcome of a reply: tokens and time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_chat_result {
    pub struct_size: u32,
    /// why it ended
    pub finish: moe_finish,
    /// tokens of the conversation before the reply
    pub n_prompt: i32,
    /// of these, already in the session and not evaluated again
    pub n_reused: i32,
    /// tokens of the reply
    pub n_generated: i32,
    /// of these, thinking including its tags
    pub n_thinking: i32,
    /// time for the prompt
    pub prompt_seconds: f64,
    /// time after the prompt
    pub generate_seconds: f64,
    /// as in moe_generate_result
    pub n_drafted: i32,
    /// as in moe_generate_result
    pub n_accepted: i32,
    /// in a chat with tools: calls in the reply
    pub n_tool_calls: i32,
    /// 0
    pub reserved: i32,
}

#[repr(C)]
pub struct moe_layer {
    _private: [u8; 0],
}

/// One expert. Matrices are row-major (out, in); d_in is d_model / n_subheads. A plain FFN has no
/// gate.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_expert_weights {
    /// of the first: the distance of the experts in an array
    pub struct_size: u32,
    /// (d_ff, d_in) or NULL
    pub gate: *const f32,
    /// (d_ff, d_in)
    pub up: *const f32,
    /// (d_in, d_ff)
    pub down: *const f32,
    /// (d_ff) or NULL
    pub gate_bias: *const f32,
    /// (d_ff) or NULL
    pub up_bias: *const f32,
    /// (d_in) or NULL
    pub down_bias: *const f32,
}

/// The shape and the weights of a layer. Sizes and counts are in 1..65536, or 0 where a default is
/// given.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_layer_params {
    pub struct_size: u32,
    /// width of a row
    pub d_model: i32,
    /// inner width of an expert
    pub d_ff: i32,
    /// routed, without the shared one
    pub n_experts: i32,
    /// 0 or 1: no sub-tokens; more: MH-MoE
    pub n_subheads: i32,
    /// rows computed at once; longer calls take several passes; 0: 256
    pub max_rows: i32,
    /// "relu", "gelu", "gelu_tanh", "silu", "relu2", "tanh"; NULL: "silu"
    pub activation: *const c_char,
    /// any kind but "hash", without a capacity; NULL: "topk" with k 1
    pub router: *const moe_router,
    /// format of experts, head and merge: a name from moe_weight_format_name; NULL: "f32"
    pub weights: *const c_char,
    /// "f32", "a8", "a8_block", "a8_group" (formats with scales per group); NULL: the format's
    ///      default
    pub activations: *const c_char,
    /// n_experts of them
    pub experts: *const moe_expert_weights,
    /// (n_experts, d_in); cosine: the expert embeddings (n_experts, d_e)
    pub router_weight: *const f32,
    /// (n_experts) or NULL; sigmoid: the selection bias
    pub router_bias: *const f32,
    /// cosine: (d_e, d_in)
    pub router_proj: *const f32,
    /// cosine: width of the embeddings
    pub d_e: i32,
    /// 0: no shared expert
    pub shared_d_ff: i32,
    /// on d_model, added to the experts' sum
    pub shared: *const moe_expert_weights,
    /// (d_model) or NULL: scales the shared expert by sigmoid(x . g)
    pub shared_gate: *const f32,
    /// MH-MoE: (d_model, d_model), or NULL: no head layer
    pub head: *const f32,
    /// (d_model) or NULL
    pub head_bias: *const f32,
    /// the same, after the experts
    pub merge: *const f32,
    /// (d_model) or NULL
    pub merge_bias: *const f32,
}

/// The options of a conversion.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_convert_params {
    pub struct_size: u32,
    /// 1: zstd for segments where it saves at least 5 %
    pub compress: i32,
    /// NULL or "auto"; "source": every weight, also of embedding and routers, in the float format that
    /// holds the checkpoint's exactly; "mixed4": int4_k, and int6_k in attention, embedding, head and
    /// for `down` in about half of the layers; or a name from moe_weight_format_name
    pub weights: *const c_char,
    /// "PATTERN=FORMAT" on tensor names; * matches anything; the last match wins
    pub overrides: *const *const c_char,
    /// entries of `overrides`
    pub n_overrides: i32,
    /// 1: read the result back and compare every weight with the checkpoint
    pub verify: i32,
    /// Counts bytes of the checkpoint, tokens while the source model reads `calibration`
    /// ("calibrate"), or bytes of `statistics` ("statistics").
    pub progress: moe_progress_fn,
    /// its first argument
    pub progress_user: *mut c_void,
    /// one object per stored matrix, then one for the whole conversion
    pub report: moe_report_fn,
    /// its first argument
    pub report_user: *mut c_void,
    /// Keys of config.json or of a GGUF file to ignore: those that the importer does not know and that
    /// do not change what the model computes. In an object of config.json "OBJECT.KEY"; each may be
    /// several with commas between.
    pub ignored_keys: *const *const c_char,
    /// entries of `ignored_keys`
    pub n_ignored_keys: i32,
    /// 0: one per usable CPU; each takes 3 MB or more. The file is the same for
    ///                         any number
    pub n_threads: i32,
    /// A text of n_calibration bytes to run through the source model, or NULL. Each matrix's input
    /// second moments (an expert's, over the tokens routed to it) determine how later weights
    /// compensate for the rounding error of earlier ones. Runs on all threads and needs a temporary
    /// float copy of the model next to the destination (an unnamed file). MOE_ERR_ARGUMENT, before
    /// anything is written, if the text has no tokens, the checkpoint has no tokenizer, or nothing is
    /// rounded and split_ffn is 0.
    pub calibration: *const c_char,
    /// bytes of it
    pub n_calibration: usize,
    /// Splits every FFN of a dense model into this many experts; must divide the FFN's width; 0: no
    /// split. A router is fitted to the FFN's inputs on `calibration`. The file's threshold is 1,
    /// which selects all experts and equals the dense model; moe_session_set_router selects fewer with
    /// "threshold:T" or "topk:K". MOE_ERR_ARGUMENT without `calibration`.
    pub split_ffn: i32,
    /// 1: group neurons with similar weights; 0: neighbouring neurons
    pub split_by_clusters: i32,
    /// Instead of `calibration`: a file that save_statistics named when the same checkpoint was
    /// converted. The model is the one that its text would give, in any format, without reading the
    /// text. The file is checked before anything is written; MOE_ERR_ARGUMENT if it is of another
    /// checkpoint, or with split_ffn. Another one is told by its configuration, the shapes of its
    /// tensors, and one value in 1024 of each: the first 256 of every 2^18, and the last 256. An edit
    /// of other values alone goes unnoticed.
    pub statistics: *const c_char,
    /// With `calibration` and without split_ffn: a file to write its statistics to, or NULL. An input
    /// of n channels, which matrices may share, takes about 2 n min(n, 2048) bytes. The file
    /// gets its name just after the destination does: if that alone fails, the model is complete, and
    /// an older file of statistics is unchanged. A file with other content is not replaced:
    /// MOE_ERR_ARGUMENT.
    pub save_statistics: *const c_char,
    /// 1: accept a file that ends in matrices of zeros. 0: MOE_ERR_CORRUPT, before anything is
    /// written, because a download that stopped after its space was reserved leaves such a file.
    pub allow_zeros: i32,
    /// The order of I2_S tensors in a GGUF file. 1: blocks of 64 weights, as bitnet.cpp writes them on
    /// ARM since November 2025; 0: of 128, as it writes them elsewhere. The file does not say which.
    pub i2_s_arm: i32,
    /// With weights NULL or "auto", formats are chosen so that the file takes at most this many bytes
    /// with the least expected damage; 0: no such limit. Matrices of which `overrides` say a format
    /// keep that. MOE_ERR_ARGUMENT, naming the smallest possible size, before anything is written.
    /// With compress the file may be smaller still. The report has "expected_error" and "sensitivity"
    /// of each matrix chosen, and "size".
    pub most_bytes: u64,
    /// the same in bits per weight, the mean over all matrices; 0: no limit
    pub most_bits: f64,
    /// 1: leave out the layer that guesses further tokens (multi-token prediction), which
    /// moe_generate_params.max_draft uses. With split_ffn it is always left out.
    pub no_predictions: i32,
    /// 0
    pub reserved: i32,
}

/// The options of a synthetic model.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_synthetic_params {
    pub struct_size: u32,
    /// 0: the shape's default
    pub context: i32,
    /// what moe_convert makes of 16-bit weights with it; NULL: "ternary2"
    pub weights: *const c_char,
    /// of the random weights
    pub seed: u64,
    /// bytes of weights written
    pub progress: moe_progress_fn,
    /// its first argument
    pub progress_user: *mut c_void,
    /// 1: a file with holes instead of weights: it takes little time and room, and opens as the whole
    /// one would, which tells what a session needs, but its weights cannot be read (MOE_ERR_CORRUPT,
    /// unless checksums are skipped).
    /// moe_synthetic_create: MOE_ERR_ARGUMENT.
    pub outline: i32,
    /// 0
    pub reserved: i32,
}

/// one thread at a time
#[repr(C)]
pub struct moe_replacement {
    _private: [u8; 0],
}

/// any number of threads at once, but for moe_service_free
#[repr(C)]
pub struct moe_service {
    _private: [u8; 0],
}

/// The settings of a service.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_service_params {
    pub struct_size: u32,
    /// texts evaluated at the same time, each in a session; at most 1024. 0: 8, or under a cap of the
    /// model fewer: as many as leave three quarters of the cap to the weights, but one at least
    pub n_slots: i32,
    /// of each; NULL: all defaults
    pub session: *const moe_session_params,
    /// in place of the model's, or NULL. Not with a capacity or `resident`, with which an answer would
    /// depend on others (MOE_ERR_UNSUPPORTED)
    pub router: *const moe_router,
    /// of the model in requests and answers; NULL: the model file's
    pub name: *const c_char,
    /// as in moe_chat_params
    pub chat_template: *const c_char,
    /// texts that wait for a slot; 0: 64; at most 65536
    pub max_waiting: i32,
    /// tokens; 0: all but one of the context
    pub max_prompt: i32,
    /// prompt tokens evaluated in a step while texts are being generated; 0: 16; at most 4096
    pub slice: i32,
    /// of a request, from its submission on; 0: any
    pub max_seconds: i32,
    /// 1: evaluates every prompt whole. 0: a prompt that begins as a text that is, or was last, in a
    /// slot takes its keys and values over, to the same bits; never with an expert capacity
    pub no_reuse: i32,
    /// a folder, made if it does not exist, that keeps evaluated texts of 64 tokens or more in files,
    /// from which prompts are taken over as from slots, also by a later service of the same model;
    /// they are written while there are no requests. It must be trusted: its files hold texts of
    /// users, and forged ones give nonsense. NULL: none. MOE_ERR_IO
    pub cache_folder: *const c_char,
    /// of this model's files, the most; the least used go. 0: 10 GB
    pub cache_bytes: u64,
    /// gets the receipt of every answer (docs/serving.md), with the request in it; NULL: none
    pub receipt: moe_service_receipt_fn,
    /// its first argument
    pub receipt_user: *mut c_void,
    /// 0..16: as in moe_generate_params, for requests that do not say `draft` themselves. A text is
    /// drafted while it is the only one in a slot. MOE_ERR_UNSUPPORTED with an expert capacity
    pub max_draft: i32,
    /// zero
    pub reserved: i32,
}

/// A part of an answer, or the whole. Valid during the callback.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_service_event {
    pub struct_size: u32,
    /// as HTTP counts them: 200, or that of the error in `json`. 429 and 503: there is no room, or no
    /// service; 499: cancelled; 504: max_seconds are over
    pub status: i32,
    /// an object in one line, terminated: the answer, a part of a stream, or why there is none, as the
    /// endpoint's API says errors
    pub json: *const c_char,
    /// of it
    pub n_bytes: usize,
    /// 1: the last event of this request
    pub last: i32,
    /// seconds after which the request may be tried again; 0: not said
    pub retry_after: i32,
    /// of an event of a stream, for the line "event: NAME" in front of its data; NULL: it has none.
    /// Streams without names end with the line "data: [DONE]" after a last event of status 200
    pub name: *const c_char,
}

/// The outcome of submitting a request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_service_ticket {
    pub struct_size: u32,
    /// 1: it asks for a stream of chunks; 0: for one answer, or it was refused
    pub stream: i32,
    /// for moe_service_cancel; 0: it was answered at once
    pub id: u64,
}

/// Counts of a service since it was created, and its state.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_service_stats {
    pub struct_size: u32,
    /// texts that can be evaluated at the same time
    pub n_slots: i32,
    /// positions of each
    pub context: i32,
    /// texts in slots now
    pub n_running: i32,
    /// texts that wait for one now
    pub n_waiting: i32,
    /// 1: takes no more requests
    pub draining: i32,
    /// of the texts in slots now; of n_slots * context
    pub kv_positions: u64,
    /// taken
    pub n_requests: u64,
    /// not taken
    pub n_refused: u64,
    /// of those taken, whole answers
    pub n_answered: u64,
    /// by moe_service_cancel or max_seconds
    pub n_cancelled: u64,
    /// otherwise
    pub n_failed: u64,
    /// evaluated
    pub prompt_tokens: u64,
    /// of all texts
    pub generated_tokens: u64,
    /// passes for all texts together
    pub n_steps: u64,
    /// texts that have begun
    pub n_first_tokens: u64,
    /// sum of their times from submission to the first token
    pub first_token_seconds: f64,
    /// time of all steps
    pub step_seconds: f64,
    /// as in moe_memory_stats, like the next two
    pub cap_bytes: u64,
    /// of model and sessions
    pub counted_bytes: u64,
    /// the most of it
    pub peak_bytes: u64,
    /// as n_uses in moe_expert_stats, like the next two
    pub expert_uses: u64,
    /// found in memory
    pub expert_hits: u64,
    /// read for the others
    pub expert_read_bytes: u64,
    /// of prompts, taken over from other texts, so not evaluated
    pub reused_tokens: u64,
    /// of the files in cache_folder
    pub cache_bytes: u64,
    /// texts that could not be written to it
    pub cache_errors: u64,
}

extern "C" {
    /// The name of a status, "MOE_ERR_RANGE" and so on; "unknown status" for an unknown number. Static.
    pub fn moe_status_name(status: moe_status) -> *const c_char;
    /// Version of the library at run time: major * 1000000 + minor * 1000 + patch.
    pub fn moe_version() -> u32;
    /// The same as text, such as "0.1.0". Static.
    pub fn moe_version_string() -> *const c_char;
    /// Creates an environment: starts its threads and opens its device. Any thread. MOE_ERR_ARGUMENT for
    /// an unknown device or half an allocator, MOE_ERR_RANGE for threads outside 0..1024,
    /// MOE_ERR_UNSUPPORTED for an instruction set that this CPU or build lacks, MOE_ERR_DEVICE for a GPU
    /// that is not usable, MOE_ERR_MEMORY. With the defaults:
    ///     moe_env* env = NULL;
    ///     if (moe_env_create(NULL, &env, &error) != MOE_OK) puts(error.text);
    pub fn moe_env_create(
        params: *const moe_env_params,
        out: *mut *mut moe_env,
        error: *mut moe_error,
    ) -> moe_status;
    /// Gives up the handle; NULL is allowed. Models and layers made with it keep the environment.
    pub fn moe_env_free(env: *mut moe_env);
    /// Describes an environment. Its texts live as long as the environment. Any thread.
    /// MOE_ERR_ARGUMENT for a NULL or a wrong struct_size.
    pub fn moe_env_get_info(
        env: *const moe_env,
        out: *mut moe_env_info,
        error: *mut moe_error,
    ) -> moe_status;
    /// The names of the instruction sets built into this library, best first: "avx512vnni" ... NULL
    /// behind the last. Static; any thread:
    ///     for (size_t i = 0; moe_isa_name(i) != NULL; ++i) puts(moe_isa_name(i));
    pub fn moe_isa_name(index: usize) -> *const c_char;
    /// The names of the weight formats that weights can be rounded to: "ternary2", "int8" ... NULL
    /// behind the last. Static; any thread. Models from GGUF files may have others: "iq2_xs" ...
    pub fn moe_weight_format_name(index: usize) -> *const c_char;
    /// Opens a model file and checks its structure. Any thread. MOE_ERR_NOT_FOUND, MOE_ERR_IO,
    /// MOE_ERR_FORMAT (no model file, or a damaged one), MOE_ERR_VERSION (made by a newer moe),
    /// MOE_ERR_CORRUPT (a checksum of the metadata), MOE_ERR_UNSUPPORTED (something that this build
    /// lacks), MOE_ERR_BUDGET (see memory_bytes), MOE_ERR_MEMORY:
    ///     moe_model_params params = MOE_INIT(moe_model_params);
    ///     params.memory_bytes = 2000000000;
    ///     moe_status status = moe_model_open(env, "olmoe.moe", &params, &model, &error);
    pub fn moe_model_open(
        env: *mut moe_env,
        path: *const c_char,
        params: *const moe_model_params,
        out: *mut *mut moe_model,
        error: *mut moe_error,
    ) -> moe_status;
    /// Opens a model file in memory; errors as moe_model_open, without those of files. `data` must
    /// remain valid and unchanged until the model and its sessions are freed. If it is
    /// 64-byte aligned it is used in place, otherwise it is copied in parts on use.
    pub fn moe_model_open_memory(
        env: *mut moe_env,
        data: *const c_void,
        size: usize,
        params: *const moe_model_params,
        out: *mut *mut moe_model,
        error: *mut moe_error,
    ) -> moe_status;
    /// Opens a model file that `reader`, which is copied, reads; errors as moe_model_open. MOE_ERR_IO
    /// when it fails, also in later calls that need weights.
    pub fn moe_model_open_reader(
        env: *mut moe_env,
        reader: *const moe_reader,
        params: *const moe_model_params,
        out: *mut *mut moe_model,
        error: *mut moe_error,
    ) -> moe_status;
    /// Gives up the handle; NULL is allowed. Sessions keep the model.
    pub fn moe_model_free(model: *mut moe_model);
    /// Describes a model. Texts and arrays live as long as the model. Any thread. MOE_ERR_ARGUMENT.
    pub fn moe_model_get_info(
        model: *const moe_model,
        out: *mut moe_model_info,
        error: *mut moe_error,
    ) -> moe_status;
    /// Prompt `index`, from 0: its name, such as "query", and its text. Both live as long as the model.
    /// MOE_ERR_RANGE if there is none. Models that are made for vectors may want one before every text;
    /// the caller puts it there.
    pub fn moe_model_get_prompt(
        model: *const moe_model,
        index: i32,
        name: *mut *const c_char,
        text: *mut *const c_char,
        error: *mut moe_error,
    ) -> moe_status;
    /// Describes layer `layer`, from 0. Any thread. MOE_ERR_RANGE if there is none, MOE_ERR_ARGUMENT.
    pub fn moe_model_get_layer_info(
        model: *const moe_model,
        layer: i32,
        out: *mut moe_model_layer_info,
        error: *mut moe_error,
    ) -> moe_status;
    /// Reads a router as people write it: a kind with its number, then any of the names of weights,
    /// gate=NAME and the other fields as NAME=NUMBER, separated by commas:
    ///   "topk:4"                    the 4 most probable experts
    ///   "topk:2,renormalised"       with weights that sum to 1
    ///   "threshold:0.9,max_k=8"     experts until their probabilities reach 0.9, at most 8
    ///   "cosine:1,tau=0.07"
    ///   "gamma=1.25"                a capacity alone; "gamma=inf": none; "": nothing said
    /// Ranges are checked where the router is used. The texts in `out` are static. Any thread.
    /// MOE_ERR_ARGUMENT lists what is accepted; MOE_ERR_RANGE for a 0 that would mean a default:
    ///     moe_router router = MOE_INIT(moe_router);
    ///     status = moe_router_parse("threshold:0.9", &router, &error);
    ///     if (status == MOE_OK) status = moe_session_set_router(session, &router, &error);
    pub fn moe_router_parse(
        text: *const c_char,
        out: *mut moe_router,
        error: *mut moe_error,
    ) -> moe_status;
    /// The reverse: the shortest text that moe_router_parse reads as `router`, without what is a layer's
    /// default; "" if that is all. Any thread. MOE_ERR_ARGUMENT for an unknown kind, weights or gate;
    /// MOE_ERR_TOO_LONG.
    pub fn moe_router_format(
        router: *const moe_router,
        text: *mut c_char,
        capacity: usize,
        n_bytes: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// The names of the kinds of routers; NULL behind the last. Static; any thread.
    pub fn moe_router_kind(index: usize) -> *const c_char;
    /// The router of layer `layer` as the file describes it; numbers that its kind does not have are 0.
    /// Any thread. MOE_ERR_RANGE if there is no such layer, MOE_ERR_UNSUPPORTED if it is dense,
    /// MOE_ERR_ARGUMENT.
    pub fn moe_model_get_router(
        model: *const moe_model,
        layer: i32,
        out: *mut moe_router,
        error: *mut moe_error,
    ) -> moe_status;
    /// The number of stored matrices and vectors; 0 for NULL. Any thread.
    pub fn moe_model_tensor_count(model: *const moe_model) -> usize;
    /// Describes one of them. Its texts are static. Any thread. MOE_ERR_RANGE, MOE_ERR_ARGUMENT.
    pub fn moe_model_get_tensor_info(
        model: *const moe_model,
        index: usize,
        out: *mut moe_tensor_info,
        error: *mut moe_error,
    ) -> moe_status;
    /// Itemises the memory of the model with n_sessions sessions (1 or more) of these parameters (NULL:
    /// defaults), which need not exist; sessions that exist are not counted. In bytes; the sum is what
    /// all of them take while one is evaluated. (buffer, capacity, *n_lines) as for all arrays.
    /// MOE_ERR_RANGE for n_sessions below 1 and for parameters outside their range; MOE_ERR_TOO_LONG.
    /// Any thread.
    pub fn moe_model_get_memory(
        model: *const moe_model,
        params: *const moe_session_params,
        n_sessions: i32,
        lines: *mut moe_memory_line,
        capacity: usize,
        n_lines: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// The plan for n_sessions sessions (1 or more) with these parameters (NULL: defaults), as if no
    /// others existed. Under a cap of at least least_bytes, none of them is refused: automatic chunks
    /// (moe_session_params.chunk 0) become smaller as sessions are created, and larger as they are
    /// freed. The sessions share the memory of a pass. Passes of several threads at the same time take
    /// more of it from the expert cache, up to a sixth of the cache for each, or wait for each other. On
    /// a GPU each session has its own, and automatic chunks do not follow the cap. MOE_ERR_RANGE for
    /// n_sessions below 1 and for parameters outside their range; MOE_ERR_TOO_LONG. Any thread.
    ///
    ///   moe_memory_plan plan = {.struct_size = sizeof plan};
    ///   moe_model_get_memory_plan(model, NULL, 16, &plan, &error);
    ///   printf("16 sessions need %llu bytes\n", (unsigned long long)plan.least_bytes);
    pub fn moe_model_get_memory_plan(
        model: *const moe_model,
        params: *const moe_session_params,
        n_sessions: i32,
        out: *mut moe_memory_plan,
        error: *mut moe_error,
    ) -> moe_status;
    /// MOE_ERR_UNSUPPORTED if the system does not report it.
    pub fn moe_get_memory_info(out: *mut moe_memory_info, error: *mut moe_error) -> moe_status;
    /// The memory_bytes to open this model with for n_sessions sessions (1 or more) with these
    /// parameters (NULL: defaults). 0 if everything fits in 15/16 of the memory available now, or in all
    /// of it when a cap of 15/16 would be too small; otherwise that 15/16. Also 0 on a GPU, for mapped
    /// models and models in memory, and if the system does not report its memory.
    pub fn moe_model_suggest_memory(
        model: *const moe_model,
        params: *const moe_session_params,
        n_sessions: i32,
        memory_bytes: *mut u64,
        error: *mut moe_error,
    ) -> moe_status;
    /// Reads every weight once and verifies checksums, codes and scales; takes as long as reading the
    /// file. Under a cap it takes memory from the expert cache, and calls that create sessions
    /// wait for it; MOE_ERR_BUDGET if the sessions leave too little.
    pub fn moe_model_verify(model: *mut moe_model, error: *mut moe_error) -> moe_status;
    /// The model's tokenizer; NULL if it has none (token ids only).
    pub fn moe_model_tokenizer(model: *const moe_model) -> *const moe_tokenizer;
    /// The token ids of a text of n_bytes bytes, which need not be terminated. `flags`: MOE_ENCODE_*.
    /// MOE_ERR_TOO_LONG with *n_tokens if `capacity` is too small, MOE_ERR_TEXT for text that the
    /// tokenizer cannot encode, MOE_ERR_ARGUMENT, MOE_ERR_MEMORY. Invalid UTF-8 is first replaced by
    /// U+FFFD, except by a tokenizer of kind "bytes", whose tokens are the bytes themselves.
    pub fn moe_tokenizer_encode(
        tokenizer: *const moe_tokenizer,
        text: *const c_char,
        n_bytes: usize,
        flags: u32,
        tokens: *mut i32,
        capacity: usize,
        n_tokens: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// The token ids of two texts for an encoder that reads them together, with the special tokens
    /// before, between and after them. Of more than max_tokens (0: any number) the ends are left out,
    /// those of the longer text first, as `tokenizers` truncates. `flags`: 0 or
    /// MOE_ENCODE_PARSE_SPECIAL. MOE_ERR_TOO_LONG with out->n_tokens if `capacity` is too small, and if
    /// max_tokens leaves nothing of the texts; MOE_ERR_UNSUPPORTED if the model file does not say how
    /// two texts are encoded; otherwise as moe_tokenizer_encode.
    pub fn moe_tokenizer_encode_pair(
        tokenizer: *const moe_tokenizer,
        first: *const c_char,
        n_first_bytes: usize,
        second: *const c_char,
        n_second_bytes: usize,
        flags: u32,
        max_tokens: usize,
        tokens: *mut i32,
        capacity: usize,
        out: *mut moe_token_pair,
        error: *mut moe_error,
    ) -> moe_status;
    /// The text of token ids in UTF-8; bytes that form no character become U+FFFD. `flags`:
    /// MOE_DECODE_*. MOE_ERR_TOO_LONG with *n_bytes if `capacity` is too small, MOE_ERR_RANGE for a
    /// token outside the vocabulary, MOE_ERR_ARGUMENT, MOE_ERR_MEMORY.
    pub fn moe_tokenizer_decode(
        tokenizer: *const moe_tokenizer,
        tokens: *const i32,
        n_tokens: usize,
        flags: u32,
        text: *mut c_char,
        capacity: usize,
        n_bytes: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// A token as the vocabulary spells it ("Ġthe"), terminated; NULL if the id is out of range.
    pub fn moe_tokenizer_piece(tokenizer: *const moe_tokenizer, token: i32) -> *const c_char;
    /// Creates an empty session. Any thread. MOE_ERR_RANGE for a context or chunk outside its range,
    /// MOE_ERR_UNSUPPORTED for a kv type that model or device lack, MOE_ERR_BUDGET if the model's cap
    /// leaves too little (the text says how much is needed), MOE_ERR_MEMORY, MOE_ERR_ARGUMENT.
    pub fn moe_session_create(
        model: *mut moe_model,
        params: *const moe_session_params,
        out: *mut *mut moe_session,
        error: *mut moe_error,
    ) -> moe_status;
    /// Gives up the handle; NULL is allowed. A chat keeps its session.
    pub fn moe_session_free(session: *mut moe_session);
    /// Appends `n_tokens` tokens to the text; 0, with `tokens` NULL or not, changes nothing. Results do
    /// not depend on how the text is split into calls. logits: the rows that `rows` names:
    ///     moe_session_eval(session, tokens, n, MOE_ROWS_LAST, logits, &error);
    /// MOE_ERR_TOO_LONG, with nothing changed, if the context cannot hold the tokens. After
    /// MOE_ERR_CANCELLED or an error found while computing, the session is at the end of the last
    /// completed chunk; some of n_tokens rows of logits may have been written.
    ///
    /// MOE_ERR_NON_FINITE is such an error: a requested logit, a router score or the state of a mixer
    /// (moe_model_layer_info) is NaN or infinite,
    /// which finite but huge weights can cause. Rows whose logits are not requested are not checked.
    /// Reading the logits of a later token that attends to such a row then fails, also in
    /// moe_session_sample and moe_session_generate; moe_session_rewind to an earlier position recovers.
    pub fn moe_session_eval(
        session: *mut moe_session,
        tokens: *const i32,
        n_tokens: usize,
        rows: moe_rows,
        logits: *mut f32,
        error: *mut moe_error,
    ) -> moe_status;
    /// Log-probabilities of given tokens without rows of logits: appends the tokens as moe_session_eval
    /// does and writes for each the natural logarithm of its probability given the preceding text.
    /// n_logprobs must be n_tokens, or n_tokens - 1 in an empty session (0 for no tokens), because its
    /// first token has no predecessor; otherwise MOE_ERR_ARGUMENT. Each value is the log-softmax of
    /// moe_session_eval's row, summed in double and rounded to the nearest float. Memory use does not
    /// grow with text or vocabulary. Errors as moe_session_eval; some values may then have been written.
    pub fn moe_session_score(
        session: *mut moe_session,
        tokens: *const i32,
        n_tokens: usize,
        logprobs: *mut f32,
        n_logprobs: usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// Appends n_tokens[i] >= 1 tokens to session i, all `n` distinct sessions of one model together;
    /// n_tokens NULL: one token to each. `tokens` concatenates the tokens of all sessions in order.
    /// logits: NULL or (n, vocab_size), of each session's last token. Each session gets exactly what
    /// moe_session_eval would give it. A server can prefill a long prompt in slices while it decodes
    /// other sessions.
    ///
    /// The first session's chunk (moe_session_params) limits the rows of one pass; a call with more
    /// rows takes several passes. With an expert capacity each session is routed separately, as in a
    /// call of its own: MOE_ERR_TOO_LONG if it has more tokens than fit in one pass. MOE_ERR_STATE if a
    /// session is in use or listed twice. MOE_ERR_NON_FINITE as moe_session_eval. After a failure in its
    /// only pass no session has advanced, and some rows of logits may have been written. On a GPU one
    /// token for each of up to 32 sessions is recorded and replayed; otherwise kernels are launched one
    /// by one.
    pub fn moe_sessions_eval(
        sessions: *const *mut moe_session,
        tokens: *const i32,
        n_tokens: *const usize,
        n: usize,
        logits: *mut f32,
        error: *mut moe_error,
    ) -> moe_status;
    /// Runs the model over a text without changing the session. In an encoder every token sees every
    /// other. In a decoder a token sees the tokens before it, including those in the session; the text
    /// may fill the rest of the context, and with `hidden` NULL one chunk of hidden states is allocated.
    /// MOE_ERR_UNSUPPORTED for outputs of a decoder (use moe_session_eval) or of a model without a head,
    /// and for a second text that the model does not tell apart. MOE_ERR_TOO_LONG for more
    /// tokens than the context has room for, than an encoder's chunk (by default the context, at most
    /// 4096), or, with MOE_POOL_DEFAULT, than vector_tokens; nothing is written then. MOE_ERR_NON_FINITE
    /// if a requested value is NaN or infinite. After that and after MOE_ERR_CANCELLED the arrays are
    /// undefined. Do not pad: pass one text at a time.
    pub fn moe_session_encode(
        session: *mut moe_session,
        tokens: *const i32,
        n_tokens: usize,
        params: *const moe_encode_params,
        error: *mut moe_error,
    ) -> moe_status;
    /// The best texts that an encoder-decoder generates for a source. `source` includes the special
    /// tokens the model was trained with (moe_tokenizer_encode without flags adds them). Beam search:
    /// each step extends every running text by every token except padding, and sorts the extensions by
    /// their sum of log-probabilities; ties go to the better text, then to the lower token. Of the best
    /// 2 beam extensions, an end-of-text token among the first `beam` finishes its text, a lower one is
    /// discarded, and the best `beam` others continue. A beam of 1 is greedy. *n_texts: how many were
    /// found, at most n_best (moe_session_get_translation).
    ///
    /// Afterwards the session has read the source and is empty. MOE_ERR_UNSUPPORTED for any other model.
    /// MOE_ERR_RANGE for a beam outside 1..64 or above max_beam, n_best above the beam, min_tokens above
    /// max_tokens, a length penalty outside -100..100, or if no text finished. MOE_ERR_TOO_LONG for more
    /// source tokens than the model, the context or the chunk allows, or if max_tokens and the start
    /// token exceed the context.
    pub fn moe_session_translate(
        session: *mut moe_session,
        source: *const i32,
        n_source: usize,
        params: *const moe_translate_params,
        n_texts: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// Text `index` of the session's last translation, best first. MOE_ERR_RANGE behind the last.
    pub fn moe_session_get_translation(
        session: *const moe_session,
        index: usize,
        out: *mut moe_translation,
        error: *mut moe_error,
    ) -> moe_status;
    /// Reads a source, replacing the previous one, and empties the session. Afterwards the session works
    /// like a decoder's: its text begins with start_token of moe_model_info and attends to the source;
    /// moe_session_score scores a given translation, moe_session_generate samples one. Without a source
    /// these return MOE_ERR_STATE. hidden: NULL, or (n_source, d_model) for the encoder's output. Errors
    /// as moe_session_translate; MOE_ERR_NON_FINITE if `hidden`, which is then written, is not finite.
    /// Invalid arguments change nothing; after any other failure there is no source.
    pub fn moe_session_read_source(
        session: *mut moe_session,
        source: *const i32,
        n_source: usize,
        hidden: *mut f32,
        error: *mut moe_error,
    ) -> moe_status;
    /// The number of tokens evaluated so far; 0 for NULL.
    pub fn moe_session_position(session: *const moe_session) -> i32;
    /// The most tokens that the session holds, of an encoder the most that a text may have: its chunk
    /// limits them as well. 0 for NULL.
    pub fn moe_session_context(session: *const moe_session) -> i32;
    /// Drops all positions from `position` on, for example to reuse a common prefix. If layers have a
    /// mixer with a state, the next call evaluates the tokens after the nearest kept state again;
    /// results are the same bits as without the rewind. Position 0 also clears a device fault.
    /// MOE_ERR_RANGE for a position beyond the text, MOE_ERR_STATE.
    pub fn moe_session_rewind(
        session: *mut moe_session,
        position: i32,
        error: *mut moe_error,
    ) -> moe_status;
    /// Writes the session's text with its keys and values, so that another process or device can resume
    /// it without evaluating the text again. The size is about that of the used positions in the KV
    /// cache. What a layer that guesses has read is saved too, and devices without it skip it. The
    /// header identifies the model file by a hash. Routers, statistics and logits are not saved: logits
    /// of the last token are recomputed from that token alone, and differ if a router has a capacity.
    /// MOE_ERR_UNSUPPORTED for an encoder or an encoder-decoder; MOE_ERR_IO if the writer failed.
    pub fn moe_session_save(
        session: *mut moe_session,
        writer: *const moe_writer,
        error: *mut moe_error,
    ) -> moe_status;
    /// Replaces the session's text by a saved one, which may be untrusted. MOE_ERR_FORMAT: not a saved
    /// session, truncated or extended. MOE_ERR_VERSION. MOE_ERR_CORRUPT: a wrong checksum or an invalid
    /// token. MOE_ERR_ARGUMENT: another model file, another KV type or, if positions depend on it
    /// (LongRoPE), another context. MOE_ERR_TOO_LONG: the context is too small. Keys and values are not
    /// validated: forged ones with a valid checksum give nonsense or a later MOE_ERR_NON_FINITE. If the
    /// first 64 bytes are rejected the session is unchanged; after any other failure it is empty.
    pub fn moe_session_load(
        session: *mut moe_session,
        reader: *const moe_reader,
        error: *mut moe_error,
    ) -> moe_status;
    /// A copy of a session: same model, text, parameters and router, but no shared mutable state. The
    /// two continue independently and may be freed in any order. Counters and callbacks are not copied.
    /// Counts against the cap like any session: MOE_ERR_BUDGET. MOE_ERR_UNSUPPORTED for an
    /// encoder-decoder.
    pub fn moe_session_fork(
        session: *mut moe_session,
        out: *mut *mut moe_session,
        error: *mut moe_error,
    ) -> moe_status;
    /// Replaces the text of `target`, another session of the same model, by the first `n_positions`
    /// tokens of `source` with their keys and values: a text that begins as another's is continued
    /// without evaluating the beginning again, to the same bits. The source and the routers of both are
    /// unchanged. MOE_ERR_RANGE for more positions than the source has, MOE_ERR_TOO_LONG for more than
    /// the target's context, MOE_ERR_ARGUMENT for another model or KV type or, if positions depend on
    /// it (LongRoPE), another context, MOE_ERR_UNSUPPORTED for an encoder or an encoder-decoder: then
    /// nothing has changed. After other errors the target is empty.
    pub fn moe_session_copy(
        source: *mut moe_session,
        n_positions: i32,
        target: *mut moe_session,
        error: *mut moe_error,
    ) -> moe_status;
    /// Makes the session's current call return MOE_ERR_CANCELLED within one layer's time. Any thread.
    /// Without a current call it does nothing.
    pub fn moe_session_cancel(session: *mut moe_session);
    /// Perplexity of a text in non-overlapping windows of the session's context. `tokens` are encoded
    /// with MOE_ENCODE_NO_SPECIAL; each window begins with the model's prefix, see section 5. Without a
    /// prefix a window's first token is not scored. The session must be empty (position 0) and is empty
    /// afterwards. MOE_ERR_NON_FINITE as moe_session_eval; MOE_ERR_UNSUPPORTED for an encoder-decoder
    /// (use moe_session_score). progress: after each window, or NULL.
    pub fn moe_session_perplexity(
        session: *mut moe_session,
        tokens: *const i32,
        n_tokens: usize,
        progress: moe_progress_fn,
        user: *mut c_void,
        out: *mut moe_perplexity,
        error: *mut moe_error,
    ) -> moe_status;
    /// Overrides the router of every MoE layer in this session. Of moe_router it takes a kind, "topk" or
    /// "threshold", with its number and min_k and max_k; gamma and min_capacity; and resident. Without a
    /// kind the selection stays, and the weights' rule always does. Other fields may only repeat what
    /// moe_model_get_router says (MOE_ERR_ARGUMENT). MOE_ERR_UNSUPPORTED to select without a softmax
    /// over all experts, MOE_ERR_RANGE for numbers; then nothing changes. NULL: as in the file.
    ///
    /// resident, in 0..1, is for a memory cap: an expert that is not in memory and would evict another
    /// is skipped if no token of the pass gives it a larger probability. Each token retains its best
    /// expert. If the model's rule normalises weights, it does so over the remaining experts. Results
    /// then depend on the contents of the cache, and two runs can differ. MOE_ERR_UNSUPPORTED on a GPU.
    ///
    /// gamma is the capacity factor: it limits the tokens per expert, counted over one call, so a call
    /// must fit in one chunk. A default chunk (params.chunk 0) grows to the context, at most 4096, with
    /// the memory that a pass then needs (MOE_ERR_BUDGET if a cap leaves too little); an explicit chunk
    /// does not grow, and a longer call gets MOE_ERR_TOO_LONG.
    pub fn moe_session_set_router(
        session: *mut moe_session,
        router: *const moe_router,
        error: *mut moe_error,
    ) -> moe_status;
    /// Starts counting from zero, or stops (on = false); off by default. Cheap, except that a GPU then
    /// waits after each layer. Counts only tokens that became part of the text, not those of cancelled
    /// or failed passes.
    pub fn moe_session_count_routing(
        session: *mut moe_session,
        on: bool,
        error: *mut moe_error,
    ) -> moe_status;
    /// Counts of moe_session_count_routing for layer `layer`, from 0. MOE_ERR_UNSUPPORTED for a dense
    /// layer; MOE_ERR_STATE if counting is off; MOE_ERR_RANGE, MOE_ERR_ARGUMENT.
    pub fn moe_session_get_routing(
        session: *const moe_session,
        layer: i32,
        out: *mut moe_routing_stats,
        error: *mut moe_error,
    ) -> moe_status;
    /// Counts of moe_session_count_routing for layer `layer`, from 0. MOE_ERR_STATE if counting is off;
    /// MOE_ERR_RANGE, MOE_ERR_ARGUMENT.
    pub fn moe_session_get_activations(
        session: *const moe_session,
        layer: i32,
        out: *mut moe_activation_stats,
        error: *mut moe_error,
    ) -> moe_status;
    /// Has `callback` called for every MoE layer of later passes; NULL: no longer. Any thread.
    /// MOE_ERR_UNSUPPORTED on a GPU.
    pub fn moe_session_watch_routing(
        session: *mut moe_session,
        callback: moe_routing_fn,
        user: *mut c_void,
        error: *mut moe_error,
    ) -> moe_status;
    /// Memory and expert statistics. Do not call it during another call of the session.
    /// MOE_ERR_ARGUMENT.
    pub fn moe_session_get_memory_stats(
        session: *const moe_session,
        out: *mut moe_memory_stats,
        error: *mut moe_error,
    ) -> moe_status;
    /// How to sample a conversation where the user says nothing: what the checkpoint's authors say
    /// (generation_config.json, or a GGUF file's general.sampling), stored in the model file; *in_file
    /// is then true. What they leave out is off, and the temperature 1. If they say nothing, or only how
    /// to penalise repetitions, it is temperature 0.8, top_p 0.95 and min_p 0.05, and *in_file false. A
    /// temperature of 0 means that they do not sample. `moe chat` uses these settings; the functions of
    /// this library use what they are given. Writes every field: the seed is 0 and there is no bias.
    /// in_file may be NULL. Any thread.
    pub fn moe_model_get_sampling(
        model: *const moe_model,
        out: *mut moe_sampling,
        in_file: *mut bool,
        error: *mut moe_error,
    ) -> moe_status;
    /// Samples from the logits of the last evaluated token without advancing the session. top: NULL or
    /// room for n_top (at most 64) candidates, best first, token -1 beyond the vocabulary. The draw
    /// number is the session's position: sampling twice at one position gives the same token.
    /// MOE_ERR_STATE in an empty session, MOE_ERR_RANGE for a field of `sampling`, MOE_ERR_NON_FINITE.
    pub fn moe_session_sample(
        session: *mut moe_session,
        sampling: *const moe_sampling,
        out: *mut moe_token_logprob,
        top: *mut moe_token_logprob,
        n_top: usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// Compiles a grammar for the texts of a model. `text` need not be terminated; at most 16 MB.
    /// MOE_ERR_FORMAT names the byte, or the place in the schema as a JSON pointer, that is wrong,
    /// MOE_ERR_UNSUPPORTED the keyword that is not supported, or a byte for which the tokenizer has no
    /// token; MOE_ERR_RANGE if no text satisfies the grammar, MOE_ERR_TOO_LONG if it takes too much
    /// memory (48 MB) or time, MOE_ERR_NOT_FOUND for a reference to nothing. The model's first grammar
    /// also reads its vocabulary (about 30 bytes a token). The result is immutable: any number of calls
    /// on any threads may use it at once. Any thread. In a library built with MOE_GRAMMAR=OFF:
    /// MOE_ERR_UNSUPPORTED.
    pub fn moe_grammar_create(
        model: *mut moe_model,
        kind: moe_grammar_kind,
        text: *const c_char,
        n_bytes: usize,
        out: *mut *mut moe_grammar,
        error: *mut moe_error,
    ) -> moe_status;
    /// Gives up the handle; NULL is allowed. Generations that use the grammar keep it.
    pub fn moe_grammar_free(grammar: *mut moe_grammar);
    /// Appends the prompt's tokens, then generates. Without a prompt it continues from the session's
    /// position (which must not be 0). A character that the last token leaves incomplete is reported as
    /// U+FFFD; a call that continues reports the whole character. After MOE_ERR_CANCELLED the text
    /// reported so far is valid. MOE_ERR_RANGE and MOE_ERR_ARGUMENT for parameters, MOE_ERR_TOO_LONG for
    /// a prompt that the context cannot hold, MOE_ERR_STATE, MOE_ERR_NON_FINITE:
    ///     static bool print(void* user, const moe_piece* piece) {
    ///       return fwrite(piece->text, 1, piece->n_bytes, user) == piece->n_bytes;
    ///     }
    ///     ...
    ///     moe_generate_params params = MOE_INIT(moe_generate_params);
    ///     params.max_tokens = 100;
    ///     params.piece = print;
    ///     params.piece_user = stdout;
    ///     moe_generate_result result = MOE_INIT(moe_generate_result);
    ///     status = moe_session_generate(session, tokens, n, &params, &result, &error);
    pub fn moe_session_generate(
        session: *mut moe_session,
        prompt: *const i32,
        n_prompt: usize,
        params: *const moe_generate_params,
        out: *mut moe_generate_result,
        error: *mut moe_error,
    ) -> moe_status;
    /// Says whether the text after the tokens that are evaluated next is going to be drafted
    /// (params.max_draft): a layer of the model that guesses then sees them as they are evaluated, which
    /// takes the time of one more layer, and its first guesses are as good as after
    /// moe_session_generate. No result depends on it. Off at first, and after each generation that has
    /// ended or failed; one that is freed before its end leaves it as it is.
    pub fn moe_session_expect_drafts(
        session: *mut moe_session,
        on: bool,
        error: *mut moe_error,
    ) -> moe_status;
    /// Begins after what the session holds, which must not be empty (MOE_ERR_STATE). `params` is copied
    /// with all it points to. Errors of the parameters as moe_session_generate.
    pub fn moe_generation_create(
        session: *mut moe_session,
        params: *const moe_generate_params,
        out: *mut *mut moe_generation,
        error: *mut moe_error,
    ) -> moe_status;
    /// Samples one token, reports it and stores it in *token: evaluate it before the next call, in
    /// whatever call:
    ///     while (moe_generation_next(generation, &token, &finish, &error) == MOE_OK && token >= 0) {
    ///       if (moe_session_eval(session, &token, 1, MOE_ROWS_NONE, NULL, &error) != MOE_OK) break;
    ///     }
    /// -1: the generation has ended, *finish says why, and all text has been reported; the last token
    /// need not have been evaluated. MOE_ERR_STATE after the end, or if the session does not end
    /// with the last token. After other errors, those of moe_session_generate, it can only be freed.
    pub fn moe_generation_next(
        generation: *mut moe_generation,
        token: *mut i32,
        finish: *mut moe_finish,
        error: *mut moe_error,
    ) -> moe_status;
    /// For a session that is stepped alone: evaluates the token that was given last, in one pass with up
    /// to params.max_draft drafted tokens after it, and goes on as if moe_generation_next had given each
    /// that is right, to the same bits. *token is the one after them. MOE_ERR_STATE if no token has been
    /// given, or if it was evaluated; otherwise as moe_generation_next.
    pub fn moe_generation_advance(
        generation: *mut moe_generation,
        token: *mut i32,
        finish: *mut moe_finish,
        error: *mut moe_error,
    ) -> moe_status;
    /// After MOE_FINISH_STOP: the index in params.stop of the stop string that was found, the longest of
    /// several that end at the same byte. Otherwise, and for NULL: -1.
    pub fn moe_generation_stop(generation: *const moe_generation) -> i32;
    /// Frees it; NULL is allowed. The session keeps the text.
    pub fn moe_generation_free(generation: *mut moe_generation);
    /// The model file's Jinja template; NULL: none.
    pub fn moe_model_chat_template(model: *const moe_model) -> *const c_char;
    /// The names of the built-in templates: "chatml", "llama3", "mistral", and "plain", which
    /// concatenates the messages for models that continue text. NULL behind the last. Static; any
    /// thread.
    pub fn moe_chat_template_name(index: usize) -> *const c_char;
    /// Begins a conversation. The session need not be empty, and several chats may share it: each reply
    /// reuses the session's text up to the first difference. MOE_ERR_UNSUPPORTED if the session's model
    /// has no tokenizer. MOE_ERR_NOT_FOUND without a template, MOE_ERR_FORMAT or MOE_ERR_UNSUPPORTED for
    /// one that is not usable, MOE_ERR_ARGUMENT for a field of the parameters.
    pub fn moe_chat_create(
        session: *mut moe_session,
        params: *const moe_chat_params,
        out: *mut *mut moe_chat,
        error: *mut moe_error,
    ) -> moe_status;
    /// Gives up the handle; NULL is allowed. The session keeps the text.
    pub fn moe_chat_free(chat: *mut moe_chat);
    /// Continues in another session of the same model (otherwise MOE_ERR_ARGUMENT), for example one with
    /// a larger context. The next reply evaluates whatever the new session does not contain. NULL: the
    /// chat keeps its messages and releases its session, for example to free that before creating a
    /// larger one under a memory cap; until there is another, moe_chat_reply and moe_chat_remove_oldest
    /// return MOE_ERR_STATE.
    pub fn moe_chat_set_session(
        chat: *mut moe_chat,
        session: *mut moe_session,
        error: *mut moe_error,
    ) -> moe_status;
    /// Appends a message. role: "user", "assistant" or any role that the template supports. `content`
    /// need not be terminated.
    pub fn moe_chat_add(
        chat: *mut moe_chat,
        role: *const c_char,
        content: *const c_char,
        n_bytes: usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// Appends a message in JSON, as OpenAI's chat completions have them, for calls of tools and their
    /// results:
    ///     {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
    ///      "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]}
    ///     {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"}
    /// "content" is a text or null, "reasoning_content" the thinking of a reply. The template gets all
    /// other members as they are, numbers that 64 bits do not hold as fractions, and the arguments of
    /// calls as it expects them: a mapping, or their text. A result without a "name" gets that of the
    /// tool, by the id of its call (among the latest 1024). MOE_ERR_ARGUMENT for what is no such message
    /// in UTF-8, nested at most 64 levels, MOE_ERR_UNSUPPORTED for calls if the template does not write
    /// those of earlier replies.
    pub fn moe_chat_add_message(
        chat: *mut moe_chat,
        json: *const c_char,
        n_bytes: usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// Gives the model tools that it may call, a JSON list as in OpenAI's chat completions:
    ///     [{"type": "function", "function": {"name": "weather", "description": "...",
    ///       "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
    /// NULL or an empty list: none. The template gets them as they are, and calls in later replies are
    /// found and reported as pieces with MOE_PIECE_TOOL_CALL, in the order of the text around them. What
    /// is no whole call with valid arguments, or takes more than 1 MiB, is text.
    ///
    /// With "strict": true in a function, every call is held to a form while it is generated: it names
    /// one of the tools, and the arguments of such a tool satisfy its parameters (docs/structured.md);
    /// text outside of calls is free. Otherwise calls are as the model writes them, and whether they
    /// suit the tools is for the caller to check. The template does not see "strict".
    ///
    /// The list is copied. MOE_ERR_ARGUMENT for what is no such list, MOE_ERR_UNSUPPORTED if the
    /// template does not use tools, if moe_chat_tool_format is NULL, or for what calls cannot be held
    /// to; other errors of a schema as moe_grammar_create.
    pub fn moe_chat_set_tools(
        chat: *mut moe_chat,
        json: *const c_char,
        n_bytes: usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// Chooses for the replies from now on, until moe_chat_set_tools gets an empty list. name: the
    /// tool that is called, if one must be; NULL: any. Arguments then satisfy the
    /// tools' parameters, except for a tool with "strict": false, whose arguments are any object.
    /// MOE_ERR_STATE without tools, MOE_ERR_ARGUMENT if none has that name, other errors as
    /// moe_chat_set_tools; then nothing changes.
    pub fn moe_chat_set_tool_choice(
        chat: *mut moe_chat,
        choice: moe_tool_choice,
        name: *const c_char,
        error: *mut moe_error,
    ) -> moe_status;
    /// The format in which the chat's template asks for calls of tools: "hermes" (also Qwen), "llama3",
    /// "mistral", "deepseek", "gpt-oss" ... NULL: none that is known, and for NULL. Static.
    pub fn moe_chat_tool_format(chat: *const moe_chat) -> *const c_char;
    /// Removes all but the first n_messages messages. The system text does not count and remains.
    pub fn moe_chat_truncate(
        chat: *mut moe_chat,
        n_messages: usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// Makes room: removes the oldest turns, as few as possible, until the conversation with the
    /// beginning of a reply has at most max_tokens tokens. A turn is a message with the role "user" and
    /// those up to the next one. The system text, messages before the first turn and the last turn
    /// remain. The next reply evaluates what is left, as the template renders it. *n_removed (may be
    /// NULL): messages. MOE_ERR_TOO_LONG if what must remain has more tokens, MOE_ERR_TEXT if the
    /// template rejects what would remain, MOE_ERR_CANCELLED after moe_session_cancel; then nothing
    /// changes.
    pub fn moe_chat_remove_oldest(
        chat: *mut moe_chat,
        max_tokens: usize,
        n_removed: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// Replaces the system text; NULL: none.
    pub fn moe_chat_set_system(
        chat: *mut moe_chat,
        system: *const c_char,
        error: *mut moe_error,
    ) -> moe_status;
    /// The number of messages, without the system text; 0 for NULL.
    pub fn moe_chat_message_count(chat: *const moe_chat) -> usize;
    /// Message `index`, from 0, without the system text. MOE_ERR_RANGE if there is none.
    pub fn moe_chat_get_message(
        chat: *const moe_chat,
        index: usize,
        out: *mut moe_chat_message,
        error: *mut moe_error,
    ) -> moe_status;
    /// The conversation as the model reads it, with special tokens spelled out; begin_reply: including
    /// the start of the next reply. MOE_ERR_TEXT if the template rejects the conversation.
    pub fn moe_chat_render(
        chat: *const moe_chat,
        begin_reply: bool,
        text: *mut c_char,
        capacity: usize,
        n_bytes: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// The same as token ids.
    pub fn moe_chat_tokens(
        chat: *const moe_chat,
        begin_reply: bool,
        tokens: *mut i32,
        capacity: usize,
        n_tokens: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    /// Generates a reply to the messages so far and appends it with the role "assistant". It ends at an
    /// end-of-text token of the model or tokenizer (MOE_FINISH_EOS), or at a built-in template's end of
    /// turn.
    ///
    /// Thinking is the leading part of a reply between <think> and </think>, between other tags that the
    /// template names, or in channels other than "final". It is reported in pieces with
    /// MOE_PIECE_THINKING, without the tags. The template decides what later turns see of it.
    ///
    /// MOE_ERR_TOO_LONG if the conversation fills the context. MOE_ERR_CANCELLED after
    /// moe_session_cancel, also while the template runs. After any failure the messages are unchanged; a
    /// failure before evaluation leaves the session as it was, after a later one it holds a prefix of
    /// the conversation and of the unfinished reply. The next reply reuses what matches. A reply that
    /// was stopped (by length, context, stop string or callback) is appended as far as it was generated.
    pub fn moe_chat_reply(
        chat: *mut moe_chat,
        params: *const moe_generate_params,
        out: *mut moe_chat_result,
        error: *mut moe_error,
    ) -> moe_status;
    /// Begins a reply whose tokens the caller evaluates (section 8). The chat's session must hold
    /// exactly what moe_chat_tokens gives with begin_reply: MOE_ERR_STATE. The reply is not appended to
    /// the messages; moe_chat_add_message can. The chat may be freed or changed before the generation.
    /// Other errors as moe_chat_reply.
    pub fn moe_chat_begin_reply(
        chat: *mut moe_chat,
        params: *const moe_generate_params,
        out: *mut *mut moe_generation,
        error: *mut moe_error,
    ) -> moe_status;
    /// Packs the weights, which are copied, and makes the layer. MOE_ERR_ARGUMENT for a missing array or
    /// an unknown name, MOE_ERR_RANGE, MOE_ERR_SHAPE, MOE_ERR_NON_FINITE for weights, MOE_ERR_MEMORY
    /// (examples/moe_layer.c).
    pub fn moe_layer_create(
        env: *mut moe_env,
        params: *const moe_layer_params,
        out: *mut *mut moe_layer,
        error: *mut moe_error,
    ) -> moe_status;
    /// Frees the layer; NULL is allowed.
    pub fn moe_layer_free(layer: *mut moe_layer);
    /// Computes the layer for n rows. x, y: (n, d_model), may be the same array. Bit-identical for any
    /// thread count and any split of the rows. MOE_ERR_NON_FINITE for NaN or infinity in x, before
    /// anything is written. An error found while computing may leave earlier passes of max_rows rows
    /// written.
    pub fn moe_layer_forward(
        layer: *mut moe_layer,
        x: *const f32,
        n: usize,
        y: *mut f32,
        error: *mut moe_error,
    ) -> moe_status;
    /// Locks the file at `path`, which need not exist, until moe_replacement_free. MOE_ERR_IO if another
    /// program has locked it, if it cannot be written, is no regular file (a folder, a pipe, a device),
    /// or if its folder does not exist.
    pub fn moe_replacement_open(
        path: *const c_char,
        out: *mut *mut moe_replacement,
        error: *mut moe_error,
    ) -> moe_status;
    /// Begins new content, at the start of an empty file, and stores its file descriptor: use write,
    /// pwrite or pread, and do not close it. It is valid until moe_replacement_commit succeeds or
    /// moe_replacement_free. A second call before that empties the file, for example to write less after
    /// a full disk.
    pub fn moe_replacement_begin(
        replacement: *mut moe_replacement,
        file: *mut c_int,
        error: *mut moe_error,
    ) -> moe_status;
    /// Writes the new content through to the disk and gives it the name of the file. MOE_ERR_STATE if
    /// none was begun. After MOE_ERR_IO the old file is unchanged, and moe_replacement_begin may try
    /// again. The lock stays, so that further content can follow.
    pub fn moe_replacement_commit(
        replacement: *mut moe_replacement,
        error: *mut moe_error,
    ) -> moe_status;
    /// Drops content that was not committed, and unlocks. NULL is allowed.
    pub fn moe_replacement_free(replacement: *mut moe_replacement);
}

#[cfg(feature = "serve")]
extern "C" {
    /// Creates the sessions and starts the threads. The service keeps the model. MOE_ERR_UNSUPPORTED for
    /// an encoder-decoder; MOE_ERR_RANGE, MOE_ERR_ARGUMENT for parameters; errors of moe_session_create
    /// and moe_chat_create.
    pub fn moe_service_create(
        model: *mut moe_model,
        params: *const moe_service_params,
        out: *mut *mut moe_service,
        error: *mut moe_error,
    ) -> moe_status;
    /// Takes a request: `body` is JSON of n_bytes bytes. If the call returns MOE_OK, the callback gets
    /// events, exactly one of them the last, also of a request that is refused (then before the call
    /// returns); after that the service does not use `user`. `out` is written before the first event.
    /// Otherwise there are none: MOE_ERR_ARGUMENT for arguments of this call, MOE_ERR_MEMORY.
    pub fn moe_service_submit(
        service: *mut moe_service,
        endpoint: moe_endpoint,
        body: *const c_char,
        n_bytes: usize,
        callback: moe_service_event_fn,
        user: *mut c_void,
        out: *mut moe_service_ticket,
        error: *mut moe_error,
    ) -> moe_status;
    /// Ends a request within a step: its last event has the status 499. Does nothing for one that has
    /// ended.
    pub fn moe_service_cancel(service: *mut moe_service, id: u64);
    /// Reads the counts. MOE_ERR_ARGUMENT.
    pub fn moe_service_get_stats(
        service: *mut moe_service,
        out: *mut moe_service_stats,
        error: *mut moe_error,
    ) -> moe_status;
    /// From now on refuses requests, and waits until those taken have ended and cache_folder has
    /// their texts, at most `seconds` (0: does not wait; below 0: any time). *empty: it is so.
    pub fn moe_service_drain(
        service: *mut moe_service,
        seconds: f64,
        empty: *mut bool,
        error: *mut moe_error,
    ) -> moe_status;
    /// Ends all requests, with the status 503 for their last events, and frees the service. NULL is
    /// allowed.
    pub fn moe_service_free(service: *mut moe_service);
}

#[cfg(all(test, target_pointer_width = "64"))]
macro_rules! layout {
    ($name:ident, $size:literal, { $($field:ident: $offset:literal,)* }) => {
        assert_eq!(std::mem::size_of::<$name>(), $size, stringify!($name));
        let place = std::mem::MaybeUninit::<$name>::uninit();
        let base = place.as_ptr();
        // SAFETY: takes addresses and reads nothing.
        $(let at = unsafe { std::ptr::addr_of!((*base).$field) } as usize - base as usize;
        assert_eq!(at, $offset, concat!(stringify!($name), ".", stringify!($field)));)*
    };
}

/// Sizes and offsets as the C compiler has them on 64-bit machines.
#[cfg(all(test, target_pointer_width = "64"))]
#[test]
fn structs_are_those_of_c() {
    layout!(moe_error, 404, {
        code: 0,
        text: 4,
    });
    layout!(moe_allocator, 32, {
        struct_size: 0,
        allocate: 8,
        deallocate: 16,
        user: 24,
    });
    layout!(moe_env_params, 72, {
        struct_size: 0,
        threads: 4,
        isa: 8,
        device: 16,
        allocator: 24,
        log: 32,
        log_user: 40,
        gpu_memory_bytes: 48,
        clock: 56,
        clock_user: 64,
    });
    layout!(moe_env_info, 24, {
        struct_size: 0,
        threads: 4,
        device: 8,
        isa: 16,
    });
    layout!(moe_model_params, 40, {
        struct_size: 0,
        map_weights: 4,
        skip_checksums: 8,
        reserved: 12,
        memory_bytes: 16,
        session: 24,
        io: 32,
        lazy_experts: 36,
    });
    layout!(moe_reader, 32, {
        struct_size: 0,
        size: 8,
        read: 16,
        user: 24,
    });
    layout!(moe_model_info, 176, {
        struct_size: 0,
        vocab_size: 4,
        d_model: 8,
        n_layers: 12,
        n_moe_layers: 16,
        context_length: 20,
        bos_token: 24,
        n_eos_tokens: 28,
        eos_tokens: 32,
        name: 40,
        n_parameters: 48,
        n_active_parameters: 56,
        weight_bytes: 64,
        bytes_per_token: 72,
        file_bytes: 80,
        head: 88,
        n_outputs: 96,
        is_encoder: 100,
        mask_token: 104,
        reserved: 108,
        is_encoder_decoder: 112,
        n_encoder_layers: 116,
        source_length: 120,
        start_token: 124,
        pooling: 128,
        normalized: 136,
        vector_tokens: 140,
        n_prompts: 144,
        default_prompt: 148,
        file_hash: 152,
        device: 160,
        n_predictions: 168,
        reserved2: 172,
    });
    layout!(moe_model_layer_info, 88, {
        struct_size: 0,
        n_heads: 4,
        n_kv_heads: 8,
        head_dim: 12,
        window: 16,
        d_ff: 20,
        n_experts: 24,
        n_active: 28,
        n_subheads: 32,
        shared_d_ff: 36,
        activation: 40,
        n_sublayers: 48,
        has_head: 52,
        has_merge: 56,
        n_cross_heads: 60,
        kv_latent: 64,
        mixer: 72,
        state_bytes: 80,
    });
    layout!(moe_router, 80, {
        struct_size: 0,
        k: 4,
        kind: 8,
        weights: 16,
        gate: 24,
        threshold: 32,
        min_k: 36,
        max_k: 40,
        scale: 44,
        n_groups: 48,
        top_groups: 52,
        tau: 56,
        cosine_eps: 60,
        jitter: 64,
        gamma: 68,
        min_capacity: 72,
        resident: 76,
    });
    layout!(moe_tensor_info, 88, {
        struct_size: 0,
        layer: 4,
        expert: 8,
        rows: 12,
        cols: 16,
        part: 24,
        role: 32,
        format: 40,
        scale: 48,
        activations: 56,
        codec: 64,
        bytes: 72,
        file_offset: 80,
    });
    layout!(moe_memory_line, 16, {
        what: 0,
        bytes: 8,
    });
    layout!(moe_memory_plan, 64, {
        struct_size: 0,
        chunk: 4,
        cap_bytes: 8,
        needed_bytes: 16,
        least_bytes: 24,
        expert_bytes: 32,
        n_experts: 40,
        n_in_memory: 48,
        session_bytes: 56,
    });
    layout!(moe_memory_info, 32, {
        struct_size: 0,
        reserved: 4,
        total_bytes: 8,
        available_bytes: 16,
        budget_bytes: 24,
    });
    layout!(moe_token_pair, 32, {
        struct_size: 0,
        n_tokens: 8,
        second: 16,
        n_cut: 24,
    });
    layout!(moe_session_params, 20, {
        struct_size: 0,
        context: 4,
        chunk: 8,
        kv: 12,
        max_beam: 16,
    });
    layout!(moe_encode_params, 64, {
        struct_size: 0,
        pooling: 4,
        hidden: 8,
        pooled: 16,
        outputs: 24,
        rows: 32,
        n_rows: 40,
        normalize: 48,
        reserved: 52,
        second: 56,
    });
    layout!(moe_translate_params, 64, {
        struct_size: 0,
        beam: 4,
        n_best: 8,
        min_tokens: 12,
        max_tokens: 16,
        length_penalty: 20,
        score: 24,
        stop: 28,
        prefix: 32,
        n_prefix: 40,
        progress: 48,
        progress_user: 56,
    });
    layout!(moe_translation, 24, {
        struct_size: 0,
        score: 4,
        tokens: 8,
        n_tokens: 16,
    });
    layout!(moe_writer, 24, {
        struct_size: 0,
        write: 8,
        user: 16,
    });
    layout!(moe_perplexity, 32, {
        struct_size: 0,
        reserved: 4,
        n_scored: 8,
        mean_nll: 16,
        perplexity: 24,
    });
    layout!(moe_routing_stats, 72, {
        struct_size: 0,
        n_experts: 4,
        n_tokens: 8,
        n_dropped: 16,
        n_activations: 24,
        n_positive: 32,
        tokens_per_expert: 40,
        experts_per_token: 48,
        n_skipped: 56,
        skipped_probability: 64,
    });
    layout!(moe_activation_stats, 24, {
        struct_size: 0,
        reserved: 4,
        n_activations: 8,
        n_positive: 16,
    });
    layout!(moe_routing_choices, 72, {
        struct_size: 0,
        layer: 4,
        position: 8,
        n_tokens: 12,
        n_slots: 16,
        counts: 24,
        experts: 32,
        weights: 40,
        hidden: 48,
        scores: 56,
        d: 64,
        n_experts: 68,
    });
    layout!(moe_expert_stats, 32, {
        n_uses: 0,
        n_hits: 8,
        read_bytes: 16,
        wait_seconds: 24,
    });
    layout!(moe_memory_stats, 120, {
        struct_size: 0,
        reserved: 4,
        session: 8,
        model: 40,
        cap_bytes: 72,
        counted_bytes: 80,
        peak_bytes: 88,
        arena_bytes: 96,
        expert_bytes: 104,
        filled_bytes: 112,
    });
    layout!(moe_logit_bias, 8, {
        token: 0,
        bias: 4,
    });
    layout!(moe_sampling, 48, {
        struct_size: 0,
        temperature: 4,
        top_k: 8,
        top_p: 12,
        min_p: 16,
        repetition_penalty: 20,
        repetition_window: 24,
        n_bias: 28,
        seed: 32,
        bias: 40,
    });
    layout!(moe_token_logprob, 8, {
        token: 0,
        logprob: 4,
    });
    layout!(moe_piece, 48, {
        struct_size: 0,
        token: 4,
        logprob: 8,
        flags: 12,
        text: 16,
        n_bytes: 24,
        top: 32,
        n_top: 40,
    });
    layout!(moe_generate_params, 80, {
        struct_size: 0,
        max_tokens: 4,
        sampling: 8,
        stop: 16,
        n_stop: 24,
        ignore_eos: 28,
        n_top: 32,
        max_draft: 36,
        piece: 40,
        piece_user: 48,
        logits: 56,
        logits_user: 64,
        grammar: 72,
    });
    layout!(moe_generate_result, 40, {
        struct_size: 0,
        finish: 4,
        n_prompt: 8,
        n_generated: 12,
        prompt_seconds: 16,
        generate_seconds: 24,
        n_drafted: 32,
        n_accepted: 36,
    });
    layout!(moe_chat_params, 48, {
        struct_size: 0,
        thinking: 4,
        chat_template: 8,
        system: 16,
        variables: 24,
        n_variables: 32,
        reserved: 36,
        date: 40,
    });
    layout!(moe_chat_message, 56, {
        struct_size: 0,
        reserved: 4,
        role: 8,
        content: 16,
        n_bytes: 24,
        thinking: 32,
        n_thinking_bytes: 40,
        members: 48,
    });
    layout!(moe_chat_result, 56, {
        struct_size: 0,
        finish: 4,
        n_prompt: 8,
        n_reused: 12,
        n_generated: 16,
        n_thinking: 20,
        prompt_seconds: 24,
        generate_seconds: 32,
        n_drafted: 40,
        n_accepted: 44,
        n_tool_calls: 48,
        reserved: 52,
    });
    layout!(moe_expert_weights, 56, {
        struct_size: 0,
        gate: 8,
        up: 16,
        down: 24,
        gate_bias: 32,
        up_bias: 40,
        down_bias: 48,
    });
    layout!(moe_layer_params, 144, {
        struct_size: 0,
        d_model: 4,
        d_ff: 8,
        n_experts: 12,
        n_subheads: 16,
        max_rows: 20,
        activation: 24,
        router: 32,
        weights: 40,
        activations: 48,
        experts: 56,
        router_weight: 64,
        router_bias: 72,
        router_proj: 80,
        d_e: 88,
        shared_d_ff: 92,
        shared: 96,
        shared_gate: 104,
        head: 112,
        head_bias: 120,
        merge: 128,
        merge_bias: 136,
    });
    layout!(moe_convert_params, 152, {
        struct_size: 0,
        compress: 4,
        weights: 8,
        overrides: 16,
        n_overrides: 24,
        verify: 28,
        progress: 32,
        progress_user: 40,
        report: 48,
        report_user: 56,
        ignored_keys: 64,
        n_ignored_keys: 72,
        n_threads: 76,
        calibration: 80,
        n_calibration: 88,
        split_ffn: 96,
        split_by_clusters: 100,
        statistics: 104,
        save_statistics: 112,
        allow_zeros: 120,
        i2_s_arm: 124,
        most_bytes: 128,
        most_bits: 136,
        no_predictions: 144,
        reserved: 148,
    });
    layout!(moe_synthetic_params, 48, {
        struct_size: 0,
        context: 4,
        weights: 8,
        seed: 16,
        progress: 24,
        progress_user: 32,
        outline: 40,
        reserved: 44,
    });
    layout!(moe_service_params, 104, {
        struct_size: 0,
        n_slots: 4,
        session: 8,
        router: 16,
        name: 24,
        chat_template: 32,
        max_waiting: 40,
        max_prompt: 44,
        slice: 48,
        max_seconds: 52,
        no_reuse: 56,
        cache_folder: 64,
        cache_bytes: 72,
        receipt: 80,
        receipt_user: 88,
        max_draft: 96,
        reserved: 100,
    });
    layout!(moe_service_event, 40, {
        struct_size: 0,
        status: 4,
        json: 8,
        n_bytes: 16,
        last: 24,
        retry_after: 28,
        name: 32,
    });
    layout!(moe_service_ticket, 16, {
        struct_size: 0,
        stream: 4,
        id: 8,
    });
    layout!(moe_service_stats, 192, {
        struct_size: 0,
        n_slots: 4,
        context: 8,
        n_running: 12,
        n_waiting: 16,
        draining: 20,
        kv_positions: 24,
        n_requests: 32,
        n_refused: 40,
        n_answered: 48,
        n_cancelled: 56,
        n_failed: 64,
        prompt_tokens: 72,
        generated_tokens: 80,
        n_steps: 88,
        n_first_tokens: 96,
        first_token_seconds: 104,
        step_seconds: 112,
        cap_bytes: 120,
        counted_bytes: 128,
        peak_bytes: 136,
        expert_uses: 144,
        expert_hits: 152,
        expert_read_bytes: 160,
        reused_tokens: 168,
        cache_bytes: 176,
        cache_errors: 184,
    });
}
