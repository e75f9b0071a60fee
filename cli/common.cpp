// SPDX-License-Identifier: MIT
// Turns errors of the library into exceptions with an exit code, and opens environments, models and
// sessions from options.
#include "cli/common.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/convert/model_cache.h"
#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/output_file.h"
#include "cli/io/terminal.h"
#include "cli/io/units.h"
#include "cli/model/memory.h"

namespace moe_cli {
namespace {

// `most`: the least important level to show.
void log_to_stderr(void* most, moe_log_level level, const char* text) {
  if (level > *static_cast<const moe_log_level*>(most)) return;
  static const char* const kNames[] = {"", "error", "warning", "info", "debug"};
  try {  // any thread; nothing may be thrown through the library
    std::fprintf(stderr, "moe: %s: %s\n", kNames[level], visible(text).c_str());
  } catch (const std::bad_alloc&) {
    std::fputs("moe: out of memory for a message\n", stderr);
  }
}

}  // namespace

void check(moe_status status, const moe_error& error) {
  if (status != MOE_OK) throw CallError(status, error.text);
}

void check_option(moe_status status, const moe_error& error, const std::string& option) {
  if (status != MOE_ERR_ARGUMENT && status != MOE_ERR_RANGE) return check(status, error);
  throw UsageError(option + ": " + error.text);
}

bool blames_text(moe_status status) {
  switch (status) {
    case MOE_ERR_ARGUMENT:
    case MOE_ERR_RANGE:
    case MOE_ERR_TEXT:
    case MOE_ERR_TOO_LONG:
    case MOE_ERR_NON_FINITE:
    case MOE_ERR_UNSUPPORTED:
      return true;
    default:
      return false;
  }
}

void check_line(moe_status status, const moe_error& error, size_t number) {
  if (!blames_text(status)) return check(status, error);
  throw CallError(status, "line " + std::to_string(number) + ": " + error.text);
}

CallError write_error(const std::string& path) {
  const int reason = errno;
  if (path == "-") stop_if_interrupted();  // which may be why
  return {MOE_ERR_IO, (path == "-" ? "stdout" : path) + ": cannot be written" +
                          (reason == 0 ? "" : std::string(": ") + std::strerror(reason))};
}

Env open_env(const ModelOptions& o) {
  const uint64_t gpu_memory = o.gpu_memory.empty() ? 0 : parse_bytes("--gpu-memory", o.gpu_memory);
  if (!o.device.starts_with("cuda") && !o.gpu_memory.empty()) {
    throw UsageError("--gpu-memory: --device " + o.device + " uses no GPU; name it: --device cuda");
  }
  moe_env_params p{};
  p.struct_size = sizeof p;
  p.threads = o.threads;
  p.isa = o.isa.empty() ? nullptr : o.isa.c_str();
  p.device = o.device.c_str();
  // With an explicit device, its log messages are shown.
  static moe_log_level most;
  most = o.verbose ? MOE_LOG_DEBUG : o.device_named ? MOE_LOG_INFO : MOE_LOG_WARNING;
  p.log = log_to_stderr;
  p.log_user = &most;
  p.gpu_memory_bytes = gpu_memory;
  moe_env* env = nullptr;
  moe_error error;
  check(moe_env_create(&p, &env, &error), error);
  return Env(env);
}

void check_context(const ModelOptions& o, const moe_model* model) {
  const int32_t most = model_info(model).context_length;
  if (o.context <= most) return;
  throw UsageError("--context " + std::to_string(o.context) + ": expected 1.." +
                   std::to_string(most) + ", the context of this model");
}

// With a capacity a call must fit in one chunk. A chunk that grows only when the router is set
// needs memory for both sizes.
bool needs_whole_calls(const ModelOptions& o) {
  return o.chunk == 0 && !o.router.empty() && parse_router(o.router).gamma != 0;
}

moe_session_params session_params(const ModelOptions& o) {
  moe_session_params p{};
  p.struct_size = sizeof p;
  p.context = o.context;
  p.chunk = needs_whole_calls(o) ? kMostChunk : o.chunk;
  p.kv = kv_type(o);
  p.max_beam = o.max_beam;
  return p;
}

Model open_model(const ModelOptions& o, moe_env* env) {
  const moe_session_params session = session_params(o);
  moe_model_params p{};
  p.struct_size = sizeof p;
  if (o.map && o.io == "direct") throw UsageError("--io direct reads the file, --map does not");
  p.map_weights = o.map ? 1 : 0;
  p.io = o.io == "direct" ? MOE_IO_DIRECT : o.io == "buffered" ? MOE_IO_BUFFERED : MOE_IO_AUTO;
  p.memory_bytes = memory_cap(o);
  p.lazy_experts = o.lazy ? 1 : 0;
  p.session = &session;
  moe_model* raw = nullptr;
  moe_error error;
  const std::string path =
      runnable_file(o.path, o.in_floats ? CachedWeights::kSource : CachedWeights::kDefault);
  const moe_status status = moe_model_open(env, path.c_str(), &p, &raw, &error);
  Model model(raw);
  if (status == MOE_ERR_RANGE && o.context != 0) {  // the session of a cap is checked on opening
    ModelOptions alone = o;
    alone.context = 0;
    alone.memory.clear();
    check_context(o, open_model(alone, env).get());
  }
  check(status, error);
  check_context(o, model.get());
  return model;
}

moe_env_info env_info(moe_env* env) {
  moe_env_info info{};
  info.struct_size = sizeof info;
  moe_error error;
  check(moe_env_get_info(env, &info, &error), error);
  return info;
}

moe_model_info model_info(const moe_model* model) {
  moe_model_info info{};
  info.struct_size = sizeof info;
  moe_error error;
  check(moe_model_get_info(model, &info, &error), error);
  return info;
}

moe_model_layer_info layer_info(const moe_model* model, int32_t layer) {
  moe_model_layer_info info{};
  info.struct_size = sizeof info;
  moe_error error;
  check(moe_model_get_layer_info(model, layer, &info, &error), error);
  return info;
}

void check_decoder(const ModelOptions& o, const moe_model* model, const char* command) {
  const moe_model_info info = model_info(model);
  if (info.is_encoder_decoder != 0) {
    throw CallError(MOE_ERR_UNSUPPORTED,
                    o.path + ": an encoder-decoder; " + command +
                        " needs a decoder ('moe translate' runs encoder-decoders)");
  }
  if (info.is_encoder == 0) return;
  throw CallError(MOE_ERR_UNSUPPORTED,
                  o.path + ": an encoder, which cannot continue a text; " + command +
                      " needs a decoder ('moe fill' and 'moe embed' run encoders)");
}

moe_router parse_router(const std::string& text) {
  auto router = MOE_INIT(moe_router);
  moe_error error;
  check_option(moe_router_parse(text.c_str(), &router, &error), error, "--router " + text);
  return router;
}

std::string listed_names(const char* (*name)(size_t index)) {
  std::string names;
  for (size_t i = 0; name(i) != nullptr; ++i) names += (i == 0 ? "" : ", ") + std::string(name(i));
  return names;
}

bool may_skip(const ModelOptions& o) { return o.router.find("resident=") != std::string::npos; }

Session open_session(const ModelOptions& o, moe_model* model) {
  const moe_session_params p = session_params(o);
  moe_session* raw = nullptr;
  moe_error error;
  check(moe_session_create(model, &p, &raw, &error), error);
  Session session(raw);
  if (o.router.empty()) return session;
  const moe_router router = parse_router(o.router);
  check_option(moe_session_set_router(raw, &router, &error), error, "--router " + o.router);
  if (may_skip(o)) check(moe_session_count_routing(raw, true, &error), error);
  return session;
}

void check_ids(const std::vector<int32_t>& ids, const moe_model* model) {
  const int32_t vocab_size = model_info(model).vocab_size;
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    throw UsageError("token " + std::to_string(id) + ": expected an id in 0.." +
                     std::to_string(vocab_size - 1));
  }
}

uint32_t encode_flags(bool no_bos, bool special) {
  return (no_bos ? unsigned{MOE_ENCODE_NO_SPECIAL} : 0u) |
         (special ? unsigned{MOE_ENCODE_PARSE_SPECIAL} : 0u);
}

std::vector<int32_t> encode(const moe_model* model, const std::string& text, uint32_t flags) {
  const moe_tokenizer* tokenizer = moe_model_tokenizer(model);
  if (tokenizer == nullptr) {
    throw CallError(
        MOE_ERR_UNSUPPORTED,
        "this model has no tokenizer; generate, eval, score and translate take ids with "
        "--tokens");
  }
  std::vector<int32_t> tokens(text.size() + 16);
  size_t n = 0;
  moe_error error;
  moe_status status = moe_tokenizer_encode(tokenizer, text.data(), text.size(), flags,
                                           tokens.data(), tokens.size(), &n, &error);
  if (status == MOE_ERR_TOO_LONG) {
    tokens.resize(n);
    status = moe_tokenizer_encode(tokenizer, text.data(), text.size(), flags, tokens.data(),
                                  tokens.size(), &n, &error);
  }
  check(status, error);
  tokens.resize(n);
  return tokens;
}

std::string decode(const moe_model* model, const std::vector<int32_t>& tokens, uint32_t flags) {
  const moe_tokenizer* tokenizer = moe_model_tokenizer(model);
  if (tokenizer == nullptr) throw CallError(MOE_ERR_UNSUPPORTED, "this model has no tokenizer");
  size_t n = 0;
  moe_error error;
  check(
      moe_tokenizer_decode(tokenizer, tokens.data(), tokens.size(), flags, nullptr, 0, &n, &error),
      error);
  std::string text(n + 1, '\0');
  check(moe_tokenizer_decode(tokenizer, tokens.data(), tokens.size(), flags, text.data(),
                             text.size(), &n, &error),
        error);
  text.resize(n);
  return text;
}

double now_seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Not through std::cout, which would repeat a write that a signal ended.
void print_json(const Json& json) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::cout.flush();
  if (!write_all(STDOUT_FILENO, text.data(), text.size())) std::cout.setstate(std::ios::badbit);
}

}  // namespace moe_cli
