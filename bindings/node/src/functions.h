// SPDX-License-Identifier: MIT
#pragma once
// The functions that index.js calls, one for each name in moe.cpp. Each reads its arguments from
// JavaScript and throws a Fault if one is wrong.

#include <array>

#include "js.h"

namespace moe_node {

using Arguments = std::array<napi_value, 4>;

// model.cpp
napi_value open_model(const Js& js, const Arguments& a);
napi_value model_info(const Js& js, const Arguments& a);
napi_value model_sampling(const Js& js, const Arguments& a);
napi_value encode(const Js& js, const Arguments& a);
napi_value decode(const Js& js, const Arguments& a);
napi_value piece(const Js& js, const Arguments& a);

// session.cpp
napi_value create_session(const Js& js, const Arguments& a);
napi_value position(const Js& js, const Arguments& a);
napi_value context(const Js& js, const Arguments& a);
napi_value rewind(const Js& js, const Arguments& a);
napi_value count_routing(const Js& js, const Arguments& a);
napi_value activations(const Js& js, const Arguments& a);
napi_value eval(const Js& js, const Arguments& a);
napi_value eval_each(const Js& js, const Arguments& a);
napi_value score(const Js& js, const Arguments& a);
napi_value embed(const Js& js, const Arguments& a);
napi_value cancel(const Js& js, const Arguments& a);
napi_value cancel_again(const Js& js, const Arguments& a);
napi_value end_all(const Js& js, const Arguments& a);
napi_value close_handle(const Js& js, const Arguments& a);

// generation.cpp
napi_value generate(const Js& js, const Arguments& a);
napi_value create_chat(const Js& js, const Arguments& a);
napi_value chat_add(const Js& js, const Arguments& a);
napi_value chat_add_message(const Js& js, const Arguments& a);
napi_value chat_set_tools(const Js& js, const Arguments& a);
napi_value chat_set_tool_choice(const Js& js, const Arguments& a);
napi_value chat_tool_format(const Js& js, const Arguments& a);
napi_value chat_truncate(const Js& js, const Arguments& a);
napi_value chat_remove_oldest(const Js& js, const Arguments& a);
napi_value chat_messages(const Js& js, const Arguments& a);
napi_value chat_render(const Js& js, const Arguments& a);
napi_value chat_reply(const Js& js, const Arguments& a);

// layer.cpp
napi_value create_layer(const Js& js, const Arguments& a);
napi_value layer_forward(const Js& js, const Arguments& a);

// service.cpp
napi_value create_service(const Js& js, const Arguments& a);
napi_value service_submit(const Js& js, const Arguments& a);
napi_value service_cancel(const Js& js, const Arguments& a);
napi_value service_stats(const Js& js, const Arguments& a);
napi_value service_drain(const Js& js, const Arguments& a);
napi_value service_close(const Js& js, const Arguments& a);

}  // namespace moe_node
