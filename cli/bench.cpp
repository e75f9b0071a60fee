// moe bench: tokens per second of a model, or of a named shape with random weights.

#include <sys/resource.h>

#include <algorithm>
#include <iomanip>
#include <iostream>

#include "cli/bandwidth.h"
#include "cli/common.h"

namespace moe_cli {
namespace {

struct BenchOptions {
  ModelOptions model;
  std::string synthetic;
  std::string weights = "ternary2";
  std::string save;
  int n_prompt = 512;
  int n_generate = 64;
  int depth = 0;
  int n_sessions = 1;
  int repetitions = 3;

  // Positions that a session needs.
  int positions() const { return std::max({n_prompt, depth + n_generate, 8}); }
};

// A model, and the memory of a synthetic one, which must outlive it.
struct Loaded {
  std::unique_ptr<void, void (*)(void*)> image{nullptr, moe_synthetic_free};
  Model model;
};

Loaded load(const BenchOptions& o, moe_env* env) {
  Loaded loaded;
  if (o.synthetic.empty()) {
    loaded.model = open_model(o.model, env);
    return loaded;
  }
  moe_synthetic_params p{};
  p.struct_size = sizeof p;
  p.weights = o.weights.c_str();
  p.context = o.model.context;
  moe_error error;
  void* data = nullptr;
  size_t size = 0;
  check(moe_synthetic_create(o.synthetic.c_str(), &p, &data, &size, &error), error);
  loaded.image.reset(data);
  const moe_session_params session = session_params(o.model);
  moe_model_params params{};
  params.struct_size = sizeof params;
  params.memory_bytes = o.model.memory.empty() ? 0 : parse_bytes(o.model.memory);
  params.session = &session;
  moe_model* model = nullptr;
  check(moe_model_open_memory(env, data, size, &params, &model, &error), error);
  loaded.model.reset(model);
  return loaded;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 == 1 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

struct Timing {
  double read_bandwidth = 0;  // bytes per second that the same number of threads reads from memory
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;  // of all sessions together
};

std::vector<int32_t> random_tokens(int n, int32_t vocab_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  uint32_t state = 1;
  for (int32_t& t : tokens) {
    state = state * 1664525u + 1013904223u;
    t = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab_size));
  }
  return tokens;
}

class Runs {
 public:
  Runs(const BenchOptions& o, std::vector<moe_session*> sessions, int32_t vocab_size)
      : o_(o), sessions_(std::move(sessions)), tokens_(random_tokens(o.positions(), vocab_size)) {}

  // Each repetition: what memory gives, a prompt into an empty context, then tokens one by one, in
  // all sessions together, from the depth asked for.
  Timing measure(BandwidthMeter* meter) {
    std::vector<double> bandwidth;
    std::vector<double> prefill;
    std::vector<double> decode;
    step(0, 8);  // first touch
    for (int r = 0; r < o_.repetitions; ++r) {
      if (meter != nullptr) bandwidth.push_back(meter->measure());
      rewind(0);
      if (o_.n_prompt > 0) prefill.push_back(o_.n_prompt / eval(sessions_[0], o_.n_prompt));
      if (o_.n_generate == 0) continue;
      rewind(0);
      for (moe_session* s : sessions_) eval(s, o_.depth);
      decode.push_back(static_cast<double>(o_.n_generate) * o_.n_sessions /
                       step(o_.depth, o_.n_generate));
    }
    Timing timing;
    if (!bandwidth.empty()) timing.read_bandwidth = median(bandwidth);
    if (!prefill.empty()) timing.prefill_tokens_per_s = median(prefill);
    if (!decode.empty()) timing.decode_tokens_per_s = median(decode);
    return timing;
  }

 private:
  void rewind(int position) {
    moe_error error;
    for (moe_session* s : sessions_) check(moe_session_rewind(s, position, &error), error);
  }
  double eval(moe_session* session, int n) {
    moe_error error;
    const double start = now_seconds();
    if (n > 0) {
      set_current_session(session);
      stop_if_interrupted();
      check(moe_session_eval(session, tokens_.data(), static_cast<size_t>(n), nullptr, 0, &error),
            error);
    }
    return now_seconds() - start;
  }
  // Tokens `first` .. `first + n` one by one. Each session has its own, so that they choose other
  // experts.
  double step(int first, int n) {
    moe_error error;
    std::vector<int32_t> row(sessions_.size());
    const double start = now_seconds();
    for (int i = 0; i < n; ++i) {
      stop_if_interrupted();
      for (size_t s = 0; s < row.size(); ++s) {
        row[s] = tokens_[(static_cast<size_t>(first + i) + 31 * s) % tokens_.size()];
      }
      if (row.size() == 1) {
        check(moe_session_eval(sessions_[0], row.data(), 1, nullptr, 0, &error), error);
      } else {
        check(moe_sessions_step(sessions_.data(), row.data(), row.size(), nullptr, &error), error);
      }
    }
    return now_seconds() - start;
  }

  const BenchOptions& o_;
  std::vector<moe_session*> sessions_;
  std::vector<int32_t> tokens_;
};

moe_env_info env_info(moe_env* env) {
  moe_env_info info{};
  info.struct_size = sizeof info;
  moe_error error;
  check(moe_env_get_info(env, &info, &error), error);
  return info;
}

uint64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

// Bytes of keys and values that one token reads, halfway through what is decoded.
uint64_t kv_bytes_per_token(const BenchOptions& o, const moe_model* model, int n_layers) {
  const uint64_t element = o.model.kv == "int8" ? 1 : 2;
  const int seen = o.depth + o.n_generate / 2;
  uint64_t bytes = 0;
  for (int i = 0; i < n_layers; ++i) {
    moe_model_layer_info layer{};
    layer.struct_size = sizeof layer;
    moe_error error;
    check(moe_model_get_layer_info(model, i, &layer, &error), error);
    const int window = layer.window > 0 ? std::min(layer.window, seen) : seen;
    const uint64_t scale = element == 1 ? sizeof(float) : 0;
    bytes += static_cast<uint64_t>(window) * static_cast<uint64_t>(layer.n_kv_heads) * 2 *
             (static_cast<uint64_t>(layer.head_dim) * element + scale);
  }
  return bytes;
}

struct Result {
  moe_env_info env;
  moe_model_info model;
  uint64_t kv_bytes_per_token;
  Timing timing;
  /// The bandwidth was measured on this machine's memory, not on a GPU's.
  bool on_cpu() const { return std::string_view(env.device) == "cpu"; }
};

void print_decode(const BenchOptions& o, const Result& r) {
  const Timing& t = r.timing;
  std::cout << "  decode  " << std::setw(5) << o.n_generate << " tokens  " << std::setw(9)
            << t.decode_tokens_per_s << " tokens/s";
  if (o.n_sessions > 1) {
    std::cout << " in " << o.n_sessions << " sessions together\n";
    return;
  }
  const uint64_t bytes = r.model.bytes_per_token + r.kv_bytes_per_token;
  const double rate = t.decode_tokens_per_s * static_cast<double>(bytes);
  std::cout << ", at most " << format_bytes(r.model.bytes_per_token) << " of weights and "
            << format_bytes(r.kv_bytes_per_token)
            << " of keys and values a token: " << format_bytes(static_cast<uint64_t>(rate)) << "/s";
  if (r.on_cpu()) {
    std::cout << ", " << 100 * rate / t.read_bandwidth << " % of the "
              << format_bytes(static_cast<uint64_t>(t.read_bandwidth))
              << "/s that memory was read with";
  }
  std::cout << "\n";
}

void print_result(const BenchOptions& o, const Result& r) {
  const Timing& t = r.timing;
  const uint64_t bytes = r.model.bytes_per_token + r.kv_bytes_per_token;
  const double rate = t.decode_tokens_per_s * static_cast<double>(bytes);
  if (o.model.json) {
    print_json({{"model", r.model.name},
                {"weights", o.synthetic.empty() ? "" : o.weights},
                {"n_prompt", o.n_prompt},
                {"n_generate", o.n_generate},
                {"depth", o.depth},
                {"sessions", o.n_sessions},
                {"prefill_tokens_per_s", t.prefill_tokens_per_s},
                {"decode_tokens_per_s", t.decode_tokens_per_s},
                {"bytes_per_token", r.model.bytes_per_token},
                {"kv_bytes_per_token", r.kv_bytes_per_token},
                {"decode_bytes_per_s", rate},
                {"read_bandwidth_bytes_per_s", r.on_cpu() ? Json(t.read_bandwidth) : Json()},
                {"share_of_bandwidth", r.on_cpu() ? Json(rate / t.read_bandwidth) : Json()},
                {"weight_bytes", r.model.weight_bytes},
                {"peak_rss_bytes", peak_rss()},
                {"threads", r.env.threads},
                {"isa", r.env.isa},
                {"device", r.env.device}});
    return;
  }
  std::cout << r.model.name << " on ";
  if (r.on_cpu()) {
    std::cout << r.env.threads << " threads, " << r.env.isa;
  } else {
    std::cout << r.env.device;
  }
  std::cout << ", weights " << format_bytes(r.model.weight_bytes) << "\n"
            << std::fixed << std::setprecision(1);
  if (o.n_prompt > 0) {
    std::cout << "  prefill " << std::setw(5) << o.n_prompt << " tokens  " << std::setw(9)
              << t.prefill_tokens_per_s << " tokens/s\n";
  }
  if (o.n_generate > 0) print_decode(o, r);
  std::cout << "  peak resident memory " << format_bytes(peak_rss()) << "\n";
}

void run_bench(BenchOptions& o) {
  if (o.synthetic.empty() == o.model.path.empty()) {
    throw UsageError("give either a model file or --synthetic SHAPE");
  }
  moe_error error;
  if (!o.save.empty()) {
    if (o.synthetic.empty()) throw UsageError("--save goes with --synthetic");
    moe_synthetic_params p{};
    p.struct_size = sizeof p;
    p.weights = o.weights.c_str();
    p.context = o.model.context;
    check(moe_synthetic_save(o.synthetic.c_str(), &p, o.save.c_str(), &error), error);
    std::cout << "saved " << o.synthetic << " as " << o.save << "\n";
    return;
  }
  int threads = 0;
  {  // its threads end with it: the meter forks, which wants a process of one thread
    ModelOptions on_cpu = o.model;
    on_cpu.device = "cpu";
    const Env env = open_env(on_cpu);
    threads = env_info(env.get()).threads;
  }
  BandwidthMeter meter(threads);
  const Env env = open_env(o.model);
  if (o.model.context == 0) o.model.context = o.positions();
  const Loaded loaded = load(o, env.get());
  std::vector<Session> sessions;
  std::vector<moe_session*> handles;
  for (int i = 0; i < o.n_sessions; ++i) {
    sessions.push_back(open_session(o.model, loaded.model.get()));
    handles.push_back(sessions.back().get());
  }
  set_current_session(handles[0]);
  Result result{};
  result.model.struct_size = sizeof result.model;
  check(moe_model_get_info(loaded.model.get(), &result.model, &error), error);
  result.env = env_info(env.get());
  Runs runs(o, handles, result.model.vocab_size);
  result.timing = runs.measure(result.on_cpu() ? &meter : nullptr);
  set_current_session(nullptr);
  result.kv_bytes_per_token = kv_bytes_per_token(o, loaded.model.get(), result.model.n_layers);
  print_result(o, result);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* c = app.add_subcommand("bench", "Measure tokens per second");
  c->add_option("MODEL", o->model.path, "Model file (.moe)");
  c->add_option("--synthetic", o->synthetic,
                std::string("Random weights of a named shape: ") + moe_synthetic_shapes());
  c->add_option("--weights", o->weights, "Format of the synthetic linear weights")
      ->capture_default_str();
  c->add_option("--save", o->save, "Write the synthetic model to a file and stop");
  c->add_option("-p,--prompt-tokens", o->n_prompt, "Tokens of the prompt (0: none)")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  c->add_option("-n,--generate-tokens", o->n_generate, "Tokens decoded one by one (0: none)")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  c->add_option("-d,--depth", o->depth, "Tokens in the context before decoding begins")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  c->add_option("--sessions", o->n_sessions, "Sessions that decode together, one token each a step")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  c->add_option("-r,--repetitions", o->repetitions, "The median of so many is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_model_options(*c, o->model, false);
  add_session_options(*c, o->model);
  c->callback([o] { run_bench(*o); });
}

}  // namespace moe_cli
