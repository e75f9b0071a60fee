// SPDX-License-Identifier: MIT
// Models and their tokenizers.

#include <cinttypes>
#include <cstdio>

#include "owner.h"

namespace moe_node {
namespace {

struct OpenCall {
  OpenCall(const Js& js, napi_value file, napi_value options)
      : path(js.c_text(file, "path")),
        env_options(js, options),
        session(session_params(js, options)) {
    params.struct_size = sizeof params;
    params.map_weights = js.flag(options, "mapWeights");
    params.skip_checksums = js.flag(options, "skipChecksums");
    params.memory_bytes = js.size(options, "memoryBytes");
    params.session = &session;
    params.io = js.named(options, "io", kIoNames, MOE_IO_AUTO);
    params.lazy_experts = js.flag(options, "lazyExperts");
  }
  moe_status run(moe_error* error) {
    const moe_status status = moe_env_create(&env_options.params, &env.pointer, error);
    if (status != MOE_OK) return status;
    return moe_model_open(env.pointer, path.c_str(), &params, &model.pointer, error);
  }
  std::string path;
  EnvOptions env_options;
  moe_session_params session;
  moe_model_params params = {};
  Env env;  // the model keeps it
  Model model;
};

const moe_tokenizer* tokenizer_of(const Js& js, napi_value model) {
  const moe_tokenizer* tokenizer = moe_model_tokenizer(idle<moe_model>(js, model));
  if (tokenizer == nullptr) fail(MOE_ERR_NOT_FOUND, "the model has no tokenizer");
  return tokenizer;
}

}  // namespace

moe_session_params session_params(const Js& js, napi_value options) {
  js.require_object(options);
  moe_session_params p = {};
  p.struct_size = sizeof p;
  p.context = js.int32(options, "context");
  p.chunk = js.int32(options, "chunk");
  p.kv = js.named(options, "kv", kKvTypeNames, MOE_KV_DEFAULT);
  return p;
}

napi_value open_model(const Js& js, const Arguments& a) {
  auto call = std::make_shared<OpenCall>(js, a[0], a[1]);
  return Work::start(
      js, {}, false, [call](Work&, moe_error* e) { return call->run(e); },
      [call](const Js& to) { return wrap(to, make_handle("model", call->model, nullptr)); });
}

napi_value model_info(const Js& js, const Arguments& a) {
  moe_model_info info = {};
  moe_error error;
  info.struct_size = sizeof info;
  check(moe_model_get_info(idle<moe_model>(js, a[0]), &info, &error), error);
  napi_value result = js.object();
  const auto number = [&](const char* key, double n) { js.set(result, key, js.of(n)); };
  js.set(result, "name", js.string(info.name));
  js.set(result, "head", js.string(info.head));
  js.set(result, "pooling", js.string(info.pooling));
  js.set(result, "normalized", js.of(info.normalized != 0));
  js.set(result, "isEncoder", js.of(info.is_encoder != 0));
  js.set(result, "isEncoderDecoder", js.of(info.is_encoder_decoder != 0));
  js.set(result, "eosTokens",
         js.of(std::vector<int32_t>(info.eos_tokens, info.eos_tokens + info.n_eos_tokens)));
  number("vocabSize", info.vocab_size);
  number("dModel", info.d_model);
  number("nLayers", info.n_layers);
  number("nMoeLayers", info.n_moe_layers);
  number("nEncoderLayers", info.n_encoder_layers);
  number("contextLength", info.context_length);
  number("sourceLength", info.source_length);
  number("bosToken", info.bos_token);
  number("maskToken", info.mask_token);
  number("startToken", info.start_token);
  number("vectorTokens", info.vector_tokens);
  number("nOutputs", info.n_outputs);
  number("nParameters", static_cast<double>(info.n_parameters));
  number("nActiveParameters", static_cast<double>(info.n_active_parameters));
  number("weightBytes", static_cast<double>(info.weight_bytes));
  number("bytesPerToken", static_cast<double>(info.bytes_per_token));
  number("fileBytes", static_cast<double>(info.file_bytes));
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016" PRIx64, info.file_hash);
  js.set(result, "fileHash", js.string(hash));
  js.set(result, "device", js.string(info.device));
  number("nPredictions", info.n_predictions);
  return result;
}

napi_value model_sampling(const Js& js, const Arguments& a) {
  moe_sampling s = {};
  bool in_file = false;
  moe_error error;
  s.struct_size = sizeof s;
  check(moe_model_get_sampling(idle<moe_model>(js, a[0]), &s, &in_file, &error), error);
  napi_value result = js.object();
  const auto number = [&](const char* key, double n) { js.set(result, key, js.of(n)); };
  number("temperature", static_cast<double>(s.temperature));
  number("topK", s.top_k);
  number("topP", static_cast<double>(s.top_p));
  number("minP", static_cast<double>(s.min_p));
  number("repetitionPenalty", static_cast<double>(s.repetition_penalty));
  number("repetitionWindow", s.repetition_window);
  js.set(result, "inFile", js.of(in_file));
  return result;
}

napi_value encode(const Js& js, const Arguments& a) {
  const std::string text = js.text(a[1], "text");
  js.require_object(a[2]);
  uint32_t flags = js.flag(a[2], "noSpecial") ? MOE_ENCODE_NO_SPECIAL : 0;
  if (js.flag(a[2], "parseSpecial")) flags |= MOE_ENCODE_PARSE_SPECIAL;
  const moe_tokenizer* tokenizer = tokenizer_of(js, a[0]);
  return js.of(measured<std::vector<int32_t>>([&](int32_t* to, size_t room, size_t* n, auto* e) {
    return moe_tokenizer_encode(tokenizer, text.data(), text.size(), flags, to, room, n, e);
  }));
}

napi_value decode(const Js& js, const Arguments& a) {
  const std::vector<int32_t> tokens = js.tokens(a[1]);
  js.require_object(a[2]);
  const uint32_t flags = js.flag(a[2], "skipSpecial") ? MOE_DECODE_SKIP_SPECIAL : 0;
  const moe_tokenizer* tokenizer = tokenizer_of(js, a[0]);
  const auto text = measured<std::string>([&](char* to, size_t room, size_t* n, auto* e) {
    return moe_tokenizer_decode(tokenizer, tokens.data(), tokens.size(), flags, to, room, n, e);
  });
  return js.string(text.data(), text.size());
}

napi_value piece(const Js& js, const Arguments& a) {
  const int64_t token = js.integer(a[1], "token", INT32_MIN, INT32_MAX);
  const char* text = moe_tokenizer_piece(tokenizer_of(js, a[0]), static_cast<int32_t>(token));
  if (text == nullptr) fail(MOE_ERR_RANGE, "token " + std::to_string(token) + " is none");
  return js.string(text);
}

}  // namespace moe_node
