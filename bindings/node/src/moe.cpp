// libmoe for Node. index.js makes classes of these functions; index.d.ts says what they take.

#include <array>
#include <deque>
#include <new>

#include "layer.h"
#include "work.h"

namespace moe_node {
namespace {

using Arguments = std::array<napi_value, 4>;
using Function = napi_value (*)(const Js&, const Arguments&);

/// A function of JavaScript: whatever is wrong is thrown there.
template <Function function>
napi_value entry(napi_env env, napi_callback_info info) {
  const Js js(env);
  try {
    try {
      Arguments arguments;
      size_t n = arguments.size();
      js.ok(napi_get_cb_info(env, info, &n, arguments.data(), nullptr, nullptr));
      return function(js, arguments);
    } catch (const Fault& fault) {
      js.ok(napi_throw(env, js.error(fault)));
    } catch (const std::bad_alloc&) {
      js.ok(napi_throw(env, js.error({moe_status_name(MOE_ERR_MEMORY), "out of memory"})));
    }
  } catch (...) {  // an exception is pending, or JavaScript is out of memory
  }
  return nullptr;
}

/// Of a handle that is open and not in use. Comes last: reading an option may run JavaScript, which
/// may close the handle or begin another call.
template <class T>
T* idle(const Js& js, napi_value value, Handle** handle = nullptr) {
  Handle* found = unwrap(js, value);
  found->require_idle();
  if (handle != nullptr) *handle = found;
  return found->pointer<T>();
}

// ---- Environments and models

/// Frees what it points to, unless that was taken.
template <class T, void (*free)(T*)>
struct Owner {
  ~Owner() { free(pointer); }
  T* take() {
    T* taken = pointer;
    pointer = nullptr;
    return taken;
  }
  T* pointer = nullptr;
};
using Env = Owner<moe_env, moe_env_free>;
using Model = Owner<moe_model, moe_model_free>;
using Session = Owner<moe_session, moe_session_free>;
using Layer = Owner<moe_layer, moe_layer_free>;

template <class T, void (*free)(T*)>
Handle* make_handle(const char* what, Owner<T, free>& owner, Handle* parent) {
  return new Handle(what, owner.take(), parent, [](void* p) { free(static_cast<T*>(p)); });
}

/// The handle of a child that keeps its parent alone.
template <class T, void (*free)(T*)>
napi_value wrap_child(const Js& js, const char* what, Owner<T, free>& owner, Env& env) {
  Handle* parent = make_handle("environment", env, nullptr);
  Handle* handle = make_handle(what, owner, parent);
  parent->release();
  return wrap(js, handle);
}

/// What stands in the options of a model and of a layer.
struct EnvOptions {
  EnvOptions(const Js& js, napi_value options) {
    js.require_object(options);
    params.struct_size = sizeof params;
    params.threads = js.int32(options, "threads");
    params.gpu_memory_bytes = js.size(options, "gpuMemoryBytes");
    params.isa = text(js, options, "isa");
    params.device = text(js, options, "device");
  }
  const char* text(const Js& js, napi_value options, const char* key) {
    napi_value value = js.get(options, key);
    if (js.missing(value)) return nullptr;
    texts.push_back(js.c_text(value, key));
    return texts.back().c_str();
  }
  std::deque<std::string> texts;
  moe_env_params params = {};
};

moe_session_params session_params(const Js& js, napi_value options) {
  js.require_object(options);
  moe_session_params p = {};
  p.struct_size = sizeof p;
  p.context = js.int32(options, "context");
  p.chunk = js.int32(options, "chunk");
  napi_value kv = js.get(options, "kv");
  if (js.missing(kv)) return p;
  const std::string name = js.text(kv, "kv");
  const std::pair<const char*, moe_kv_type> types[] = {{"default", MOE_KV_DEFAULT},
                                                       {"f16", MOE_KV_F16},
                                                       {"int8", MOE_KV_INT8},
                                                       {"f32", MOE_KV_F32},
                                                       {"latent", MOE_KV_LATENT}};
  for (const auto& type : types) {
    p.kv = type.second;
    if (name == type.first) return p;
  }
  fail(MOE_ERR_ARGUMENT, "kv: expected f16, int8, f32 or latent, found '" + name + "'");
}

moe_io io_of(const Js& js, napi_value options) {
  napi_value io = js.get(options, "io");
  if (js.missing(io)) return MOE_IO_AUTO;
  const std::string name = js.text(io, "io");
  if (name == "auto") return MOE_IO_AUTO;
  if (name == "direct") return MOE_IO_DIRECT;
  if (name == "buffered") return MOE_IO_BUFFERED;
  fail(MOE_ERR_ARGUMENT, "io: expected auto, direct or buffered, found '" + name + "'");
}

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
    params.io = io_of(js, options);
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
  Env env;  // freed after the model
  Model model;
};

napi_value open_model(const Js& js, const Arguments& a) {
  auto call = std::make_shared<OpenCall>(js, a[0], a[1]);
  return Work::start(
      js, {}, false, [call](Work&, moe_error* e) { return call->run(e); },
      [call](const Js& to) { return wrap_child(to, "model", call->model, call->env); });
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
  number("nOutputs", info.n_outputs);
  number("nParameters", static_cast<double>(info.n_parameters));
  number("nActiveParameters", static_cast<double>(info.n_active_parameters));
  number("weightBytes", static_cast<double>(info.weight_bytes));
  number("bytesPerToken", static_cast<double>(info.bytes_per_token));
  number("fileBytes", static_cast<double>(info.file_bytes));
  return result;
}

// ---- Tokens

const moe_tokenizer* tokenizer_of(const Js& js, napi_value model) {
  const moe_tokenizer* tokenizer = moe_model_tokenizer(idle<moe_model>(js, model));
  if (tokenizer == nullptr) fail(MOE_ERR_NOT_FOUND, "the model has no tokenizer");
  return tokenizer;
}

/// The two calls of a function that first measures. call(buffer, capacity, &length, &error)
template <class Buffer, class Call>
Buffer measured(Call call) {
  size_t n = 0;
  moe_error error;
  check(call(nullptr, 0, &n, &error), error);
  Buffer buffer(n + 1, 0);  // with the zero at the end of a text
  check(call(&buffer[0], n + 1, &n, &error), error);
  buffer.resize(n);
  return buffer;
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

// ---- Sessions

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
  bool on = false;
  if (napi_get_value_bool(js.env, a[1], &on) != napi_ok) {
    fail(MOE_ERR_ARGUMENT, "on: expected a boolean");
  }
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

/// A call on a session that takes tokens and gives numbers.
/// call(session, tokens, numbers, error), where `size` numbers have room
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

napi_value eval(const Js& js, const Arguments& a) {
  const size_t n = static_cast<size_t>(info_of(unwrap(js, a[0])).vocab_size);
  return numbers(js, a, [n](moe_session* s, const auto& tokens, auto* logits, moe_error* e) {
    logits->resize(n);
    return moe_session_eval(s, tokens.data(), tokens.size(), logits->data(), 1, e);
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

moe_pooling pooling_of(const Js& js, napi_value value) {
  const std::string name = js.text(value, "pooling");
  if (name == "mean") return MOE_POOL_MEAN;
  if (name == "first") return MOE_POOL_FIRST;
  if (name == "last") return MOE_POOL_LAST;
  fail(MOE_ERR_ARGUMENT, "pooling: expected mean, first or last, found '" + name + "'");
}

napi_value embed(const Js& js, const Arguments& a) {
  const size_t d = static_cast<size_t>(info_of(unwrap(js, a[0])).d_model);
  moe_encode_params p = {};
  p.struct_size = sizeof p;
  p.pooling = pooling_of(js, a[2]);
  return numbers(js, a, [=](moe_session* s, const auto& tokens, auto* vector, moe_error* e) {
    vector->resize(d);
    moe_encode_params params = p;
    params.pooled = vector->data();
    return moe_session_encode(s, tokens.data(), tokens.size(), &params, e);
  });
}

/// The tokens of several sessions, one session's behind the other's, and what they are for.
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

/// evaluate_each(sessions, pieces), as many of the one as of the other, and not none
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

/// Of a session or a chat. Whether a call is in progress.
napi_value cancel(const Js& js, const Arguments& a) {
  Work* work = unwrap(js, a[0])->work();
  if (work != nullptr) work->cancel();
  return js.of(work != nullptr);
}

/// The same for a call that was cancelled before, and no other.
napi_value cancel_again(const Js& js, const Arguments& a) {
  Work* work = unwrap(js, a[0])->work();
  const bool cancelled = work != nullptr && work->is_cancelled();
  if (cancelled) work->cancel();
  return js.of(cancelled);
}

/// Ends every call of this thread's JavaScript, which ends itself: Node waits for the calls.
napi_value end_all(const Js& js, const Arguments&) {
  Work::end_all(nullptr);
  return js.undefined();
}

napi_value close_handle(const Js& js, const Arguments& a) {
  unwrap(js, a[0])->close();
  return js.undefined();
}

// ---- Generation

/// A moe_generate_params with all that it points to.
struct Request {
  Request(const Js& js, napi_value options) {
    js.require_object(options);
    params.struct_size = sizeof params;
    params.max_tokens = js.int32(options, "maxTokens");
    params.ignore_eos = js.flag(options, "ignoreEos");
    params.n_top = js.int32(options, "nTop");
    params.callback = Work::take;
    read_sampling(js, options);
    read_stop(js, js.get(options, "stop"));
  }
  void read_sampling(const Js& js, napi_value options) {
    sampling.struct_size = sizeof sampling;
    sampling.temperature = js.number(options, "temperature");
    sampling.top_k = js.int32(options, "topK");
    sampling.top_p = js.number(options, "topP");
    sampling.min_p = js.number(options, "minP");
    sampling.repetition_penalty = js.number(options, "repetitionPenalty");
    sampling.repetition_window = js.int32(options, "repetitionWindow");
    napi_value seed = js.get(options, "seed");
    sampling.seed = js.is(seed, napi_bigint) ? js.bigint(seed, "seed") : js.size(options, "seed");
    read_bias(js, js.get(options, "bias"));
  }
  void read_bias(const Js& js, napi_value given) {
    if (js.missing(given)) return;
    for (napi_value entry : js.list(given, "bias")) {
      js.require_object(entry, "bias");
      moe_logit_bias added = {};
      added.token = static_cast<int32_t>(
          js.integer(js.get(entry, "token"), "bias: token", INT32_MIN, INT32_MAX));
      added.bias = js.required_number(entry, "bias");
      bias.push_back(added);
    }
    sampling.bias = bias.data();
    sampling.n_bias = static_cast<int32_t>(bias.size());
  }
  void read_stop(const Js& js, napi_value value) {
    params.sampling = &sampling;
    if (js.missing(value)) return;
    for (napi_value text : js.list(value, "stop")) texts.push_back(js.c_text(text, "stop"));
    for (const std::string& text : texts) stop.push_back(text.c_str());
    params.stop = stop.data();
    params.n_stop = static_cast<int32_t>(stop.size());
  }

  moe_generate_params params = {};
  moe_sampling sampling = {};
  std::vector<moe_logit_bias> bias;
  std::deque<std::string> texts;
  std::vector<const char*> stop;
};

const char* finish_name(moe_finish finish) {
  switch (finish) {
    case MOE_FINISH_LENGTH:
      return "length";
    case MOE_FINISH_EOS:
      return "eos";
    case MOE_FINISH_STOP:
      return "stop";
    case MOE_FINISH_CONTEXT:
      return "context";
    case MOE_FINISH_CALLBACK:
      return "callback";
  }
  return "unknown";
}

/// What a moe_generate_result and a moe_chat_result share.
template <class Result>
napi_value to_js(const Js& js, const Result& r) {
  napi_value result = js.object();
  js.set(result, "finish", js.string(finish_name(r.finish)));
  js.set(result, "nPrompt", js.of(static_cast<double>(r.n_prompt)));
  js.set(result, "nGenerated", js.of(static_cast<double>(r.n_generated)));
  js.set(result, "promptSeconds", js.of(r.prompt_seconds));
  js.set(result, "generateSeconds", js.of(r.generate_seconds));
  return result;
}

napi_value generate(const Js& js, const Arguments& a) {
  auto prompt = std::make_shared<std::vector<int32_t>>(js.tokens(a[1]));
  auto request = std::make_shared<Request>(js, a[2]);
  auto result = std::make_shared<moe_generate_result>();
  result->struct_size = sizeof *result;
  Handle* handle = nullptr;
  moe_session* session = idle<moe_session>(js, a[0], &handle);
  return Work::start(
      js, {handle}, true,
      [=](Work& work, moe_error* e) {
        request->params.user = &work;
        return moe_session_generate(session, prompt->data(), prompt->size(), &request->params,
                                    result.get(), e);
      },
      [=](const Js& to) { return to_js(to, *result); }, a[3]);
}

// ---- Chat

moe_thinking thinking_of(const Js& js, napi_value options) {
  napi_value value = js.get(options, "thinking");
  if (js.missing(value)) return MOE_THINKING_DEFAULT;
  return js.flag(options, "thinking") ? MOE_THINKING_ON : MOE_THINKING_OFF;
}

napi_value create_chat(const Js& js, const Arguments& a) {
  js.require_object(a[1]);
  std::deque<std::string> texts;
  const auto text = [&](const char* key) -> const char* {
    napi_value value = js.get(a[1], key);
    if (js.missing(value)) return nullptr;
    texts.push_back(js.c_text(value, key));
    return texts.back().c_str();
  };
  moe_chat_params p = {};
  p.struct_size = sizeof p;
  p.thinking = thinking_of(js, a[1]);
  p.chat_template = text("template");
  p.system = text("system");
  p.date = text("date");
  std::vector<const char*> variables;
  napi_value given = js.get(a[1], "variables");
  if (!js.missing(given)) {
    for (napi_value v : js.list(given, "variables")) {
      texts.push_back(js.c_text(v, "variables"));
      variables.push_back(texts.back().c_str());
    }
  }
  p.variables = variables.data();
  p.n_variables = static_cast<int32_t>(variables.size());
  Handle* session = nullptr;
  moe_session* pointer = idle<moe_session>(js, a[0], &session);
  Owner<moe_chat, moe_chat_free> chat;
  moe_error error;
  check(moe_chat_create(pointer, &p, &chat.pointer, &error), error);
  return wrap(js, make_handle("chat", chat, session));
}

napi_value chat_add(const Js& js, const Arguments& a) {
  moe_chat* chat = idle<moe_chat>(js, a[0]);
  const std::string role = js.c_text(a[1], "role"), content = js.text(a[2], "content");
  moe_error error;
  check(moe_chat_add(chat, role.c_str(), content.data(), content.size(), &error), error);
  return js.undefined();
}

napi_value chat_truncate(const Js& js, const Arguments& a) {
  moe_chat* chat = idle<moe_chat>(js, a[0]);
  const int64_t n = js.integer(a[1], "n", 0, INT32_MAX);
  moe_error error;
  check(moe_chat_truncate(chat, static_cast<size_t>(n), &error), error);
  return js.undefined();
}

napi_value chat_messages(const Js& js, const Arguments& a) {
  const moe_chat* chat = idle<moe_chat>(js, a[0]);
  napi_value result = nullptr;
  js.ok(napi_create_array(js.env, &result));
  for (size_t i = 0; i < moe_chat_message_count(chat); ++i) {
    moe_chat_message m = {};
    moe_error error;
    m.struct_size = sizeof m;
    check(moe_chat_get_message(chat, i, &m, &error), error);
    napi_value message = js.object();
    js.set(message, "role", js.string(m.role));
    js.set(message, "content", js.string(m.content, m.n_bytes));
    js.set(message, "thinking", js.string(m.thinking, m.n_thinking_bytes));
    js.ok(napi_set_element(js.env, result, static_cast<uint32_t>(i), message));
  }
  return result;
}

napi_value chat_render(const Js& js, const Arguments& a) {
  js.require_object(a[1]);
  const bool begin_reply = js.flag(a[1], "beginReply");
  const moe_chat* chat = idle<moe_chat>(js, a[0]);
  const auto text = measured<std::string>([&](char* to, size_t room, size_t* n, auto* e) {
    return moe_chat_render(chat, begin_reply, to, room, n, e);
  });
  return js.string(text.data(), text.size());
}

napi_value chat_reply(const Js& js, const Arguments& a) {
  auto request = std::make_shared<Request>(js, a[1]);
  auto result = std::make_shared<moe_chat_result>();
  result->struct_size = sizeof *result;
  Handle* handle = nullptr;
  moe_chat* chat = idle<moe_chat>(js, a[0], &handle);
  return Work::start(
      js, {handle}, true,
      [=](Work& work, moe_error* e) {
        request->params.user = &work;
        return moe_chat_reply(chat, &request->params, result.get(), e);
      },
      [=](const Js& to) {
        napi_value value = to_js(to, *result);
        to.set(value, "nReused", to.of(static_cast<double>(result->n_reused)));
        to.set(value, "nThinking", to.of(static_cast<double>(result->n_thinking)));
        return value;
      },
      a[2]);
}

// ---- One layer

struct LayerCall {
  LayerCall(const Js& js, napi_value options) : env_options(js, options), weights(js, options) {}
  moe_status run(moe_error* error) {
    const moe_status status = moe_env_create(&env_options.params, &env.pointer, error);
    if (status != MOE_OK) return status;
    return moe_layer_create(env.pointer, &weights.params, &layer.pointer, error);
  }
  EnvOptions env_options;
  LayerWeights weights;
  Env env;  // freed after the layer
  Layer layer;
};

napi_value create_layer(const Js& js, const Arguments& a) {
  auto call = std::make_shared<LayerCall>(js, a[0]);
  return Work::start(
      js, {}, false, [call](Work&, moe_error* e) { return call->run(e); },
      [call](const Js& to) { return wrap_child(to, "layer", call->layer, call->env); });
}

/// layer_forward(layer, x, d_model)
napi_value layer_forward(const Js& js, const Arguments& a) {
  auto rows = std::make_shared<std::vector<float>>(js.floats(a[1], "x"));
  const size_t d = static_cast<size_t>(js.integer(a[2], "dModel", 1, 65536));
  if (rows->size() % d != 0) {
    fail(MOE_ERR_SHAPE, "x: expected rows of " + std::to_string(d) + " numbers, found " +
                            std::to_string(rows->size()) + " numbers");
  }
  Handle* handle = nullptr;
  moe_layer* layer = idle<moe_layer>(js, a[0], &handle);
  return Work::start(
      js, {handle}, true,
      [=](Work&, moe_error* e) {
        return moe_layer_forward(layer, rows->data(), rows->size() / d, rows->data(), e);
      },
      [=](const Js& to) { return to.of(*rows); });
}

napi_value version(const Js& js, const Arguments&) { return js.string(moe_version_string()); }

template <Function function>
void declare(const Js& js, napi_value exports, const char* name) {
  napi_value value = nullptr;
  js.ok(napi_create_function(js.env, name, NAPI_AUTO_LENGTH, entry<function>, nullptr, &value));
  js.set(exports, name, value);
}

void declare_all(const Js& js, napi_value exports) {
  declare<version>(js, exports, "version");
  declare<open_model>(js, exports, "openModel");
  declare<model_info>(js, exports, "modelInfo");
  declare<encode>(js, exports, "encode");
  declare<decode>(js, exports, "decode");
  declare<piece>(js, exports, "piece");
  declare<create_session>(js, exports, "createSession");
  declare<position>(js, exports, "position");
  declare<context>(js, exports, "context");
  declare<rewind>(js, exports, "rewind");
  declare<count_routing>(js, exports, "countRouting");
  declare<activations>(js, exports, "activations");
  declare<eval>(js, exports, "evaluate");
  declare<eval_each>(js, exports, "evaluateEach");
  declare<score>(js, exports, "score");
  declare<embed>(js, exports, "embed");
  declare<cancel>(js, exports, "cancel");
  declare<cancel_again>(js, exports, "cancelAgain");
  declare<end_all>(js, exports, "endAll");
  declare<close_handle>(js, exports, "close");
  declare<generate>(js, exports, "generate");
  declare<create_chat>(js, exports, "createChat");
  declare<chat_add>(js, exports, "chatAdd");
  declare<chat_truncate>(js, exports, "chatTruncate");
  declare<chat_messages>(js, exports, "chatMessages");
  declare<chat_render>(js, exports, "chatRender");
  declare<chat_reply>(js, exports, "chatReply");
  declare<create_layer>(js, exports, "createLayer");
  declare<layer_forward>(js, exports, "layerForward");
}

}  // namespace

napi_value init(napi_env env, napi_value exports) {
  try {
    const Js js(env);
    declare_all(js, exports);
    js.ok(napi_add_env_cleanup_hook(env, Work::end_all, nullptr));  // a worker that is terminated
  } catch (...) {                                                   // Node reports what is pending
  }
  return exports;
}

}  // namespace moe_node

NAPI_MODULE(moe, moe_node::init)
