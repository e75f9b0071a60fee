// SPDX-License-Identifier: MIT
// A service: many requests at once, in libmoe_serve. build.sh defines MOE_NODE_SERVE where it finds
// that library. Events come from the service's thread, through one thread-safe function of it.

#include "owner.h"

#ifdef MOE_NODE_SERVE
#include <mutex>
#endif

namespace moe_node {

#ifdef MOE_NODE_SERVE
namespace {

/// A service, and what its thread calls. Freed on JavaScript's thread, but for end().
struct Served {
  explicit Served(napi_env e) : env(e) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() {
    end();
    if (events == nullptr) return;
    napi_remove_env_cleanup_hook(env, exits, this);
    napi_release_threadsafe_function(events, napi_tsfn_release);
  }
  /// Frees the service, if nobody has; afterwards nothing calls back.
  void end() {
    const std::lock_guard lock(mutex);
    moe_service_free(service);
    service = nullptr;
  }
  /// Node exits, or a worker: called before Node destroys the thread-safe function, as it was
  /// registered later.
  static void exits(void* data) {
    auto* served = static_cast<Served*>(data);
    served->end();
    served->closed = true;
    served->events = nullptr;
  }

  napi_env env;
  std::mutex mutex;  // of freeing
  moe_service* service = nullptr;
  napi_threadsafe_function events = nullptr;
  bool closed = false;
  int n_requests = 0;  // whose last event JavaScript has not got
};
using Shared = std::shared_ptr<Served>;

struct Asked;

/// A moe_service_event that outlives its callback; without a request: a receipt.
struct Arrived {
  Asked* request = nullptr;
  int32_t status = 0, retry_after = 0;
  bool last = false;
  std::string json, name;
};

/// A request; deleted with its last event.
struct Asked {
  Shared served;
  Handle* handle;
  napi_ref on_event = nullptr;
  std::unique_ptr<Arrived> spare;  // the last event, if memory runs out
  bool lost = false;
};

void send(const Served& served, std::unique_ptr<Arrived> arrived) {
  if (napi_call_threadsafe_function(served.events, arrived.get(), napi_tsfn_nonblocking) ==
      napi_ok) {
    arrived.release();
  }
}

/// A moe_service_event_fn.
void take(void* user, const moe_service_event* e) {
  auto* request = static_cast<Asked*>(user);
  std::unique_ptr<Arrived> arrived;
  try {
    arrived = std::make_unique<Arrived>(Arrived{request, e->status, e->retry_after, e->last != 0,
                                                std::string(e->json, e->n_bytes),
                                                e->name == nullptr ? "" : e->name});
  } catch (...) {  // no exception may pass through the library
    request->lost = true;
  }
  if (request->lost) arrived = e->last != 0 ? std::move(request->spare) : nullptr;
  if (arrived != nullptr) send(*request->served, std::move(arrived));
}

/// A moe_service_receipt_fn.
void take_receipt(void* user, const char* json, size_t n) {
  try {
    auto arrived = std::make_unique<Arrived>();
    arrived->json.assign(json, n);
    send(*static_cast<Served*>(user), std::move(arrived));
  } catch (...) {  // a receipt that finds no memory is lost
  }
}

void call(const Js& js, napi_value function, napi_value argument) {
  js.ok(napi_call_function(js.env, js.undefined(), function, 1, &argument, nullptr));
}

napi_value to_js(const Js& js, const Arrived& e) {
  napi_value result = js.object();
  js.set(result, "status", js.of(static_cast<double>(e.status)));
  js.set(result, "json", js.string(e.json.data(), e.json.size()));
  js.set(result, "last", js.of(e.last));
  js.set(result, "retryAfter", js.of(static_cast<double>(e.retry_after)));
  js.set(result, "name", js.string(e.name.c_str()));
  return result;
}

/// The request has its last event. env: NULL if Node exits.
void ended(napi_env env, Asked* asked) {
  const std::unique_ptr<Asked> request(asked);
  Served& served = *request->served;
  if (env != nullptr) {
    napi_delete_reference(env, request->on_event);
    if (--served.n_requests == 0 && served.events != nullptr) {
      napi_unref_threadsafe_function(env, served.events);
    }
  }
  request->handle->release();
}

void deliver(napi_env env, napi_value on_receipt, void*, void* data) {
  const std::unique_ptr<Arrived> arrived(static_cast<Arrived*>(data));
  Asked* request = arrived->request;
  if (env != nullptr) {
    try {
      const Js js(env);
      if (request == nullptr) {
        call(js, on_receipt, js.string(arrived->json.data(), arrived->json.size()));
      } else {
        napi_value on_event = nullptr;
        js.ok(napi_get_reference_value(env, request->on_event, &on_event));
        call(js, on_event, to_js(js, *arrived));
      }
    } catch (...) {  // JavaScript is out of memory or exits
    }
  }
  if (request != nullptr && arrived->last) ended(env, request);
}

/// The settings of a service, as moe_service_params points to them.
struct ServiceCall {
  ServiceCall(const Js& js, napi_value options, napi_value on_receipt) {
    js.require_object(options);
    served = std::make_shared<Served>(js.env);
    napi_value given = js.get(options, "session");
    session = session_params(js, js.missing(given) ? js.object() : given);
    params.struct_size = sizeof params;
    params.n_slots = js.int32(options, "nSlots");
    params.session = &session;
    params.router = router_of(js, options);
    params.name = text(js, options, "name");
    params.chat_template = text(js, options, "chatTemplate");
    params.max_waiting = js.int32(options, "maxWaiting");
    params.max_prompt = js.int32(options, "maxPrompt");
    params.slice = js.int32(options, "slice");
    params.max_seconds = js.int32(options, "maxSeconds");
    params.max_draft = js.int32(options, "draft");
    params.no_reuse = js.flag(options, "noReuse");
    params.cache_folder = text(js, options, "cacheFolder");
    params.cache_bytes = js.size(options, "cacheBytes");
    const bool receipts = js.is(on_receipt, napi_function);
    if (receipts) {
      params.receipt = take_receipt;
      params.receipt_user = served.get();
    }
    js.ok(napi_create_threadsafe_function(js.env, receipts ? on_receipt : nullptr, nullptr,
                                          js.string("moe"), 0, 1, nullptr, nullptr, nullptr,
                                          deliver, &served->events));
    js.ok(napi_unref_threadsafe_function(js.env, served->events));  // only requests keep Node alive
    js.ok(napi_add_env_cleanup_hook(js.env, Served::exits, served.get()));
  }
  const char* text(const Js& js, napi_value options, const char* key) {
    napi_value value = js.get(options, key);
    if (js.missing(value)) return nullptr;
    texts.push_back(js.c_text(value, key));
    return texts.back().c_str();
  }
  const moe_router* router_of(const Js& js, napi_value options) {
    const char* given = text(js, options, "router");
    if (given == nullptr) return nullptr;
    moe_error error;
    router.struct_size = sizeof router;
    check(moe_router_parse(given, &router, &error), error);
    return &router;
  }

  Shared served;
  moe_session_params session = {};
  moe_router router = {};
  std::deque<std::string> texts;
  moe_service_params params = {};
};

/// Throws if the service is closed.
Served& open_service(const Js& js, napi_value value) {
  Served& served = **unwrap(js, value)->pointer<Shared>();
  if (served.closed) fail(MOE_ERR_STATE, "the service is closed");
  return served;
}

}  // namespace

/// create_service(model, options, on_receipt or undefined)
napi_value create_service(const Js& js, const Arguments& a) {
  auto made = std::make_shared<ServiceCall>(js, a[1], a[2]);
  Handle* model = nullptr;
  moe_model* pointer = idle<moe_model>(js, a[0], &model);
  return Work::start(
      js, {model}, false,
      [=](Work&, moe_error* e) {
        return moe_service_create(pointer, &made->params, &made->served->service, e);
      },
      [=](const Js& to) {
        const auto free = [](void* p) { delete static_cast<Shared*>(p); };
        return wrap(to, new Handle("service", new Shared(made->served), model, free));
      });
}

/// service_submit(service, endpoint, body, on_event)
napi_value service_submit(const Js& js, const Arguments& a) {
  const moe_endpoint endpoint = js.named(a[1], "endpoint", kEndpointNames);
  napi_typedarray_type type = napi_int8_array;
  size_t n = 0;
  void* data = nullptr;
  js.ok(napi_get_typedarray_info(js.env, a[2], &type, &n, &data, nullptr, nullptr));
  Served& served = open_service(js, a[0]);
  std::unique_ptr<Asked> request(new Asked{});
  request->handle = unwrap(js, a[0]);
  request->served = *request->handle->pointer<Shared>();
  request->spare = std::make_unique<Arrived>(
      Arrived{request.get(), 500, 0, true,
              R"({"error":{"message":"out of memory","type":"server_error"}})", ""});
  js.ok(napi_create_reference(js.env, a[3], 1, &request->on_event));
  moe_service_ticket ticket = {};
  moe_error error;
  ticket.struct_size = sizeof ticket;
  const char* body = n == 0 ? "" : static_cast<const char*>(data);
  const moe_status status =
      moe_service_submit(served.service, endpoint, body, n, take, request.get(), &ticket, &error);
  if (status != MOE_OK) {
    napi_delete_reference(js.env, request->on_event);
    fail(status, error.text);
  }
  request.release()->handle->hold();
  if (served.n_requests++ == 0) napi_ref_threadsafe_function(js.env, served.events);
  napi_value result = js.object();
  napi_value id = nullptr;
  js.ok(napi_create_bigint_uint64(js.env, ticket.id, &id));
  js.set(result, "id", id);
  js.set(result, "stream", js.of(ticket.stream != 0));
  return result;
}

/// service_cancel(service, id): does nothing for a closed service, or for the id 0.
napi_value service_cancel(const Js& js, const Arguments& a) {
  const Served& served = **unwrap(js, a[0])->pointer<Shared>();
  const uint64_t id = js.bigint(a[1], "id");
  if (!served.closed && id != 0) moe_service_cancel(served.service, id);
  return js.undefined();
}

napi_value service_stats(const Js& js, const Arguments& a) {
  moe_service_stats s = {};
  moe_error error;
  s.struct_size = sizeof s;
  check(moe_service_get_stats(open_service(js, a[0]).service, &s, &error), error);
  napi_value result = js.object();
  const auto number = [&](const char* key, double n) { js.set(result, key, js.of(n)); };
  const auto count = [&](const char* key, uint64_t n) { number(key, static_cast<double>(n)); };
  js.set(result, "draining", js.of(s.draining != 0));
  number("nSlots", s.n_slots);
  number("context", s.context);
  number("nRunning", s.n_running);
  number("nWaiting", s.n_waiting);
  count("kvPositions", s.kv_positions);
  count("nRequests", s.n_requests);
  count("nRefused", s.n_refused);
  count("nAnswered", s.n_answered);
  count("nCancelled", s.n_cancelled);
  count("nFailed", s.n_failed);
  count("promptTokens", s.prompt_tokens);
  count("generatedTokens", s.generated_tokens);
  count("nSteps", s.n_steps);
  count("nFirstTokens", s.n_first_tokens);
  number("firstTokenSeconds", s.first_token_seconds);
  number("stepSeconds", s.step_seconds);
  count("capBytes", s.cap_bytes);
  count("countedBytes", s.counted_bytes);
  count("peakBytes", s.peak_bytes);
  count("expertUses", s.expert_uses);
  count("expertHits", s.expert_hits);
  count("expertReadBytes", s.expert_read_bytes);
  count("reusedTokens", s.reused_tokens);
  count("cacheBytes", s.cache_bytes);
  count("cacheErrors", s.cache_errors);
  return result;
}

/// Refuses requests from now on; true if those taken have ended. It does not wait.
napi_value service_drain(const Js& js, const Arguments& a) {
  bool empty = false;
  moe_error error;
  check(moe_service_drain(open_service(js, a[0]).service, 0, &empty, &error), error);
  return js.of(empty);
}

/// Frees the service in a thread of the pool, as that waits for a step.
napi_value service_close(const Js& js, const Arguments& a) {
  Handle* handle = unwrap(js, a[0]);
  const Shared served = *handle->pointer<Shared>();
  served->closed = true;
  return Work::start(
      js, {handle}, false,
      [=](Work&, moe_error*) {
        served->end();
        return MOE_OK;
      },
      [=](const Js& to) {
        handle->close();
        return to.undefined();
      });
}

#else
namespace {

[[noreturn]] napi_value none() {
  fail(MOE_ERR_UNSUPPORTED,
       "built without libmoe_serve: install it, with moe_serve.pc, and run build.sh again");
}

}  // namespace

napi_value create_service(const Js&, const Arguments&) { none(); }
napi_value service_submit(const Js&, const Arguments&) { none(); }
napi_value service_cancel(const Js&, const Arguments&) { none(); }
napi_value service_stats(const Js&, const Arguments&) { none(); }
napi_value service_drain(const Js&, const Arguments&) { none(); }
napi_value service_close(const Js&, const Arguments&) { none(); }
#endif

}  // namespace moe_node
