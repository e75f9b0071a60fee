// SPDX-License-Identifier: MIT
/* The shortest useful program: continues a text.
 *
 *   cc -std=c99 examples/generate.c $(pkg-config --cflags --libs moe) -o generate
 *   ./generate examples/models/stories.moe "Once upon a time"
 */
#include <moe_c.h>
#include <stdio.h>
#include <string.h>

static bool print_piece(void* user, const moe_piece* piece) {
  (void)user;
  fwrite(piece->text, 1, piece->n_bytes, stdout);
  fflush(stdout);
  return true; /* false would stop the generation */
}

int main(int argc, char** argv) {
  moe_env* env = NULL;
  moe_model* model = NULL;
  moe_session* session = NULL;
  moe_error error;
  memset(&error, 0, sizeof error);
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL TEXT\n", argv[0]);
    return 2;
  }

  moe_status status = moe_env_create(NULL, &env, &error);
  if (status == MOE_OK) status = moe_model_open(env, argv[1], NULL, &model, &error);
  if (status == MOE_OK) status = moe_session_create(model, NULL, &session, &error);

  if (status == MOE_OK && moe_model_tokenizer(model) == NULL) {
    fprintf(stderr, "this model has no tokenizer\n");
    return 1;
  }
  int32_t prompt[512];
  size_t n_prompt = 0;
  if (status == MOE_OK) {
    status = moe_tokenizer_encode(moe_model_tokenizer(model), argv[2], strlen(argv[2]), 0, prompt,
                                  sizeof prompt / sizeof prompt[0], &n_prompt, &error);
  }

  moe_sampling sampling = {.struct_size = sizeof sampling, .temperature = 0.7f, .seed = 1};
  moe_generate_params params = {
      .struct_size = sizeof params, .max_tokens = 100, .sampling = &sampling, .piece = print_piece};
  moe_generate_result result = {.struct_size = sizeof result};
  if (status == MOE_OK) {
    printf("%s", argv[2]);
    status = moe_session_generate(session, prompt, n_prompt, &params, &result, &error);
    printf("\n");
  }
  if (status != MOE_OK) fprintf(stderr, "%s: %s\n", moe_status_name(status), error.text);

  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
  return status == MOE_OK ? 0 : 1;
}
