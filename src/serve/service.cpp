// SPDX-License-Identifier: MIT
// The C functions of libmoe_serve: they catch all exceptions.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "src/serve/embedding_request.h"
#include "src/serve/encoding_queue.h"
#include "src/serve/queue.h"
#include "src/serve/rerank_request.h"
#include "src/serve/scheduler.h"
#include "src/serve/statistics.h"

struct moe_service {
  moe_serve::Host host;
  std::unique_ptr<moe_serve::Scheduler> scheduler;      // null: the model continues no texts
  std::unique_ptr<moe_serve::EncodingQueue> encodings;  // null: it is not for vectors or scores
  std::atomic<uint64_t> n_submitted{0};
  std::atomic<uint64_t> n_refused{0};
};

namespace moe_serve {
namespace {

// Copies text into the caller's error.
moe_status deliver(moe_status status, const char* text, moe_error* error) {
  if (error != nullptr) {
    error->code = status;
    const size_t n = std::min(std::strlen(text), sizeof error->text - 1);
    std::memcpy(error->text, text, n);
    error->text[n] = '\0';
  }
  return status;
}

template <class F>
moe_status delivered(moe_error* error, F&& f) {
  try {
    f();
    return MOE_OK;
  } catch (const CallError& e) {
    return deliver(e.code, e.what(), error);
  } catch (const std::bad_alloc&) {
    return deliver(MOE_ERR_MEMORY, "out of memory", error);
  } catch (const std::exception& e) {
    return deliver(MOE_ERR_INTERNAL, e.what(), error);
  }
}

void check_pointer(const void* pointer, const char* name) {
  if (pointer != nullptr) return;
  throw CallError(MOE_ERR_ARGUMENT, std::string(name) + ": expected a pointer, found NULL");
}

[[noreturn]] void refuse_size(const char* name, size_t expected, uint32_t found) {
  throw CallError(MOE_ERR_ARGUMENT, std::string(name) + ".struct_size: expected " +
                                        std::to_string(expected) + ", found " +
                                        std::to_string(found));
}

constexpr uint32_t kMostBytes = 4096;  // of a struct

// The caller's parameters: what its version does not have is 0.
moe_service_params read_params(const moe_service_params* given) {
  auto params = MOE_INIT(moe_service_params);
  if (given == nullptr) return params;
  const uint32_t size = given->struct_size;
  if (size < sizeof size || size > kMostBytes) refuse_size("params", sizeof params, size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof params; i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw CallError(MOE_ERR_ARGUMENT, "params: a field at byte " + std::to_string(i) +
                                          " is set that this library does not know");
  }
  std::memcpy(&params, given, std::min(sizeof params, size_t{size}));
  return params;
}

template <class T>
void write_struct(const T& value, T* out, const char* name) {
  check_pointer(out, name);
  const uint32_t size = out->struct_size;
  if (size < sizeof size || size > kMostBytes) refuse_size(name, sizeof value, size);
  std::memset(out, 0, size);
  std::memcpy(out, &value, std::min(sizeof value, size_t{size}));
  out->struct_size = size;
}

int32_t in_range(int32_t value, const char* name, int32_t most, int32_t otherwise) {
  if (value == 0) return otherwise;
  if (value > 0 && value <= most) return value;
  throw CallError(MOE_ERR_RANGE, "params." + std::string(name) + ": expected 0.." +
                                     std::to_string(most) + ", found " + std::to_string(value));
}

moe_model_info info_of(const moe_model* model) {
  auto info = MOE_INIT(moe_model_info);
  moe_error error;
  check(moe_model_get_info(model, &info, &error), error);
  if (info.is_encoder_decoder == 0) return info;
  throw CallError(MOE_ERR_UNSUPPORTED,
                  "a service needs a decoder or an encoder; this model is an encoder-decoder");
}

// Under a cap three quarters of it are for the weights.
int32_t slots_for(const moe_model* model, const moe_session_params* session, int32_t n_more) {
  for (int32_t n = 8; n > 1; --n) {
    auto plan = MOE_INIT(moe_memory_plan);
    moe_error error;
    check(moe_model_get_memory_plan(model, session, n + n_more, &plan, &error), error);
    const auto count = static_cast<uint64_t>(n + n_more);
    const bool fits = plan.cap_bytes == 0 || (plan.least_bytes <= plan.cap_bytes &&
                                              plan.session_bytes * count <= plan.cap_bytes / 4);
    if (fits) return n;
  }
  return 1;
}

// Refuses routers of the model with which a request alone would get another answer.
bool has_capacity(const moe_model* model, int32_t n_layers) {
  for (int32_t layer = 0; layer < n_layers; ++layer) {
    auto router = MOE_INIT(moe_router);
    moe_error error;
    const bool routed = moe_model_get_router(model, layer, &router, &error) == MOE_OK;
    if (routed && router.gamma != 0) return true;
  }
  return false;
}

std::vector<Session> open_sessions(moe_model* model, const moe_service_params& p, int32_t n) {
  if (p.router != nullptr && (p.router->gamma != 0 || p.router->resident != 0)) {
    throw CallError(MOE_ERR_UNSUPPORTED,
                    "params.router: not with a capacity (gamma) or 'resident': an answer would "
                    "depend on other requests");
  }
  std::vector<Session> sessions;
  moe_error error;
  for (int32_t i = 0; i < n; ++i) {
    moe_session* raw = nullptr;
    check(moe_session_create(model, p.session, &raw, &error), error);
    sessions.emplace_back(raw);
    if (p.router != nullptr) check(moe_session_set_router(raw, p.router, &error), error);
  }
  return sessions;
}

Host host_of(moe_model* model, const moe_service_params& p, const moe_model_info& info,
             moe_session* session) {
  Host host;
  host.model = model;
  host.tokenizer = moe_model_tokenizer(model);
  host.name = p.name != nullptr ? p.name : info.name;
  host.chat_template = p.chat_template == nullptr ? "" : p.chat_template;
  host.vocab_size = info.vocab_size;
  host.context = moe_session_context(session);
  host.max_prompt = in_range(p.max_prompt, "max_prompt", INT32_MAX, host.context - 1);
  host.max_prompt = std::min(host.max_prompt, host.context - 1);
  host.weight_bytes = info.weight_bytes;
  host.d_model = info.d_model;
  host.vector_tokens =
      std::min(host.context, info.vector_tokens == 0 ? INT32_MAX : info.vector_tokens);
  if (info.is_encoder != 0 && std::strcmp(info.head, "classes") == 0)
    host.n_scores = info.n_outputs;
  host.n_prompts = info.n_prompts;
  host.default_prompt = info.default_prompt;
  host.witness = session;
  host.max_draft = in_range(p.max_draft, "max_draft", kMostDraft, 0);
  host.sampling = MOE_INIT(moe_sampling);
  moe_error error;
  check(moe_model_get_sampling(model, &host.sampling, nullptr, &error), error);
  host.fingerprint = fingerprint_of(info, p, host.template_text(), host.context);
  host.receipt = p.receipt;
  host.receipt_user = p.receipt_user;
  return host;
}

// A template that cannot be used is the fault of who starts the service, not of requests.
void check_template(const Host& host) {
  if (!host.chats()) return;
  auto params = MOE_INIT(moe_chat_params);
  if (!host.chat_template.empty()) params.chat_template = host.chat_template.c_str();
  moe_chat* raw = nullptr;
  moe_error error;
  check(moe_chat_create(host.witness, &params, &raw, &error), error);
  moe_chat_free(raw);
}

std::unique_ptr<StateFolder> folder_of(const moe_service_params& p, const SchedulerLimits& limits,
                                       moe_session* session) {
  if (p.cache_folder == nullptr) return nullptr;
  if (!limits.reuse) {
    throw CallError(MOE_ERR_ARGUMENT,
                    "params.cache_folder: texts cannot be reused, with no_reuse or an expert "
                    "capacity");
  }
  constexpr uint64_t kMost = 10'000'000'000;
  return std::make_unique<StateFolder>(p.cache_folder, p.cache_bytes == 0 ? kMost : p.cache_bytes,
                                       session);
}

SchedulerLimits limits_of(const moe_model* model, const moe_service_params& p, int32_t n_layers) {
  SchedulerLimits limits;
  limits.max_waiting = in_range(p.max_waiting, "max_waiting", 65536, limits.max_waiting);
  limits.slice = in_range(p.slice, "slice", 4096, limits.slice);
  limits.max_seconds = in_range(p.max_seconds, "max_seconds", INT32_MAX, 0);
  limits.whole_prompts = has_capacity(model, n_layers);
  limits.reuse = in_range(p.no_reuse, "no_reuse", 1, 0) == 0 && !limits.whole_prompts;
  return limits;
}

void create(moe_model* model, const moe_service_params* given, moe_service** out) {
  check_pointer(model, "model");
  check_pointer(out, "out");
  const moe_service_params p = read_params(given);
  if (p.reserved != 0) throw CallError(MOE_ERR_ARGUMENT, "params.reserved: expected 0");
  const moe_model_info info = info_of(model);
  const bool generates = info.is_encoder == 0;
  int32_t n = in_range(p.n_slots, "n_slots", 1024, 0);
  const SchedulerLimits limits = limits_of(model, p, info.n_layers);
  const bool makes_vectors = info.pooling[0] != '\0';
  if (n == 0 && generates) n = slots_for(model, p.session, makes_vectors ? 1 : 0);
  std::vector<Session> sessions = open_sessions(model, p, generates ? n : 1);
  auto service = std::make_unique<moe_service>();
  service->host = host_of(model, p, info, sessions[0].get());
  service->host.whole_prompts = limits.whole_prompts;
  if (limits.whole_prompts && service->host.max_draft > 0) {
    throw CallError(MOE_ERR_UNSUPPORTED,
                    "params.max_draft (--draft): not with an expert capacity, where results "
                    "depend on how a text is split");
  }
  if (generates) check_template(service->host);
  std::unique_ptr<StateFolder> folder;
  if (generates) folder = folder_of(p, limits, sessions[0].get());
  if (!generates || makes_vectors) {
    Session session = std::move(generates ? open_sessions(model, p, 1)[0] : sessions[0]);
    service->encodings = std::make_unique<EncodingQueue>(model, std::move(session), limits);
  }
  if (generates) {
    service->scheduler =
        std::make_unique<Scheduler>(model, std::move(sessions), limits, std::move(folder));
  }
  *out = service.release();
}

void check_submission(const moe_service* service, int endpoint, const char* body, size_t n_bytes,
                      moe_service_event_fn callback) {
  check_pointer(service, "service");
  if (body == nullptr && n_bytes != 0) check_pointer(body, "body");
  check_pointer(reinterpret_cast<const void*>(callback), "callback");
  if (endpoint >= MOE_ENDPOINT_CHAT && endpoint <= MOE_ENDPOINT_RERANK) return;
  throw CallError(MOE_ERR_ARGUMENT, "endpoint: expected 1..9, found " + std::to_string(endpoint));
}

// A request whose text cannot be read is to blame for it.
bool blames_request(moe_status status) {
  return status == MOE_ERR_ARGUMENT || status == MOE_ERR_RANGE || status == MOE_ERR_TEXT ||
         status == MOE_ERR_TOO_LONG || status == MOE_ERR_UNSUPPORTED;
}

moe_service_stats stats_of(moe_service& service) {
  auto stats = MOE_INIT(moe_service_stats);
  if (service.scheduler != nullptr) {
    stats = service.scheduler->stats();
    if (service.encodings != nullptr) add_counts(service.encodings->stats(), stats);
  } else {
    stats = service.encodings->stats();
  }
  stats.n_refused = service.n_refused;
  return stats;
}

// These need not wait.
Json answer_at_once(moe_service& service, moe_endpoint endpoint, std::string_view body) {
  if (endpoint != MOE_ENDPOINT_STATISTICS) return tokenize(service.host, endpoint, body);
  ExpertCounts& experts =
      service.scheduler != nullptr ? service.scheduler->experts() : service.encodings->experts();
  return statistics_json(service.host, stats_of(service), experts.read());
}

template <class Request, class Order>
void add_encoding(moe_service& service, Order&& order, const Listener& listener,
                  moe_service_ticket& ticket, moe_service_ticket* out) {
  ticket.id = ++service.n_submitted;
  const auto request =
      std::make_shared<Request>(service.host, std::forward<Order>(order), ticket.id, listener);
  if (out != nullptr) write_struct(ticket, out, "out");
  service.encodings->add(request);
}

EmbeddingOrder read_embedding(const moe_service& service, std::string_view body) {
  if (service.encodings != nullptr) return read_embedding(service.host, body);
  throw Refusal(kBadRequest,
                "this model continues texts and was not made for vectors of them: its file says "
                "no pooling",
                "model", "unsupported_model");
}

void add_texts(moe_service& service, moe_endpoint endpoint, std::string_view body,
               const Listener& listener, moe_service_ticket& ticket, moe_service_ticket* out) {
  if (service.scheduler == nullptr) {
    throw Refusal(kBadRequest,
                  std::string("this model is an encoder: it continues no texts, and answers ") +
                      (service.host.n_scores == 0 ? "/v1/embeddings" : "/v1/rerank"),
                  "model", "unsupported_model");
  }
  Order order = read_order(service.host, endpoint, body);
  ticket.stream = order.settings.stream ? 1 : 0;
  ticket.id = ++service.n_submitted;
  const auto request =
      std::make_shared<ServiceRequest>(service.host, std::move(order), ticket.id, listener);
  if (out != nullptr) write_struct(ticket, out, "out");
  service.scheduler->add(request);
}

void submit(moe_service& service, moe_endpoint endpoint, std::string_view body,
            const Listener& listener, moe_service_ticket* out) {
  auto ticket = MOE_INIT(moe_service_ticket);
  const auto refuse = [&](const Refusal& refusal) {
    ++service.n_refused;
    const auto none = MOE_INIT(moe_service_ticket);
    if (out != nullptr) write_struct(none, out, "out");
    listener.refuse(refusal);
  };
  if (out != nullptr) write_struct(ticket, out, "out");
  try {
    switch (endpoint) {
      case MOE_ENDPOINT_TOKENIZE:
      case MOE_ENDPOINT_COUNT_TOKENS:
      case MOE_ENDPOINT_STATISTICS:
        return listener.answer(answer_at_once(service, endpoint, body));
      case MOE_ENDPOINT_EMBEDDINGS:
        return add_encoding<EmbeddingRequest>(service, read_embedding(service, body), listener,
                                              ticket, out);
      case MOE_ENDPOINT_RERANK:
        return add_encoding<RerankRequest>(service, read_rerank(service.host, body), listener,
                                           ticket, out);
      default:
        add_texts(service, endpoint, body, listener, ticket, out);
    }
  } catch (const Refusal& refusal) {
    refuse(refusal);
  } catch (const CallError& e) {
    refuse({blames_request(e.code) ? kBadRequest : kInternal, e.what()});
  } catch (...) {  // there will be no event
    if (out != nullptr) write_struct(MOE_INIT(moe_service_ticket), out, "out");
    throw;
  }
}

// Both queues refuse requests from now on.
bool drain(moe_service& service, double seconds) {
  const Clock::time_point start = Clock::now();
  if (service.encodings != nullptr) (void)service.encodings->drain(0);
  bool empty = true;
  if (service.scheduler != nullptr) empty = service.scheduler->drain(seconds);
  if (service.encodings == nullptr) return empty;
  const double rest = seconds < 0 ? seconds : std::max(0.0, seconds - seconds_since(start));
  return service.encodings->drain(rest) && empty;
}

}  // namespace
}  // namespace moe_serve

moe_status moe_service_create(moe_model* model, const moe_service_params* params, moe_service** out,
                              moe_error* error) {
  return moe_serve::delivered(error, [&] { moe_serve::create(model, params, out); });
}

moe_status moe_service_submit(moe_service* service, moe_endpoint endpoint, const char* body,
                              size_t n_bytes, moe_service_event_fn callback, void* user,
                              moe_service_ticket* out, moe_error* error) {
  return moe_serve::delivered(error, [&] {
    int number = 0;  // C may pass any, and reading an invalid enum value is undefined
    std::memcpy(&number, &endpoint, sizeof number);
    moe_serve::check_submission(service, number, body, n_bytes, callback);
    const auto checked = static_cast<moe_endpoint>(number);
    moe_serve::submit(*service, checked, {body, n_bytes}, {checked, callback, user}, out);
  });
}

void moe_service_cancel(moe_service* service, uint64_t id) {
  if (service == nullptr) return;
  if (service->scheduler != nullptr) service->scheduler->cancel(id);
  if (service->encodings != nullptr) service->encodings->cancel(id);
}

moe_status moe_service_get_stats(moe_service* service, moe_service_stats* out, moe_error* error) {
  return moe_serve::delivered(error, [&] {
    moe_serve::check_pointer(service, "service");
    moe_serve::write_struct(moe_serve::stats_of(*service), out, "out");
  });
}

moe_status moe_service_drain(moe_service* service, double seconds, bool* empty, moe_error* error) {
  return moe_serve::delivered(error, [&] {
    moe_serve::check_pointer(service, "service");
    moe_serve::check_pointer(empty, "empty");
    if (!(seconds == seconds)) {
      throw moe_serve::CallError(MOE_ERR_NON_FINITE, "seconds: expected a number, found NaN");
    }
    *empty = moe_serve::drain(*service, seconds);
  });
}

void moe_service_free(moe_service* service) { delete service; }
