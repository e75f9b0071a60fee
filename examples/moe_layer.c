// SPDX-License-Identifier: MIT
/* One MoE layer as a kernel for another runtime: the weights are already in memory, and each token
 * goes to two of eight experts, whose matrices are packed to 2 bits per weight.
 *
 *   cc -std=c99 examples/moe_layer.c $(pkg-config --cflags --libs moe) -lm -o moe_layer &&
 * ./moe_layer
 */
#include <math.h>
#include <moe_c.h>
#include <stdio.h>
#include <stdlib.h>

enum { kModel = 64, kInner = 128, kExperts = 8, kTokens = 4 };

/* Deterministic numbers in [-1, 1). */
static float next(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static float* matrix(int rows, int cols, uint32_t* state) {
  float* m = malloc(sizeof(float) * (size_t)rows * (size_t)cols);
  for (int i = 0; m != NULL && i < rows * cols; ++i) m[i] = next(state);
  return m;
}

int main(void) {
  uint32_t state = 1;
  moe_expert_weights experts[kExperts] = {{0}};
  for (int e = 0; e < kExperts; ++e) {
    experts[e].struct_size = sizeof experts[e];
    experts[e].gate = matrix(kInner, kModel, &state);
    experts[e].up = matrix(kInner, kModel, &state);
    experts[e].down = matrix(kModel, kInner, &state);
  }
  float* router = matrix(kExperts, kModel, &state);

  const moe_router two_best = {
      .struct_size = sizeof two_best, .kind = "topk", .k = 2, .weights = "renormalised"};
  moe_layer_params params = {.struct_size = sizeof params,
                             .d_model = kModel,
                             .d_ff = kInner,
                             .n_experts = kExperts,
                             .activation = "silu",
                             .router = &two_best,
                             .weights = "ternary2",
                             .experts = experts,
                             .router_weight = router};
  moe_env* env = NULL;
  moe_layer* layer = NULL;
  moe_error error;
  float x[kTokens * kModel];
  float y[kTokens * kModel];
  for (int i = 0; i < kTokens * kModel; ++i) x[i] = next(&state);

  moe_status status = moe_env_create(NULL, &env, &error);
  if (status == MOE_OK) status = moe_layer_create(env, &params, &layer, &error);
  for (int e = 0; e < kExperts; ++e) { /* the layer has its own packed copies */
    free((void*)experts[e].gate);
    free((void*)experts[e].up);
    free((void*)experts[e].down);
  }
  free(router);
  if (status == MOE_OK) status = moe_layer_forward(layer, x, kTokens, y, &error);
  for (int t = 0; status == MOE_OK && t < kTokens; ++t) {
    double norm = 0;
    for (int i = 0; i < kModel; ++i) norm += (double)y[t * kModel + i] * y[t * kModel + i];
    printf("token %d: |y| = %.4f\n", t, sqrt(norm));
  }
  if (status != MOE_OK) fprintf(stderr, "%s: %s\n", moe_status_name(status), error.text);
  moe_layer_free(layer);
  moe_env_free(env);
  return status == MOE_OK ? 0 : 1;
}
