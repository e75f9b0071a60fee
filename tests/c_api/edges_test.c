// SPDX-License-Identifier: MIT
/* Misuse: numbers outside an enum, a token count larger than the array, objects of the parent in a
 * forked child; files that replace others; a clock of the caller. */
#define _DEFAULT_SOURCE
#include <moe_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

typedef struct Objects {
  Meter meter;
  moe_allocator allocator;
  void* image;
  moe_env* env;
  moe_model* model;
  moe_session* session;
  moe_layer* layer;
} Objects;

static const float kOnes[4] = {1, 1, 1, 1};

static void open_all(Objects* o, int32_t threads) {
  size_t size = 0;
  memset(o, 0, sizeof *o);
  o->meter.fail_at = -1;
  o->allocator = (moe_allocator){.struct_size = sizeof o->allocator,
                                 .allocate = meter_allocate,
                                 .deallocate = meter_deallocate,
                                 .user = &o->meter};
  const moe_env_params ep = {
      .struct_size = sizeof ep, .threads = threads, .device = "cpu", .allocator = &o->allocator};
  const moe_session_params sp = {.struct_size = sizeof sp, .context = 16};
  CHECK_OK(moe_env_create(&ep, &o->env, &error));
  CHECK_OK(moe_synthetic_create("tiny", NULL, &o->image, &size, &error));
  CHECK_OK(moe_model_open_memory(o->env, o->image, size, NULL, &o->model, &error));
  CHECK_OK(moe_session_create(o->model, &sp, &o->session, &error));
  const moe_expert_weights expert = {
      .struct_size = sizeof(moe_expert_weights), .up = kOnes, .down = kOnes};
  const moe_layer_params lp = {.struct_size = sizeof lp,
                               .d_model = 2,
                               .d_ff = 2,
                               .n_experts = 1,
                               .experts = &expert,
                               .router_weight = kOnes};
  CHECK_OK(moe_layer_create(o->env, &lp, &o->layer, &error));
}

static void free_all(Objects* o) {
  moe_layer_free(o->layer);
  moe_session_free(o->session);
  moe_model_free(o->model);
  moe_env_free(o->env);
  moe_synthetic_free(o->image);
  CHECK(o->meter.live_blocks == 0 && o->meter.live_bytes == 0);
}

static void test_enums(void) {
  Objects o;
  open_all(&o, 3);
  const unsigned wrong[] = {5, 77, 0x80000000u, 0xffffffffu};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    moe_session_params sp = {.struct_size = sizeof sp};
    memcpy(&sp.kv, &wrong[i], sizeof wrong[i]);
    moe_session* session = NULL;
    CHECK(moe_session_create(o.model, &sp, &session, &error) == MOE_ERR_ARGUMENT);
    char found[32];
    snprintf(found, sizeof found, "found %d", (int)wrong[i]);
    CHECK(strstr(error.text, "kv") != NULL && strstr(error.text, found) != NULL);
    moe_status status;
    memcpy(&status, &wrong[i], sizeof status);
    if (wrong[i] > 76) CHECK(strcmp(moe_status_name(status), "unknown status") == 0);
  }
  const moe_session_params latent = {.struct_size = sizeof latent, .kv = MOE_KV_LATENT};
  moe_session* session = NULL;
  CHECK(moe_session_create(o.model, &latent, &session, &error) == MOE_ERR_UNSUPPORTED);
  CHECK(strstr(error.text, "kv latent: layer 0") != NULL && session == NULL);
  free_all(&o);
}

/* Eight ids in front of an unreadable page, and a number of tokens that exceeds the context: the
 * number is checked before the ids are read. */
static void test_number_before_ids(void) {
  Objects o;
  open_all(&o, 3);
  const long page = sysconf(_SC_PAGESIZE);
  char* memory =
      mmap(NULL, (size_t)(2 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED && mprotect(memory + page, (size_t)page, PROT_NONE) == 0);
  int32_t* tokens = (int32_t*)(memory + page) - 8;
  for (int i = 0; i < 8; ++i) tokens[i] = i;
  moe_generate_result result = {.struct_size = sizeof result};
  CHECK(moe_session_eval(o.session, tokens, 17, MOE_ROWS_NONE, NULL, &error) == MOE_ERR_TOO_LONG);
  CHECK(strstr(error.text, "17 tokens") != NULL && strstr(error.text, "holds 16") != NULL);
  CHECK(strstr(error.text, "larger context") != NULL && strstr(error.text, "--context") != NULL);
  CHECK(moe_session_eval(o.session, tokens, SIZE_MAX, MOE_ROWS_NONE, NULL, &error) ==
        MOE_ERR_TOO_LONG);
  CHECK(moe_session_generate(o.session, tokens, 1 << 20, NULL, &result, &error) ==
        MOE_ERR_TOO_LONG);
  CHECK_OK(moe_session_eval(o.session, tokens, 8, MOE_ROWS_NONE, NULL, &error));
  munmap(memory, (size_t)(2 * page));
  free_all(&o);
}

#define CHECK_FORKED(call)                                                           \
  do {                                                                               \
    CHECK((call) == MOE_ERR_STATE);                                                  \
    CHECK(strstr(error.text, "fork") != NULL && strstr(error.text, "free") != NULL); \
  } while (0)

/* Every call that needs threads, which a forked child does not have, is refused. */
static void refuse_all(Objects* o) {
  const int32_t token = 1;
  float x[2] = {1, 2};
  moe_session* session = NULL;
  moe_model* model = NULL;
  moe_generate_result result = {.struct_size = sizeof result};
  moe_perplexity perplexity = {.struct_size = sizeof perplexity};
  moe_token_logprob drawn;
  CHECK_FORKED(moe_session_eval(o->session, &token, 1, MOE_ROWS_NONE, NULL, &error));
  CHECK_FORKED(moe_sessions_eval(&o->session, &token, NULL, 1, NULL, &error));
  CHECK_FORKED(moe_session_generate(o->session, &token, 1, NULL, &result, &error));
  CHECK_FORKED(moe_session_sample(o->session, NULL, &drawn, NULL, 0, &error));
  CHECK_FORKED(moe_session_perplexity(o->session, &token, 1, NULL, NULL, &perplexity, &error));
  CHECK_FORKED(moe_session_rewind(o->session, 0, &error));
  moe_memory_stats stats = {.struct_size = sizeof stats};
  CHECK_FORKED(moe_session_get_memory_stats(o->session, &stats, &error));
  CHECK_FORKED(moe_session_set_router(o->session, NULL, &error));
  CHECK_FORKED(moe_session_create(o->model, NULL, &session, &error));
  CHECK_FORKED(moe_model_verify(o->model, &error));
  CHECK_FORKED(moe_model_open(o->env, "none.moe", NULL, &model, &error));
  CHECK_FORKED(moe_layer_forward(o->layer, x, 1, x, &error));
}

/* TSan aborts a child of a multi-threaded process when it starts a thread. */
#ifdef MOE_SANITIZE_THREAD
enum { kThreadsOfChild = 1 };
#else
enum { kThreadsOfChild = 3 };
#endif

/* The child frees the parent's objects and then creates and uses its own. */
static void test_fork(void) {
  Objects o;
  open_all(&o, 3);
  const int32_t tokens[] = {1, 2, 3};
  CHECK_OK(moe_session_eval(o.session, tokens, 3, MOE_ROWS_NONE, NULL, &error));
  usleep(50000); /* until the workers sleep */
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(60); /* waiting for a thread of the parent would never end */
    refuse_all(&o);
    free_all(&o);
    open_all(&o, kThreadsOfChild);
    CHECK_OK(moe_session_eval(o.session, tokens, 3, MOE_ROWS_NONE, NULL, &error));
    free_all(&o);
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_OK(moe_session_eval(o.session, tokens, 3, MOE_ROWS_NONE, NULL,
                            &error)); /* the parent is not affected */
  free_all(&o);
}

static void test_replacement(void) {
  char folder[] = "/tmp/moe_edges_XXXXXX";
  char path[64];
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/s", folder);
  moe_replacement* file = NULL;
  moe_replacement* second = NULL;
  int to = -1;
  CHECK(moe_replacement_open(NULL, &file, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_replacement_open(path, NULL, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_replacement_begin(NULL, &to, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_replacement_commit(NULL, NULL) == MOE_ERR_ARGUMENT);
  moe_replacement_free(NULL);
  CHECK_OK(moe_replacement_open(path, &file, &error));
  CHECK(moe_replacement_begin(file, NULL, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_replacement_commit(file, &error) == MOE_ERR_STATE);
  CHECK(moe_replacement_open(path, &second, &error) == MOE_ERR_IO && second == NULL);
  CHECK(strstr(error.text, "another program") != NULL);
  CHECK_OK(moe_replacement_begin(file, &to, &error));
  CHECK(write(to, "new", 3) == 3);
  CHECK(access(path, F_OK) != 0);
  CHECK_OK(moe_replacement_commit(file, &error));
  CHECK(access(path, F_OK) == 0);
  moe_replacement_free(file);
  CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

/* A clock that goes on by a second whenever it is read. */
static uint64_t tick(void* seconds) {
  uint64_t* n = seconds;
  return ++*n * 1000000000u;
}

/* Times in results are the caller's clock's, whole seconds here. */
static void test_clock(void) {
  uint64_t seconds = 0;
  void* image = NULL;
  size_t size = 0;
  moe_env* env = NULL;
  moe_model* model = NULL;
  moe_session* session = NULL;
  const moe_env_params ep = {.struct_size = sizeof ep,
                             .threads = 1,
                             .device = "cpu",
                             .clock = tick,
                             .clock_user = &seconds};
  const moe_session_params sp = {.struct_size = sizeof sp, .context = 16};
  const moe_generate_params gp = {.struct_size = sizeof gp, .max_tokens = 2};
  moe_generate_result result = {.struct_size = sizeof result};
  const int32_t prompt[] = {1, 2};
  CHECK_OK(moe_env_create(&ep, &env, &error));
  CHECK_OK(moe_synthetic_create("tiny", NULL, &image, &size, &error));
  CHECK_OK(moe_model_open_memory(env, image, size, NULL, &model, &error));
  CHECK_OK(moe_session_create(model, &sp, &session, &error));
  CHECK_OK(moe_session_generate(session, prompt, 2, &gp, &result, &error));
  CHECK(seconds >= 3); /* before the prompt, after it, and at the end */
  CHECK(result.prompt_seconds == 1.0);
  CHECK(result.generate_seconds >= 1.0 && result.generate_seconds <= (double)seconds);
  CHECK(result.generate_seconds == (double)(int)result.generate_seconds);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
  moe_synthetic_free(image);
}

int main(void) {
  test_replacement();
  test_clock();
  test_enums();
  test_number_before_ids();
  test_fork();
  printf("%d checks, %d failed\n", g_checks, g_failures);
  return g_failures == 0 ? 0 : 1;
}
