// SPDX-License-Identifier: MIT
/* Messages have a decimal point even in a locale with a decimal comma.
 * Usage: locale_test MODEL, with LOCPATH and LC_ALL naming a locale with a comma */
#include <locale.h>
#include <moe_c.h>
#include <stdio.h>
#include <string.h>

static int g_failures = 0;

static void check(int good, const char* what) {
  if (good) return;
  ++g_failures;
  fprintf(stderr, "failed: %s\n", what);
}

static void check_comma(void) {
  char text[8];
  snprintf(text, sizeof text, "%.1f", 1.5);
  check(strcmp(text, "1,5") == 0, "the program's own locale has a comma");
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  check(setlocale(LC_NUMERIC, "") != NULL, "setlocale");
  check_comma();
  moe_error error = {MOE_OK, ""};
  moe_env* env = NULL;
  moe_model* model = NULL;
  check(moe_env_create(NULL, &env, &error) == MOE_OK, "moe_env_create");
  const moe_model_params p = {.struct_size = sizeof p, .memory_bytes = 1500};
  check(moe_model_open(env, argv[1], &p, &model, &error) == MOE_ERR_BUDGET, "a cap of 1500 bytes");
  check(strstr(error.text, "the cap of 0.002 MB is too small: ") != NULL, error.text);
  check(strstr(error.text, "KV cache 0.") != NULL, error.text);
  check_comma();
  moe_env_free(env);
  return g_failures == 0 ? 0 : 1;
}
