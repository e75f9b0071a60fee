#pragma once
// A call of the library on a worker thread, as a promise. Pieces of text come back to JavaScript's
// thread through a thread-safe function; the promise is settled after the last of them.

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "handle.h"

namespace moe_node {

/// A moe_piece that outlives its callback.
struct Piece {
  int32_t token;
  float logprob;
  bool thinking;
  std::string text;
  std::vector<moe_token_logprob> top;
};

inline napi_value to_js(const Js& js, const Piece& piece) {
  napi_value result = js.object();
  napi_value top = nullptr;
  js.ok(napi_create_array(js.env, &top));
  for (size_t i = 0; i < piece.top.size() && piece.top[i].token >= 0; ++i) {
    napi_value entry = js.object();
    js.set(entry, "token", js.of(static_cast<double>(piece.top[i].token)));
    js.set(entry, "logprob", js.of(static_cast<double>(piece.top[i].logprob)));
    js.ok(napi_set_element(js.env, top, static_cast<uint32_t>(i), entry));
  }
  js.set(result, "token", js.of(static_cast<double>(piece.token)));
  js.set(result, "logprob", js.of(static_cast<double>(piece.logprob)));
  js.set(result, "text", js.string(piece.text.data(), piece.text.size()));
  js.set(result, "thinking", js.of(piece.thinking));
  js.set(result, "top", top);
  return result;
}

class Work {
 public:
  using Run = std::function<moe_status(Work&, moe_error*)>;
  using Result = std::function<napi_value(const Js&)>;

  /// `handle`, or NULL, is held and busy meanwhile; `one` is false where any number of calls may
  /// use it. on_piece: NULL, or a function for the pieces.
  static napi_value start(const Js& js, Handle* handle, bool one, Run run, Result result,
                          napi_value on_piece = nullptr) {
    std::unique_ptr<Work> work(new Work(handle, one, std::move(run), std::move(result)));
    napi_value promise = nullptr;
    js.ok(napi_create_promise(js.env, &work->deferred_, &promise));
    js.ok(napi_create_async_work(js.env, nullptr, js.string("moe"), execute, complete, work.get(),
                                 &work->work_));
    if (on_piece != nullptr) {
      js.ok(napi_create_threadsafe_function(js.env, on_piece, nullptr, js.string("moe"), 0, 1,
                                            work.get(), drained, work.get(), deliver,
                                            &work->pieces_));
      ++work->open_;
    }
    work->begin();
    js.ok(napi_queue_async_work(js.env, work->work_));
    work.release();
    return promise;
  }

  /// moe_piece_fn. JavaScript takes pieces in its own time: nothing waits here.
  static bool take(void* user, const moe_piece* p) {
    Work* work = static_cast<Work*>(user);
    auto* piece = new Piece{p->token,
                            p->logprob,
                            (p->flags & MOE_PIECE_THINKING) != 0,
                            std::string(p->text, p->n_bytes),
                            {}};
    if (p->n_top > 0) piece->top.assign(p->top, p->top + p->n_top);
    if (napi_call_threadsafe_function(work->pieces_, piece, napi_tsfn_nonblocking) == napi_ok) {
      return true;
    }
    delete piece;
    work->pieces_ = nullptr;  // Node ends: the function has dropped this thread, and may be gone
    return false;
  }

 private:
  Work(Handle* handle, bool one, Run run, Result result)
      : handle_(handle), one_(one), run_(std::move(run)), result_(std::move(result)) {}

  void begin() {
    if (handle_ == nullptr) return;
    handle_->hold();
    if (one_) handle_->set_busy(true);
  }
  void end() {
    if (handle_ == nullptr) return;
    if (one_) handle_->set_busy(false);
    handle_->release();
  }

  static void execute(napi_env, void* data) {
    Work* work = static_cast<Work*>(data);
    work->status_ = work->run_(*work, &work->error_);
    if (work->pieces_ != nullptr) {
      napi_release_threadsafe_function(work->pieces_, napi_tsfn_release);
    }
  }

  static void complete(napi_env env, napi_status, void* data) {
    static_cast<Work*>(data)->settle(env);
  }

  static void drained(napi_env env, void* data, void*) { static_cast<Work*>(data)->settle(env); }

  static void deliver(napi_env env, napi_value callback, void*, void* data) {
    std::unique_ptr<Piece> piece(static_cast<Piece*>(data));
    if (env == nullptr) return;  // Node ends
    try {
      const Js js(env);
      napi_value argument = to_js(js, *piece);
      napi_call_function(env, js.undefined(), callback, 1, &argument, nullptr);
    } catch (...) {  // out of memory in JavaScript
    }
  }

  void settle(napi_env env) {
    if (--open_ > 0) return;
    end();
    const std::unique_ptr<Work> self(this);
    napi_handle_scope scope = nullptr;
    if (napi_open_handle_scope(env, &scope) != napi_ok) return;  // Node ends
    try {
      finish(Js(env));
    } catch (...) {
    }
    napi_delete_async_work(env, work_);
    napi_close_handle_scope(env, scope);
  }

  void finish(const Js& js) {
    try {
      check(status_, error_);
      js.ok(napi_resolve_deferred(js.env, deferred_, result_(js)));
    } catch (const Fault& fault) {
      js.ok(napi_reject_deferred(js.env, deferred_, js.error(fault)));
    }
  }

  Handle* handle_;
  bool one_;
  Run run_;
  Result result_;
  napi_deferred deferred_ = nullptr;
  napi_async_work work_ = nullptr;
  napi_threadsafe_function pieces_ = nullptr;
  int open_ = 1;  // the call, and the pieces
  moe_status status_ = MOE_OK;
  moe_error error_ = {};
};

}  // namespace moe_node
