// SPDX-License-Identifier: MIT
/* A conversation: each argument is a message of the user, to which the model replies.
 *
 *   cc -std=c99 examples/chat.c $(pkg-config --cflags --libs moe) -o chat
 *   ./chat MODEL "Hello!" "And now in French."
 */
#include <moe_c.h>
#include <stdio.h>
#include <string.h>

static bool print_piece(void* user, const moe_piece* piece) {
  (void)user;
  /* Thinking before the answer is marked. */
  FILE* out = (piece->flags & MOE_PIECE_THINKING) != 0 ? stderr : stdout;
  fwrite(piece->text, 1, piece->n_bytes, out);
  fflush(out);
  return true; /* false would end the reply */
}

static moe_status talk(moe_chat* chat, char** lines, int n_lines, moe_error* error) {
  moe_generate_params params = {
      .struct_size = sizeof params, .max_tokens = 100, .piece = print_piece};
  moe_chat_result result = {.struct_size = sizeof result};
  moe_status status = MOE_OK;
  for (int i = 0; i < n_lines && status == MOE_OK; ++i) {
    printf("> %s\n", lines[i]);
    status = moe_chat_add(chat, "user", lines[i], strlen(lines[i]), error);
    if (status == MOE_OK) status = moe_chat_reply(chat, &params, &result, error);
    if (status == MOE_OK) {
      printf("\n(%d tokens of conversation, %d of them from the turns before)\n", result.n_prompt,
             result.n_reused);
    }
  }
  return status;
}

int main(int argc, char** argv) {
  moe_env* env = NULL;
  moe_model* model = NULL;
  moe_session* session = NULL;
  moe_chat* chat = NULL;
  moe_error error;
  memset(&error, 0, sizeof error);
  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL LINE...\n", argv[0]);
    return 2;
  }

  moe_status status = moe_env_create(NULL, &env, &error);
  if (status == MOE_OK) status = moe_model_open(env, argv[1], NULL, &model, &error);
  if (status == MOE_OK) status = moe_session_create(model, NULL, &session, &error);

  /* Uses the checkpoint's own template; a model without one just continues the text. */
  moe_chat_params params = {.struct_size = sizeof params};
  if (moe_model_chat_template(model) == NULL) params.chat_template = "plain";
  if (status == MOE_OK) status = moe_chat_create(session, &params, &chat, &error);
  if (status == MOE_OK) status = talk(chat, argv + 2, argc - 2, &error);
  if (status != MOE_OK) fprintf(stderr, "%s: %s\n", moe_status_name(status), error.text);

  moe_chat_free(chat);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
  return status == MOE_OK ? 0 : 1;
}
