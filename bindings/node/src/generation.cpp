// SPDX-License-Identifier: MIT
// Generation and chat.

#include "owner.h"

namespace moe_node {
namespace {

/// A moe_generate_params and what it points to.
struct Request {
  Request(const Js& js, napi_value options) {
    js.require_object(options);
    params.struct_size = sizeof params;
    params.max_tokens = js.int32(options, "maxTokens");
    params.ignore_eos = js.flag(options, "ignoreEos");
    params.n_top = js.int32(options, "nTop");
    params.max_draft = js.int32(options, "maxDraft");
    params.piece = Work::take;
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

/// The fields common to moe_generate_result and moe_chat_result.
template <class Result>
napi_value to_js(const Js& js, const Result& r) {
  napi_value result = js.object();
  js.set(result, "finish", js.string(name_of(r.finish, kFinishNames)));
  js.set(result, "nPrompt", js.of(static_cast<double>(r.n_prompt)));
  js.set(result, "nGenerated", js.of(static_cast<double>(r.n_generated)));
  js.set(result, "promptSeconds", js.of(r.prompt_seconds));
  js.set(result, "generateSeconds", js.of(r.generate_seconds));
  js.set(result, "nDrafted", js.of(static_cast<double>(r.n_drafted)));
  js.set(result, "nAccepted", js.of(static_cast<double>(r.n_accepted)));
  return result;
}

moe_thinking thinking_of(const Js& js, napi_value options) {
  napi_value value = js.get(options, "thinking");
  if (js.missing(value)) return MOE_THINKING_DEFAULT;
  return js.boolean(value, "thinking") ? MOE_THINKING_ON : MOE_THINKING_OFF;
}

}  // namespace

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
        request->params.piece_user = &work;
        return moe_session_generate(session, prompt->data(), prompt->size(), &request->params,
                                    result.get(), e);
      },
      [=](const Js& to) { return to_js(to, *result); }, a[3]);
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

napi_value chat_add_message(const Js& js, const Arguments& a) {
  moe_chat* chat = idle<moe_chat>(js, a[0]);
  const std::string message = js.text(a[1], "message");
  moe_error error;
  check(moe_chat_add_message(chat, message.data(), message.size(), &error), error);
  return js.undefined();
}

napi_value chat_set_tools(const Js& js, const Arguments& a) {
  moe_chat* chat = idle<moe_chat>(js, a[0]);
  const std::string tools = js.text(a[1], "tools");
  moe_error error;
  check(moe_chat_set_tools(chat, tools.data(), tools.size(), &error), error);
  return js.undefined();
}

napi_value chat_set_tool_choice(const Js& js, const Arguments& a) {
  moe_chat* chat = idle<moe_chat>(js, a[0]);
  const moe_tool_choice choice = js.named(a[1], "choice", kToolChoiceNames);
  const bool any = js.missing(a[2]);
  const std::string name = any ? "" : js.c_text(a[2], "name");
  moe_error error;
  check(moe_chat_set_tool_choice(chat, choice, any ? nullptr : name.c_str(), &error), error);
  return js.undefined();
}

napi_value chat_tool_format(const Js& js, const Arguments& a) {
  const char* format = moe_chat_tool_format(idle<moe_chat>(js, a[0]));
  return format == nullptr ? js.undefined() : js.string(format);
}

napi_value chat_truncate(const Js& js, const Arguments& a) {
  moe_chat* chat = idle<moe_chat>(js, a[0]);
  const int64_t n = js.integer(a[1], "n", 0, INT32_MAX);
  moe_error error;
  check(moe_chat_truncate(chat, static_cast<size_t>(n), &error), error);
  return js.undefined();
}

napi_value chat_remove_oldest(const Js& js, const Arguments& a) {
  moe_chat* chat = idle<moe_chat>(js, a[0]);
  const int64_t most = js.integer(a[1], "maxTokens", 0, INT32_MAX);
  size_t n = 0;
  moe_error error;
  check(moe_chat_remove_oldest(chat, static_cast<size_t>(most), &n, &error), error);
  return js.of(static_cast<double>(n));
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
    js.set(message, "members", js.string(*m.members ? m.members : "{}"));  // index.js parses it
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
        request->params.piece_user = &work;
        return moe_chat_reply(chat, &request->params, result.get(), e);
      },
      [=](const Js& to) {
        napi_value value = to_js(to, *result);
        to.set(value, "nReused", to.of(static_cast<double>(result->n_reused)));
        to.set(value, "nThinking", to.of(static_cast<double>(result->n_thinking)));
        to.set(value, "nToolCalls", to.of(static_cast<double>(result->n_tool_calls)));
        return value;
      },
      a[2]);
}

}  // namespace moe_node
