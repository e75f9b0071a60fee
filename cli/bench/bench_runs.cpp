// SPDX-License-Identifier: MIT
// Measurements of moe bench: prompts, decoding, and memory bandwidth.

#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli/bench/bench.h"
#include "cli/bench/used_experts.h"
#include "cli/io/interrupt.h"
#include "cli/io/status_line.h"
#include "cli/model/memory.h"

namespace moe_cli {
namespace {

constexpr int kFirstTokens = 8;       // read in what all tokens need
constexpr int kTrialPrompt = 64;      // tokens
constexpr int kTrialGenerate = 4;     // tokens
constexpr int kTrialShare = 16;       // a trial has at most one token in so many, or kTrialPrompt
constexpr double kLeastShare = 0.1;   // of a trial's time: less may be noise
constexpr double kClearShare = 0.25;  // of a trial's time: no longer trial is needed
constexpr double kMostSeconds = 3600;
constexpr double kMostTrialSeconds = 10;

// Seconds of a prompt, by its tokens.
struct PromptTime {
  double linear = 0;
  double square = 0;
  double of(double n) const { return n * (linear + n * square); }
};

std::vector<int32_t> random_tokens(size_t n, int32_t vocab_size) {
  std::vector<int32_t> tokens(n);
  uint32_t state = 1;
  for (int32_t& t : tokens) {
    state = state * 1664525u + 1013904223u;
    t = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab_size));
  }
  return tokens;
}

// A limit is at least the fastest that was seen of it; 0 if it was not measured.
double best(const std::vector<double>& rates) {
  return rates.empty() ? 0 : *std::max_element(rates.begin(), rates.end());
}

int32_t vocab_size(const moe_model* model) { return model_info(model).vocab_size; }

class Runs {
 public:
  Runs(const BenchOptions& o, const moe_model* model, const std::vector<moe_session*>& sessions)
      : o_(o),
        sessions_(sessions),
        tokens_(
            random_tokens(static_cast<size_t>(o.positions()) * sessions.size(), vocab_size(model))),
        used_(model, may_skip(o.model)) {}

  Timing measure(const Meters& meters) {
    status_.show("reading weights");
    decode(0, kFirstTokens);
    refuse_hours();
    if (o_.n_generate > 0) count_experts();
    for (int r = 0; r < o_.repetitions; ++r) repeat(r, meters);
    status_.clear();
    Timing timing;
    timing.read_bandwidth = best(bandwidth_);
    timing.disk_bytes_per_s = best(disk_);
    if (!prefill_.empty()) timing.prefill_tokens_per_s = median(prefill_);
    if (!decode_.empty()) timing.decode_tokens_per_s = median(decode_);
    timing.experts_per_token = used_.experts_per_token();
    timing.weight_bytes_per_token = used_.bytes_per_token();
    tell_reads(&timing);
    return timing;
  }

 private:
  // Measures a prompt in an empty context, then decoding in all sessions together at the requested
  // depth. The limits are measured before, between and after: other programs on the machine can
  // slow down any one sample.
  void repeat(int r, const Meters& meters) {
    const std::string turn =
        " (" + std::to_string(r + 1) + " of " + std::to_string(o_.repetitions) + ")";
    measure_memory(meters, turn);
    if (o_.n_prompt > 0) {
      status_.show("prompt of " + std::to_string(o_.n_prompt) + " tokens" + turn);
      rewind();
      const moe_expert_stats before = memory_stats(sessions_[0]).model;
      prefill_.push_back(o_.n_prompt / eval(sessions_[0], o_.n_prompt));
      add_since(before, &prefill_reads_);
    }
    if (o_.n_generate == 0) return;
    measure_memory(meters, turn);
    measure_disk(meters, turn);
    go_to_depth(turn);
    what_ = "decoding" + turn;
    status_.show(what_);
    const moe_expert_stats before = memory_stats(sessions_[0]).model;
    const double seconds = decode(o_.depth, o_.n_generate);
    decode_.push_back(static_cast<double>(o_.n_generate) * o_.n_sessions / seconds);
    decode_seconds_ += seconds;
    add_since(before, &decode_reads_);
    measure_memory(meters, turn);
    measure_disk(meters, turn);
  }

  void measure_memory(const Meters& meters, const std::string& turn) {
    if (meters.memory == nullptr) return;
    status_.show("measuring memory" + turn);
    bandwidth_.push_back(meters.memory->measure());
  }

  void measure_disk(const Meters& meters, const std::string& turn) {
    if (meters.disk == nullptr) return;
    status_.show("measuring the disk" + turn);
    disk_.push_back(meters.disk->measure());
  }

  void add_since(const moe_expert_stats& before, moe_expert_stats* sum) const {
    const moe_expert_stats more = since(before, memory_stats(sessions_[0]).model);
    sum->n_uses += more.n_uses;
    sum->n_hits += more.n_hits;
    sum->read_bytes += more.read_bytes;
    sum->wait_seconds += more.wait_seconds;
  }

  void tell_reads(Timing* timing) const {
    timing->hit_rate = hit_rate(decode_reads_);
    const double n_decoded = static_cast<double>(decode_.size()) * o_.n_generate * o_.n_sessions;
    if (n_decoded > 0) {
      timing->decode_read_bytes = static_cast<double>(decode_reads_.read_bytes) / n_decoded;
      timing->decode_wait_share = decode_reads_.wait_seconds / decode_seconds_;
    }
    if (!prefill_.empty()) {
      timing->prefill_read_bytes =
          static_cast<double>(prefill_reads_.read_bytes) / static_cast<double>(prefill_.size());
    }
  }

  // Repeats the tokens that are timed, with the same experts. Not timed, because counting takes
  // time.
  void count_experts() {
    go_to_depth("");
    what_ = "counting experts";
    status_.show(what_);
    counting_ = true;
    decode(o_.depth, o_.n_generate);
    counting_ = false;
  }

  // Doubles a short prompt until attention shows, whose time grows with the square. It has to show
  // twice in turn: something else may have held up one.
  PromptTime try_prompts() {
    const int most = std::max(o_.n_prompt, o_.depth + o_.n_generate);
    int n = std::min(most, kTrialPrompt);
    if (n == 0) return {};
    double seconds = eval(sessions_[0], n);
    PromptTime time{seconds / n, 0};
    double last_square = 0;
    while (n <= most / kTrialShare && seconds < kMostTrialSeconds && prompts(time) < kMostSeconds &&
           time.square * n * n < kClearShare * seconds) {
      rewind();
      const double of_half = seconds;
      n *= 2;
      seconds = eval(sessions_[0], n);
      const double grown = 2 * (seconds - 2 * of_half);
      const double square = grown < kLeastShare * seconds ? 0 : grown / n / n;
      time.square = std::min(square, last_square);
      time.linear = seconds / n - time.square * n;
      last_square = square;
    }
    rewind();
    return time;
  }

  double prompts(const PromptTime& time) const {
    return o_.repetitions * time.of(o_.n_prompt) +
           (o_.repetitions + 1.0) * o_.n_sessions * time.of(o_.depth);
  }

  void refuse_hours() {
    status_.show("trying");
    rewind();
    const PromptTime time = try_prompts();
    const double all_prompts = prompts(time);
    double all_decoding = 0;
    const int n_generate = std::min(o_.n_generate, kTrialGenerate);
    if (n_generate > 0) {
      const double seconds = decode(0, n_generate) / n_generate;
      const double attention = time.square * (o_.n_generate + 2.0 * o_.depth) * o_.n_sessions;
      all_decoding = (seconds + attention) * o_.n_generate * (o_.repetitions + 1.0);
    }
    if (all_prompts + all_decoding <= kMostSeconds) return;
    char text[200];
    std::snprintf(text, sizeof text,
                  "this would take about %.1f hours here (prompts %.1f, decoding %.1f); expected "
                  "at most 1: lower -p, -n, --depth or -r",
                  (all_prompts + all_decoding) / 3600, all_prompts / 3600, all_decoding / 3600);
    throw CallError(MOE_ERR_RANGE, text);
  }

  void go_to_depth(const std::string& turn) {
    rewind();
    if (o_.depth == 0) return;
    status_.show("filling the context with " + std::to_string(o_.depth) + " tokens" + turn);
    std::vector<int32_t> tokens(static_cast<size_t>(o_.depth));
    for (size_t s = 0; s < sessions_.size(); ++s) {
      for (int i = 0; i < o_.depth; ++i) tokens[static_cast<size_t>(i)] = token(i, s);
      eval(sessions_[s], tokens.data(), o_.depth);
    }
  }

  void rewind() {
    moe_error error;
    for (moe_session* s : sessions_) check(moe_session_rewind(s, 0, &error), error);
  }

  // Each session has a text of its own: those that have much in common select the same experts,
  // even where their next tokens differ.
  int32_t token(int position, size_t session) const {
    const size_t n = tokens_.size() / sessions_.size();
    return tokens_[session * n + static_cast<size_t>(position) % n];
  }

  double eval(moe_session* session, int n) { return eval(session, tokens_.data(), n); }

  double eval(moe_session* session, const int32_t* tokens, int n) {
    moe_error error;
    const double start = now_seconds();
    set_current_session(session);
    stop_if_interrupted();
    check(moe_session_eval(session, tokens, static_cast<size_t>(n), MOE_ROWS_NONE, nullptr, &error),
          error);
    return now_seconds() - start;
  }

  // Decodes tokens `first` .. `first + n`.
  double decode(int first, int n) {
    std::vector<int32_t> row(sessions_.size());
    const double start = now_seconds();
    for (int i = 0; i < n; ++i) {
      stop_if_interrupted();
      status_.update(what_, i, n);
      for (size_t s = 0; s < row.size(); ++s) {
        row[s] = token(first + i, s);
      }
      if (counting_) used_.begin(sessions_);
      step(row);
      if (counting_) used_.end(sessions_);
    }
    return now_seconds() - start;
  }

  void step(const std::vector<int32_t>& row) {
    moe_error error;
    check(
        row.size() == 1
            ? moe_session_eval(sessions_[0], row.data(), 1, MOE_ROWS_NONE, nullptr, &error)
            : moe_sessions_eval(sessions_.data(), row.data(), nullptr, row.size(), nullptr, &error),
        error);
  }

  const BenchOptions& o_;
  const std::vector<moe_session*>& sessions_;
  std::vector<int32_t> tokens_;
  UsedExperts used_;
  bool counting_ = false;
  StatusLine status_;
  std::string what_ = "reading weights";
  std::vector<double> bandwidth_, disk_, prefill_, decode_;
  moe_expert_stats prefill_reads_{}, decode_reads_{};
  double decode_seconds_ = 0;
};

}  // namespace

int BenchOptions::positions() const {
  return std::max({n_prompt, depth + n_generate, kFirstTokens});
}

bool BenchOptions::from_file() const {
  return !model.memory.empty() || model.io != "auto" || model.map;
}

double Timing::decode_bound() const {
  if (disk_bytes_per_s <= 0 || decode_tokens_per_s <= 0 || decode_read_bytes <= 0) return 0;
  const double reading = decode_read_bytes / disk_bytes_per_s;
  const double computing = (1 - decode_wait_share) / decode_tokens_per_s;
  return 1 / std::max(reading, computing);
}

Timing run_measurement(const BenchOptions& o, const moe_model* model,
                       const std::vector<moe_session*>& sessions, const Meters& meters) {
  return Runs(o, model, sessions).measure(meters);
}

}  // namespace moe_cli
