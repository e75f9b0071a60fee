// SPDX-License-Identifier: MIT
// moe bench: tokens per second of a model, or of a named shape with random weights.

#include "cli/bench/bench.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "cli/bench/synthetic.h"
#include "cli/convert/model_cache.h"
#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/model/context.h"
#include "cli/model/memory.h"
#include "cli/model/routing_stats.h"
#include "cli/trace/forced_routing.h"
#include "cli/trace/trace_replay.h"

namespace moe_cli {
namespace {

// Bytes of keys and values read per token, halfway through decoding, and of states read and
// written.
uint64_t kv_bytes_per_token(const BenchOptions& o, const moe_model* model, int n_layers) {
  const uint64_t element = kv_element_bytes(o.model);
  const int seen = o.depth + o.n_generate / 2;
  uint64_t bytes = 0;
  for (int i = 0; i < n_layers; ++i) {
    const moe_model_layer_info layer = layer_info(model, i);
    const int window = layer.window > 0 ? std::min(layer.window, seen) : seen;
    const uint64_t scale = element == 1 ? sizeof(float) : 0;
    const uint64_t row = o.model.kv == "latent"
                             ? static_cast<uint64_t>(layer.kv_latent) * element
                             : static_cast<uint64_t>(layer.n_kv_heads) * 2 *
                                   (static_cast<uint64_t>(layer.head_dim) * element + scale);
    bytes += static_cast<uint64_t>(window) * row + 2 * layer.state_bytes;
  }
  return bytes;
}

// Layers that guess are left out, as a trace has none of them.
uint64_t expert_bytes(const moe_model* model) {
  const int32_t n_layers = model_info(model).n_layers;
  uint64_t bytes = 0;
  for (size_t i = 0; i < moe_model_tensor_count(model); ++i) {
    moe_tensor_info t{};
    t.struct_size = sizeof t;
    moe_error error;
    check(moe_model_get_tensor_info(model, i, &t, &error), error);
    if (t.expert >= 0 && t.layer < n_layers) bytes += t.bytes;
  }
  return bytes;
}

// Hit rate of the trace with the same relative cache size as the model.
double hit_rate_of_trace(const Trace& trace, const BenchResult& result) {
  if (result.memory.arena_bytes == 0) return 1;
  const double share =
      static_cast<double>(result.memory.arena_bytes) / static_cast<double>(result.expert_bytes);
  const double all = static_cast<double>(trace.n_layers) * trace.n_experts;
  return replay_lru(trace, static_cast<size_t>(std::min(share, 1.0) * all)).share();
}

// The file to measure, if experts are read from an explicitly named file.
std::optional<std::string> file_to_measure(const BenchOptions& o, const moe_session* session) {
  const std::string& path = o.synthetic.empty() ? o.model.path : o.save;
  const bool reads = o.model.io != "auto" && memory_stats(session).cap_bytes > 0;
  if (!reads || path.empty() || o.n_generate == 0) return {};
  return runnable_file(path);
}

// Before a cap and the context are held against the file.
void check_file(const BenchOptions& o, moe_env* env) {
  ModelOptions any_context = o.model;
  any_context.context = 0;
  const Model model = open_model_for_text(any_context, env);
  check_decoder(o.model, model.get(), "bench");
  const int32_t most = model_context(model.get());
  const int32_t holds = o.model.context == 0 ? most : std::min(o.model.context, most);
  if (o.positions() <= holds) return;
  check_context(o.model, model.get());
  throw UsageError(too_long("-p, -d and -n need", static_cast<size_t>(o.positions()),
                            static_cast<size_t>(holds), static_cast<size_t>(most)));
}

void check_usage(const BenchOptions& o) {
  if (o.synthetic.empty() == o.model.path.empty()) {
    throw UsageError("give either a model file or --synthetic SHAPE");
  }
  if (o.synthetic.empty() && o.weights_named) {
    throw UsageError("--weights requires --synthetic; moe convert sets the formats of a file");
  }
  if (!o.save.empty() && o.synthetic.empty()) throw UsageError("--save requires --synthetic");
}

void check_sizes(const BenchOptions& o) {
  if (o.n_generate == 0) {
    if (o.n_prompt == 0) throw UsageError("-p 0 and -n 0 leave nothing to measure");
    if (o.depth > 0) throw UsageError("--depth is that of decoding, which -n 0 leaves out");
    if (o.n_sessions > 1) throw UsageError("--sessions decode together, and -n 0 leaves that out");
  }
  const int context = o.model.context;  // of the shape, too
  if (o.synthetic.empty() || context == 0 || o.positions() <= context) return;
  throw UsageError("--context " + std::to_string(context) + ": expected at least " +
                   std::to_string(o.positions()) + ", which -p, -d and -n need");
}

void run_bench(BenchOptions& o, const CLI::App& app) {
  check_usage(o);
  if (!o.save.empty() && !o.from_file()) {
    refuse_others(app, {"--synthetic", "--weights", "--save", "--context"},
                  "--save writes a model and stops; --memory, --io or --map measures it");
    save_synthetic(o);
    std::cout << "saved " << o.synthetic << " as " << o.save << "\n";
    return;
  }
  check_sizes(o);
  std::optional<Trace> trace;
  if (!o.routing.empty()) trace = read_trace(o.routing);
  int threads = 0;
  {  // its threads end with it: the meter forks, which needs a single thread
    ModelOptions on_cpu = o.model;
    on_cpu.device = "cpu";
    on_cpu.gpu_memory.clear();
    const Env env = open_env(on_cpu);
    threads = env_info(env.get()).threads;
  }
  const uint64_t cap = memory_cap(o.model);
  BandwidthMeter meter(threads, o.model.map ? Pages::kSmall : Pages::kLarge,
                       cap != 0 ? cap : available_budget() / 4);
  const Env env = open_env(o.model);
  if (o.synthetic.empty()) check_file(o, env.get());
  const bool on_cpu = std::string_view(env_info(env.get()).device) == "cpu";
  if (on_cpu) meter.measure();  // while there is no model: a cap leaves no room beside it
  if (o.model.context == 0) o.model.context = o.positions();
  Loaded loaded;
  if (o.synthetic.empty()) {
    loaded.model = open_model_to_run(o.model, env.get(), o.n_sessions);
  } else {
    loaded = load_synthetic(o, env.get());
  }
  check_sessions(o.model, loaded.model.get(), o.n_sessions);
  std::vector<Session> sessions;
  std::vector<moe_session*> handles;
  for (int i = 0; i < o.n_sessions; ++i) {
    sessions.push_back(open_session(o.model, loaded.model.get()));
    handles.push_back(sessions.back().get());
  }
  std::optional<ForcedRouting> forced;
  if (trace) {
    forced.emplace(std::move(*trace), loaded.model.get(), !o.model.router.empty());
    forced->apply_to(handles);
  }
  const CurrentSession current(handles[0]);  // each session in turn
  BenchResult result{};
  result.model.struct_size = sizeof result.model;
  moe_error error;
  check(moe_model_get_info(loaded.model.get(), &result.model, &error), error);
  result.env = env_info(env.get());
  std::optional<DiskMeter> disk;
  if (const auto path = file_to_measure(o, handles[0])) {
    disk.emplace(*path, o.model.io == "direct", loaded.model.get());
  }
  if (memory_stats(handles[0]).cap_bytes > 0) meter.keep_last();
  const Meters meters{result.on_cpu() ? &meter : nullptr, disk ? &*disk : nullptr};
  result.timing = run_measurement(o, loaded.model.get(), handles, meters);
  result.memory = memory_stats(handles[0]);
  result.expert_bytes = expert_bytes(loaded.model.get());
  result.trace_hit_rate = forced ? hit_rate_of_trace(forced->trace(), result) : 1;
  result.kv_bytes_per_token = kv_bytes_per_token(o, loaded.model.get(), result.model.n_layers);
  print_bench(o, result);
  report_skipped(o.model, loaded.model.get(), handles);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* c = app.add_subcommand("bench", "Measure tokens per second");
  example(*c, "moe bench --synthetic olmoe-1b-7b -p 128 -n 32");
  c->add_option("MODEL", o->model.path, kModelText)->check(not_empty());
  add_synthetic_options(*c, *o);
  c->add_option("--routing", o->routing, "Route as in this trace (moe trace)")
      ->check(not_empty())
      ->option_text("FILE");
  c->add_option("-p,--prompt-tokens", o->n_prompt, "Tokens of the prompt (0: none)")
      ->transform(integer_in(0, 1 << 24))
      ->capture_default_str();
  c->add_option("-n,--generate-tokens", o->n_generate, "Tokens decoded one by one (0: none)")
      ->transform(integer_in(0, 1 << 24))
      ->capture_default_str();
  c->add_option("-d,--depth", o->depth, "Tokens in the context before decoding begins")
      ->transform(integer_in(0, 1 << 24))
      ->capture_default_str();
  c->add_option("--sessions", o->n_sessions,
                "Sessions that decode together, one token each per step")
      ->transform(integer_in(1, 256))
      ->capture_default_str();
  c->add_option("-r,--repetitions", o->repetitions, "Repetitions; the median is shown")
      ->transform(integer_in(1, 1000))
      ->capture_default_str();
  add_model_options(*c, o->model, {.path = false});
  add_session_options(*c, o->model, "what -p, -d and -n need");
  c->callback([o, c] { run_bench(*o, *c); });
}

}  // namespace moe_cli
