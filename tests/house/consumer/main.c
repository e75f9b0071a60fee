// SPDX-License-Identifier: MIT
/* Makes an environment with the installed library. Usage: consumer EXPECTED_VERSION */
#include <moe_c.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  moe_env* env = NULL;
  moe_error error;
  if (argc != 2 || strcmp(argv[1], moe_version_string()) != 0) {
    fprintf(stderr, "the library is version %s\n", moe_version_string());
    return 1;
  }
  if (moe_env_create(NULL, &env, &error) != MOE_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  moe_env_free(env);
  printf("moe %s\n", moe_version_string());
  return 0;
}
