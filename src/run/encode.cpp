// SPDX-License-Identifier: MIT
// Hidden states of a text and outputs of an encoder's head.

#include <algorithm>

#include "src/base/host_buffer.h"
#include "src/base/inline.h"
#include "src/run/logits.h"
#include "src/run/session_state.h"

namespace moe {
namespace {

Status check_text(const SessionState& state, std::span<const int32_t> tokens, size_t second) {
  if (tokens.empty()) return Status::error(MOE_ERR_RANGE, "n_tokens: expected at least 1, found 0");
  if (!state.model.config().is_encoder()) {
    if (second == 0) return check_tokens(state, tokens);
    return Status::error(MOE_ERR_UNSUPPORTED, "second: only encoders tell two texts apart");
  }
  if (second >= tokens.size()) {
    return Status::error(MOE_ERR_RANGE,
                         "second: expected below the number of tokens, %zu, found %zu",
                         tokens.size(), second);
  }
  const SessionOptions& o = state.options;
  if (tokens.size() > static_cast<size_t>(o.context)) {
    const int32_t most = std::min(state.model.config().context_length, kMaxChunk);
    return Status::error(MOE_ERR_TOO_LONG,
                         o.context < most
                             ? "%zu tokens do not fit: the session's context holds %d; create it "
                               "with a larger one (--context), at most %d"
                             : "%zu tokens do not fit: the limit is %d",
                         tokens.size(), o.context, most);
  }
  const int32_t chunk = state.chunk();
  if (tokens.size() > static_cast<size_t>(chunk)) {
    return Status::error(MOE_ERR_TOO_LONG,
                         chunk < kMaxChunk
                             ? "an encoder sees a text whole: at most %d tokens, found %zu; create "
                               "the session with a larger chunk (--chunk), at most %d"
                             : "an encoder sees a text whole: the limit is %d tokens, "
                               "found %zu",
                         chunk, tokens.size(), kMaxChunk);
  }
  return check_ids(state, tokens);
}

Status check_rows(const ModelConfig& config, size_t n_tokens, std::span<const int32_t> rows) {
  if (!config.is_encoder()) {
    return Status::error(MOE_ERR_UNSUPPORTED, "outputs: a decoder's outputs are its logits (eval)");
  }
  if (config.head.kind == HeadKind::kNone) {
    return Status::error(MOE_ERR_UNSUPPORTED, "outputs: the model has no head");
  }
  if (config.head.kind == HeadKind::kClasses && !rows.empty()) {
    return Status::error(MOE_ERR_ARGUMENT, "rows: the model has one output for the whole text");
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t low = i == 0 ? 0 : rows[i - 1] + 1;
    if (rows[i] >= low && static_cast<size_t>(rows[i]) < n_tokens) continue;
    return Status::error(MOE_ERR_RANGE, "rows: expected ascending numbers in 0..%zu, found %d",
                         n_tokens - 1, rows[i]);
  }
  return {};
}

/// Writes rows of outputs consecutively.
struct OutputRows {
  float* to;
  size_t width;
  static Status take(void* user, size_t, const float* from) {
    OutputRows& out = *static_cast<OutputRows*>(user);
    MOE_TRY(check_finite({from, out.width}));
    std::copy_n(from, out.width, out.to);
    out.to += out.width;
    return {};
  }
};

void normalise(std::span<float> vector) {
  constexpr double kLeast = 1e-12;  // as PyTorch's normalize
  double sum = 0;
  for (const float v : vector) sum += static_cast<double>(v) * static_cast<double>(v);
  const double length = std::max(__builtin_sqrt(sum), kLeast);
  for (float& v : vector) v = static_cast<float>(static_cast<double>(v) / length);
}

// Rows of hidden states that are copied at a time from the memory of another device.
constexpr size_t kRows = 16;

/// Memory for pooling a text's hidden states.
struct PoolingMemory {
  std::span<double> sums;   // (d_model)
  std::span<float> copies;  // (kRows, d_model); empty on devices that use host memory

  std::span<float> mean;  // (d_model); empty unless the head reads it

  void lay_out(Carver& c, int32_t d_model, bool summed, bool copied, bool of_mean) {
    if (summed) c.take(&sums, d_model);
    if (of_mean) c.take(&mean, d_model);
    if (copied) c.take(&copies, int64_t{kRows} * d_model);
  }
};

/// Where a text's hidden states go, received in order: the caller's memory, one pooled vector, or
/// both.
class HiddenStates {
 public:
  HiddenStates(const Encoding& out, SessionState& state, size_t n_tokens)
      : out_(out),
        device_(state.device),
        n_tokens_(n_tokens),
        d_(static_cast<size_t>(state.model.config().d_model)),
        of_mean_(out.outputs != nullptr && state.model.config().head.of_mean()),
        memory_(state.model.allocator()) {}
  Status init() {
    const bool copied = (out_.pooled != nullptr || of_mean_) && out_.hidden == nullptr;
    return memory_.init("pooling", [&](Carver& c) {
      pool_.lay_out(c, static_cast<int32_t>(d_), wants_sums(),
                    copied && !device_.uses_host_memory(), of_mean_);
    });
  }
  bool wanted() const { return out_.hidden != nullptr || out_.pooled != nullptr || of_mean_; }
  HiddenSink sink() {
    return wanted() ? HiddenSink{take, this, of_mean_ ? mean : nullptr} : HiddenSink();
  }
  void finish();

 private:
  bool wants_mean() const { return out_.pooled != nullptr && out_.pooling == Pooling::kMean; }
  bool wants_sums() const { return wants_mean() || of_mean_; }
  static Status take(void* user, const float* hidden, size_t n);
  static const float* mean(void* user);
  float mean_of(size_t i) const {
    return static_cast<float>(pool_.sums[i] / static_cast<double>(n_tokens_));
  }
  // The states of the next n tokens, in host memory.
  Status add(const float* hidden, size_t n);

  const Encoding& out_;
  Device& device_;
  size_t n_tokens_;
  size_t d_;
  bool of_mean_;  // the head makes its outputs of the mean
  size_t n_done_ = 0;
  PoolingMemory pool_;
  HostBuffer memory_;
};

Status HiddenStates::take(void* user, const float* hidden, size_t n) {
  HiddenStates& self = *static_cast<HiddenStates*>(user);
  const size_t d = self.d_;
  if (self.out_.hidden != nullptr) {
    float* to = self.out_.hidden + self.n_done_ * d;
    MOE_TRY(self.device_.download(to, hidden, n * d * sizeof(float)));
    return self.add(to, n);
  }
  if (self.device_.uses_host_memory()) return self.add(hidden, n);
  for (size_t i = 0; i < n; i += kRows) {
    const size_t rows = std::min(kRows, n - i);
    float* to = self.pool_.copies.data();
    MOE_TRY(self.device_.download(to, hidden + i * d, rows * d * sizeof(float)));
    MOE_TRY(self.add(to, rows));
  }
  return {};
}

Status HiddenStates::add(const float* hidden, size_t n) {
  const size_t first = n_done_;
  n_done_ += n;
  for (size_t i = 0; i < n * d_; ++i) {
    if (is_finite(hidden[i])) continue;
    return Status::error(MOE_ERR_NON_FINITE, "the hidden state of token %zu is not finite",
                         first + i / d_);
  }
  for (size_t i = 0; i < n * d_ && wants_sums(); ++i) {
    pool_.sums[i % d_] += static_cast<double>(hidden[i]);
  }
  if (out_.pooled == nullptr || wants_mean()) return {};
  const size_t wanted = out_.pooling == Pooling::kFirst ? 0 : n_tokens_ - 1;
  if (wanted >= first && wanted < first + n) {
    std::copy_n(hidden + (wanted - first) * d_, d_, out_.pooled);
  }
  return {};
}

const float* HiddenStates::mean(void* user) {
  HiddenStates& self = *static_cast<HiddenStates*>(user);
  for (size_t i = 0; i < self.d_; ++i) self.pool_.mean[i] = self.mean_of(i);
  return self.pool_.mean.data();
}

void HiddenStates::finish() {
  for (size_t i = 0; i < d_ && wants_mean(); ++i) out_.pooled[i] = mean_of(i);
  if (out_.pooled != nullptr && out_.normalise) normalise({out_.pooled, d_});
}

/// The outputs to request from an encoder's head.
Status ask_outputs(const ModelConfig& config, const Encoding& out, OutputRows* rows,
                   BatchPart* part) {
  static constexpr int32_t kFirstRow = 0;
  if (out.outputs == nullptr) return {};
  MOE_TRY(check_rows(config, part->tokens.size(), out.rows));
  part->rows = out.rows.empty() ? LogitRows::kAll : LogitRows::kSome;
  part->some = out.rows;
  part->sink = {OutputRows::take, rows};
  if (config.head.kind == HeadKind::kClasses) {
    part->rows = LogitRows::kSome;
    part->some = config.head.of_mean() ? std::span<const int32_t>() : std::span(&kFirstRow, 1);
  }
  return {};
}

}  // namespace

uint64_t encode_bytes(const Device& device, const ModelConfig& config) {
  PoolingMemory pool;
  return measured([&](Carver& c) {
    pool.lay_out(c, config.d_model, true, !device.uses_host_memory(), config.head.of_mean());
  });
}

Status Session::encode(std::span<const int32_t> tokens, const Encoding& out) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  const ModelConfig& config = state.model.config();
  MOE_TRY(check_text(state, tokens, out.second));
  OutputRows rows{out.outputs, state.logits.row().size()};
  BatchPart whole;
  whole.session = &state;
  whole.tokens = tokens;
  if (config.second_positions) whole.second = out.second;
  MOE_TRY(ask_outputs(config, out, &rows, &whole));
  HiddenStates states(out, state, tokens.size());
  MOE_TRY(states.init());
  whole.hidden = states.sink();
  Status status;
  for (size_t done = 0; done < tokens.size();) {  // once for an encoder
    const PassLease lease(state);
    status = lease.status();
    if (status.ok()) status = check_one_pass(state, tokens.size());
    if (!status.ok()) break;
    BatchPart part = whole;
    const auto chunk = static_cast<size_t>(state.pass_rows());
    part.tokens = tokens.subspan(done, std::min(chunk, tokens.size() - done));
    part.position = state.position() + static_cast<int32_t>(done);
    status = run_batch(state, {&part, 1});
    if (!status.ok()) break;
    if (config.is_encoder()) state.routers.counters.add_pass();
    done += part.tokens.size();
  }
  if (status.ok()) states.finish();
  return status;
}

}  // namespace moe
