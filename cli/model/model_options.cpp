// SPDX-License-Identifier: MIT
// The options of commands that open a model (common.h).

#include <algorithm>

#include "cli/common.h"
#include "cli/help/help.h"

namespace moe_cli {
namespace {

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

CLI::Option* machine(CLI::Option* option, const char* value) {
  return option->option_text(value)->group(kMachineGroup);
}

void add_compute(CLI::App& app, ModelOptions& o) {
  machine(app.add_option("--threads", o.threads,
                         "Compute threads (default all that this process may use)"),
          "N")
      ->transform(integer_in(0, 1024));
  machine(app.add_option("--isa", o.isa,
                         "Instruction set: " + listed_names(moe_isa_name) +
                             " (default the best that this CPU supports)"),
          "NAME")
      ->check(listed("auto, " + listed_names(moe_isa_name)));
  machine(app.add_option("--device", o.device,
                         "auto (the CPU, also beside a GPU), cpu, cuda or "
                         "cuda:N"),
          "NAME")
      ->check(suggest("auto, cpu, cuda"))
      ->check(device_name())
      ->capture_default_str()
      ->each([&o](const std::string&) { o.device_named = true; });
  machine(app.add_option(
              "--gpu-memory", o.gpu_memory,
              "Limit on GPU memory, such as 4G (default and most: 15/16 of the free memory)"),
          "SIZE")
      ->check(not_empty());
  machine(app.add_option(
              "--memory", o.memory,
              "Cap on weights, KV cache and scratch, such as 2G; experts that do not fit are "
              "read on demand (default the available memory, if the "
              "model needs more)"),
          "SIZE")
      ->check(not_empty());
}

void add_io(CLI::App& app, ModelOptions& o) {
  machine(app.add_option(
              "--io", o.io,
              "How to read the file: buffered (through the page cache), direct (bypassing it), "
              "auto (direct if the file is larger than the available memory)"),
          "auto|direct|buffered")
      ->check(one_of({"auto", "direct", "buffered"}))
      ->capture_default_str();
}

void add_path(CLI::App& app, ModelOptions& o) {
  app.add_option("MODEL", o.path, kModelText)->required()->check(not_empty());
}

void add_output(CLI::App& app, ModelOptions& o, bool json) {
  if (json) app.add_flag("--json", o.json, "Print the result as JSON")->group(kOutputGroup);
  app.add_flag("--verbose", o.verbose, "Show the library's messages on stderr")
      ->group(kOutputGroup);
}

}  // namespace

void add_model_options(CLI::App& app, ModelOptions& o, Offered offered) {
  if (offered.path) add_path(app, o);
  add_compute(app, o);
  add_io(app, o);
  CLI::Option* lazy = nullptr;
  if (offered.lazy) {
    lazy =
        app.add_flag("--lazy", o.lazy,
                     "With a cap, read experts only when a token needs them, not ahead into free "
                     "memory")
            ->group(kMachineGroup);
  }
  auto* map = app.add_flag("--map", o.map,
                           "Map the weights instead of reading them (the file must not change)")
                  ->group(kMachineGroup);
  if (lazy != nullptr) map->excludes(lazy);  // mapped experts are not read ahead
  add_output(app, o, offered.json);
}

void add_reader_options(CLI::App& app, ModelOptions& o) {
  o.device = "cpu";
  add_path(app, o);
  add_io(app, o);
  add_output(app, o, true);
}

void refuse_others(const CLI::App& app, const std::vector<std::string>& used,
                   const std::string& why) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || std::find(used.begin(), used.end(), name) != used.end()) continue;
    throw UsageError(name + ": " + why);
  }
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
                 "Override the file's router: one of topk:K, threshold:T (threshold with ,min_k=N "
                 ",max_k=N), with ,gamma=G (capacity factor) "
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

moe_kv_type kv_type(const ModelOptions& o) { return kv_of(o).type; }

uint64_t kv_element_bytes(const ModelOptions& o) { return kv_of(o).element_bytes; }

void add_no_bos(CLI::App& app, bool& no_bos) {
  auto* option = app.add_flag("--no-bos", no_bos, "Do not add special tokens such as BOS");
  if (auto* tokens = app.get_option_no_throw("--tokens")) option->excludes(tokens);
}

}  // namespace moe_cli
