#include "cli/common.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/help.h"
#include "cli/memory.h"
#include "cli/terminal.h"
#include "cli/units.h"

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

struct KvName {
  const char* name;
  moe_kv_type type;
  uint64_t element_bytes;
};
constexpr KvName kKvNames[] = {{"f16", MOE_KV_F16, 2},
                               {"int8", MOE_KV_INT8, 1},
                               {"f32", MOE_KV_F32, 4},
                               {"latent", MOE_KV_LATENT, 2}};

std::vector<std::string> kv_names() {
  std::vector<std::string> names;
  for (const KvName& kv : kKvNames) names.push_back(kv.name);
  return names;
}

const KvName& kv_of(const ModelOptions& o) {
  const auto* kv = std::find_if(std::begin(kKvNames), std::end(kKvNames),
                                [&](const KvName& k) { return o.kv == k.name; });
  return kv == std::end(kKvNames) ? kKvNames[0] : *kv;  // the command line was checked
}

CLI::Validator device_name() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const std::string gpu = "cuda:";
        const bool number = text.starts_with(gpu) && text.size() > gpu.size() &&
                            text.find_first_not_of("0123456789", gpu.size()) == text.npos;
        if (number || text == "auto" || text == "cpu" || text == "cuda") return "";
        return "expected auto, cpu, cuda or cuda:N, found '" + text + "'";
      },
      "");
}

// "a,b" as "a, b".
std::string spaced(const char* names) {
  std::string text;
  for (const char* c = names; *c != '\0'; ++c) {
    text += *c;
    if (*c == ',') text += ' ';
  }
  return text;
}

}  // namespace

void check(moe_status status, const moe_error& error) {
  if (status != MOE_OK) throw CallError(status, error.text);
}

void check_option(moe_status status, const moe_error& error, const std::string& option) {
  if (status != MOE_ERR_ARGUMENT && status != MOE_ERR_RANGE) return check(status, error);
  throw UsageError(option + ": " + error.text);
}

CallError write_error(const std::string& path) {
  const int reason = errno;
  return {MOE_ERR_IO, (path == "-" ? "stdout" : path) + ": cannot be written" +
                          (reason == 0 ? "" : std::string(": ") + std::strerror(reason))};
}

void add_model_options(CLI::App& app, ModelOptions& o, bool with_path) {
  if (with_path) app.add_option("MODEL", o.path, "Model file (.moe)")->required();
  auto machine = [](CLI::Option* option, const char* value) {
    return option->option_text(value)->group(kMachineGroup);
  };
  machine(app.add_option("--threads", o.threads,
                         "Compute threads (default all that this process may use)"),
          "N")
      ->transform(integer_in(0, 1024));
  machine(app.add_option("--isa", o.isa,
                         "Instruction set: " + spaced(moe_env_isas()) +
                             " (default the best that this CPU supports)"),
          "NAME")
      ->check(listed("auto, " + std::string(moe_env_isas())));
  machine(app.add_option("--device", o.device,
                         "auto (a GPU if one is usable, otherwise the CPU), cpu, cuda or cuda:N"),
          "NAME")
      ->check(suggest("auto, cpu, cuda"))
      ->check(device_name())
      ->capture_default_str()
      ->each([&o](const std::string&) { o.device_named = true; });
  machine(app.add_option(
              "--gpu-memory", o.gpu_memory,
              "Limit on GPU memory, such as 4G (default and most: 15/16 of the free memory)"),
          "SIZE");
  machine(app.add_option(
              "--memory", o.memory,
              "Cap on weights, KV cache and scratch, such as 2G; experts that do not fit are "
              "read on demand (default the available memory, if the "
              "model needs more)"),
          "SIZE")
      ->check(not_empty());
  machine(app.add_option(
              "--io", o.io,
              "How to read the file: buffered (through the page cache), direct (bypassing it), "
              "auto (direct if the file is larger than the available memory)"),
          "auto|direct|buffered")
      ->check(one_of({"auto", "direct", "buffered"}))
      ->capture_default_str();
  app.add_flag("--lazy", o.lazy,
               "With a cap, read experts only when a token needs them, not ahead into free memory")
      ->group(kMachineGroup);
  app.add_flag("--map", o.map, "Map the weights instead of reading them (the file must not change)")
      ->group(kMachineGroup);
  app.add_flag("--json", o.json, "Print the result as JSON")->group(kOutputGroup);
  app.add_flag("--verbose", o.verbose, "Show the library's messages on stderr")
      ->group(kOutputGroup);
}

namespace {

void add_sizes(CLI::App& app, ModelOptions& o, const std::string& default_context,
               const std::string& default_chunk) {
  app.add_option("--context", o.context,
                 "Context size in tokens, at most the model's (default " + default_context + ")")
      ->transform(integer_in(1, 1 << 30))
      ->option_text("N")
      ->group(kSessionGroup);
  app.add_option("--chunk", o.chunk,
                 "Tokens evaluated at once, at most 4096 (default " + default_chunk + ")")
      ->transform(integer_in(1, kMostChunk))
      ->option_text("N")
      ->group(kSessionGroup);
}

void add_router(CLI::App& app, ModelOptions& o) {
  app.add_option("--router", o.router,
                 "Override the file's router: one of " + std::string(moe_session_routers()) +
                     " (threshold with ,min_k=N ,max_k=N), with ,gamma=G (capacity factor) "
                     ",min_capacity=N ,resident=P (skip experts of at most probability P that are "
                     "not in memory)")
      ->check(not_empty())
      ->option_text("ROUTER")
      ->group(kSessionGroup);
}

}  // namespace

void add_session_options(CLI::App& app, ModelOptions& o, const std::string& default_context,
                         const std::string& default_chunk) {
  add_sizes(app, o, default_context, default_chunk);
  app.add_option("--kv", o.kv,
                 "Type of the KV cache: f16, int8, f32 (CPU only) or latent (CPU only, for "
                 "DeepSeek's attention: a fraction of the memory)")
      ->check(one_of(kv_names()))
      ->capture_default_str()
      ->option_text("f16|int8|f32|latent")
      ->group(kSessionGroup);
  add_router(app, o);
}

void add_encoder_options(CLI::App& app, ModelOptions& o) {
  add_sizes(app, o, "the model's, at most 4096", "the context");
  add_router(app, o);
}

uint64_t kv_element_bytes(const ModelOptions& o) { return kv_of(o).element_bytes; }

Env open_env(const ModelOptions& o) {
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
  p.gpu_memory_bytes = o.gpu_memory.empty() ? 0 : parse_bytes("--gpu-memory", o.gpu_memory);
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
  return o.chunk == 0 && o.router.find("gamma=") != std::string::npos;
}

moe_session_params session_params(const ModelOptions& o) {
  moe_session_params p{};
  p.struct_size = sizeof p;
  p.context = o.context;
  p.chunk = needs_whole_calls(o) ? kMostChunk : o.chunk;
  p.kv = kv_of(o).type;
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
  const moe_status status = moe_model_open(env, o.path.c_str(), &p, &raw, &error);
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

bool may_skip(const ModelOptions& o) { return o.router.find("resident=") != std::string::npos; }

Session open_session(const ModelOptions& o, moe_model* model) {
  const moe_session_params p = session_params(o);
  moe_session* raw = nullptr;
  moe_error error;
  check(moe_session_create(model, &p, &raw, &error), error);
  Session session(raw);
  if (o.router.empty()) return session;
  check_option(moe_session_set_router(raw, o.router.c_str(), &error), error,
               "--router " + o.router);
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

void add_no_bos(CLI::App& app, bool& no_bos) {
  app.add_flag("--no-bos", no_bos, "Do not add special tokens such as BOS");
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

void print_json(const Json& json) {
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace moe_cli
