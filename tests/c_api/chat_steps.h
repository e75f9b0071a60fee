// SPDX-License-Identifier: MIT
/* Steps of a conversation through the C API, for a test of one model. */
#pragma once
#include "check.h"

static moe_env* env;
static moe_model* model;

static moe_session* new_session(int32_t context) {
  moe_session_params sp = {.struct_size = sizeof sp, .context = context};
  moe_session* session = NULL;
  CHECK_OK(moe_session_create(model, &sp, &session, &error));
  return session;
}

static moe_chat* new_chat(moe_session* session, const moe_chat_params* params) {
  moe_chat* chat = NULL;
  CHECK_OK(moe_chat_create(session, params, &chat, &error));
  return chat;
}

static void say(moe_chat* chat, const char* role, const char* text) {
  CHECK_OK(moe_chat_add(chat, role, text, strlen(text), &error));
}

static const char* rendered(const moe_chat* chat, bool begin_reply) {
  static char text[4096];
  size_t n = 0;
  text[0] = '\0';
  CHECK_OK(moe_chat_render(chat, begin_reply, text, sizeof text, &n, &error));
  CHECK(strlen(text) == n);
  return text;
}

typedef struct Heard {
  char answer[512];
  char thinking[512];
  int n_tokens;
  int stop_after; /* tokens; 0: never */
  moe_session* cancel;
  moe_chat* chat; /* to call from the callback; NULL: none */
  moe_session* session;
} Heard;

static bool hear(void* user, const moe_piece* piece) {
  Heard* h = user;
  char* to = (piece->flags & MOE_PIECE_THINKING) != 0 ? h->thinking : h->answer;
  const size_t n = strlen(to);
  memcpy(to + n, piece->text, piece->n_bytes);
  to[n + piece->n_bytes] = '\0';
  if (piece->token >= 0) ++h->n_tokens;
  if (h->chat != NULL) {
    moe_chat_result result = {.struct_size = sizeof result};
    CHECK(moe_chat_add(h->chat, "user", "x", 1, NULL) == MOE_ERR_STATE);
    CHECK(moe_chat_truncate(h->chat, 0, NULL) == MOE_ERR_STATE);
    CHECK(moe_chat_set_system(h->chat, NULL, NULL) == MOE_ERR_STATE);
    if (h->session != NULL) CHECK(moe_chat_set_session(h->chat, h->session, NULL) == MOE_ERR_STATE);
    CHECK(moe_chat_reply(h->chat, NULL, &result, NULL) == MOE_ERR_STATE);
  }
  if (h->stop_after == 0 || h->n_tokens < h->stop_after) return true;
  if (h->cancel == NULL) return false;
  moe_session_cancel(h->cancel);
  return true;
}

static moe_status reply(moe_chat* chat, Heard* heard, moe_generate_params* params,
                        moe_chat_result* result) {
  moe_generate_params gp = {.struct_size = sizeof gp};
  if (params != NULL) gp = *params;
  if (heard != NULL) {
    gp.piece = hear;
    gp.piece_user = heard;
  }
  memset(result, 0, sizeof *result);
  result->struct_size = sizeof *result;
  return moe_chat_reply(chat, &gp, result, &error);
}

static moe_chat_message message(const moe_chat* chat, size_t index) {
  moe_chat_message m = {.struct_size = sizeof m};
  CHECK_OK(moe_chat_get_message(chat, index, &m, &error));
  return m;
}
