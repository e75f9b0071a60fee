// SPDX-License-Identifier: MIT
/* Handles are freed in every order and by several threads at once; what depends on another object
 * keeps it. Usage: free_order_test MODEL */
#include <moe_c.h>
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { ENV, MODEL, SESSION, FORK, CHAT, LAYER, N_HANDLES };

typedef struct Handles {
  moe_env* env;
  moe_model* model;
  moe_session* session;
  moe_session* fork;
  moe_chat* chat;
  moe_layer* layer;
} Handles;

static void free_handle(Handles* h, int which) {
  switch (which) {
    case ENV:
      moe_env_free(h->env);
      break;
    case MODEL:
      moe_model_free(h->model);
      break;
    case SESSION:
      moe_session_free(h->session);
      break;
    case FORK:
      moe_session_free(h->fork);
      break;
    case CHAT:
      moe_chat_free(h->chat);
      break;
    default:
      moe_layer_free(h->layer);
      break;
  }
}

/* One expert of width 2 that doubles: up is the identity, down twice that. */
static moe_layer* new_layer(moe_env* env) {
  static const float one[4] = {1, 0, 0, 1}, two[4] = {2, 0, 0, 2}, router[2] = {1, 1};
  const moe_expert_weights expert = {.struct_size = sizeof expert, .up = one, .down = two};
  moe_layer* layer = NULL;
  const moe_layer_params p = {.struct_size = sizeof p,
                              .d_model = 2,
                              .d_ff = 2,
                              .n_experts = 1,
                              .activation = "relu",
                              .experts = &expert,
                              .router_weight = router};
  CHECK_OK(moe_layer_create(env, &p, &layer, &error));
  return layer;
}

static Handles make(const char* path, const moe_allocator* allocator) {
  Handles h = {0};
  const moe_env_params ep = {.struct_size = sizeof ep, .threads = 1, .allocator = allocator};
  const moe_session_params sp = {.struct_size = sizeof sp, .context = 64, .chunk = 16};
  const moe_chat_params cp = {.struct_size = sizeof cp, .chat_template = "plain"};
  CHECK_OK(moe_env_create(&ep, &h.env, &error));
  CHECK_OK(moe_model_open(h.env, path, NULL, &h.model, &error));
  CHECK_OK(moe_session_create(h.model, &sp, &h.session, &error));
  CHECK_OK(moe_session_fork(h.session, &h.fork, &error));
  CHECK_OK(moe_chat_create(h.session, &cp, &h.chat, &error));
  h.layer = new_layer(h.env);
  return h;
}

/* Each object that remains works, whatever was freed before. */
static void use(const Handles* h, const bool* freed) {
  const int32_t token = 5;
  if (!freed[MODEL]) {
    moe_model_info info = {.struct_size = sizeof info};
    CHECK_OK(moe_model_get_info(h->model, &info, &error));
  }
  if (!freed[SESSION])
    CHECK_OK(moe_session_eval(h->session, &token, 1, MOE_ROWS_NONE, NULL, &error));
  if (!freed[FORK]) CHECK_OK(moe_session_eval(h->fork, &token, 1, MOE_ROWS_NONE, NULL, &error));
  if (!freed[CHAT]) {
    const moe_generate_params gp = {.struct_size = sizeof gp, .max_tokens = 1};
    moe_chat_result result = {.struct_size = sizeof result};
    CHECK_OK(moe_chat_add(h->chat, "user", "Once", 4, &error));
    CHECK_OK(moe_chat_reply(h->chat, &gp, &result, &error));
    CHECK_OK(moe_chat_truncate(h->chat, 0, &error));
  }
  if (!freed[LAYER]) {
    const float x[2] = {1, 3};
    float y[2] = {0, 0};
    CHECK_OK(moe_layer_forward(h->layer, x, 1, y, &error));
    CHECK(y[0] == 2 && y[1] == 6);
  }
}

/* Permutation number `n` of 0..N_HANDLES-1. */
static void permutation(int n, int* order) {
  for (int i = 0; i < N_HANDLES; ++i) order[i] = i;
  for (int i = N_HANDLES; i > 1; --i) {
    const int j = n % i, last = order[i - 1];
    n /= i;
    order[i - 1] = order[j];
    order[j] = last;
  }
}

static void test_every_order(const char* path) {
  for (int n = 0; n < 720; ++n) {
    Meter meter = {0, 0, 0, -1};
    const moe_allocator allocator = {.struct_size = sizeof allocator,
                                     .allocate = meter_allocate,
                                     .deallocate = meter_deallocate,
                                     .user = &meter};
    Handles h = make(path, &allocator);
    bool freed[N_HANDLES] = {false};
    int order[N_HANDLES];
    permutation(n, order);
    for (int i = 0; i < N_HANDLES; ++i) {
      CHECK(meter.live_blocks > 0);
      free_handle(&h, order[i]);
      freed[order[i]] = true;
      if (n % 12 == 0) use(&h, freed);
    }
    CHECK(meter.live_blocks == 0 && meter.live_bytes == 0);
  }
}

/* A chat that has released its session does not keep its memory; one that has not does. */
static void test_chat_keeps_its_session(const char* path) {
  Meter meter = {0, 0, 0, -1};
  const moe_allocator allocator = {.struct_size = sizeof allocator,
                                   .allocate = meter_allocate,
                                   .deallocate = meter_deallocate,
                                   .user = &meter};
  Handles h = make(path, &allocator);
  moe_session_free(h.fork);
  const long long before = meter.live_bytes;
  moe_session_free(h.session);
  CHECK(meter.live_bytes == before);
  CHECK_OK(moe_chat_set_session(h.chat, NULL, &error));
  CHECK(meter.live_bytes < before - 1000);
  moe_model_free(h.model);
  moe_env_free(h.env);
  moe_layer_free(h.layer);
  CHECK_OK(moe_chat_add(h.chat, "user", "Once", 4, &error));
  CHECK(moe_chat_message_count(h.chat) == 1);
  size_t n = 0;
  CHECK_OK(moe_chat_tokens(h.chat, true, NULL, 0, &n, &error)); /* by the model's tokenizer */
  CHECK(n > 0);
  moe_chat_free(h.chat);
  CHECK(meter.live_blocks == 0);
}

/* The memory of freed sessions counts no more against the cap, also after the model's handle is
 * freed. */
static void test_cap(const char* path) {
  moe_env* env = NULL;
  moe_model* model = NULL;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  const moe_model_params mp = {.struct_size = sizeof mp, .memory_bytes = 64 << 20};
  CHECK_OK(moe_model_open(env, path, &mp, &model, &error));
  moe_session *a = NULL, *b = NULL;
  CHECK_OK(moe_session_create(model, NULL, &a, &error));
  CHECK_OK(moe_session_create(model, NULL, &b, &error));
  moe_env_free(env);
  moe_model_free(model);
  moe_memory_stats both = {.struct_size = sizeof both}, one = both;
  CHECK_OK(moe_session_get_memory_stats(b, &both, &error));
  moe_session_free(a);
  CHECK_OK(moe_session_get_memory_stats(b, &one, &error));
  CHECK(one.counted_bytes < both.counted_bytes);
  const int32_t token = 5;
  CHECK_OK(moe_session_eval(b, &token, 1, MOE_ROWS_NONE, NULL, &error));
  moe_session_free(b);
}

static pthread_mutex_t meter_mutex = PTHREAD_MUTEX_INITIALIZER;

static void* shared_allocate(void* user, size_t bytes, size_t align) {
  pthread_mutex_lock(&meter_mutex);
  void* pointer = meter_allocate(user, bytes, align);
  pthread_mutex_unlock(&meter_mutex);
  return pointer;
}

static void shared_deallocate(void* user, void* pointer, size_t bytes) {
  pthread_mutex_lock(&meter_mutex);
  meter_deallocate(user, pointer, bytes);
  pthread_mutex_unlock(&meter_mutex);
}

static atomic_int waiting;

typedef struct Freeing {
  Handles* handles;
  int which;
} Freeing;

static void* free_with_others(void* user) {
  const Freeing* f = user;
  atomic_fetch_sub(&waiting, 1);
  while (atomic_load(&waiting) > 0) {
  }
  free_handle(f->handles, f->which);
  return NULL;
}

static void test_threads(const char* path) {
  Meter meter = {0, 0, 0, -1};
  const moe_allocator allocator = {.struct_size = sizeof allocator,
                                   .allocate = shared_allocate,
                                   .deallocate = shared_deallocate,
                                   .user = &meter};
  for (int n = 0; n < 50; ++n) {
    Handles h = make(path, &allocator);
    pthread_t threads[N_HANDLES];
    Freeing freeing[N_HANDLES];
    atomic_store(&waiting, N_HANDLES);
    for (int i = 0; i < N_HANDLES; ++i) {
      freeing[i] = (Freeing){&h, i};
      CHECK(pthread_create(&threads[i], NULL, free_with_others, &freeing[i]) == 0);
    }
    for (int i = 0; i < N_HANDLES; ++i) pthread_join(threads[i], NULL);
    CHECK(meter.live_blocks == 0);
  }
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL\n", argv[0]);
    return 2;
  }
  test_every_order(argv[1]);
  test_chat_keeps_its_session(argv[1]);
  test_cap(argv[1]);
  test_threads(argv[1]);
  printf("%d checks, %d failed\n", g_checks, g_failures);
  return g_failures == 0 ? 0 : 1;
}
