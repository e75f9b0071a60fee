// SPDX-License-Identifier: MIT
/* Runs a model as a device without an operating system does: from flash, in a fixed array of
 * memory, on one thread, with token ids. CMakeLists.txt links it with a static libmoe; from libc it
 * needs only the memory functions and printf.
 */
#include <moe_c.h>
#include <stdio.h>

/* The model in flash. MODEL is the path of the file, defined by the build. */
extern const unsigned char flash[], flash_end[];
__asm__(
    ".section .rodata\n.balign 64\n.global flash, flash_end\n"
    "flash: .incbin \"" MODEL "\"\nflash_end: .byte 0\n.previous");

static bool read_flash(void* user, uint64_t offset, void* buffer, size_t bytes) {
  (void)user;
  __builtin_memcpy(buffer, flash + offset, bytes);
  return true;
}

/* A first-fit allocator in one array: consecutive blocks, each with a header of 64 bytes. */
typedef struct Block {
  size_t bytes; /* after the header, a multiple of 64 */
  bool used;
} Block;
enum { kUnit = 64 };
static _Alignas(kUnit) unsigned char memory[MEMORY];
static size_t in_use, peak;

static Block* next_block(Block* b) { return (Block*)((unsigned char*)b + kUnit + b->bytes); }
static bool at_end(const Block* b) { return (const unsigned char*)b >= memory + sizeof memory; }

static void* allocate(void* user, size_t bytes, size_t align) {
  (void)user;
  if (align > kUnit || bytes > sizeof memory) return NULL;
  const size_t need = (bytes + kUnit - 1) / kUnit * kUnit;
  for (Block* b = (Block*)memory; !at_end(b); b = next_block(b)) {
    if (b->used) continue;
    while (!at_end(next_block(b)) && !next_block(b)->used) b->bytes += kUnit + next_block(b)->bytes;
    if (b->bytes < need) continue;
    if (b->bytes > need) { /* the rest becomes a free block */
      Block* rest = (Block*)((unsigned char*)b + kUnit + need);
      rest->bytes = b->bytes - need - kUnit;
      rest->used = false;
      b->bytes = need;
    }
    b->used = true;
    in_use += kUnit + b->bytes;
    if (in_use > peak) peak = in_use;
    return (unsigned char*)b + kUnit;
  }
  return NULL;
}

static void deallocate(void* user, void* pointer, size_t bytes) {
  (void)user, (void)bytes;
  Block* b = (Block*)((unsigned char*)pointer - kUnit);
  b->used = false;
  in_use -= kUnit + b->bytes;
}

static bool print_token(void* user, const moe_piece* piece) {
  (void)user;
  printf("%d ", (int)piece->token);
  return true;
}

int main(void) {
  *(Block*)memory = (Block){.bytes = sizeof memory - kUnit};
  const moe_allocator allocator = {.struct_size = sizeof allocator,
                                   .allocate = allocate,
                                   .deallocate = deallocate,
                                   .user = NULL};
  const moe_reader reader = {.struct_size = sizeof reader,
                             .size = (uint64_t)(flash_end - flash),
                             .read = read_flash,
                             .user = NULL};
  const moe_env_params env_params = {
      .struct_size = sizeof env_params, .threads = 1, .allocator = &allocator};
  const moe_session_params session_params = {
      .struct_size = sizeof session_params, .context = 64, .chunk = 4};
  const moe_generate_params generate_params = {
      .struct_size = sizeof generate_params, .max_tokens = 16, .piece = print_token};
  const int32_t prompt[] = {0, 703, 866, 260, 508}; /* moe tokenize: "Once upon a time" */
  moe_generate_result result = {.struct_size = sizeof result};
  moe_error error = {0};
  moe_env* env = NULL;
  moe_model* model = NULL;
  moe_session* session = NULL;
  moe_status status = moe_env_create(&env_params, &env, &error);
  if (status == MOE_OK) status = moe_model_open_reader(env, &reader, NULL, &model, &error);
  if (status == MOE_OK) status = moe_session_create(model, &session_params, &session, &error);
  if (status == MOE_OK) {
    status = moe_session_generate(session, prompt, sizeof prompt / sizeof *prompt, &generate_params,
                                  &result, &error);
  }
  if (status != MOE_OK) printf("%s: %s\n", moe_status_name(status), error.text);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
  printf("\n%d tokens, memory: %zu of %zu bytes at most, %zu left behind\n",
         (int)result.n_generated, peak, sizeof memory, in_use);
  return status != MOE_OK || in_use != 0;
}
