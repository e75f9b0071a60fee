// SPDX-License-Identifier: MIT
#pragma once
// Converts moe_generate_params to the core's options, for the C functions that generate.

#include "src/c_api/handles.h"
#include "src/run/stepped.h"

namespace moe {

/// The core's options and what they refer to; the caller's params must stay valid.
struct GenerateCall {
  explicit GenerateCall(const Allocator& a) : stops(a) {}
  GenerateCall(const GenerateCall&) = delete;
  GenerateCall& operator=(const GenerateCall&) = delete;

  /// model: of the session. The core checks the numbers.
  Status read(const moe_generate_params* given, const moe_model& model);

  /// In a chat with tools; null: their calls are free.
  void hold_calls(Ref<moe_grammar> given) {
    calls = std::move(given);
    options.calls = calls.get() == nullptr ? nullptr : calls->grammar.get();
  }

  GenerateOptions options;

 private:
  static bool call_back(void* user, const Piece& piece);
  static bool change_logits(void* user, std::span<const int32_t> text, std::span<float> logits);

  Array<std::string_view> stops;
  Ref<moe_grammar> grammar{nullptr};  // those of the options
  Ref<moe_grammar> calls{nullptr};
  moe_piece_fn callback = nullptr;
  void* user = nullptr;
  moe_logits_fn logits_callback = nullptr;
  void* logits_user = nullptr;
};

/// The part of moe_generate_result and moe_chat_result that both have.
template <class Value>
void describe_result(const GenerateResult& r, Value* value) {
  value->finish = static_cast<moe_finish>(r.finish);
  value->n_prompt = r.n_prompt;
  value->n_generated = r.n_generated;
  value->prompt_seconds = r.prompt_seconds;
  value->generate_seconds = r.generate_seconds;
  value->n_drafted = r.n_drafted;
  value->n_accepted = r.n_accepted;
}

}  // namespace moe

/// A generation in steps, with a copy of its parameters.
struct moe_generation {
  moe_generation(moe_session& s, const moe::Allocator& a)
      : session(&s), allocator(a), call(a), bias(a) {}

  /// Reads the parameters, and copies what is used after the caller's call.
  moe::Status read(const moe_generate_params* given);

  const moe::Ref<moe_session> session;
  const moe::Allocator& allocator;  // the environment's
  moe::GenerateCall call;
  moe::Array<moe::LogitBias> bias;
  moe::Box<moe::SteppedGeneration> steps;
};
