// SPDX-License-Identifier: MIT
// The first byte, 1 to 7 or 9, is the endpoint of the rest, the body of a request. Whatever it is,
// it is read or refused in the shape of the endpoint's API; an answer of a request that was read
// begins and fails in the same shape. Nothing is evaluated.

#include <string>

#include "src/serve/embedding_request.h"
#include "src/serve/handles.h"
#include "src/serve/input_texts.h"
#include "src/serve/receipt.h"
#include "src/serve/request.h"
#include "src/serve/rerank_request.h"
#include "src/serve/service_request.h"
#include "tests/support/fuzz_env.h"

namespace moe_serve {
namespace {

using moe::require;

moe_model* open_model() {
  moe_model* model = nullptr;
  moe_error error;
  require(moe_model_open(moe::fuzz_env(), MOE_STORIES, nullptr, &model, &error) == MOE_OK);
  return model;
}

Host make_host() {
  Host host;
  host.model = open_model();
  host.tokenizer = moe_model_tokenizer(host.model);
  host.name = "stories";
  host.chat_template = "chatml";
  host.sampling = MOE_INIT(moe_sampling);
  host.vocab_size = 1536;
  host.context = 512;
  host.max_prompt = 511;
  host.d_model = 192;
  host.vector_tokens = 512;
  moe_error error;
  require(moe_session_create(host.model, nullptr, &host.witness, &error) == MOE_OK);
  return host;
}

void check_event(void* user, const moe_service_event* event) {
  const Json json = Json::parse(event->json, event->json + event->n_bytes);
  require(json.is_object());
  ++*static_cast<int*>(user);
}

void read(const Host& host, moe_endpoint endpoint, std::string_view body) {
  int n_events = 0;
  const Listener listener(endpoint, check_event, &n_events);
  try {
    if (endpoint == MOE_ENDPOINT_TOKENIZE || endpoint == MOE_ENDPOINT_COUNT_TOKENS) {
      listener.answer(tokenize(host, endpoint, body));
    } else if (endpoint == MOE_ENDPOINT_EMBEDDINGS) {
      EmbeddingRequest request(host, read_embedding(host, body), 1, listener);
      request.fail(out_of_memory());
    } else if (endpoint == MOE_ENDPOINT_RERANK) {
      RerankRequest request(host, read_rerank(host, body), 1, listener);
      request.fail(out_of_memory());
    } else {
      Order order = read_order(host, endpoint, body);
      for (const auto& prompt : order.prompts) require(!prompt.empty() && prompt.size() < 512);
      ServiceRequest request(host, std::move(order), 1, listener);
      require(!request.texts().empty() && request.texts().size() <= kMostTexts);
      request.begin(*request.texts()[0]);
      n_events = 0;
      request.fail(request_cancelled());
    }
  } catch (const Refusal& refusal) {
    require(refusal.status >= 400 && refusal.status < 500 && refusal.what()[0] != '\0');
    listener.refuse(refusal);
  } catch (const CallError& e) {  // the service answers with its text
    require(e.what()[0] != '\0');
    listener.refuse({kBadRequest, e.what()});
  }
  require(n_events == 1);
}

}  // namespace
}  // namespace moe_serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moe_serve::Host host = moe_serve::make_host();
  if (size == 0 || data[0] < '1' || data[0] > '9' || data[0] == '8') return 0;
  moe_serve::read(host, static_cast<moe_endpoint>(data[0] - '0'),
                  {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
