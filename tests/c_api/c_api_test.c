// SPDX-License-Identifier: MIT
/* The C API used from C99, as a program that embeds the library uses it: whole life cycles, wrong
 * arguments, failing allocations, callbacks, several sessions.
 * Usage: c_api_test MODEL */
#include <math.h>
#include <moe_c.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

typedef struct Image {
  void* data;
  size_t size;
} Image;

static Image tiny_image(void) {
  Image image = {NULL, 0};
  CHECK_OK(moe_synthetic_create("tiny", NULL, &image.data, &image.size, &error));
  return image;
}

static bool stop_halfway(void* user, uint64_t done, uint64_t total, const char* what) {
  CHECK(done <= total && strcmp(what, "weights") == 0);
  *(uint64_t*)user = done;
  return done < total / 2;
}

static bool never_stop(void* user, uint64_t done, uint64_t total, const char* what) {
  (void)what;
  *(bool*)user = done == total;
  return true;
}

static void test_synthetic_progress(void) {
  void* data = NULL;
  size_t size = 7;
  uint64_t done = 0;
  bool finished = false;
  moe_synthetic_params p = {
      .struct_size = sizeof p, .progress = stop_halfway, .progress_user = &done};
  CHECK(moe_synthetic_create("tiny", &p, &data, &size, &error) == MOE_ERR_CANCELLED);
  CHECK(data == NULL && size == 7 && done > 0);
  p.progress = never_stop;
  p.progress_user = &finished;
  CHECK_OK(moe_synthetic_create("tiny", &p, &data, &size, &error));
  CHECK(finished);
  moe_synthetic_free(data);
}

/* It opens as the whole model would. */
static void test_outline(void) {
  const char* path = "outline_test.moe";
  Image image = tiny_image();
  moe_synthetic_params p = {.struct_size = sizeof p, .outline = 1};
  void* data = NULL;
  size_t size = 0;
  moe_env* env = NULL;
  moe_env_params ep = {.struct_size = sizeof ep, .threads = 1, .device = "cpu"};
  moe_model *outline = NULL, *whole = NULL;
  moe_session* session = NULL;
  moe_memory_plan planned = {.struct_size = sizeof planned}, plan = planned;
  CHECK(moe_synthetic_create("tiny", &p, &data, &size, &error) == MOE_ERR_ARGUMENT && !data);
  CHECK_OK(moe_synthetic_save("tiny", &p, path, &error));
  CHECK_OK(moe_env_create(&ep, &env, &error));
  CHECK_OK(moe_model_open(env, path, NULL, &outline, &error));
  CHECK_OK(moe_model_open_memory(env, image.data, image.size, NULL, &whole, &error));
  CHECK(moe_model_tensor_count(outline) == moe_model_tensor_count(whole));
  CHECK_OK(moe_model_get_memory_plan(outline, NULL, 3, &planned, &error));
  CHECK_OK(moe_model_get_memory_plan(whole, NULL, 3, &plan, &error));
  CHECK(planned.needed_bytes == plan.needed_bytes && planned.needed_bytes > 0);
  CHECK(moe_session_create(outline, NULL, &session, &error) == MOE_ERR_CORRUPT && !session);
  moe_model_free(outline);
  moe_model_free(whole);
  moe_env_free(env);
  moe_synthetic_free(image.data);
  remove(path);
}

static void test_arguments(const char* path) {
  moe_env* env = NULL;
  moe_model* model = NULL;
  CHECK(moe_env_create(NULL, NULL, &error) == MOE_ERR_ARGUMENT);
  moe_env_params ep = {.struct_size = sizeof ep, .isa = "mmx"};
  CHECK(moe_env_create(&ep, &env, &error) != MOE_OK && env == NULL);
  CHECK(strstr(error.text, "mmx") != NULL);
  ep.isa = NULL;
  ep.threads = -1;
  CHECK(moe_env_create(&ep, &env, &error) == MOE_ERR_RANGE);
  ep.threads = 1;
  ep.struct_size = 2;
  CHECK(moe_env_create(&ep, &env, &error) == MOE_ERR_ARGUMENT);

  struct {
    moe_env_params known;
    uint64_t tail;
  } longer = {{.struct_size = sizeof longer}, 0};
  CHECK_OK(moe_env_create(&longer.known, &env, &error));
  moe_env_free(env);
  env = NULL;
  longer.tail = 1; /* an unknown field that is set must not be ignored */
  CHECK(moe_env_create(&longer.known, &env, &error) == MOE_ERR_ARGUMENT && env == NULL);

  CHECK_OK(moe_env_create(NULL, &env, &error));
  CHECK(moe_model_open(env, NULL, NULL, &model, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_model_open(NULL, path, NULL, &model, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_model_open(env, "/no/such/file.moe", NULL, &model, &error) != MOE_OK && model == NULL);
  CHECK(strstr(error.text, "/no/such/file.moe") != NULL);
  const moe_model_params mp = {.struct_size = sizeof mp, .reserved = 1};
  CHECK(moe_model_open(env, path, &mp, &model, &error) == MOE_ERR_ARGUMENT && model == NULL);
  CHECK(moe_model_open(env, path, NULL, &model, NULL) == MOE_OK); /* error may be NULL */
  moe_model_free(model);
  moe_model_free(NULL);
  moe_session_free(NULL);
  moe_layer_free(NULL);
  moe_session_cancel(NULL);
  moe_env_free(env);
  moe_env_free(NULL);
}

static bool is_listed(const char* (*list)(size_t), const char* name) {
  size_t i = 0;
  while (list(i) != NULL && strcmp(list(i), name) != 0) ++i;
  return list(i) != NULL;
}

static void test_versions(void) {
  CHECK(moe_version() ==
        MOE_VERSION_MAJOR * 1000000u + MOE_VERSION_MINOR * 1000u + MOE_VERSION_PATCH);
  CHECK(strcmp(moe_status_name(MOE_ERR_BUDGET), "MOE_ERR_BUDGET") == 0);
  CHECK(strcmp(moe_status_name((moe_status)12345), "unknown status") == 0);
  CHECK(is_listed(moe_isa_name, "scalar") && is_listed(moe_weight_format_name, "ternary2"));
  CHECK(is_listed(moe_weight_format_name, "int8") && !is_listed(moe_weight_format_name, "i32"));
  CHECK(is_listed(moe_router_kind, "topk") && is_listed(moe_router_kind, "hash"));
  CHECK(is_listed(moe_chat_template_name, "plain") && is_listed(moe_synthetic_shape_name, "tiny"));
  CHECK(moe_isa_name(SIZE_MAX) == NULL && moe_weight_format_name(SIZE_MAX) == NULL);
}

/* A program's whole use of a model; returns the first status that is not MOE_OK. */
static moe_status life(const Image* image, const moe_allocator* allocator, float* logits_sum) {
  moe_env* env = NULL;
  moe_model* model = NULL;
  moe_session* session = NULL;
  moe_env_params ep = {.struct_size = sizeof ep, .threads = 2, .allocator = allocator};
  moe_session_params sp = {.struct_size = sizeof sp, .context = 64, .chunk = 8};
  const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  moe_sampling sampling = {.struct_size = sizeof sampling,
                           .temperature = 0.8f,
                           .top_k = 20,
                           .top_p = 0.9f,
                           .repetition_penalty = 1.1f,
                           .seed = 3};
  moe_generate_params gp = {
      .struct_size = sizeof gp, .max_tokens = 4, .sampling = &sampling, .ignore_eos = 1};
  moe_generate_result result = {.struct_size = sizeof result};
  moe_model_info info = {.struct_size = sizeof info};
  float* logits = NULL;
  moe_status status = moe_env_create(&ep, &env, &error);
  if (status == MOE_OK)
    status = moe_model_open_memory(env, image->data, image->size, NULL, &model, &error);
  if (status == MOE_OK) status = moe_model_get_info(model, &info, &error);
  if (status == MOE_OK) status = moe_session_create(model, &sp, &session, &error);
  if (status == MOE_OK) status = moe_session_count_routing(session, true, &error);
  if (status == MOE_OK) status = moe_session_generate(session, prompt, 11, &gp, &result, &error);
  if (status == MOE_OK) {
    logits = malloc(sizeof(float) * (size_t)info.vocab_size);
    status = moe_session_eval(session, prompt, 1, MOE_ROWS_LAST, logits, &error);
  }
  if (status == MOE_OK && logits_sum != NULL) {
    *logits_sum = 0;
    for (int32_t i = 0; i < info.vocab_size; ++i) *logits_sum += logits[i];
  }
  free(logits);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
  return status;
}

/* Runs `life` with failing allocations, from the first on, from the second on, and so on: each run
 * ends with a status, and nothing leaks. */
static void test_failing_allocator(void) {
  Image image = tiny_image();
  Meter meter = {0, 0, 0, -1};
  moe_allocator allocator = {.struct_size = sizeof allocator,
                             .allocate = meter_allocate,
                             .deallocate = meter_deallocate,
                             .user = &meter};
  float expected = 0;
  float found = 0;
  CHECK_OK(life(&image, &allocator, &expected));
  CHECK(meter.live_blocks == 0 && meter.live_bytes == 0);
  const long n = meter.n_allocations;
  CHECK(n > 10);
  for (long i = 0; i < n; ++i) {
    meter = (Meter){0, 0, 0, i};
    moe_status status = life(&image, &allocator, NULL);
    CHECK(status == MOE_ERR_MEMORY);
    CHECK(meter.live_blocks == 0 && meter.live_bytes == 0);
  }
  meter = (Meter){0, 0, 0, -1};
  CHECK_OK(life(&image, &allocator, &found));
  CHECK(expected == found);
  moe_synthetic_free(image.data);
}

static void test_no_allocation_per_token(void) {
  Image image = tiny_image();
  Meter meter = {0, 0, 0, -1};
  moe_allocator allocator = {.struct_size = sizeof allocator,
                             .allocate = meter_allocate,
                             .deallocate = meter_deallocate,
                             .user = &meter};
  moe_env_params ep = {.struct_size = sizeof ep, .threads = 1, .allocator = &allocator};
  moe_session_params sp = {.struct_size = sizeof sp, .context = 128};
  moe_env* env = NULL;
  moe_model* model = NULL;
  moe_session* session = NULL;
  CHECK_OK(moe_env_create(&ep, &env, &error));
  CHECK_OK(moe_model_open_memory(env, image.data, image.size, NULL, &model, &error));
  CHECK_OK(moe_session_create(model, &sp, &session, &error));
  moe_sampling sampling = {
      .struct_size = sizeof sampling, .temperature = 1.0f, .top_p = 0.9f, .seed = 1};
  moe_generate_params gp = {
      .struct_size = sizeof gp, .max_tokens = 30, .sampling = &sampling, .ignore_eos = 1};
  moe_generate_result result = {.struct_size = sizeof result};
  const int32_t prompt[] = {1, 2, 3};
  CHECK_OK(moe_session_generate(session, prompt, 3, &gp, &result, &error));
  long warm = meter.n_allocations;
  CHECK_OK(moe_session_eval(session, prompt, 3, MOE_ROWS_NONE, NULL, &error));
  for (int i = 0; i < 40; ++i)
    CHECK_OK(moe_session_eval(session, prompt, 1, MOE_ROWS_NONE, NULL, &error));
  CHECK(meter.n_allocations == warm);
  /* A generation may allocate when it begins, but not for each token. */
  long spent[2];
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(moe_session_rewind(session, 3, &error));
    gp.max_tokens = i == 0 ? 5 : 60;
    warm = meter.n_allocations;
    CHECK_OK(moe_session_generate(session, NULL, 0, &gp, &result, &error));
    CHECK(result.n_generated == gp.max_tokens);
    spent[i] = meter.n_allocations - warm;
  }
  CHECK(spent[1] <= spent[0] + 8); /* text buffers may grow a few times */
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
  CHECK(meter.live_blocks == 0);
  moe_synthetic_free(image.data);
}

typedef struct Source {
  const unsigned char* data;
  long n_reads;
  long fail_at;
} Source;

static bool source_read(void* user, uint64_t offset, void* buffer, size_t bytes) {
  Source* s = user;
  if (s->fail_at >= 0 && s->n_reads >= s->fail_at) return false;
  ++s->n_reads;
  memcpy(buffer, s->data + offset, bytes);
  return true;
}

/* A model read through the caller's moe_reader; then each of the reads fails in turn. */
static void test_reader(void) {
  Image image = tiny_image();
  moe_env* env = NULL;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  Source source = {image.data, 0, -1};
  moe_reader reader = {
      .struct_size = sizeof reader, .size = image.size, .read = source_read, .user = &source};
  long n_reads = 1;
  for (long fail_at = -1; fail_at < n_reads; ++fail_at) {
    source.n_reads = 0;
    source.fail_at = fail_at;
    moe_model* model = NULL;
    moe_session* session = NULL;
    const int32_t tokens[] = {1, 2, 3};
    moe_status status = moe_model_open_reader(env, &reader, NULL, &model, &error);
    if (status == MOE_OK) status = moe_session_create(model, NULL, &session, &error);
    if (status == MOE_OK)
      status = moe_session_eval(session, tokens, 3, MOE_ROWS_NONE, NULL, &error);
    CHECK(status == (fail_at < 0 ? MOE_OK : MOE_ERR_IO));
    if (fail_at < 0) n_reads = source.n_reads;
    moe_session_free(session);
    moe_model_free(model);
  }
  CHECK(n_reads > 2);
  moe_env_free(env);
  moe_synthetic_free(image.data);
}

static void eval_file(moe_env* env, const char* path, moe_io io, float* logits) {
  const moe_model_params mp = {.struct_size = sizeof mp, .io = io};
  const int32_t tokens[] = {1, 2, 3};
  moe_model* model = NULL;
  moe_session* session = NULL;
  CHECK_OK(moe_model_open(env, path, &mp, &model, &error));
  CHECK_OK(moe_session_create(model, NULL, &session, &error));
  CHECK_OK(moe_session_eval(session, tokens, 3, MOE_ROWS_LAST, logits, &error));
  moe_session_free(session);
  moe_model_free(model);
}

static void test_io(const char* path) {
  enum { kMostLogits = 4096 };
  static float expected[kMostLogits], found[kMostLogits];
  Image image = tiny_image();
  moe_env* env = NULL;
  moe_model* model = NULL;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  Source source = {image.data, 0, -1};
  const moe_reader reader = {
      .struct_size = sizeof reader, .size = image.size, .read = source_read, .user = &source};
  moe_model_params mp = {.struct_size = sizeof mp, .io = (moe_io)3};
  CHECK(moe_model_open(env, path, &mp, &model, &error) == MOE_ERR_ARGUMENT);
  CHECK(strcmp(error.text, "params.io: expected 0..2, found 3") == 0);
  mp = (moe_model_params){.struct_size = sizeof mp, .reserved = 1};
  CHECK(moe_model_open(env, path, &mp, &model, &error) == MOE_ERR_ARGUMENT);
  mp = (moe_model_params){.struct_size = sizeof mp, .io = MOE_IO_DIRECT};
  CHECK(moe_model_open_memory(env, image.data, image.size, &mp, &model, &error) ==
        MOE_ERR_ARGUMENT);
  CHECK(strstr(error.text, "not memory") != NULL);
  CHECK(moe_model_open_reader(env, &reader, &mp, &model, &error) == MOE_ERR_ARGUMENT);
  CHECK(strstr(error.text, "not a reader") != NULL);
  mp.map_weights = 1;
  CHECK(moe_model_open(env, path, &mp, &model, &error) == MOE_ERR_ARGUMENT);
  CHECK(strstr(error.text, "not a mapped one") != NULL && model == NULL);
  mp.map_weights = 0;
  eval_file(env, path, MOE_IO_AUTO, expected);
  eval_file(env, path, MOE_IO_BUFFERED, found);
  CHECK(memcmp(expected, found, sizeof expected) == 0);
  const moe_status status = moe_model_open(env, path, &mp, &model, &error);
  moe_model_free(model);
  if (status == MOE_ERR_UNSUPPORTED) { /* this file system has no direct reads */
    CHECK(strstr(error.text, path) != NULL && strstr(error.text, "O_DIRECT") != NULL);
  } else {
    CHECK(status == MOE_OK);
    eval_file(env, path, MOE_IO_DIRECT, found);
    CHECK(memcmp(expected, found, sizeof expected) == 0);
  }
  moe_env_free(env);
  moe_synthetic_free(image.data);
}

static void test_machine_memory(const char* path) {
  moe_memory_info info = {.struct_size = sizeof info};
  CHECK_OK(moe_get_memory_info(&info, &error));
  CHECK(info.available_bytes > 0 && info.available_bytes <= info.total_bytes);
  CHECK(info.budget_bytes == info.available_bytes / 16 * 15);
  CHECK(moe_get_memory_info(NULL, &error) == MOE_ERR_ARGUMENT);
  moe_env* env = NULL;
  moe_model* model = NULL;
  uint64_t bytes = 1;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  CHECK_OK(moe_model_open(env, path, NULL, &model, &error));
  CHECK_OK(moe_model_suggest_memory(model, NULL, 1, &bytes, &error));
  CHECK(bytes == 0); /* a small model needs no cap */
  const moe_session_params sp = {.struct_size = sizeof sp, .context = -1};
  CHECK(moe_model_suggest_memory(model, &sp, 1, &bytes, &error) == MOE_ERR_RANGE);
  CHECK(moe_model_suggest_memory(model, NULL, 0, &bytes, &error) == MOE_ERR_RANGE);
  CHECK(moe_model_suggest_memory(model, NULL, 1, NULL, &error) == MOE_ERR_ARGUMENT);
  moe_session* session = NULL;
  CHECK_OK(moe_session_create(model, NULL, &session, &error));
  moe_memory_stats stats = {.struct_size = sizeof stats};
  CHECK_OK(moe_session_get_memory_stats(session, &stats, &error));
  CHECK(stats.cap_bytes == 0 && stats.session.n_uses == 0); /* without a cap */
  CHECK(moe_session_get_memory_stats(NULL, &stats, &error) == MOE_ERR_ARGUMENT);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
}

typedef struct Watch {
  long n_calls;
  long n_tokens;
  int mode; /* what the callback sets: 1: one expert; 2: one out of range; 3: none; 4: one twice; 5:
               a NaN; 6: nothing, but it ends the call */
} Watch;

/* A token goes to the experts with the highest scores; the router's input is normalised. */
static void check_router_input(const moe_routing_choices* c, int32_t token) {
  enum { kExperts = 8 };
  const int32_t* experts = c->experts + token * c->n_slots;
  const float* scores = c->scores + token * kExperts;
  double squares = 0;
  for (int32_t e = 0; e < kExperts; ++e) {
    CHECK(scores[e] <= scores[experts[0]]);
    CHECK(e == experts[0] || scores[e] <= scores[experts[1]]);
  }
  for (int32_t i = 0; i < c->d; ++i) {
    const double h = c->hidden[token * c->d + i];
    squares += h * h;
  }
  CHECK(c->d > 0 && squares > 0.5 * c->d && squares < 2.0 * c->d);
}

static bool watch(void* user, moe_routing_choices* c) {
  Watch* w = user;
  CHECK(c->struct_size == sizeof *c);
  ++w->n_calls;
  w->n_tokens += c->n_tokens;
  CHECK(c->layer % 2 == 1 && c->position == 0 && c->n_slots == 2);
  for (int32_t t = 0; t < c->n_tokens; ++t) {
    int32_t* experts = c->experts + t * c->n_slots;
    CHECK(c->counts[t] == 2 && experts[0] != experts[1]);
    check_router_input(c, t);
    if (w->mode == 1) {
      c->counts[t] = 1;
      experts[0] = 5;
    }
    if (w->mode == 2) experts[1] = 8;
    if (w->mode == 3) c->counts[t] = 0;
    if (w->mode == 4) experts[1] = experts[0];
    if (w->mode == 5) c->weights[t * c->n_slots] = NAN;
  }
  return w->mode != 6;
}

static void test_watch_routing(void) {
  enum { kVocab = 256 };
  const moe_status expected[] = {MOE_OK,           MOE_OK,           MOE_ERR_RANGE,
                                 MOE_ERR_RANGE,    MOE_ERR_ARGUMENT, MOE_ERR_NON_FINITE,
                                 MOE_ERR_CANCELLED};
  const int32_t tokens[] = {1, 2, 3};
  float plain[kVocab], watched[kVocab];
  Image image = tiny_image();
  moe_env* env = NULL;
  moe_model* model = NULL;
  moe_session* session = NULL;
  moe_env_params ep = {.struct_size = sizeof ep, .device = "cpu"};
  CHECK_OK(moe_env_create(&ep, &env, &error));
  CHECK_OK(moe_model_open_memory(env, image.data, image.size, NULL, &model, &error));
  CHECK_OK(moe_session_create(model, NULL, &session, &error));
  CHECK_OK(moe_session_eval(session, tokens, 3, MOE_ROWS_LAST, plain, &error));
  CHECK_OK(moe_session_count_routing(session, true, &error));
  CHECK_OK(moe_session_expect_drafts(session, true, &error));
  CHECK(moe_session_expect_drafts(NULL, true, &error) == MOE_ERR_ARGUMENT);
  for (int mode = 0; mode < 7; ++mode) {
    Watch w = {0, 0, mode};
    CHECK_OK(moe_session_rewind(session, 0, &error));
    CHECK_OK(moe_session_count_routing(session, true, &error));
    CHECK_OK(moe_session_watch_routing(session, watch, &w, &error));
    CHECK(moe_session_eval(session, tokens, 3, MOE_ROWS_LAST, watched, &error) == expected[mode]);
    moe_routing_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(moe_session_get_routing(session, 1, &stats, &error));
    moe_activation_stats inner = {.struct_size = sizeof inner};
    CHECK_OK(moe_session_get_activations(session, 1, &inner, &error));
    CHECK(inner.n_activations == stats.n_activations && inner.n_positive == stats.n_positive);
    CHECK(moe_session_get_routing(session, 0, &stats, &error) == MOE_ERR_UNSUPPORTED); /* dense */
    CHECK_OK(moe_session_get_activations(session, 0, &inner, &error));
    CHECK(inner.n_activations == (mode <= 1 ? 3 * 256 : 0));
    CHECK(inner.n_positive <= inner.n_activations && (inner.n_positive > 0) == (mode <= 1));
    if (mode == 0) CHECK(memcmp(plain, watched, sizeof plain) == 0);
    if (mode <= 1) CHECK(w.n_calls == 2 && w.n_tokens == 6 && stats.n_tokens == 3);
    if (mode == 1) CHECK(stats.tokens_per_expert[5] == 3 && stats.experts_per_token[1] == 3);
    if (mode > 1) CHECK(w.n_calls == 1 && stats.n_tokens == 0);
  }
  CHECK_OK(
      moe_session_watch_routing(session, NULL, NULL, &error)); /* the session is still usable */
  CHECK_OK(moe_session_rewind(session, 0, &error));
  CHECK_OK(moe_session_eval(session, tokens, 3, MOE_ROWS_LAST, watched, &error));
  CHECK(memcmp(plain, watched, sizeof plain) == 0);
  CHECK(moe_session_watch_routing(NULL, watch, NULL, &error) == MOE_ERR_ARGUMENT);
  moe_activation_stats inner = {.struct_size = sizeof inner};
  CHECK(moe_session_get_activations(NULL, 0, &inner, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_session_get_activations(session, 0, NULL, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_session_get_activations(session, 4, &inner, &error) == MOE_ERR_RANGE);
  CHECK_OK(moe_session_count_routing(session, false, &error));
  CHECK(moe_session_get_activations(session, 0, &inner, &error) == MOE_ERR_STATE);
  CHECK(inner.n_activations == 0);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
  moe_synthetic_free(image.data);
}

typedef struct Turns {
  moe_session* session;
  int users[2];
  atomic_int n_watches; /* accepted by the session */
  atomic_bool enough;
  bool wrong; /* a call returned an unexpected status */
} Turns;

static bool watch_first(void* user, moe_routing_choices* c) {
  (void)c;
  CHECK(*(const int*)user == 1);
  return true;
}

static bool watch_second(void* user, moe_routing_choices* c) {
  (void)c;
  CHECK(*(const int*)user == 2);
  return true;
}

static void* watch_in_turns(void* given) {
  Turns* t = given;
  const moe_routing_fn callbacks[] = {NULL, watch_first, NULL, watch_second, watch_first};
  void* const users[] = {NULL, &t->users[0], NULL, &t->users[1], &t->users[0]};
  for (int turn = 0; !atomic_load(&t->enough); turn = (turn + 1) % 5) {
    const moe_status status =
        moe_session_watch_routing(t->session, callbacks[turn], users[turn], NULL);
    if (status == MOE_OK) atomic_fetch_add(&t->n_watches, 1);
    if (status != MOE_OK && status != MOE_ERR_STATE) t->wrong = true;
  }
  return NULL;
}

/* A session serves one thread at a time. A call from the other thread is refused, or its callback
 * takes effect together with its `user`. */
static void test_watch_from_another_thread(void) {
  Image image = tiny_image();
  moe_env* env = NULL;
  moe_model* model = NULL;
  Turns turns = {.users = {1, 2}};
  pthread_t thread;
  moe_env_params ep = {.struct_size = sizeof ep, .threads = 1, .device = "cpu"};
  CHECK_OK(moe_env_create(&ep, &env, &error));
  CHECK_OK(moe_model_open_memory(env, image.data, image.size, NULL, &model, &error));
  CHECK_OK(moe_session_create(model, NULL, &turns.session, &error));
  CHECK(pthread_create(&thread, NULL, watch_in_turns, &turns) == 0);
  const int32_t token = 1;
  for (int n_evals = 0; n_evals < 1000 || atomic_load(&turns.n_watches) < 1000;) {
    moe_status status = moe_session_rewind(turns.session, 0, NULL);
    CHECK(status == MOE_OK || status == MOE_ERR_STATE);
    if (status == MOE_OK)
      status = moe_session_eval(turns.session, &token, 1, MOE_ROWS_NONE, NULL, NULL);
    CHECK(status == MOE_OK || status == MOE_ERR_STATE);
    if (status == MOE_OK) ++n_evals;
  }
  atomic_store(&turns.enough, true);
  CHECK(pthread_join(thread, NULL) == 0 && !turns.wrong);
  moe_session_free(turns.session);
  moe_model_free(model);
  moe_env_free(env);
  moe_synthetic_free(image.data);
}

static void test_budget(void) {
  Image image = tiny_image();
  moe_env* env = NULL;
  moe_model* model = NULL;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  moe_session_params sp = {.struct_size = sizeof sp, .context = 32};
  moe_model_params mp = {.struct_size = sizeof mp, .memory_bytes = 1000, .session = &sp};
  CHECK(moe_model_open_memory(env, image.data, image.size, &mp, &model, &error) == MOE_ERR_BUDGET);
  CHECK(strstr(error.text, "KV") != NULL);
  CHECK_OK(moe_model_open_memory(env, image.data, image.size, NULL, &model, &error));
  moe_memory_line lines[32];
  size_t n = 0;
  CHECK_OK(moe_model_get_memory(model, &sp, 1, NULL, 0, &n, &error));
  CHECK(n > 2 && n <= 32);
  CHECK_OK(moe_model_get_memory(model, &sp, 1, lines, 32, &n, &error));
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) sum += lines[i].bytes;
  moe_model_free(model);
  model = NULL;
  mp.memory_bytes = sum - 1;
  CHECK(moe_model_open_memory(env, image.data, image.size, &mp, &model, &error) == MOE_ERR_BUDGET);
  mp.memory_bytes = sum;
  CHECK_OK(moe_model_open_memory(env, image.data, image.size, &mp, &model, &error));
  moe_session* first = NULL;
  moe_session* second = NULL;
  CHECK_OK(moe_session_create(model, &sp, &first, &error));
  CHECK(moe_session_create(model, &sp, &second, &error) == MOE_ERR_BUDGET && second == NULL);
  moe_session_free(first);
  CHECK_OK(moe_session_create(model, &sp, &second,
                              &error)); /* memory of a freed session can be used again */
  moe_session_free(second);
  moe_model_free(model);
  moe_env_free(env);
  moe_synthetic_free(image.data);
}

/* Sessions evaluated together give the same bits as each one alone. */
static uint32_t next_random(uint32_t* state) { return *state = *state * 1664525u + 1013904223u; }

enum { kMostSessions = 16 };

/* All sessions of a plan exist: what they take is within the cap. They are freed in any order. */
static void end_plan(moe_session** sessions, int n, uint32_t* random) {
  moe_memory_stats stats = {.struct_size = sizeof stats};
  CHECK_OK(moe_session_get_memory_stats(sessions[0], &stats, &error));
  CHECK(stats.peak_bytes <= stats.cap_bytes && stats.counted_bytes <= stats.cap_bytes);
  for (int left = n; left > 0; --left) {
    const int i = (int)(next_random(random) >> 16) % left;
    moe_session_free(sessions[i]);
    sessions[i] = sessions[left - 1];
  }
}

/* Creates the sessions one by one; they run in any order. */
static void run_one_by_one(moe_model* model, const moe_session_params* sp, int n,
                           uint32_t* random) {
  moe_session* sessions[kMostSessions] = {NULL};
  const int32_t tokens[] = {1, 2, 3};
  for (int i = 0; i < n; ++i) {
    CHECK_OK(moe_session_create(model, sp, &sessions[i], &error));
    moe_session* some = sessions[(int)(next_random(random) >> 16) % (i + 1)];
    CHECK_OK(moe_session_rewind(some, 0, &error));
    CHECK_OK(moe_session_eval(some, tokens, 3, MOE_ROWS_NONE, NULL, &error));
  }
  end_plan(sessions, n, random);
}

typedef struct Maker {
  moe_model* model;
  const moe_session_params* params;
  moe_session* session;
  moe_status status;
  moe_error error;
} Maker;

static void* make_session(void* user) {
  Maker* m = user;
  const int32_t tokens[] = {1, 2, 3};
  m->status = moe_session_create(m->model, m->params, &m->session, &m->error);
  if (m->status != MOE_OK) return NULL;
  m->status = moe_session_eval(m->session, tokens, 3, MOE_ROWS_NONE, NULL, &m->error);
  return NULL;
}

/* A thread for each session: all are created, and run, at the same time. */
static void run_at_once(moe_model* model, const moe_session_params* sp, int n, uint32_t* random) {
  pthread_t threads[kMostSessions];
  Maker makers[kMostSessions];
  moe_session* sessions[kMostSessions] = {NULL};
  for (int i = 0; i < n; ++i) {
    makers[i] = (Maker){.model = model, .params = sp};
    CHECK(pthread_create(&threads[i], NULL, make_session, &makers[i]) == 0);
  }
  for (int i = 0; i < n; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    error = makers[i].error;
    CHECK_OK(makers[i].status);
    sessions[i] = makers[i].session;
  }
  end_plan(sessions, n, random);
}

/* The memory that a plan names is granted: 200 random plans. */
static void test_plans(void) {
  const char* path = "plans_test.moe";
  moe_env* env = NULL;
  moe_env_params ep = {.struct_size = sizeof ep, .threads = 2, .device = "cpu"};
  CHECK_OK(moe_env_create(&ep, &env, &error));
  CHECK_OK(moe_synthetic_save("tiny", NULL, path, &error));
  uint32_t random = 7;
  for (int i = 0; i < 200; ++i) {
    const int n = 1 + (int)(next_random(&random) >> 16) % kMostSessions;
    const int32_t chunk = next_random(&random) >> 31 ? 0 : (int32_t)(next_random(&random) >> 26);
    const moe_session_params sp = {.struct_size = sizeof sp,
                                   .context = 1 + (int32_t)(next_random(&random) >> 16) % 128 + 3,
                                   .chunk = chunk,
                                   .kv = next_random(&random) >> 31 ? MOE_KV_INT8 : MOE_KV_F16};
    moe_model_params mp = {
        .struct_size = sizeof mp, .memory_bytes = (uint64_t)1 << 40, .session = &sp};
    moe_memory_plan plan = {.struct_size = sizeof plan};
    moe_model* model = NULL;
    CHECK_OK(moe_model_open(env, path, &mp, &model, &error));
    CHECK(moe_model_get_memory_plan(model, &sp, 0, &plan, &error) == MOE_ERR_RANGE);
    CHECK_OK(moe_model_get_memory_plan(model, &sp, n, &plan, &error));
    moe_model_free(model);
    mp.memory_bytes = plan.least_bytes + (i % 4 == 0 ? 0 : next_random(&random) % 3000000);
    const uint64_t least = plan.least_bytes;
    CHECK_OK(moe_model_open(env, path, &mp, &model, &error));
    CHECK_OK(moe_model_get_memory_plan(model, &sp, n, &plan, &error));
    CHECK(plan.least_bytes == least && plan.needed_bytes <= plan.cap_bytes);
    run_one_by_one(model, &sp, n, &random);
    run_at_once(model, &sp, n, &random);
    moe_model_free(model);
  }
  moe_env_free(env);
  remove(path);
}

static void test_sessions_together(void) {
  enum { kSessions = 3, kSteps = 5 };
  Image image = tiny_image();
  moe_env* env = NULL;
  moe_model* model = NULL;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  CHECK_OK(moe_model_open_memory(env, image.data, image.size, NULL, &model, &error));
  moe_model_info info = {.struct_size = sizeof info};
  CHECK_OK(moe_model_get_info(model, &info, &error));
  const size_t vocab = (size_t)info.vocab_size;
  float* together = malloc(sizeof(float) * vocab * kSessions);
  float* alone = malloc(sizeof(float) * vocab);
  moe_session* group[kSessions] = {NULL};
  moe_session* single[kSessions] = {NULL};
  for (int s = 0; s < kSessions; ++s) {
    const int32_t prefix[] = {s + 1, s + 2, s + 3};
    CHECK_OK(moe_session_create(model, NULL, &group[s], &error));
    CHECK_OK(moe_session_create(model, NULL, &single[s], &error));
    CHECK_OK(moe_session_eval(group[s], prefix, (size_t)s + 1, MOE_ROWS_NONE, NULL, &error));
    CHECK_OK(moe_session_eval(single[s], prefix, (size_t)s + 1, MOE_ROWS_NONE, NULL, &error));
  }
  for (int step = 0; step < kSteps; ++step) {
    int32_t tokens[kSessions];
    for (int s = 0; s < kSessions; ++s) tokens[s] = 7 * s + step;
    CHECK_OK(moe_sessions_eval(group, tokens, NULL, kSessions, together, &error));
    for (int s = 0; s < kSessions; ++s) {
      CHECK_OK(moe_session_eval(single[s], &tokens[s], 1, MOE_ROWS_LAST, alone, &error));
      CHECK(memcmp(alone, together + (size_t)s * vocab, sizeof(float) * vocab) == 0);
    }
  }
  moe_session* twice[] = {group[0], group[0]};
  const int32_t tokens[] = {1, 2};
  CHECK(moe_sessions_eval(twice, tokens, NULL, 2, NULL, &error) == MOE_ERR_STATE);
  CHECK(moe_session_position(group[0]) == 1 + kSteps);
  const int32_t pieces[] = {1, 5, 6, 7};
  const size_t n_tokens[] = {1, 3};
  const size_t none[] = {1, 0};
  CHECK_OK(moe_sessions_eval(group, pieces, n_tokens, 2, together, &error));
  for (int s = 0; s < 2; ++s) {
    CHECK_OK(moe_session_eval(single[s], pieces + s, n_tokens[s], MOE_ROWS_LAST, alone, &error));
    CHECK(memcmp(alone, together + (size_t)s * vocab, sizeof(float) * vocab) == 0);
  }
  CHECK(moe_sessions_eval(twice, pieces, n_tokens, 2, NULL, &error) == MOE_ERR_STATE);
  CHECK(moe_sessions_eval(group, pieces, none, 2, NULL, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_sessions_eval(group, NULL, n_tokens, 2, NULL, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_sessions_eval(NULL, pieces, n_tokens, 2, NULL, &error) == MOE_ERR_ARGUMENT);
  CHECK_OK(moe_sessions_eval(NULL, NULL, NULL, 0, NULL, &error));
  CHECK(moe_session_position(group[0]) == 2 + kSteps);
  for (int s = 0; s < kSessions; ++s) {
    moe_session_free(group[s]);
    moe_session_free(single[s]);
  }
  free(together);
  free(alone);
  moe_model_free(model);
  moe_env_free(env);
  moe_synthetic_free(image.data);
}

static moe_router read_router(const char* text) {
  moe_router router = MOE_INIT(moe_router);
  CHECK_OK(moe_router_parse(text, &router, &error));
  return router;
}

static moe_status override(moe_session* session, const char* text) {
  const moe_router router = read_router(text);
  return moe_session_set_router(session, &router, &error);
}

static void test_override(moe_session* session) {
  CHECK(override(session, "topk:1000") == MOE_ERR_RANGE);
  CHECK(override(session, "threshold:1.5") == MOE_ERR_RANGE);
  CHECK(override(session, "cosine:1") == MOE_ERR_ARGUMENT);
  CHECK(strstr(error.text, "topk:K, threshold:T") != NULL);
  CHECK(override(session, "topk:1,scale=2") == MOE_ERR_ARGUMENT);
  CHECK(override(session, "topk:1,chosen") == MOE_ERR_ARGUMENT);
  CHECK_OK(override(session, "threshold:0.5"));
  CHECK_OK(override(session, "gamma=inf"));
  moe_router router = {.k = 1};
  CHECK(moe_session_set_router(session, &router, &error) == MOE_ERR_ARGUMENT); /* no struct_size */
  CHECK_OK(moe_session_set_router(session, NULL, &error));
}

/* Texts are read and written as the same. */
static void test_router_text(const char* path) {
  char text[64];
  size_t n = 0;
  moe_router router = read_router("cosine:2,tau=0.07,renormalised,gate=sigmoid,max_k=3");
  CHECK(strcmp(router.kind, "cosine") == 0 && router.k == 2 && router.tau == 0.07f);
  CHECK(strcmp(router.weights, "renormalised") == 0 && strcmp(router.gate, "sigmoid") == 0);
  CHECK(router.max_k == 3 && router.gamma == 0 && router.threshold == 0);
  const char* const same[] = {"topk:4",
                              "topk:2,renormalised",
                              "threshold:0.9,max_k=8",
                              "base",
                              "cosine:1,tau=0.07",
                              "gamma=1.25",
                              "threshold:0",
                              "gamma=inf",
                              "topk",
                              "topk:10",
                              "topk:100",
                              ""};
  for (size_t i = 0; i < sizeof same / sizeof *same; ++i) {
    router = read_router(same[i]);
    CHECK_OK(moe_router_format(&router, text, sizeof text, &n, &error));
    CHECK(strcmp(text, same[i]) == 0 && n == strlen(text));
  }
  const char* const wrong[] = {",",          "topk:",     "top:2",   "topk:2,",   "topk:2,topk:3",
                               "topk:2,k=3", "threshold", "raw,one", "gate=hard", "topk:2.5",
                               "x=1",        "tau=inf"};
  const moe_router before = router;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    CHECK(moe_router_parse(wrong[i], &router, &error) == MOE_ERR_ARGUMENT);
  }
  CHECK(moe_router_parse("topk:0", &router, &error) == MOE_ERR_RANGE);
  CHECK(moe_router_parse("scale=0", &router, &error) == MOE_ERR_RANGE);
  CHECK(moe_router_parse("max_k=0", &router, &error) == MOE_ERR_RANGE);
  CHECK(moe_router_parse("gamma=0", &router, &error) == MOE_ERR_RANGE);
  CHECK(strstr(error.text, "gamma=inf means no limit") != NULL);
  CHECK(memcmp(&before, &router, sizeof router) == 0);
  router = (moe_router){.struct_size = sizeof router, .kind = "topp"};
  CHECK(moe_router_format(&router, text, sizeof text, &n, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_router_parse(NULL, &router, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_router_parse("base", NULL, &error) == MOE_ERR_ARGUMENT);
  moe_env* env = NULL;
  moe_model* model = NULL;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  CHECK_OK(moe_model_open(env, path, NULL, &model, &error));
  CHECK_OK(moe_model_get_router(model, 0, &router, &error));
  CHECK_OK(moe_router_format(&router, text, 7, &n, &error));
  CHECK(strcmp(text, "topk:2") == 0);
  CHECK(moe_router_format(&router, text, 6, &n, &error) == MOE_ERR_TOO_LONG && n == 6);
  CHECK(moe_model_get_router(model, 99, &router, &error) == MOE_ERR_RANGE);
  moe_session* session = NULL;
  CHECK_OK(moe_session_create(model, NULL, &session, &error));
  CHECK_OK(moe_session_set_router(session, &router, &error)); /* the model's own */
  CHECK_OK(override(session, "topk:2"));
  CHECK_OK(override(session, ""));
  router.scale = 2;
  CHECK(moe_session_set_router(session, &router, &error) == MOE_ERR_ARGUMENT);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
}

static void test_session_limits(void) {
  Image image = tiny_image();
  moe_env* env = NULL;
  moe_model* model = NULL;
  moe_session* session = NULL;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  CHECK_OK(moe_model_open_memory(env, image.data, image.size, NULL, &model, &error));
  moe_session_params sp = {.struct_size = sizeof sp, .context = 8};
  CHECK_OK(moe_session_create(model, &sp, &session, &error));
  CHECK(moe_session_context(session) == 8);
  const int32_t tokens[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  CHECK(moe_session_eval(session, tokens, 9, MOE_ROWS_NONE, NULL, &error) == MOE_ERR_TOO_LONG);
  CHECK(moe_session_position(session) == 0);
  const int32_t negative = -1;
  CHECK(moe_session_eval(session, &negative, 1, MOE_ROWS_NONE, NULL, &error) == MOE_ERR_RANGE);
  const int32_t huge = 1 << 30;
  CHECK(moe_session_eval(session, &huge, 1, MOE_ROWS_NONE, NULL, &error) == MOE_ERR_RANGE);
  CHECK_OK(moe_session_eval(session, tokens, 8, MOE_ROWS_NONE, NULL, &error));
  CHECK(moe_session_eval(session, tokens, 1, MOE_ROWS_NONE, NULL, &error) == MOE_ERR_TOO_LONG);
  CHECK_OK(moe_session_rewind(session, 3, &error));
  CHECK(moe_session_rewind(session, 4, &error) == MOE_ERR_RANGE);
  CHECK_OK(moe_session_eval(session, tokens, 5, MOE_ROWS_NONE, NULL, &error));
  float logits[1];
  CHECK(moe_session_eval(session, tokens, 0, MOE_ROWS_LAST, NULL, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_session_eval(session, tokens, 0, MOE_ROWS_NONE, logits, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_session_eval(session, tokens, 0, (moe_rows)3, logits, &error) == MOE_ERR_ARGUMENT);
  test_override(session);
  const moe_generate_params gp = {.struct_size = sizeof gp, .max_tokens = 1, .max_draft = 17};
  moe_generate_result result = {.struct_size = sizeof result};
  CHECK(moe_session_generate(session, NULL, 0, &gp, &result, &error) == MOE_ERR_RANGE);
  moe_routing_stats stats = {.struct_size = sizeof stats};
  CHECK(moe_session_get_routing(session, 0, &stats, &error) != MOE_OK);
  sp.context = -4;
  moe_session* none = NULL;
  CHECK(moe_session_create(model, &sp, &none, &error) == MOE_ERR_RANGE && none == NULL);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
  moe_synthetic_free(image.data);
}

static bool cancel_at(void* user, const moe_piece* piece) {
  (void)piece;
  moe_session_cancel(user);
  return true;
}

typedef struct Story {
  char text[4096];
  size_t n;
} Story;

static bool collect(void* user, const moe_piece* piece) {
  Story* s = user;
  if (s->n + piece->n_bytes < sizeof s->text) {
    memcpy(s->text + s->n, piece->text, piece->n_bytes);
    s->n += piece->n_bytes;
    s->text[s->n] = '\0';
  }
  return true;
}

/* Scores agree with the logits, and the pooled last state is that of the last token; leaves the
 * session empty. */
static void test_score_and_states(moe_session* session, const moe_model_info* info,
                                  const int32_t* tokens, size_t n) {
  const size_t vocab = (size_t)info->vocab_size, d = (size_t)info->d_model;
  float* logits = malloc(n * vocab * sizeof *logits);
  float scores[64];
  CHECK(logits != NULL && n <= 64);
  CHECK_OK(moe_session_eval(session, tokens, n, MOE_ROWS_ALL, logits, &error));
  CHECK_OK(moe_session_rewind(session, 0, &error));
  CHECK_OK(moe_session_score(session, tokens, n, scores, n - 1, &error));
  CHECK(moe_session_position(session) == (int32_t)n);
  for (size_t i = 0; i + 1 < n; ++i) {
    double sum = 0;
    for (size_t t = 0; t < vocab; ++t) sum += exp((double)logits[i * vocab + t]);
    CHECK(fabs((double)logits[i * vocab + (size_t)tokens[i + 1]] - log(sum) - (double)scores[i]) <
          1e-5);
  }
  float next = 0;
  CHECK(moe_session_score(session, tokens, 1, scores, 0, &error) == MOE_ERR_ARGUMENT);
  CHECK(strstr(error.text, "n_logprobs") != NULL);
  CHECK(moe_session_score(session, tokens, 1, NULL, 1, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_session_score(session, NULL, 1, &next, 1, &error) == MOE_ERR_ARGUMENT);
  CHECK(moe_session_score(NULL, tokens, 1, &next, 1, &error) == MOE_ERR_ARGUMENT);
  CHECK_OK(moe_session_score(session, tokens, 1, &next, 1, &error));
  CHECK(next < 0);
  CHECK_OK(moe_session_rewind(session, 0, &error));
  float* hidden = logits;
  float last[1024];
  CHECK(d <= vocab && d <= 1024);
  moe_encode_params p = {.struct_size = sizeof p, .pooling = MOE_POOL_LAST};
  p.hidden = hidden;
  p.pooled = last;
  CHECK_OK(moe_session_encode(session, tokens, n, &p, &error));
  CHECK(memcmp(last, hidden + (n - 1) * d, d * sizeof *last) == 0);
  CHECK(moe_session_encode(session, NULL, 0, &p, &error) == MOE_ERR_RANGE);
  CHECK(strstr(error.text, "n_tokens: expected at least 1, found 0") != NULL);
  CHECK(moe_session_encode(session, NULL, 1, &p, &error) == MOE_ERR_ARGUMENT);
  p.pooling = (moe_pooling)4;
  CHECK(moe_session_encode(session, tokens, n, &p, &error) == MOE_ERR_ARGUMENT);
  p.pooling = MOE_POOL_DEFAULT; /* the file says nothing: the mean, as it is */
  p.normalize = MOE_NORMALIZE_DEFAULT;
  CHECK_OK(moe_session_encode(session, tokens, n, &p, &error));
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += hidden[i * d];
  CHECK(last[0] - sum / (double)n < 1e-5 && sum / (double)n - last[0] < 1e-5);
  p.normalize = MOE_NORMALIZE_ON;
  CHECK_OK(moe_session_encode(session, tokens, n, &p, &error));
  double length = 0;
  for (size_t i = 0; i < d; ++i) length += (double)last[i] * last[i];
  CHECK(length > 0.9999 && length < 1.0001);
  p.normalize = (moe_normalize)3;
  CHECK(moe_session_encode(session, tokens, n, &p, &error) == MOE_ERR_ARGUMENT);
  CHECK(strstr(error.text, "params.normalize: expected 0..2, found 3") != NULL);
  CHECK(moe_session_position(session) == 0);
  free(logits);
}

/* Text in, text out, with the model that ships with the project. */
static void test_text(const char* path) {
  moe_env* env = NULL;
  moe_model* model = NULL;
  moe_session* session = NULL;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  CHECK_OK(moe_model_open(env, path, NULL, &model, &error));
  CHECK_OK(moe_session_create(model, NULL, &session, &error));
  const moe_tokenizer* tokenizer = moe_model_tokenizer(model);
  CHECK(tokenizer != NULL);
  const char* prompt = "Once upon a time";
  int32_t tokens[64];
  size_t n = 0;
  CHECK_OK(moe_tokenizer_encode(tokenizer, prompt, strlen(prompt), 0, tokens, 64, &n, &error));
  CHECK(n > 0 && n <= strlen(prompt) + 1);
  /* The file says add_bos: one BOS precedes the text; without it the other tokens are the same. */
  moe_model_info info = {.struct_size = sizeof info};
  CHECK_OK(moe_model_get_info(model, &info, &error));
  CHECK(tokens[0] == info.bos_token && tokens[1] != info.bos_token);
  CHECK(strcmp(info.pooling, "") == 0 && info.n_prompts == 0 && info.default_prompt == -1);
  const char *name = "unchanged", *before = NULL;
  CHECK(moe_model_get_prompt(model, 0, &name, &before, &error) == MOE_ERR_RANGE);
  CHECK(strcmp(name, "unchanged") == 0 && before == NULL);
  CHECK(moe_model_get_prompt(model, 0, NULL, &before, &error) == MOE_ERR_ARGUMENT);
  int32_t plain[64];
  size_t n_plain = 0;
  CHECK_OK(moe_tokenizer_encode(tokenizer, prompt, strlen(prompt), MOE_ENCODE_NO_SPECIAL, plain, 64,
                                &n_plain, &error));
  CHECK(n_plain == n - 1 && memcmp(plain, tokens + 1, n_plain * sizeof *plain) == 0);
  test_score_and_states(session, &info, tokens, n);
  size_t need = 0;
  CHECK(moe_tokenizer_encode(tokenizer, prompt, strlen(prompt), 0, tokens, 1, &need, &error) ==
        MOE_ERR_TOO_LONG);
  CHECK(need == n);
  char text[64];
  size_t n_bytes = 0;
  CHECK_OK(moe_tokenizer_decode(tokenizer, tokens, n, MOE_DECODE_SKIP_SPECIAL, text, sizeof text,
                                &n_bytes, &error));
  CHECK(strcmp(text, prompt) == 0);
  CHECK(moe_tokenizer_piece(tokenizer, -1) == NULL && moe_tokenizer_piece(tokenizer, 0) != NULL);

  Story story = {{0}, 0};
  moe_generate_params gp = {
      .struct_size = sizeof gp, .max_tokens = 30, .piece = collect, .piece_user = &story};
  moe_generate_result result = {.struct_size = sizeof result};
  CHECK_OK(moe_session_generate(session, tokens, n, &gp, &result, &error));
  CHECK(result.n_prompt == (int32_t)n && result.n_generated > 0 && story.n > 0);

  /* After a cancellation in the callback the session stays usable and generates the same text
   * again. */
  CHECK_OK(moe_session_rewind(session, 0, &error));
  gp.piece = cancel_at;
  gp.piece_user = session;
  CHECK(moe_session_generate(session, tokens, n, &gp, &result, &error) == MOE_ERR_CANCELLED);
  CHECK_OK(moe_session_rewind(session, 0, &error));
  Story again = {{0}, 0};
  gp.piece = collect;
  gp.piece_user = &again;
  CHECK_OK(moe_session_generate(session, tokens, n, &gp, &result, &error));
  CHECK(strcmp(story.text, again.text) == 0);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
}

/* One layer of two experts that are multiples of the identity, so that the result can be worked out
 * by hand. */
static void test_layer(void) {
  enum { kD = 4 };
  float one[kD * kD] = {0};
  float two[kD * kD] = {0};
  float router[2 * kD] = {0};
  for (int i = 0; i < kD; ++i) {
    one[i * kD + i] = 1;
    two[i * kD + i] = 2;
  }
  router[0] = 50; /* x[0] > 0: expert 0, x[0] < 0: expert 1 */
  router[kD] = -50;
  const uint32_t size = sizeof(moe_expert_weights);
  moe_expert_weights experts[2] = {{.struct_size = size, .up = one, .down = one},
                                   {.struct_size = size, .up = one, .down = two}};
  moe_router choice = read_router("topk:1");
  moe_layer_params p = {.struct_size = sizeof p,
                        .d_model = kD,
                        .d_ff = kD,
                        .n_experts = 2,
                        .activation = "relu",
                        .router = &choice,
                        .experts = experts,
                        .router_weight = router};
  moe_env* env = NULL;
  moe_layer* layer = NULL;
  CHECK_OK(moe_env_create(NULL, &env, &error));
  CHECK_OK(moe_layer_create(env, &p, &layer, &error));
  const float x[2 * kD] = {1, 2, -3, 4, -1, 2, 3, -4};
  const float expected[2 * kD] = {1, 2, 0, 4, 0, 4, 6, 0};
  float y[2 * kD];
  CHECK_OK(moe_layer_forward(layer, x, 2, y, &error));
  for (int i = 0; i < 2 * kD; ++i) CHECK(fabsf(y[i] - expected[i]) < 1e-6f);
  const float bad[kD] = {NAN, 0, 0, 0};
  CHECK(moe_layer_forward(layer, bad, 1, y, &error) == MOE_ERR_NON_FINITE);
  CHECK_OK(moe_layer_forward(layer, x, 2, y, &error)); /* the layer is usable after an error */
  moe_layer_free(layer);
  layer = NULL;
  choice.k = 3;
  CHECK(moe_layer_create(env, &p, &layer, &error) == MOE_ERR_RANGE && layer == NULL);
  choice = read_router("topk:1,gamma=2");
  CHECK(moe_layer_create(env, &p, &layer, &error) == MOE_ERR_ARGUMENT && layer == NULL);
  choice = read_router("topk:1,tau=2");
  CHECK(moe_layer_create(env, &p, &layer, &error) == MOE_ERR_ARGUMENT && layer == NULL);
  choice = read_router("hash");
  CHECK(moe_layer_create(env, &p, &layer, &error) == MOE_ERR_ARGUMENT && layer == NULL);
  p.router = NULL; /* the best expert */
  experts[1].struct_size = 0;
  CHECK(moe_layer_create(env, &p, &layer, &error) == MOE_ERR_ARGUMENT && layer == NULL);
  CHECK(strstr(error.text, "experts[1]") != NULL);
  experts[1].struct_size = size;
  p.n_subheads = 3;
  CHECK(moe_layer_create(env, &p, &layer, &error) == MOE_ERR_SHAPE);
  p.n_subheads = 0;
  p.weights = "int9";
  CHECK(moe_layer_create(env, &p, &layer, &error) != MOE_OK);
  CHECK(strstr(error.text, "int9") != NULL);
  moe_env_free(env);
}

static void test_init(void) {
  const moe_session_params zero = {.struct_size = sizeof zero};
  const moe_session_params made = MOE_INIT(moe_session_params);
  CHECK(memcmp(&zero, &made, sizeof zero) == 0);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL\n", argv[0]);
    return 2;
  }
  test_versions();
  test_synthetic_progress();
  test_outline();
  test_arguments(argv[1]);
  test_failing_allocator();
  test_no_allocation_per_token();
  test_reader();
  test_io(argv[1]);
  test_machine_memory(argv[1]);
  test_watch_routing();
  test_watch_from_another_thread();
  test_budget();
  test_plans();
  test_sessions_together();
  test_session_limits();
  test_text(argv[1]);
  test_layer();
  test_router_text(argv[1]);
  test_init();
  printf("%d checks, %d failed\n", g_checks, g_failures);
  return g_failures == 0 ? 0 : 1;
}
