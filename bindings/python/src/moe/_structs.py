# Generated from include/moe_c.h by bindings/generate.py; do not edit.
# SPDX-License-Identifier: MIT

"""The structs and callbacks of moe_c.h, field by field."""

from __future__ import annotations

import ctypes as c

from ._sized import Sized


class Error(c.Structure):
    """moe_error. Receives a call's error message. Owned by the caller; may be NULL. Unchanged on
    success.
    """

    _fields_ = [
        ("code", c.c_int),
        ("text", c.c_char * 400),
    ]


AllocateFn = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t)


DeallocateFn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_size_t)


class Allocator(Sized):
    """moe_allocator. The caller's allocator. `allocate` returns NULL on failure; `align` is a
    power of two. `deallocate` receives the size that was requested. Called from any thread
    that calls the library. On Linux the library may advise the kernel to use large pages for
    blocks that hold weights.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("allocate", AllocateFn),
        ("deallocate", DeallocateFn),
        ("user", c.c_void_p),
    ]


LogFn = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)


ClockFn = c.CFUNCTYPE(c.c_uint64, c.c_void_p)


class EnvParams(Sized):
    """moe_env_params. The options of an environment."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("threads", c.c_int32),
        ("isa", c.c_char_p),
        ("device", c.c_char_p),
        ("allocator", c.POINTER(Allocator)),
        ("log", LogFn),
        ("log_user", c.c_void_p),
        ("gpu_memory_bytes", c.c_uint64),
        ("clock", ClockFn),
        ("clock_user", c.c_void_p),
    ]


class EnvInfo(Sized):
    """moe_env_info. The device, threads and instruction set of an environment."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("threads", c.c_int32),
        ("device", c.c_char_p),
        ("isa", c.c_char_p),
    ]


class SessionParams(Sized):
    """moe_session_params. The options of a session: how much text it has room for, and how it
    keeps it.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("context", c.c_int32),
        ("chunk", c.c_int32),
        ("kv", c.c_int),
        ("max_beam", c.c_int32),
    ]


class ModelParams(Sized):
    """moe_model_params. How a model is opened."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("map_weights", c.c_int32),
        ("skip_checksums", c.c_int32),
        ("reserved", c.c_int32),
        ("memory_bytes", c.c_uint64),
        ("session", c.POINTER(SessionParams)),
        ("io", c.c_int),
        ("lazy_experts", c.c_int32),
    ]


ReadFn = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_uint64, c.c_void_p, c.c_size_t)


class Reader(Sized):
    """moe_reader. Source of bytes that are neither a file nor in memory. `read` reads exactly
    `bytes` bytes at `offset`, or returns false. A model calls it from any thread, also after
    the open call has returned.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("size", c.c_uint64),
        ("read", ReadFn),
        ("user", c.c_void_p),
    ]


class ModelInfo(Sized):
    """moe_model_info. A description of a model, as its file has it."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("vocab_size", c.c_int32),
        ("d_model", c.c_int32),
        ("n_layers", c.c_int32),
        ("n_moe_layers", c.c_int32),
        ("context_length", c.c_int32),
        ("bos_token", c.c_int32),
        ("n_eos_tokens", c.c_int32),
        ("eos_tokens", c.POINTER(c.c_int32)),
        ("name", c.c_char_p),
        ("n_parameters", c.c_uint64),
        ("n_active_parameters", c.c_uint64),
        ("weight_bytes", c.c_uint64),
        ("bytes_per_token", c.c_uint64),
        ("file_bytes", c.c_uint64),
        ("head", c.c_char_p),
        ("n_outputs", c.c_int32),
        ("is_encoder", c.c_int32),
        ("mask_token", c.c_int32),
        ("reserved", c.c_int32),
        ("is_encoder_decoder", c.c_int32),
        ("n_encoder_layers", c.c_int32),
        ("source_length", c.c_int32),
        ("start_token", c.c_int32),
        ("pooling", c.c_char_p),
        ("normalized", c.c_int32),
        ("vector_tokens", c.c_int32),
        ("n_prompts", c.c_int32),
        ("default_prompt", c.c_int32),
        ("file_hash", c.c_uint64),
        ("device", c.c_char_p),
        ("n_predictions", c.c_int32),
        ("reserved2", c.c_int32),
    ]


class ModelLayerInfo(Sized):
    """moe_model_layer_info. The shape of one layer; moe_model_get_router describes its router."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("n_heads", c.c_int32),
        ("n_kv_heads", c.c_int32),
        ("head_dim", c.c_int32),
        ("window", c.c_int32),
        ("d_ff", c.c_int32),
        ("n_experts", c.c_int32),
        ("n_active", c.c_int32),
        ("n_subheads", c.c_int32),
        ("shared_d_ff", c.c_int32),
        ("activation", c.c_char_p),
        ("n_sublayers", c.c_int32),
        ("has_head", c.c_int32),
        ("has_merge", c.c_int32),
        ("n_cross_heads", c.c_int32),
        ("kv_latent", c.c_int32),
        ("mixer", c.c_char_p),
        ("state_bytes", c.c_uint64),
    ]


class Router(Sized):
    """moe_router. How a layer selects experts for a (sub-)token, and how it weighs them: as a
    model file says (moe_model_get_router), in place of that in a session
    (moe_session_set_router), or in a layer of its own (moe_layer_params). A router whose
    softmax or sigmoid p is over all experts weighs a selected one by p.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("k", c.c_int32),
        ("kind", c.c_char_p),
        ("weights", c.c_char_p),
        ("gate", c.c_char_p),
        ("threshold", c.c_float),
        ("min_k", c.c_int32),
        ("max_k", c.c_int32),
        ("scale", c.c_float),
        ("n_groups", c.c_int32),
        ("top_groups", c.c_int32),
        ("tau", c.c_float),
        ("cosine_eps", c.c_float),
        ("jitter", c.c_float),
        ("gamma", c.c_float),
        ("min_capacity", c.c_int32),
        ("resident", c.c_float),
    ]


class TensorInfo(Sized):
    """moe_tensor_info. One stored matrix or vector, as the file describes it."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("layer", c.c_int32),
        ("expert", c.c_int32),
        ("rows", c.c_int32),
        ("cols", c.c_int32),
        ("part", c.c_char_p),
        ("role", c.c_char_p),
        ("format", c.c_char_p),
        ("scale", c.c_char_p),
        ("activations", c.c_char_p),
        ("codec", c.c_char_p),
        ("bytes", c.c_uint64),
        ("file_offset", c.c_uint64),
    ]


class MemoryLine(c.Structure):
    """moe_memory_line. One line of the memory account of a model with sessions."""

    _fields_ = [
        ("what", c.c_char_p),
        ("bytes", c.c_uint64),
    ]


class MemoryPlan(Sized):
    """moe_memory_plan. The memory that sessions get under the model's cap."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("chunk", c.c_int32),
        ("cap_bytes", c.c_uint64),
        ("needed_bytes", c.c_uint64),
        ("least_bytes", c.c_uint64),
        ("expert_bytes", c.c_uint64),
        ("n_experts", c.c_uint64),
        ("n_in_memory", c.c_uint64),
        ("session_bytes", c.c_uint64),
    ]


class MemoryInfo(Sized):
    """moe_memory_info. Memory of this machine, or of this process's memory cgroup if that is
    smaller.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        ("total_bytes", c.c_uint64),
        ("available_bytes", c.c_uint64),
        ("budget_bytes", c.c_uint64),
    ]


class TokenPair(Sized):
    """moe_token_pair. Two texts in one sequence, such as a question and a passage."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("n_tokens", c.c_size_t),
        ("second", c.c_size_t),
        ("n_cut", c.c_size_t),
    ]


class EncodeParams(Sized):
    """moe_encode_params. The outputs of moe_session_encode. NULL: not requested."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("pooling", c.c_int),
        ("hidden", c.c_void_p),
        ("pooled", c.c_void_p),
        ("outputs", c.c_void_p),
        ("rows", c.c_void_p),
        ("n_rows", c.c_size_t),
        ("normalize", c.c_int),
        ("reserved", c.c_int32),
        ("second", c.c_size_t),
    ]


ProgressFn = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_uint64, c.c_uint64, c.c_char_p)


class TranslateParams(Sized):
    """moe_translate_params. How a beam search runs. Lengths exclude the end-of-text token."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("beam", c.c_int32),
        ("n_best", c.c_int32),
        ("min_tokens", c.c_int32),
        ("max_tokens", c.c_int32),
        ("length_penalty", c.c_float),
        ("score", c.c_int),
        ("stop", c.c_int),
        ("prefix", c.c_void_p),
        ("n_prefix", c.c_size_t),
        ("progress", ProgressFn),
        ("progress_user", c.c_void_p),
    ]


class Translation(Sized):
    """moe_translation. One text that moe_session_translate found."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("score", c.c_float),
        ("tokens", c.POINTER(c.c_int32)),
        ("n_tokens", c.c_size_t),
    ]


WriteFn = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_void_p, c.c_size_t)


class Writer(Sized):
    """moe_writer. Destination of a saved session: `write` receives its bytes in order, and
    returns false when it fails.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("write", WriteFn),
        ("user", c.c_void_p),
    ]


class Perplexity(Sized):
    """moe_perplexity. How well a model predicts a text."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        ("n_scored", c.c_uint64),
        ("mean_nll", c.c_double),
        ("perplexity", c.c_double),
    ]


class RoutingStats(Sized):
    """moe_routing_stats. The routing counts of one MoE layer."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("n_experts", c.c_int32),
        ("n_tokens", c.c_uint64),
        ("n_dropped", c.c_uint64),
        ("n_activations", c.c_uint64),
        ("n_positive", c.c_uint64),
        ("tokens_per_expert", c.POINTER(c.c_uint64)),
        ("experts_per_token", c.POINTER(c.c_uint64)),
        ("n_skipped", c.c_uint64),
        ("skipped_probability", c.c_double),
    ]


class ActivationStats(Sized):
    """moe_activation_stats. Inner activations of one layer, dense or of experts: act(gate) of a
    gated network, otherwise act(up). One per hidden unit and token, or, with experts, per
    hidden unit and (token, expert) pair; shared experts are not counted.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        ("n_activations", c.c_uint64),
        ("n_positive", c.c_uint64),
    ]


class RoutingChoices(Sized):
    """moe_routing_choices. The routing of one MoE layer for the tokens of one pass."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("layer", c.c_int32),
        ("position", c.c_int32),
        ("n_tokens", c.c_int32),
        ("n_slots", c.c_int32),
        ("counts", c.POINTER(c.c_int32)),
        ("experts", c.POINTER(c.c_int32)),
        ("weights", c.POINTER(c.c_float)),
        ("hidden", c.POINTER(c.c_float)),
        ("scores", c.POINTER(c.c_float)),
        ("d", c.c_int32),
        ("n_experts", c.c_int32),
    ]


class ExpertStats(c.Structure):
    """moe_expert_stats. Expert uses and cache hits. An operation is one MoE layer on one chunk
    of tokens; it uses an expert once, however many tokens selected it. All zero if every
    expert is resident.
    """

    _fields_ = [
        ("n_uses", c.c_uint64),
        ("n_hits", c.c_uint64),
        ("read_bytes", c.c_uint64),
        ("wait_seconds", c.c_double),
    ]


class MemoryStats(Sized):
    """moe_memory_stats. Memory and expert statistics of a model under a cap. The byte counts
    cover the model and all of its sessions; zero without a cap.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        ("session", ExpertStats),
        ("model", ExpertStats),
        ("cap_bytes", c.c_uint64),
        ("counted_bytes", c.c_uint64),
        ("peak_bytes", c.c_uint64),
        ("arena_bytes", c.c_uint64),
        ("expert_bytes", c.c_uint64),
        ("filled_bytes", c.c_uint64),
    ]


class LogitBias(c.Structure):
    """moe_logit_bias. Makes a token more or less probable."""

    _fields_ = [
        ("token", c.c_int32),
        ("bias", c.c_float),
    ]


class Sampling(Sized):
    """moe_sampling. How a token is chosen. Applied in this order: bias, repetition penalty,
    temperature, top-k, top-p, min-p.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("temperature", c.c_float),
        ("top_k", c.c_int32),
        ("top_p", c.c_float),
        ("min_p", c.c_float),
        ("repetition_penalty", c.c_float),
        ("repetition_window", c.c_int32),
        ("n_bias", c.c_int32),
        ("seed", c.c_uint64),
        ("bias", c.POINTER(LogitBias)),
    ]


class TokenLogprob(c.Structure):
    """moe_token_logprob. A token with its probability."""

    _fields_ = [
        ("token", c.c_int32),
        ("logprob", c.c_float),
    ]


class Piece(Sized):
    """moe_piece. A piece of generated text. With a tokenizer `text` holds whole UTF-8
    characters; it may be empty while a character is incomplete. Valid during the callback.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("token", c.c_int32),
        ("logprob", c.c_float),
        ("flags", c.c_uint32),
        ("text", c.c_void_p),
        ("n_bytes", c.c_size_t),
        ("top", c.POINTER(TokenLogprob)),
        ("n_top", c.c_size_t),
    ]


PieceFn = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(Piece))


LogitsFn = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(c.c_int32), c.c_size_t, c.POINTER(c.c_float), c.c_size_t)


class GenerateParams(Sized):
    """moe_generate_params. How text is generated."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("max_tokens", c.c_int32),
        ("sampling", c.POINTER(Sampling)),
        ("stop", c.POINTER(c.c_char_p)),
        ("n_stop", c.c_int32),
        ("ignore_eos", c.c_int32),
        ("n_top", c.c_int32),
        ("max_draft", c.c_int32),
        ("piece", PieceFn),
        ("piece_user", c.c_void_p),
        ("logits", LogitsFn),
        ("logits_user", c.c_void_p),
        ("grammar", c.c_void_p),
    ]


class GenerateResult(Sized):
    """moe_generate_result. The outcome of a generation."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("finish", c.c_int),
        ("n_prompt", c.c_int32),
        ("n_generated", c.c_int32),
        ("prompt_seconds", c.c_double),
        ("generate_seconds", c.c_double),
        ("n_drafted", c.c_int32),
        ("n_accepted", c.c_int32),
    ]


class ChatParams(Sized):
    """moe_chat_params. The options of a conversation."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("thinking", c.c_int),
        ("chat_template", c.c_char_p),
        ("system", c.c_char_p),
        ("variables", c.POINTER(c.c_char_p)),
        ("n_variables", c.c_int32),
        ("reserved", c.c_int32),
        ("date", c.c_char_p),
    ]


class ChatMessage(Sized):
    """moe_chat_message. One message. Its texts are owned by the chat and valid until its
    messages change.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        ("role", c.c_char_p),
        ("content", c.c_void_p),
        ("n_bytes", c.c_size_t),
        ("thinking", c.c_void_p),
        ("n_thinking_bytes", c.c_size_t),
        ("members", c.c_char_p),
    ]


class ChatResult(Sized):
    """moe_chat_result. The outcome of a reply: tokens and time."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("finish", c.c_int),
        ("n_prompt", c.c_int32),
        ("n_reused", c.c_int32),
        ("n_generated", c.c_int32),
        ("n_thinking", c.c_int32),
        ("prompt_seconds", c.c_double),
        ("generate_seconds", c.c_double),
        ("n_drafted", c.c_int32),
        ("n_accepted", c.c_int32),
        ("n_tool_calls", c.c_int32),
        ("reserved", c.c_int32),
    ]


class ExpertWeights(Sized):
    """moe_expert_weights. One expert. Matrices are row-major (out, in); d_in is d_model /
    n_subheads. A plain FFN has no gate.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("gate", c.c_void_p),
        ("up", c.c_void_p),
        ("down", c.c_void_p),
        ("gate_bias", c.c_void_p),
        ("up_bias", c.c_void_p),
        ("down_bias", c.c_void_p),
    ]


class LayerParams(Sized):
    """moe_layer_params. The shape and the weights of a layer. Sizes and counts are in 1..65536,
    or 0 where a default is given.
    """

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("d_model", c.c_int32),
        ("d_ff", c.c_int32),
        ("n_experts", c.c_int32),
        ("n_subheads", c.c_int32),
        ("max_rows", c.c_int32),
        ("activation", c.c_char_p),
        ("router", c.POINTER(Router)),
        ("weights", c.c_char_p),
        ("activations", c.c_char_p),
        ("experts", c.POINTER(ExpertWeights)),
        ("router_weight", c.c_void_p),
        ("router_bias", c.c_void_p),
        ("router_proj", c.c_void_p),
        ("d_e", c.c_int32),
        ("shared_d_ff", c.c_int32),
        ("shared", c.POINTER(ExpertWeights)),
        ("shared_gate", c.c_void_p),
        ("head", c.c_void_p),
        ("head_bias", c.c_void_p),
        ("merge", c.c_void_p),
        ("merge_bias", c.c_void_p),
    ]


ReportFn = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)


class ConvertParams(Sized):
    """moe_convert_params. The options of a conversion."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("compress", c.c_int32),
        ("weights", c.c_char_p),
        ("overrides", c.POINTER(c.c_char_p)),
        ("n_overrides", c.c_int32),
        ("verify", c.c_int32),
        ("progress", ProgressFn),
        ("progress_user", c.c_void_p),
        ("report", ReportFn),
        ("report_user", c.c_void_p),
        ("ignored_keys", c.POINTER(c.c_char_p)),
        ("n_ignored_keys", c.c_int32),
        ("n_threads", c.c_int32),
        ("calibration", c.c_char_p),
        ("n_calibration", c.c_size_t),
        ("split_ffn", c.c_int32),
        ("split_by_clusters", c.c_int32),
        ("statistics", c.c_char_p),
        ("save_statistics", c.c_char_p),
        ("allow_zeros", c.c_int32),
        ("i2_s_arm", c.c_int32),
        ("most_bytes", c.c_uint64),
        ("most_bits", c.c_double),
        ("no_predictions", c.c_int32),
        ("reserved", c.c_int32),
    ]


class SyntheticParams(Sized):
    """moe_synthetic_params. The options of a synthetic model."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("context", c.c_int32),
        ("weights", c.c_char_p),
        ("seed", c.c_uint64),
        ("progress", ProgressFn),
        ("progress_user", c.c_void_p),
        ("outline", c.c_int32),
        ("reserved", c.c_int32),
    ]


ServiceReceiptFn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_size_t)


class ServiceParams(Sized):
    """moe_service_params. The settings of a service."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("n_slots", c.c_int32),
        ("session", c.POINTER(SessionParams)),
        ("router", c.POINTER(Router)),
        ("name", c.c_char_p),
        ("chat_template", c.c_char_p),
        ("max_waiting", c.c_int32),
        ("max_prompt", c.c_int32),
        ("slice", c.c_int32),
        ("max_seconds", c.c_int32),
        ("no_reuse", c.c_int32),
        ("cache_folder", c.c_char_p),
        ("cache_bytes", c.c_uint64),
        ("receipt", ServiceReceiptFn),
        ("receipt_user", c.c_void_p),
        ("max_draft", c.c_int32),
        ("reserved", c.c_int32),
    ]


class ServiceEvent(Sized):
    """moe_service_event. A part of an answer, or the whole. Valid during the callback."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("status", c.c_int32),
        ("json", c.c_void_p),
        ("n_bytes", c.c_size_t),
        ("last", c.c_int32),
        ("retry_after", c.c_int32),
        ("name", c.c_char_p),
    ]


class ServiceTicket(Sized):
    """moe_service_ticket. The outcome of submitting a request."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("stream", c.c_int32),
        ("id", c.c_uint64),
    ]


class ServiceStats(Sized):
    """moe_service_stats. Counts of a service since it was created, and its state."""

    _fields_ = [
        ("struct_size", c.c_uint32),
        ("n_slots", c.c_int32),
        ("context", c.c_int32),
        ("n_running", c.c_int32),
        ("n_waiting", c.c_int32),
        ("draining", c.c_int32),
        ("kv_positions", c.c_uint64),
        ("n_requests", c.c_uint64),
        ("n_refused", c.c_uint64),
        ("n_answered", c.c_uint64),
        ("n_cancelled", c.c_uint64),
        ("n_failed", c.c_uint64),
        ("prompt_tokens", c.c_uint64),
        ("generated_tokens", c.c_uint64),
        ("n_steps", c.c_uint64),
        ("n_first_tokens", c.c_uint64),
        ("first_token_seconds", c.c_double),
        ("step_seconds", c.c_double),
        ("cap_bytes", c.c_uint64),
        ("counted_bytes", c.c_uint64),
        ("peak_bytes", c.c_uint64),
        ("expert_uses", c.c_uint64),
        ("expert_hits", c.c_uint64),
        ("expert_read_bytes", c.c_uint64),
        ("reused_tokens", c.c_uint64),
        ("cache_bytes", c.c_uint64),
        ("cache_errors", c.c_uint64),
    ]


RoutingFn = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(RoutingChoices))


ServiceEventFn = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(ServiceEvent))
