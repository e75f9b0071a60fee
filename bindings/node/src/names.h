// Generated from include/moe_c.h by bindings/generate.py; do not edit.
// SPDX-License-Identifier: MIT

#pragma once
// The names of the constants of moe_c.h in JavaScript.

#include <moe_c.h>

namespace moe_node {

template <class Enum>
struct Name {
  const char* text;
  Enum value;
};

// clang-format off
inline constexpr Name<moe_log_level> kLogLevelNames[] = {
  {"error", MOE_LOG_ERROR},
  {"warning", MOE_LOG_WARNING},
  {"info", MOE_LOG_INFO},
  {"debug", MOE_LOG_DEBUG},
};
inline constexpr Name<moe_io> kIoNames[] = {
  {"auto", MOE_IO_AUTO},
  {"direct", MOE_IO_DIRECT},
  {"buffered", MOE_IO_BUFFERED},
};
inline constexpr Name<moe_kv_type> kKvTypeNames[] = {
  {"default", MOE_KV_DEFAULT},
  {"f16", MOE_KV_F16},
  {"int8", MOE_KV_INT8},
  {"f32", MOE_KV_F32},
  {"latent", MOE_KV_LATENT},
};
inline constexpr Name<moe_rows> kRowsNames[] = {
  {"none", MOE_ROWS_NONE},
  {"last", MOE_ROWS_LAST},
  {"all", MOE_ROWS_ALL},
};
inline constexpr Name<moe_pooling> kPoolingNames[] = {
  {"default", MOE_POOL_DEFAULT},
  {"mean", MOE_POOL_MEAN},
  {"first", MOE_POOL_FIRST},
  {"last", MOE_POOL_LAST},
};
inline constexpr Name<moe_normalize> kNormalizeNames[] = {
  {"default", MOE_NORMALIZE_DEFAULT},
  {"off", MOE_NORMALIZE_OFF},
  {"on", MOE_NORMALIZE_ON},
};
inline constexpr Name<moe_beam_stop> kBeamStopNames[] = {
  {"count", MOE_BEAM_STOP_COUNT},
  {"bound", MOE_BEAM_STOP_BOUND},
  {"step", MOE_BEAM_STOP_STEP},
};
inline constexpr Name<moe_beam_score> kBeamScoreNames[] = {
  {"power", MOE_BEAM_SCORE_POWER},
  {"sum", MOE_BEAM_SCORE_SUM},
};
inline constexpr Name<moe_grammar_kind> kGrammarKindNames[] = {
  {"json_schema", MOE_GRAMMAR_JSON_SCHEMA},
  {"gbnf", MOE_GRAMMAR_GBNF},
  {"regex", MOE_GRAMMAR_REGEX},
};
inline constexpr Name<moe_finish> kFinishNames[] = {
  {"length", MOE_FINISH_LENGTH},
  {"eos", MOE_FINISH_EOS},
  {"stop", MOE_FINISH_STOP},
  {"context", MOE_FINISH_CONTEXT},
  {"callback", MOE_FINISH_CALLBACK},
};
inline constexpr Name<moe_thinking> kThinkingNames[] = {
  {"default", MOE_THINKING_DEFAULT},
  {"on", MOE_THINKING_ON},
  {"off", MOE_THINKING_OFF},
};
inline constexpr Name<moe_tool_choice> kToolChoiceNames[] = {
  {"auto", MOE_TOOLS_AUTO},
  {"required", MOE_TOOLS_REQUIRED},
  {"one", MOE_TOOLS_ONE},
};
inline constexpr Name<moe_endpoint> kEndpointNames[] = {
  {"chat", MOE_ENDPOINT_CHAT},
  {"completions", MOE_ENDPOINT_COMPLETIONS},
  {"tokenize", MOE_ENDPOINT_TOKENIZE},
  {"messages", MOE_ENDPOINT_MESSAGES},
  {"count_tokens", MOE_ENDPOINT_COUNT_TOKENS},
  {"responses", MOE_ENDPOINT_RESPONSES},
  {"embeddings", MOE_ENDPOINT_EMBEDDINGS},
  {"statistics", MOE_ENDPOINT_STATISTICS},
  {"rerank", MOE_ENDPOINT_RERANK},
};
// clang-format on

}  // namespace moe_node
