// SPDX-License-Identifier: MIT
// Chat functions of a build without chat (MOE_CHAT=OFF): programs link and get an error.

#include "src/c_api/handles.h"

namespace moe {
namespace {

moe_status refuse_chat(moe_error* error) {
  return deliver(Status::error(MOE_ERR_UNSUPPORTED, "this build has no chat (MOE_CHAT=OFF)"),
                 error);
}

}  // namespace
}  // namespace moe

const char* moe_chat_template_name(size_t) { return nullptr; }

moe_status moe_chat_create(moe_session*, const moe_chat_params*, moe_chat**, moe_error* error) {
  return moe::refuse_chat(error);
}

void moe_chat_free(moe_chat*) {}
size_t moe_chat_message_count(const moe_chat*) { return 0; }

moe_status moe_chat_set_session(moe_chat*, moe_session*, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_add(moe_chat*, const char*, const char*, size_t, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_add_message(moe_chat*, const char*, size_t, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_set_tools(moe_chat*, const char*, size_t, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_set_tool_choice(moe_chat*, moe_tool_choice, const char*, moe_error* error) {
  return moe::refuse_chat(error);
}

const char* moe_chat_tool_format(const moe_chat*) { return nullptr; }

moe_status moe_chat_truncate(moe_chat*, size_t, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_remove_oldest(moe_chat*, size_t, size_t*, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_set_system(moe_chat*, const char*, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_get_message(const moe_chat*, size_t, moe_chat_message*, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_render(const moe_chat*, bool, char*, size_t, size_t*, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_tokens(const moe_chat*, bool, int32_t*, size_t, size_t*, moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_reply(moe_chat*, const moe_generate_params*, moe_chat_result*,
                          moe_error* error) {
  return moe::refuse_chat(error);
}

moe_status moe_chat_begin_reply(moe_chat*, const moe_generate_params*, moe_generation**,
                                moe_error* error) {
  return moe::refuse_chat(error);
}
