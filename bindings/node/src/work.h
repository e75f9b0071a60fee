#pragma once
// A call of the library on a worker thread, as a promise. Pieces of text come back to JavaScript's
// thread through a thread-safe function; the promise is settled after the last of them.

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
  using Handles = std::vector<Handle*>;

  /// `handles` are held and busy meanwhile; `one` is false where any number of calls may use them.
  /// on_piece: NULL, or a function for the pieces.
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

  /// Of this thread's JavaScript: what has not begun does not, and generation ends at its next
  /// piece.
  static void end_all(void*) {
    for (Work* work = first_; work != nullptr; work = work->next_) work->cancel();
  }

  /// Ends it, wherever it is: waiting for a thread, or computing. Between the two it is lost, which
  /// the caller mends by cancelling again.
  void cancel() {
    stop_ = true;
    for (const Handle* handle : handles_) {
      if (handle->has_session()) moe_session_cancel(handle->session());
    }
  }
  bool is_cancelled() const { return stop_; }

  /// moe_piece_fn. JavaScript takes pieces in its own time: nothing waits here.
  static bool take(void* user, const moe_piece* p) {
    Work* work = static_cast<Work*>(user);
    try {
      if (!work->stop_) return work->send(copy(*p));
    } catch (...) {  // nothing may pass through the library
      work->lost_ = true;
    }
    // Not false, with which a reply would count as whole. Again: the first may have come too early.
    work->cancel();
    return true;
  }

 private:
  Work(Handles handles, bool one, Run run, Result result)
      : handles_(std::move(handles)), one_(one), run_(std::move(run)), result_(std::move(result)) {}

  static std::unique_ptr<Piece> copy(const moe_piece& p) {
    const bool thinking = (p.flags & MOE_PIECE_THINKING) != 0;
    std::unique_ptr<Piece> piece(
        new Piece{p.token, p.logprob, thinking, std::string(p.text, p.n_bytes), {}});
    if (p.n_top > 0) piece->top.assign(p.top, p.top + p.n_top);
    return piece;
  }

  bool send(std::unique_ptr<Piece> piece) {
    if (napi_call_threadsafe_function(pieces_, piece.get(), napi_tsfn_nonblocking) == napi_ok) {
      piece.release();
      return true;
    }
    pieces_ = nullptr;  // Node ends: the function has dropped this thread, and may be gone
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
    if (env == nullptr) return;  // Node ends
    try {
      const Js js(env);
      napi_value argument = to_js(js, *piece);
      js.ok(napi_call_function(env, js.undefined(), callback, 1, &argument, nullptr));
    } catch (...) {  // JavaScript is out of memory, or ends
      static_cast<Work*>(context)->stop_ = true;
    }
  }

  void settle(napi_env env) {
    if (--open_ > 0) return;
    const std::unique_ptr<Work> self(this);
    napi_handle_scope scope = nullptr;
    if (napi_open_handle_scope(env, &scope) == napi_ok) {  // else Node ends
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
    } catch (...) {  // not even an Error can be made: Node ends
    }
  }

  /// Whether it is a result; else what is wrong.
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

  static inline thread_local Work* first_ = nullptr;  // of all calls in progress
  Work* next_ = nullptr;
  Work** link_ = nullptr;  // what points to this one
  Handles handles_;
  bool one_;
  Run run_;
  Result result_;
  napi_deferred deferred_ = nullptr;
  napi_async_work work_ = nullptr;
  napi_threadsafe_function pieces_ = nullptr;
  std::atomic<bool> stop_{false};
  bool lost_ = false;  // a piece, for want of memory
  int open_ = 1;       // the call, and the pieces
  moe_status status_ = MOE_OK;
  moe_error error_ = {};
};

}  // namespace moe_node
