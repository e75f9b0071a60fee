// SPDX-License-Identifier: MIT
#pragma once
// Generation with a model of byte tokens.

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/run/generate.h"
#include "src/text/tokenizer.h"
#include "tests/run/tiny_run.h"

namespace moe {

/// The pieces that the callback received.
struct Seen {
  Tokens tokens;
  std::string text;
  std::vector<float> logprobs;
  std::vector<std::pair<int32_t, float>> top;  // of all tokens
  size_t n_top = 0;
  size_t stop_after = ~size_t{0};
  Session* cancel = nullptr;
  size_t cancel_at = ~size_t{0};

  static bool take(void* user, const Piece& piece) {
    auto* s = static_cast<Seen*>(user);
    if (piece.token >= 0) {
      s->tokens.push_back(piece.token);
      s->logprobs.push_back(piece.logprob);
    }
    for (const TokenLogprob& t : piece.top) s->top.emplace_back(t.token, t.logprob);
    s->text += piece.text;
    s->n_top = piece.top.size();
    if (s->tokens.size() == s->cancel_at) s->cancel->cancel();
    return s->tokens.size() < s->stop_after;
  }
};

/// A model of 256 byte tokens with context 160; EOS is byte 1.
class GenerateTest : public testing::Test {
 protected:
  GenerateTest()
      : bytes_(
            build_tiny_kind({"bytes", [](ModelConfig& c, TinyOptions&) { c.vocab_size = 256; }})),
        machine_(*bytes_) {}
  void SetUp() override {
    ASSERT_TRUE(machine_.status().ok()) << machine_.status().text();
    session_ = machine_.session();
    TokenizerSpec spec;
    spec.kind = "bytes";
    spec.model_vocab = 256;
    auto tokenizer = Tokenizer::create(spec, system_allocator());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().text();
    tokenizer_ = std::move(tokenizer.value());
    only("abc");
    options_.sampling.temperature = 1;
    options_.sampling.seed = 4;
    options_.max_tokens = 40;
    options_.callback = Seen::take;
    options_.user = &seen_;
  }

  // Bans every byte except these.
  void only(const std::string& bytes) {
    bias_.clear();
    for (int32_t i = 0; i < 256; ++i) {
      if (bytes.find(static_cast<char>(i)) != std::string::npos) continue;
      bias_.push_back({i, -std::numeric_limits<float>::infinity()});
    }
    options_.sampling.bias = {bias_.data(), bias_.size()};
  }
  Status run(bool with_prompt = true) {
    return generate(*session_, tokenizer_.get(),
                    with_prompt ? span(prompt_) : std::span<const int32_t>(), options_, &result_);
  }
  void again() {
    ASSERT_TRUE(session_->reset().ok());
    seen_ = Seen();
  }
  // Runs with these stop strings; seen_.text is the text that the callback received.
  Finish run_stops(const std::vector<std::string>& stops) {
    std::vector<std::string_view> views(stops.begin(), stops.end());
    options_.stop = {views.data(), views.size()};
    const Status s = run();
    EXPECT_TRUE(s.ok()) << s.text();
    options_.stop = {};
    return result_.finish;
  }

  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  Box<Session> session_;
  Box<Tokenizer> tokenizer_;
  std::vector<LogitBias> bias_;
  Tokens prompt_ = {'o', 'n', 'c', 'e'};
  GenerateOptions options_;
  GenerateResult result_;
  Seen seen_;
};

}  // namespace moe
