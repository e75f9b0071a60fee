// SPDX-License-Identifier: MIT
#pragma once
// Threads, a device and one model for tests, and helpers to run it.

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/device_cpu.h"
#include "src/run/session.h"
#include "tests/run/hook_device.h"
#include "tests/run/tiny_kinds.h"

namespace moe {

using Tokens = std::vector<int32_t>;
using Floats = std::vector<float>;

inline Tokens random_tokens(size_t n, int32_t vocab_size, uint32_t seed = 1) {
  std::mt19937 rng(seed);
  Tokens t(n);
  for (int32_t& id : t) id = static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab_size));
  return t;
}

inline std::span<const int32_t> span(const Tokens& t, size_t from = 0, size_t n = ~size_t{0}) {
  return {t.data() + from, std::min(n, t.size() - from)};
}

/// One model and its sessions; derived classes open the model.
class OneModel {
 public:
  explicit OneModel(const Allocator& allocator) : allocator_(allocator) {}
  OneModel(const OneModel&) = delete;

  const Status& status() const { return status_; }
  Model& model() { return *model_; }
  int32_t vocab_size() { return model_->config().vocab_size; }
  Result<Box<Session>> try_session(const SessionOptions& options = {}) {
    return Session::create(*model_, options, allocator_);
  }
  Box<Session> session(const SessionOptions& options = {}) {
    auto session = try_session(options);
    EXPECT_TRUE(session.ok()) << session.status().text();
    return session.ok() ? std::move(session.value()) : Box<Session>();
  }

 protected:
  const Allocator& allocator_;
  Box<Model> model_;
  Status status_;
};

/// `bytes` must outlive it. status() tells whether the model could be opened.
class Machine : public OneModel {
 public:
  explicit Machine(const MemorySink& bytes, int threads = 1, const char* isa = nullptr,
                   const Allocator& allocator = system_allocator(), uint64_t cap = 0)
      : OneModel(allocator), pool_(allocator) {
    status_ = open(bytes, threads, isa, cap);
  }
  ~Machine() {
    model_.reset();
    hook_.reset();
    close_cpu_device(device_);
  }

  HookDevice& hook() { return *hook_; }

 private:
  Status open(const MemorySink& bytes, int threads, const char* isa, uint64_t cap) {
    MOE_TRY(pool_.start(threads));
    // Tiny models have little work: threads share any amount of work.
    MOE_ASSIGN(device_, open_cpu_device(isa, pool_, allocator_, 1));
    hook_ = std::make_unique<HookDevice>(*device_);
    ModelOptions options;
    options.memory_bytes = cap;
    options.clock = hook_->clock();
    MOE_ASSIGN(model_, open_model(bytes, *hook_, allocator_, options));
    return {};
  }

  ThreadPool pool_;
  Device* device_ = nullptr;
  std::unique_ptr<HookDevice> hook_;
};

/// Evaluates the tokens `chunk` at a time; returns all logits.
inline Floats eval_all(Session& session, const Tokens& tokens, size_t chunk = ~size_t{0}) {
  const size_t vocab = static_cast<size_t>(session.model().config().vocab_size);
  Floats logits(tokens.size() * vocab);
  for (size_t i = 0; i < tokens.size();) {
    const size_t n = std::min(chunk, tokens.size() - i);
    const Status s = session.eval(span(tokens, i, n), LogitRows::kAll, &logits[i * vocab]);
    EXPECT_TRUE(s.ok()) << s.text();
    if (!s.ok()) break;
    i += n;
  }
  return logits;
}

/// 0: no such line.
inline uint64_t line_of(const MemoryAccount& account, const char* what) {
  for (int32_t i = 0; i < account.n_lines; ++i) {
    if (std::strcmp(account.lines[i].what, what) == 0) return account.lines[i].bytes;
  }
  return 0;
}

}  // namespace moe
