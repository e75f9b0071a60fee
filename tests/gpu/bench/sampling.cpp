// SPDX-License-Identifier: MIT
// Sampling from rows of logits, and the copy to the host that it avoids.

#include "kernels/cuda/ops.h"
#include "kernels/sample.h"
#include "tests/gpu/bench/bench.h"

namespace moe::cuda {
namespace {

/// sample_rows() on n rows of logits. They are not in rotation: the head has just written them.
void sample(Bench& bench, const char* name, int32_t n, int32_t vocab, const SampleSpec& spec) {
  const auto rows = static_cast<size_t>(n);
  const auto spans = static_cast<size_t>(sample_spans(vocab));
  const auto classes = rows * static_cast<size_t>(kLogitClasses);
  const size_t n_logits = rows * static_cast<size_t>(vocab);
  const Buffer logits = random_normals(n_logits, 3);
  const Buffer specs(std::vector<SampleSpec>(rows, spec));
  const Buffer copies(rows * sizeof(float*));
  const Buffer best(rows * spans * 8), bad(rows * spans * 4), counts(classes * 4);
  const Buffer weights(classes * 8), cursor(rows * 4);
  const size_t told = sizeof(SampleHead) + 16 * spans + sizeof(TokenCandidate) * kMaxCandidates;
  uint8_t* pinned = nullptr;
  check(cudaMallocHost(&pinned, rows * told), "pinned memory");
  DeviceSampleOp op;
  op.op = {logits.as<float>(), n, vocab, specs.as<SampleSpec>(), copies.as<float*>()};
  op.candidates = wants_candidates(spec);
  op.best = best.as<uint64_t>();
  op.bad = bad.as<int32_t>();
  op.counts = counts.as<uint32_t>();
  op.classes = weights.as<unsigned long long>();
  op.cursor = cursor.as<int32_t>();
  op.heads = reinterpret_cast<SampleHead*>(pinned);
  op.span_sums = reinterpret_cast<uint64_t*>(op.heads + rows);
  op.span_weights = op.span_sums + rows * spans;
  op.candidates_of = reinterpret_cast<TokenCandidate*>(op.span_weights + rows * spans);
  const Times t = bench.time(16, [&](cudaStream_t s, int) { return sample_rows(s, op); });
  bench.report(name, t, static_cast<double>(n_logits) * sizeof(float), 0);
  cudaFreeHost(pinned);
}

void bring(Bench& bench, const char* name, int32_t vocab) {
  const size_t bytes = static_cast<size_t>(vocab) * sizeof(float);
  const Buffer logits(bytes);
  float* pinned = nullptr;
  check(cudaMallocHost(&pinned, bytes), "pinned memory");
  const Times t = bench.time(16, [&](cudaStream_t s, int) {
    return cudaMemcpyAsync(pinned, logits.as<float>(), bytes, cudaMemcpyDeviceToHost, s);
  });
  bench.report(name, t, static_cast<double>(bytes), 0);
  cudaFreeHost(pinned);
}

}  // namespace

void measure_sampling(Bench& bench) {
  const int32_t vocab = bench.width(151936);
  const std::string of = ", " + std::to_string(vocab);
  const struct {
    const char* name;
    SampleSpec spec;
  } ways[] = {{"sample greedily", {0, 0, 0, 0}},
              {"sample by temperature", {0.8f, 0, 0, 0}},
              {"sample by top-k 40", {0.8f, 0, 0, 40}},
              {"sample by top-p 0.9", {0.8f, 0, 0.9f, 0}}};
  bench.attempt("logits" + of + ", to the host",
                [&](const char* name) { bring(bench, name, vocab); });
  for (const int32_t n : {1, 32}) {
    for (const auto& way : ways) {
      bench.attempt(way.name + of + ", " + std::to_string(n) + " rows",
                    [&](const char* name) { sample(bench, name, n, vocab, way.spec); });
    }
  }
}

}  // namespace moe::cuda
