// SPDX-License-Identifier: MIT
// Sampling one token from a large vocabulary.
#include <random>
#include <vector>

#include "src/run/sampler.h"
#include "tests/bench/bench.h"

namespace moe::bench {
namespace {

constexpr int32_t kVocabulary = 151936;  // Qwen2's

std::vector<float> normal_logits() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kVocabulary);
  for (float& x : logits) x = normal(random);
  return logits;
}

void run_sample(benchmark::State& state, const SamplingConfig& config) {
  pin(state);
  static const std::vector<float> logits = normal_logits();
  Sampler sampler(system_allocator());
  if (!sampler.init(kVocabulary).ok()) return state.SkipWithError("no memory");
  uint64_t draw = 0;
  for (auto _ : state) {
    TokenLogprob token;
    const Status status =
        sampler.sample(config, std::span<const float>(logits), {}, draw++, &token, nullptr, 0);
    if (!status.ok()) return state.SkipWithError(status.text());
    benchmark::DoNotOptimize(token);
  }
  set_rate(state, "tokens/s", 1);
}

void add_config(const char* name, const SamplingConfig& config) {
  add(std::string("sampling/") + name, [config](benchmark::State& s) { run_sample(s, config); });
}

}  // namespace

void add_sampling() {
  SamplingConfig config;
  add_config("greedy", config);
  config.temperature = 1;
  add_config("temperature", config);
  config.top_k = 40;
  add_config("top_k_40", config);
  config.top_k = 0;
  config.top_p = 0.95f;
  add_config("top_p_0.95", config);
  config.top_p = 1;
  config.min_p = 0.05f;
  add_config("min_p_0.05", config);
}

}  // namespace moe::bench
