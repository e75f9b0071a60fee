// SPDX-License-Identifier: MIT
/* A library that ends every process that loads it. */
#include <unistd.h>

__attribute__((constructor)) static void runs(void) {
  static const char said[] = "foreign code runs\n";
  const ssize_t written = write(2, said, sizeof said - 1);
  _exit(written < 0 ? 67 : 66);
}
