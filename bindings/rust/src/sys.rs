// SPDX-License-Identifier: MIT
//! The C API as `moe_c.h` declares it, name by name; the header is its manual.
//! `tests/house/bindings_test.py` compares the two.
#![allow(non_camel_case_types, dead_code)]

use std::os::raw::{c_char, c_int, c_void};

pub const MOE_ERROR_TEXT_BYTES: usize = 400;
pub const MOE_VERSION_MAJOR: u32 = 0;
pub const MOE_VERSION_MINOR: u32 = 1;
pub const MOE_VERSION_PATCH: u32 = 0;

pub type moe_status = c_int;
pub const MOE_OK: moe_status = 0;
pub const MOE_ERR_ARGUMENT: moe_status = 1;
pub const MOE_ERR_RANGE: moe_status = 2;
pub const MOE_ERR_SHAPE: moe_status = 3;
pub const MOE_ERR_NON_FINITE: moe_status = 4;
pub const MOE_ERR_STATE: moe_status = 5;
pub const MOE_ERR_TOO_LONG: moe_status = 6;
pub const MOE_ERR_UNSUPPORTED: moe_status = 7;
pub const MOE_ERR_IO: moe_status = 20;
pub const MOE_ERR_NOT_FOUND: moe_status = 21;
pub const MOE_ERR_FORMAT: moe_status = 22;
pub const MOE_ERR_VERSION: moe_status = 23;
pub const MOE_ERR_CORRUPT: moe_status = 24;
pub const MOE_ERR_TEXT: moe_status = 25;
pub const MOE_ERR_MEMORY: moe_status = 40;
pub const MOE_ERR_BUDGET: moe_status = 41;
pub const MOE_ERR_DEVICE: moe_status = 42;
pub const MOE_ERR_CANCELLED: moe_status = 43;
pub const MOE_ERR_INTERNAL: moe_status = 60;

pub type moe_log_level = c_int;
pub const MOE_LOG_ERROR: moe_log_level = 1;
pub const MOE_LOG_WARNING: moe_log_level = 2;
pub const MOE_LOG_INFO: moe_log_level = 3;
pub const MOE_LOG_DEBUG: moe_log_level = 4;

pub type moe_io = c_int;
pub const MOE_IO_AUTO: moe_io = 0;
pub const MOE_IO_DIRECT: moe_io = 1;
pub const MOE_IO_BUFFERED: moe_io = 2;

pub type moe_kv_type = c_int;
pub const MOE_KV_DEFAULT: moe_kv_type = 0;
pub const MOE_KV_F16: moe_kv_type = 1;
pub const MOE_KV_INT8: moe_kv_type = 2;
pub const MOE_KV_F32: moe_kv_type = 3;
pub const MOE_KV_LATENT: moe_kv_type = 4;

pub type moe_beam_stop = c_int;
pub const MOE_BEAM_STOP_COUNT: moe_beam_stop = 0;
pub const MOE_BEAM_STOP_BOUND: moe_beam_stop = 1;
pub const MOE_BEAM_STOP_STEP: moe_beam_stop = 2;

pub type moe_pooling = c_int;
pub const MOE_POOL_MEAN: moe_pooling = 0;
pub const MOE_POOL_FIRST: moe_pooling = 1;
pub const MOE_POOL_LAST: moe_pooling = 2;
pub const MOE_POOL_MODEL: moe_pooling = 3;

pub type moe_normalize = c_int;
pub const MOE_NORMALIZE_OFF: moe_normalize = 0;
pub const MOE_NORMALIZE_ON: moe_normalize = 1;
pub const MOE_NORMALIZE_MODEL: moe_normalize = 2;

pub type moe_finish = c_int;
pub const MOE_FINISH_LENGTH: moe_finish = 1;
pub const MOE_FINISH_EOS: moe_finish = 2;
pub const MOE_FINISH_STOP: moe_finish = 3;
pub const MOE_FINISH_CONTEXT: moe_finish = 4;
pub const MOE_FINISH_CALLBACK: moe_finish = 5;

pub type moe_thinking = c_int;
pub const MOE_THINKING_DEFAULT: moe_thinking = 0;
pub const MOE_THINKING_ON: moe_thinking = 1;
pub const MOE_THINKING_OFF: moe_thinking = 2;

pub const MOE_ENCODE_NO_SPECIAL: u32 = 1;
pub const MOE_ENCODE_PARSE_SPECIAL: u32 = 2;
pub const MOE_DECODE_SKIP_SPECIAL: u32 = 1;
pub const MOE_PIECE_THINKING: u32 = 1;

pub type moe_log_fn = Option<unsafe extern "C" fn(*mut c_void, moe_log_level, *const c_char)>;
pub type moe_progress_fn =
    Option<unsafe extern "C" fn(*mut c_void, u64, u64, *const c_char) -> bool>;
pub type moe_routing_fn = Option<unsafe extern "C" fn(*mut c_void, *mut moe_routing_choices)>;
pub type moe_logits_fn =
    Option<unsafe extern "C" fn(*mut c_void, *const i32, usize, *mut f32, usize) -> bool>;
pub type moe_piece_fn = Option<unsafe extern "C" fn(*mut c_void, *const moe_piece) -> bool>;

#[repr(C)]
pub struct moe_env {
    _private: [u8; 0],
}

#[repr(C)]
pub struct moe_model {
    _private: [u8; 0],
}

#[repr(C)]
pub struct moe_tokenizer {
    _private: [u8; 0],
}

#[repr(C)]
pub struct moe_session {
    _private: [u8; 0],
}

#[repr(C)]
pub struct moe_chat {
    _private: [u8; 0],
}

#[repr(C)]
pub struct moe_replacement {
    _private: [u8; 0],
}

#[repr(C)]
pub struct moe_layer {
    _private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_error {
    pub code: moe_status,
    pub text: [c_char; MOE_ERROR_TEXT_BYTES],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_allocator {
    pub allocate: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    pub deallocate: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize)>,
    pub user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_env_params {
    pub struct_size: u32,
    pub threads: i32,
    pub isa: *const c_char,
    pub device: *const c_char,
    pub allocator: *const moe_allocator,
    pub log: moe_log_fn,
    pub log_user: *mut c_void,
    pub gpu_memory_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_env_info {
    pub struct_size: u32,
    pub threads: i32,
    pub device: *const c_char,
    pub isa: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_model_params {
    pub struct_size: u32,
    pub map_weights: i32,
    pub skip_checksums: i32,
    pub reserved: i32,
    pub memory_bytes: u64,
    pub session: *const moe_session_params,
    pub io: moe_io,
    pub lazy_experts: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_reader {
    pub size: u64,
    pub read: Option<unsafe extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> c_int>,
    pub user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_writer {
    pub write: Option<unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int>,
    pub user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_model_info {
    pub struct_size: u32,
    pub vocab_size: i32,
    pub d_model: i32,
    pub n_layers: i32,
    pub n_moe_layers: i32,
    pub context_length: i32,
    pub bos_token: i32,
    pub n_eos_tokens: i32,
    pub eos_tokens: *const i32,
    pub name: *const c_char,
    pub n_parameters: u64,
    pub n_active_parameters: u64,
    pub weight_bytes: u64,
    pub bytes_per_token: u64,
    pub file_bytes: u64,
    pub head: *const c_char,
    pub n_outputs: i32,
    pub is_encoder: i32,
    pub mask_token: i32,
    pub reserved: i32,
    pub is_encoder_decoder: i32,
    pub n_encoder_layers: i32,
    pub source_length: i32,
    pub start_token: i32,
    pub pooling: *const c_char,
    pub normalized: i32,
    pub vector_tokens: i32,
    pub n_prompts: i32,
    pub default_prompt: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_model_layer_info {
    pub struct_size: u32,
    pub n_heads: i32,
    pub n_kv_heads: i32,
    pub head_dim: i32,
    pub window: i32,
    pub d_ff: i32,
    pub n_experts: i32,
    pub n_active: i32,
    pub n_subheads: i32,
    pub shared_d_ff: i32,
    pub router: *const c_char,
    pub activation: *const c_char,
    pub n_sublayers: i32,
    pub k: i32,
    pub threshold: f32,
    pub tau: f32,
    pub gamma: f32,
    pub reserved: i32,
    pub gate: *const c_char,
    pub has_head: i32,
    pub has_merge: i32,
    pub n_cross_heads: i32,
    pub kv_latent: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_tensor_info {
    pub struct_size: u32,
    pub layer: i32,
    pub expert: i32,
    pub rows: i32,
    pub cols: i32,
    pub part: *const c_char,
    pub role: *const c_char,
    pub format: *const c_char,
    pub scale: *const c_char,
    pub activations: *const c_char,
    pub codec: *const c_char,
    pub bytes: u64,
    pub file_offset: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_memory_line {
    pub what: *const c_char,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_memory_plan {
    pub struct_size: u32,
    pub chunk: i32,
    pub cap_bytes: u64,
    pub needed_bytes: u64,
    pub least_bytes: u64,
    pub expert_bytes: u64,
    pub n_experts: u64,
    pub n_in_memory: u64,
    pub session_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_memory_info {
    pub struct_size: u32,
    pub reserved: u32,
    pub total_bytes: u64,
    pub available_bytes: u64,
    pub budget_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_session_params {
    pub struct_size: u32,
    pub context: i32,
    pub chunk: i32,
    pub kv: moe_kv_type,
    pub max_beam: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_translate_params {
    pub struct_size: u32,
    pub beam: i32,
    pub n_best: i32,
    pub min_tokens: i32,
    pub max_tokens: i32,
    pub length_penalty: f32,
    pub no_length_penalty: i32,
    pub stop: moe_beam_stop,
    pub prefix: *const i32,
    pub n_prefix: usize,
    pub progress: moe_progress_fn,
    pub user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_translation {
    pub tokens: *const i32,
    pub n_tokens: usize,
    pub score: f32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_translate_result {
    pub struct_size: u32,
    pub reserved: u32,
    pub texts: *const moe_translation,
    pub n_texts: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_encode_params {
    pub struct_size: u32,
    pub pooling: moe_pooling,
    pub hidden: *mut f32,
    pub pooled: *mut f32,
    pub outputs: *mut f32,
    pub rows: *const i32,
    pub n_rows: usize,
    pub normalize: moe_normalize,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_perplexity {
    pub struct_size: u32,
    pub reserved: u32,
    pub n_scored: u64,
    pub mean_nll: f64,
    pub perplexity: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_routing_stats {
    pub struct_size: u32,
    pub n_experts: i32,
    pub n_tokens: u64,
    pub n_dropped: u64,
    pub n_activations: u64,
    pub n_positive: u64,
    pub tokens_per_expert: *const u64,
    pub experts_per_token: *const u64,
    pub n_skipped: u64,
    pub skipped_probability: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_activation_stats {
    pub struct_size: u32,
    pub reserved: u32,
    pub n_activations: u64,
    pub n_positive: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_routing_choices {
    pub layer: i32,
    pub position: i32,
    pub n_tokens: i32,
    pub n_slots: i32,
    pub counts: *mut i32,
    pub experts: *mut i32,
    pub weights: *mut f32,
    pub hidden: *const f32,
    pub scores: *const f32,
    pub d: i32,
    pub n_experts: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_expert_stats {
    pub n_uses: u64,
    pub n_hits: u64,
    pub read_bytes: u64,
    pub wait_seconds: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_memory_stats {
    pub struct_size: u32,
    pub reserved: u32,
    pub session: moe_expert_stats,
    pub model: moe_expert_stats,
    pub cap_bytes: u64,
    pub counted_bytes: u64,
    pub peak_bytes: u64,
    pub arena_bytes: u64,
    pub expert_bytes: u64,
    pub filled_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct moe_logit_bias {
    pub token: i32,
    pub bias: f32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_sampling {
    pub struct_size: u32,
    pub temperature: f32,
    pub top_k: i32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub repetition_window: i32,
    pub n_bias: i32,
    pub seed: u64,
    pub bias: *const moe_logit_bias,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct moe_token_logprob {
    pub token: i32,
    pub logprob: f32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_piece {
    pub token: i32,
    pub logprob: f32,
    pub text: *const c_char,
    pub n_bytes: usize,
    pub top: *const moe_token_logprob,
    pub n_top: usize,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_generate_params {
    pub struct_size: u32,
    pub max_tokens: i32,
    pub sampling: *const moe_sampling,
    pub stop: *const *const c_char,
    pub n_stop: i32,
    pub ignore_eos: i32,
    pub n_top: i32,
    pub max_draft: i32,
    pub callback: moe_piece_fn,
    pub user: *mut c_void,
    pub logits_callback: moe_logits_fn,
    pub logits_user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_generate_result {
    pub struct_size: u32,
    pub finish: moe_finish,
    pub n_prompt: i32,
    pub n_generated: i32,
    pub prompt_seconds: f64,
    pub generate_seconds: f64,
    pub n_drafted: i32,
    pub n_accepted: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_chat_params {
    pub struct_size: u32,
    pub thinking: moe_thinking,
    pub chat_template: *const c_char,
    pub system: *const c_char,
    pub variables: *const *const c_char,
    pub n_variables: i32,
    pub reserved: i32,
    pub date: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_chat_message {
    pub struct_size: u32,
    pub reserved: u32,
    pub role: *const c_char,
    pub content: *const c_char,
    pub n_bytes: usize,
    pub thinking: *const c_char,
    pub n_thinking_bytes: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_chat_result {
    pub struct_size: u32,
    pub finish: moe_finish,
    pub n_prompt: i32,
    pub n_reused: i32,
    pub n_generated: i32,
    pub n_thinking: i32,
    pub prompt_seconds: f64,
    pub generate_seconds: f64,
    pub n_drafted: i32,
    pub n_accepted: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_expert_weights {
    pub gate: *const f32,
    pub up: *const f32,
    pub down: *const f32,
    pub gate_bias: *const f32,
    pub up_bias: *const f32,
    pub down_bias: *const f32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_layer_params {
    pub struct_size: u32,
    pub d_model: i32,
    pub d_ff: i32,
    pub n_experts: i32,
    pub n_subheads: i32,
    pub max_rows: i32,
    pub activation: *const c_char,
    pub router: *const c_char,
    pub weights: *const c_char,
    pub activations: *const c_char,
    pub experts: *const moe_expert_weights,
    pub router_weight: *const f32,
    pub router_bias: *const f32,
    pub router_proj: *const f32,
    pub d_e: i32,
    pub shared_d_ff: i32,
    pub shared: *const moe_expert_weights,
    pub shared_gate: *const f32,
    pub head: *const f32,
    pub head_bias: *const f32,
    pub merge: *const f32,
    pub merge_bias: *const f32,
}

extern "C" {
    pub fn moe_status_name(status: moe_status) -> *const c_char;
    pub fn moe_version() -> u32;
    pub fn moe_version_string() -> *const c_char;
    pub fn moe_env_create(
        params: *const moe_env_params,
        out: *mut *mut moe_env,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_env_free(env: *mut moe_env);
    pub fn moe_env_get_info(
        env: *const moe_env,
        out: *mut moe_env_info,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_env_isas() -> *const c_char;
    pub fn moe_weight_formats() -> *const c_char;
    pub fn moe_session_routers() -> *const c_char;
    pub fn moe_model_open(
        env: *mut moe_env,
        path: *const c_char,
        params: *const moe_model_params,
        out: *mut *mut moe_model,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_open_memory(
        env: *mut moe_env,
        data: *const c_void,
        size: usize,
        params: *const moe_model_params,
        out: *mut *mut moe_model,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_open_reader(
        env: *mut moe_env,
        reader: *const moe_reader,
        params: *const moe_model_params,
        out: *mut *mut moe_model,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_free(model: *mut moe_model);
    pub fn moe_model_get_info(
        model: *const moe_model,
        out: *mut moe_model_info,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_get_prompt(
        model: *const moe_model,
        index: i32,
        name: *mut *const c_char,
        text: *mut *const c_char,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_get_layer_info(
        model: *const moe_model,
        layer: i32,
        out: *mut moe_model_layer_info,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_tensor_count(model: *const moe_model) -> usize;
    pub fn moe_model_get_tensor_info(
        model: *const moe_model,
        index: usize,
        out: *mut moe_tensor_info,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_get_memory(
        model: *const moe_model,
        params: *const moe_session_params,
        lines: *mut moe_memory_line,
        capacity: usize,
        n_lines: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_get_memory_plan(
        model: *const moe_model,
        params: *const moe_session_params,
        out: *mut moe_memory_plan,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_get_memory_info(out: *mut moe_memory_info, error: *mut moe_error) -> moe_status;
    pub fn moe_model_suggest_memory(
        model: *const moe_model,
        params: *const moe_session_params,
        memory_bytes: *mut u64,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_verify(model: *mut moe_model, error: *mut moe_error) -> moe_status;
    pub fn moe_model_tokenizer(model: *const moe_model) -> *const moe_tokenizer;
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
    pub fn moe_tokenizer_piece(tokenizer: *const moe_tokenizer, token: i32) -> *const c_char;
    pub fn moe_session_create(
        model: *mut moe_model,
        params: *const moe_session_params,
        out: *mut *mut moe_session,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_free(session: *mut moe_session);
    pub fn moe_session_eval(
        session: *mut moe_session,
        tokens: *const i32,
        n_tokens: usize,
        logits: *mut f32,
        n_rows: usize,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_score(
        session: *mut moe_session,
        tokens: *const i32,
        n_tokens: usize,
        logprobs: *mut f32,
        n_logprobs: usize,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_sessions_step(
        sessions: *const *mut moe_session,
        tokens: *const i32,
        n: usize,
        logits: *mut f32,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_sessions_eval(
        sessions: *const *mut moe_session,
        tokens: *const i32,
        n_tokens: *const usize,
        n: usize,
        logits: *mut f32,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_encode(
        session: *mut moe_session,
        tokens: *const i32,
        n_tokens: usize,
        params: *const moe_encode_params,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_translate(
        session: *mut moe_session,
        source: *const i32,
        n_source: usize,
        params: *const moe_translate_params,
        out: *mut moe_translate_result,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_read_source(
        session: *mut moe_session,
        source: *const i32,
        n_source: usize,
        hidden: *mut f32,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_position(session: *const moe_session) -> i32;
    pub fn moe_session_context(session: *const moe_session) -> i32;
    pub fn moe_session_rewind(
        session: *mut moe_session,
        position: i32,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_save(
        session: *mut moe_session,
        writer: *const moe_writer,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_load(
        session: *mut moe_session,
        reader: *const moe_reader,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_fork(
        session: *mut moe_session,
        out: *mut *mut moe_session,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_cancel(session: *mut moe_session);
    pub fn moe_session_perplexity(
        session: *mut moe_session,
        tokens: *const i32,
        n_tokens: usize,
        progress: moe_progress_fn,
        user: *mut c_void,
        out: *mut moe_perplexity,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_set_router(
        session: *mut moe_session,
        router: *const c_char,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_count_routing(
        session: *mut moe_session,
        on: bool,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_get_routing(
        session: *const moe_session,
        layer: i32,
        out: *mut moe_routing_stats,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_get_activations(
        session: *const moe_session,
        layer: i32,
        out: *mut moe_activation_stats,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_watch_routing(
        session: *mut moe_session,
        callback: moe_routing_fn,
        user: *mut c_void,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_get_memory_stats(
        session: *const moe_session,
        out: *mut moe_memory_stats,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_get_sampling(
        model: *const moe_model,
        out: *mut moe_sampling,
        in_file: *mut bool,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_sample(
        session: *mut moe_session,
        sampling: *const moe_sampling,
        out: *mut moe_token_logprob,
        top: *mut moe_token_logprob,
        n_top: usize,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_session_generate(
        session: *mut moe_session,
        prompt: *const i32,
        n_prompt: usize,
        params: *const moe_generate_params,
        out: *mut moe_generate_result,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_model_chat_template(model: *const moe_model) -> *const c_char;
    pub fn moe_chat_template_names() -> *const c_char;
    pub fn moe_chat_create(
        session: *mut moe_session,
        params: *const moe_chat_params,
        out: *mut *mut moe_chat,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_chat_free(chat: *mut moe_chat);
    pub fn moe_chat_set_session(
        chat: *mut moe_chat,
        session: *mut moe_session,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_chat_add(
        chat: *mut moe_chat,
        role: *const c_char,
        content: *const c_char,
        n_bytes: usize,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_chat_truncate(
        chat: *mut moe_chat,
        n_messages: usize,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_chat_remove_oldest(
        chat: *mut moe_chat,
        max_tokens: usize,
        n_removed: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_chat_set_system(
        chat: *mut moe_chat,
        system: *const c_char,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_chat_message_count(chat: *const moe_chat) -> usize;
    pub fn moe_chat_get_message(
        chat: *const moe_chat,
        index: usize,
        out: *mut moe_chat_message,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_chat_render(
        chat: *const moe_chat,
        begin_reply: bool,
        text: *mut c_char,
        capacity: usize,
        n_bytes: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_chat_tokens(
        chat: *const moe_chat,
        begin_reply: bool,
        tokens: *mut i32,
        capacity: usize,
        n_tokens: *mut usize,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_chat_reply(
        chat: *mut moe_chat,
        params: *const moe_generate_params,
        out: *mut moe_chat_result,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_layer_create(
        env: *mut moe_env,
        params: *const moe_layer_params,
        out: *mut *mut moe_layer,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_layer_free(layer: *mut moe_layer);
    pub fn moe_layer_forward(
        layer: *mut moe_layer,
        x: *const f32,
        n: usize,
        y: *mut f32,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_replacement_open(
        path: *const c_char,
        out: *mut *mut moe_replacement,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_replacement_begin(
        replacement: *mut moe_replacement,
        file: *mut c_int,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_replacement_commit(
        replacement: *mut moe_replacement,
        error: *mut moe_error,
    ) -> moe_status;
    pub fn moe_replacement_free(replacement: *mut moe_replacement);
}
