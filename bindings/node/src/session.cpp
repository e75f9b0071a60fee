// SPDX-License-Identifier: MIT
// Sessions: evaluation, scores and embeddings, and the end of a call.

#include "owner.h"

namespace moe_node {
namespace {

/// Starts a call on a session that takes tokens and returns numbers.
/// call(session, tokens, numbers, error) resizes and fills `numbers`.
template <class Call>
napi_value numbers(const Js& js, const Arguments& a, Call call) {
  auto tokens = std::make_shared<std::vector<int32_t>>(js.tokens(a[1]));
  auto result = std::make_shared<std::vector<float>>();
  Handle* handle = nullptr;
  moe_session* session = idle<moe_session>(js, a[0], &handle);
  return Work::start(
      js, {handle}, true,
      [=](Work&, moe_error* e) { return call(session, *tokens, result.get(), e); },
      [=](const Js& to) { return to.of(*result); });
}

moe_model_info info_of(const Handle* session) {
  moe_model_info info = {};
  moe_error error;
  info.struct_size = sizeof info;
  check(moe_model_get_info(session->parent()->pointer<moe_model>(), &info, &error), error);
  return info;
}

/// The concatenated tokens of several sessions, and the result.
struct Pieces {
  Pieces(const Js& js, napi_value given) {
    for (napi_value piece : js.list(given, "pieces")) {
      const std::vector<int32_t> of_one = js.tokens(piece);
      n_tokens.push_back(of_one.size());
      tokens.insert(tokens.end(), of_one.begin(), of_one.end());
    }
  }
  std::vector<int32_t> tokens;
  std::vector<size_t> n_tokens;
  std::vector<moe_session*> sessions;
  std::vector<float> logits;
};

}  // namespace

napi_value create_session(const Js& js, const Arguments& a) {
  const moe_session_params params = session_params(js, a[1]);
  Handle* model = nullptr;
  moe_model* pointer = idle<moe_model>(js, a[0], &model);
  auto session = std::make_shared<Session>();
  return Work::start(
      js, {model}, false,
      [=](Work&, moe_error* e) {
        return moe_session_create(pointer, &params, &session->pointer, e);
      },
      [=](const Js& to) { return wrap(to, make_handle("session", *session, model)); });
}

napi_value position(const Js& js, const Arguments& a) {
  return js.of(static_cast<double>(moe_session_position(idle<moe_session>(js, a[0]))));
}

napi_value context(const Js& js, const Arguments& a) {
  return js.of(static_cast<double>(moe_session_context(idle<moe_session>(js, a[0]))));
}

napi_value rewind(const Js& js, const Arguments& a) {
  moe_error error;
  const int64_t to = js.integer(a[1], "position", INT32_MIN, INT32_MAX);
  check(moe_session_rewind(idle<moe_session>(js, a[0]), static_cast<int32_t>(to), &error), error);
  return js.undefined();
}

napi_value count_routing(const Js& js, const Arguments& a) {
  const bool on = js.boolean(a[1], "on");
  moe_error error;
  check(moe_session_count_routing(idle<moe_session>(js, a[0]), on, &error), error);
  return js.undefined();
}

napi_value activations(const Js& js, const Arguments& a) {
  const int64_t layer = js.integer(a[1], "layer", INT32_MIN, INT32_MAX);
  moe_activation_stats stats = {};
  moe_error error;
  stats.struct_size = sizeof stats;
  check(moe_session_get_activations(idle<moe_session>(js, a[0]), static_cast<int32_t>(layer),
                                    &stats, &error),
        error);
  napi_value result = js.object();
  js.set(result, "nActivations", js.of(static_cast<double>(stats.n_activations)));
  js.set(result, "nPositive", js.of(static_cast<double>(stats.n_positive)));
  return result;
}

napi_value eval(const Js& js, const Arguments& a) {
  const size_t n = static_cast<size_t>(info_of(unwrap(js, a[0])).vocab_size);
  return numbers(js, a, [n](moe_session* s, const auto& tokens, auto* logits, moe_error* e) {
    logits->resize(n);
    return moe_session_eval(s, tokens.data(), tokens.size(), MOE_ROWS_LAST, logits->data(), e);
  });
}

napi_value score(const Js& js, const Arguments& a) {
  return numbers(js, a, [](moe_session* s, const auto& tokens, auto* logprobs, moe_error* e) {
    const bool first = moe_session_position(s) == 0 && !tokens.empty();
    logprobs->resize(tokens.size() - first);
    return moe_session_score(s, tokens.data(), tokens.size(), logprobs->data(), logprobs->size(),
                             e);
  });
}

napi_value embed(const Js& js, const Arguments& a) {
  const size_t d = static_cast<size_t>(info_of(unwrap(js, a[0])).d_model);
  moe_encode_params p = {};
  p.struct_size = sizeof p;
  p.pooling = js.named(a[2], "pooling", kPoolingNames);
  p.normalize = p.pooling == MOE_POOL_DEFAULT ? MOE_NORMALIZE_DEFAULT : MOE_NORMALIZE_OFF;
  return numbers(js, a, [=](moe_session* s, const auto& tokens, auto* vector, moe_error* e) {
    vector->resize(d);
    moe_encode_params params = p;
    params.pooled = vector->data();
    return moe_session_encode(s, tokens.data(), tokens.size(), &params, e);
  });
}

/// evaluate_each(sessions, pieces): equally many, at least one; index.js checks that.
napi_value eval_each(const Js& js, const Arguments& a) {
  auto pieces = std::make_shared<Pieces>(js, a[1]);
  Work::Handles handles;
  for (napi_value session : js.list(a[0], "sessions")) {
    handles.push_back(nullptr);
    pieces->sessions.push_back(idle<moe_session>(js, session, &handles.back()));
  }
  const auto vocab_size = static_cast<size_t>(info_of(handles.at(0)).vocab_size);
  return Work::start(
      js, handles, true,
      [=](Work&, moe_error* e) {
        pieces->logits.resize(pieces->n_tokens.size() * vocab_size);
        return moe_sessions_eval(pieces->sessions.data(), pieces->tokens.data(),
                                 pieces->n_tokens.data(), pieces->n_tokens.size(),
                                 pieces->logits.data(), e);
      },
      [=](const Js& to) { return to.of(pieces->logits); });
}

/// cancel(session or chat): true if a call is in progress.
napi_value cancel(const Js& js, const Arguments& a) {
  Work* work = unwrap(js, a[0])->work();
  if (work != nullptr) work->cancel();
  return js.of(work != nullptr);
}

/// Cancels again a call that was cancelled before, and no other; true if there is one.
napi_value cancel_again(const Js& js, const Arguments& a) {
  Work* work = unwrap(js, a[0])->work();
  const bool cancelled = work != nullptr && work->is_cancelled();
  if (cancelled) work->cancel();
  return js.of(cancelled);
}

/// Cancels every call of this JavaScript thread at its exit, since Node waits for them.
napi_value end_all(const Js& js, const Arguments&) {
  Work::end_all(nullptr);
  return js.undefined();
}

napi_value close_handle(const Js& js, const Arguments& a) {
  unwrap(js, a[0])->close();
  return js.undefined();
}

}  // namespace moe_node
