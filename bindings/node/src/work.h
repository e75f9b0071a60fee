// SPDX-License-Identifier: MIT
#pragma once
// A library call on a worker thread, as a promise. Pieces of text reach JavaScript's thread through
// a thread-safe function; the promise is settled after the last of them.

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include "handle.h"

namespace moe_node {

/// A moe_piece that outlives its callback.
struct Piece {
  int32_t token;
  float logprob;
  bool thinking, tool_call;
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
  napi_value text = js.string(piece.text.data(), piece.text.size());
  js.set(result, "text", piece.tool_call ? js.string("") : text);
  js.set(result, "toolCall", piece.tool_call ? text : js.undefined());  // index.js parses it
  js.set(result, "thinking", js.of(piece.thinking));
  js.set(result, "top", top);
  return result;
}

class Work {
 public:
  using Run = std::function<moe_status(Work&, moe_error*)>;
  using Result = std::function<napi_value(const Js&)>;
  using Handles = std::vector<Handle*>;

  /// Holds `handles` until the call ends; if `one`, they are busy and refuse other calls until
  /// then. on_piece: NULL, or a function for the pieces.
  static napi_value start(const Js& js, Handles handles, bool one, Run run, Result result,
                          napi_value on_piece = nullptr) {
    std::unique_ptr<Work> work(
        new Work(std::move(handles), one, std::move(run), std::move(result)));
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
    js.ok(napi_queue_async_work(js.env, work->work_));
    work.release()->begin();
    return promise;
  }

  /// Cancels all calls of this JavaScript thread. One that has not begun will not begin; generation
  /// ends at its next piece.
  static void end_all(void*) {
    for (Work* work = first_; work != nullptr; work = work->next_) work->cancel();
  }

  /// Cancels a call that waits for a thread or computes. A cancel between the two is lost, so the
  /// caller cancels again until the call ends.
  void cancel() {
    stop_ = true;
    for (const Handle* handle : handles_) {
      if (handle->has_session()) moe_session_cancel(handle->session());
    }
  }
  bool is_cancelled() const { return stop_; }

  /// A moe_piece_fn. Queues the piece and returns without waiting for JavaScript.
  static bool take(void* user, const moe_piece* p) {
    Work* work = static_cast<Work*>(user);
    try {
      if (!work->stop_) return work->send(copy(*p));
    } catch (...) {  // no exception may pass through the library
      work->lost_ = true;
    }
    // Not false, which would end a reply as complete. The first cancel may have come too early.
    work->cancel();
    return true;
  }

 private:
  Work(Handles handles, bool one, Run run, Result result)
      : handles_(std::move(handles)), one_(one), run_(std::move(run)), result_(std::move(result)) {}

  static std::unique_ptr<Piece> copy(const moe_piece& p) {
    const bool thinking = (p.flags & MOE_PIECE_THINKING) != 0;
    const bool tool_call = (p.flags & MOE_PIECE_TOOL_CALL) != 0;
    std::unique_ptr<Piece> piece(
        new Piece{p.token, p.logprob, thinking, tool_call, std::string(p.text, p.n_bytes), {}});
    if (p.n_top > 0) piece->top.assign(p.top, p.top + p.n_top);
    return piece;
  }

  bool send(std::unique_ptr<Piece> piece) {
    if (napi_call_threadsafe_function(pieces_, piece.get(), napi_tsfn_nonblocking) == napi_ok) {
      piece.release();
      return true;
    }
    pieces_ = nullptr;  // Node exits: the function may be destroyed
    return false;
  }

  void begin() {
    next_ = first_;
    if (next_ != nullptr) next_->link_ = &next_;
    link_ = &first_;
    first_ = this;
    for (Handle* handle : handles_) {
      handle->hold();
      if (one_) handle->set_work(this);
    }
  }
  void end() {
    *link_ = next_;
    if (next_ != nullptr) next_->link_ = link_;
    for (Handle* handle : handles_) {
      if (one_) handle->set_work(nullptr);
      handle->release();
    }
  }

  moe_status failed(moe_status status, const char* text) {
    snprintf(error_.text, sizeof error_.text, "%s", text);
    return status;
  }

  moe_status call() {
    if (stop_) return failed(MOE_ERR_CANCELLED, "cancelled");
    try {
      const moe_status status = run_(*this, &error_);
      return lost_ ? failed(MOE_ERR_MEMORY, "out of memory") : status;
    } catch (...) {  // of run_'s own vectors
      return failed(MOE_ERR_MEMORY, "out of memory");
    }
  }

  static void execute(napi_env, void* data) {
    Work* work = static_cast<Work*>(data);
    work->status_ = work->call();
    if (work->pieces_ != nullptr) {
      napi_release_threadsafe_function(work->pieces_, napi_tsfn_release);
    }
  }

  static void complete(napi_env env, napi_status, void* data) {
    static_cast<Work*>(data)->settle(env);
  }

  static void drained(napi_env env, void* data, void*) { static_cast<Work*>(data)->settle(env); }

  static void deliver(napi_env env, napi_value callback, void* context, void* data) {
    std::unique_ptr<Piece> piece(static_cast<Piece*>(data));
    if (env == nullptr) return;  // Node exits
    try {
      const Js js(env);
      napi_value argument = to_js(js, *piece);
      js.ok(napi_call_function(env, js.undefined(), callback, 1, &argument, nullptr));
    } catch (...) {  // JavaScript is out of memory or exits
      static_cast<Work*>(context)->stop_ = true;
    }
  }

  void settle(napi_env env) {
    if (--open_ > 0) return;
    const std::unique_ptr<Work> self(this);
    napi_handle_scope scope = nullptr;
    if (napi_open_handle_scope(env, &scope) == napi_ok) {  // else Node exits
      finish(env);
      napi_delete_async_work(env, work_);
      napi_close_handle_scope(env, scope);
    }
    end();
  }

  void finish(napi_env env) {
    try {
      const Js js(env);
      napi_value value = nullptr;
      const bool good = outcome(js, &value);
      js.ok((good ? napi_resolve_deferred : napi_reject_deferred)(env, deferred_, value));
    } catch (...) {  // no Error can be created: Node exits
    }
  }

  /// True if *value is the result, false if it is the error.
  bool outcome(const Js& js, napi_value* value) {
    try {
      check(status_, error_);
      *value = result_(js);
      return true;
    } catch (const Fault& fault) {
      *value = js.error(fault);
    } catch (const Thrown&) {
      js.ok(napi_get_and_clear_last_exception(js.env, value));
    } catch (...) {
      *value = js.error({moe_status_name(MOE_ERR_MEMORY), "out of memory"});
    }
    return false;
  }

  static inline thread_local Work* first_ = nullptr;  // the list of calls in progress
  Work* next_ = nullptr;
  Work** link_ = nullptr;  // the pointer to this one
  Handles handles_;
  bool one_;
  Run run_;
  Result result_;
  napi_deferred deferred_ = nullptr;
  napi_async_work work_ = nullptr;
  napi_threadsafe_function pieces_ = nullptr;
  std::atomic<bool> stop_{false};
  bool lost_ = false;  // a piece was lost: out of memory
  int open_ = 1;       // to end before the promise is settled: the call, and the pieces
  moe_status status_ = MOE_OK;
  moe_error error_ = {};
};

}  // namespace moe_node
