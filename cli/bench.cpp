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
  int repetitions = 3;
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
  double decode_tokens_per_s = 0;
};

double time_eval(moe_session* session, const int32_t* tokens, size_t n, bool one_by_one) {
  moe_error error;
  const double start = now_seconds();
  if (one_by_one) {
    for (size_t i = 0; i < n; ++i) {
      stop_if_interrupted();
      check(moe_session_eval(session, tokens + i, 1, nullptr, 0, &error), error);
    }
  } else {
    check(moe_session_eval(session, tokens, n, nullptr, 0, &error), error);
  }
  return now_seconds() - start;
}

// Each repetition: a prompt into an empty context, then tokens one by one into an empty context.
Timing measure(const BenchOptions& o, moe_session* session, const moe_model_info& info) {
  std::vector<int32_t> tokens(static_cast<size_t>(std::max(o.n_prompt, o.n_generate)));
  uint32_t state = 1;
  for (int32_t& t : tokens) {
    state = state * 1664525u + 1013904223u;
    t = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(info.vocab_size));
  }
  moe_error error;
  std::vector<double> prefill;
  std::vector<double> decode;
  time_eval(session, tokens.data(), std::min<size_t>(tokens.size(), 8), true);  // first touch
  for (int r = 0; r < o.repetitions; ++r) {
    check(moe_session_rewind(session, 0, &error), error);
    if (o.n_prompt > 0) {
      prefill.push_back(o.n_prompt /
                        time_eval(session, tokens.data(), static_cast<size_t>(o.n_prompt), false));
      check(moe_session_rewind(session, 0, &error), error);
    }
    if (o.n_generate > 0) {
      decode.push_back(o.n_generate /
                       time_eval(session, tokens.data(), static_cast<size_t>(o.n_generate), true));
    }
  }
  Timing timing;
  if (!prefill.empty()) timing.prefill_tokens_per_s = median(prefill);
  if (!decode.empty()) timing.decode_tokens_per_s = median(decode);
  return timing;
}

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

void print_result(const BenchOptions& o, const moe_env_info& env, const moe_model_info& info,
                  const Timing& t) {
  const double rate = t.decode_tokens_per_s * static_cast<double>(info.bytes_per_token);
  if (o.model.json) {
    print_json({{"model", info.name},
                {"weights", o.synthetic.empty() ? "" : o.weights},
                {"n_prompt", o.n_prompt},
                {"n_generate", o.n_generate},
                {"prefill_tokens_per_s", t.prefill_tokens_per_s},
                {"decode_tokens_per_s", t.decode_tokens_per_s},
                {"bytes_per_token", info.bytes_per_token},
                {"decode_bytes_per_s", rate},
                {"read_bandwidth_bytes_per_s", t.read_bandwidth},
                {"share_of_bandwidth", rate / t.read_bandwidth},
                {"weight_bytes", info.weight_bytes},
                {"peak_rss_bytes", peak_rss()},
                {"threads", env.threads},
                {"isa", env.isa}});
    return;
  }
  std::cout << info.name << " on " << env.threads << " threads, " << env.isa << ", weights "
            << format_bytes(info.weight_bytes) << "\n"
            << std::fixed << std::setprecision(1);
  if (o.n_prompt > 0) {
    std::cout << "  prefill " << std::setw(5) << o.n_prompt << " tokens  " << std::setw(9)
              << t.prefill_tokens_per_s << " tokens/s\n";
  }
  if (o.n_generate > 0) {
    std::cout << "  decode  " << std::setw(5) << o.n_generate << " tokens  " << std::setw(9)
              << t.decode_tokens_per_s << " tokens/s, at most "
              << format_bytes(info.bytes_per_token)
              << " of weights a token: " << format_bytes(static_cast<uint64_t>(rate)) << "/s, "
              << 100 * rate / t.read_bandwidth << " % of the "
              << format_bytes(static_cast<uint64_t>(t.read_bandwidth))
              << "/s that memory was read with\n";
  }
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
  {  // its threads end with it: the measurement forks, which wants a process of one thread
    const Env env = open_env(o.model);
    threads = env_info(env.get()).threads;
  }
  const double bandwidth = read_bandwidth(threads);
  const Env env = open_env(o.model);
  if (o.model.context == 0) o.model.context = std::max({o.n_prompt, o.n_generate, 8});
  const Loaded loaded = load(o, env.get());
  const Session session = open_session(o.model, loaded.model.get());
  set_current_session(session.get());
  moe_model_info info{};
  info.struct_size = sizeof info;
  check(moe_model_get_info(loaded.model.get(), &info, &error), error);
  Timing t = measure(o, session.get(), info);
  t.read_bandwidth = bandwidth;
  set_current_session(nullptr);
  print_result(o, env_info(env.get()), info, t);
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
  c->add_option("-r,--repetitions", o->repetitions, "The median of so many is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_model_options(*c, o->model, false);
  add_session_options(*c, o->model);
  c->callback([o] { run_bench(*o); });
}

}  // namespace moe_cli
