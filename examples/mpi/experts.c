// SPDX-License-Identifier: MIT
/* One MoE layer whose experts are distributed over the ranks of an MPI job: each rank holds some
 * experts and contributes some of the tokens. MPI_Alltoallv sends rows to the ranks that hold their
 * experts, and back. The result has the same bits as in one process with all experts.
 *
 *   mpicc -std=c99 experts.c $(pkg-config --cflags --libs moe) -lm -o experts
 *   mpirun -n 4 ./experts [ROUTER [WEIGHTS [TOKENS]]]
 *
 * The distributed layer consists of two kinds of layers of the library:
 *
 * - A gate on every rank: the whole router, with experts that identify themselves. Expert e has
 * zero matrices and a down bias that is 1 in column e, so that row t of the output contains exactly
 * the weight of each expert for token t. This needs n_experts <= d_model.
 * - For each expert that a rank holds, a layer of that expert alone, which its router chooses with
 *   weight 1.
 *
 * The library adds experts in ascending order, y = fma(weight, expert(x), y), in every batch, and
 * combine() does the same. */
#include <math.h>
#include <moe_c.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kModel = 256, kInner = 512, kExperts = 32 };

static int rank, n_ranks;
static MPI_Datatype row_type; /* kModel floats: counts below are rows */

static void require(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(moe_status status, const moe_error* error) {
  require(status == MOE_OK, error->text);
}

/* ---- Memory and weights ---- */

static void* allocate(size_t n, size_t size) {
  void* p = calloc(n + 1, size); /* never of size 0, whose result may be NULL */
  require(p != NULL, "out of memory");
  return p;
}

static float* floats(size_t rows, size_t cols) { return allocate(rows * cols, sizeof(float)); }

/* Numbers in [-1, 1) that depend on the seed alone, so that a rank makes only its own weights. */
static float* random_floats(size_t rows, size_t cols, uint32_t seed) {
  uint32_t state = seed * 2654435761u + 1;
  float* m = floats(rows, cols);
  for (size_t i = 0; i < rows * cols; ++i) {
    state = state * 1664525u + 1013904223u;
    m[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
  }
  return m;
}

enum { kRouterSeed = 1, kTokenSeed = 2, kExpertSeed = 1000 };

static moe_expert_weights expert_weights(int expert) {
  const uint32_t seed = kExpertSeed + 3 * (uint32_t)expert;
  moe_expert_weights w = MOE_INIT(moe_expert_weights);
  w.gate = random_floats(kInner, kModel, seed);
  w.up = random_floats(kInner, kModel, seed + 1);
  w.down = random_floats(kModel, kInner, seed + 2);
  return w;
}

static void free_weights(const moe_expert_weights* w) {
  const float* arrays[] = {w->gate, w->up, w->down, w->down_bias};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; ++i) free((void*)arrays[i]);
}

/* ---- Layers ---- */

typedef struct {
  moe_env* env;
  const char* routing; /* as text */
  moe_router router;
  const char* weights;
} Job;

static moe_layer* make_layer(const Job* job, moe_layer_params* params) {
  moe_layer* layer = NULL;
  moe_error error;
  params->struct_size = sizeof *params;
  params->d_model = kModel;
  check(moe_layer_create(job->env, params, &layer, &error), &error);
  return layer;
}

/* All experts in one process, to compare the distributed layer with. */
static moe_layer* make_whole(const Job* job) {
  moe_expert_weights experts[kExperts];
  for (int e = 0; e < kExperts; ++e) experts[e] = expert_weights(e);
  float* router = random_floats(kExperts, kModel, kRouterSeed);
  moe_layer_params params = {.d_ff = kInner,
                             .n_experts = kExperts,
                             .router = &job->router,
                             .weights = job->weights,
                             .experts = experts,
                             .router_weight = router};
  moe_layer* layer = make_layer(job, &params);
  for (int e = 0; e < kExperts; ++e) free_weights(&experts[e]);
  free(router);
  return layer;
}

static moe_layer* make_gate(const Job* job) {
  moe_expert_weights experts[kExperts] = {{0}};
  float* zeros = floats(kModel, 1);
  for (int e = 0; e < kExperts; ++e) {
    float* column = floats(kModel, 1);
    column[e] = 1;
    experts[e].struct_size = sizeof experts[e];
    experts[e].up = experts[e].down = zeros;
    experts[e].down_bias = column;
  }
  float* router = random_floats(kExperts, kModel, kRouterSeed);
  moe_layer_params params = {.d_ff = 1,
                             .n_experts = kExperts,
                             .router = &job->router,
                             .experts = experts,
                             .router_weight = router};
  moe_layer* layer = make_layer(job, &params);
  for (int e = 0; e < kExperts; ++e) free((void*)experts[e].down_bias);
  free(zeros);
  free(router);
  return layer;
}

static moe_layer* make_expert(const Job* job, int expert) {
  moe_expert_weights weights = expert_weights(expert);
  float* router = floats(1, kModel); /* one expert: any score makes its weight 1 */
  moe_layer_params params = {.d_ff = kInner,
                             .n_experts = 1,
                             .weights = job->weights,
                             .experts = &weights,
                             .router_weight = router};
  moe_layer* layer = make_layer(job, &params);
  free_weights(&weights);
  free(router);
  return layer;
}

static void forward(moe_layer* layer, const float* x, size_t n, float* y) {
  moe_error error;
  check(moe_layer_forward(layer, x, n, y, &error), &error);
}

/* ---- The distributed layer ---- */

/* Rank r has tokens or experts share(n, r) .. share(n, r + 1) - 1 of `n`. */
static int share(int n, int of_rank) { return (int)((int64_t)n * of_rank / n_ranks); }
static int first_expert(int of_rank) { return share(kExperts, of_rank); }

typedef struct {
  moe_layer* gate;
  moe_layer* experts[kExperts]; /* of this rank; the others are NULL */
} Layer;

static Layer make_distributed(const Job* job) {
  Layer layer = {make_gate(job), {NULL}};
  for (int e = first_expert(rank); e < first_expert(rank + 1); ++e) {
    layer.experts[e] = make_expert(job, e);
  }
  return layer;
}

static void free_distributed(Layer* layer) {
  moe_layer_free(layer->gate);
  for (int e = 0; e < kExperts; ++e) moe_layer_free(layer->experts[e]);
}

/* A token and one of its experts. Pairs are sorted by expert, and so by the rank that holds it. */
typedef struct {
  int token;
  float weight;
} Pair;

typedef struct {
  Pair* pairs;
  int begin[kExperts + 1]; /* where each expert's pairs begin */
} Routing;

static Routing route(const Layer* layer, const float* x, int n) {
  float* weights = floats((size_t)n, kModel);
  forward(layer->gate, x, (size_t)n, weights);
  Routing r = {allocate((size_t)n * kExperts, sizeof(Pair)), {0}};
  for (int e = 0; e < kExperts; ++e) {
    r.begin[e + 1] = r.begin[e];
    for (int t = 0; t < n; ++t) {
      const float weight = weights[(size_t)t * kModel + e];
      if (weight != 0) r.pairs[r.begin[e + 1]++] = (Pair){t, weight};
    }
  }
  free(weights);
  return r;
}

/* Counts and displacements of MPI_Alltoallv. */
typedef struct {
  int* count;
  int* at;
} Blocks;

static Blocks make_blocks(void) {
  return (Blocks){allocate((size_t)n_ranks, sizeof(int)), allocate((size_t)n_ranks, sizeof(int))};
}

static void free_blocks(Blocks blocks) {
  free(blocks.count);
  free(blocks.at);
}

/* Sets the beginning of each block. Returns the sum of their sizes. */
static int lay_out(Blocks blocks) {
  int sum = 0;
  for (int r = 0; r < n_ranks; ++r) {
    blocks.at[r] = sum;
    sum += blocks.count[r];
  }
  return sum;
}

static int n_own(void) { return first_expert(rank + 1) - first_expert(rank); }

/* The number of rows that each rank sends for each of this rank's experts: (n_ranks, n_own). */
static int* incoming(const Routing* routing) {
  int sizes[kExperts];
  for (int e = 0; e < kExperts; ++e) sizes[e] = routing->begin[e + 1] - routing->begin[e];
  Blocks out = make_blocks(), in = make_blocks();
  for (int r = 0; r < n_ranks; ++r) {
    out.count[r] = first_expert(r + 1) - first_expert(r);
    in.count[r] = n_own();
  }
  lay_out(out);
  int* counts = allocate((size_t)lay_out(in), sizeof(int));
  MPI_Alltoallv(sizes, out.count, out.at, MPI_INT, counts, in.count, in.at, MPI_INT,
                MPI_COMM_WORLD);
  free_blocks(out);
  free_blocks(in);
  return counts;
}

/* The rows that this rank sends to and receives from each rank. */
typedef struct {
  Blocks out, in;
  int* counts; /* the result of incoming() */
  int n_in;
} Exchange;

static Exchange plan(const Routing* routing) {
  Exchange x = {make_blocks(), make_blocks(), incoming(routing), 0};
  for (int r = 0; r < n_ranks; ++r) {
    x.out.count[r] = routing->begin[first_expert(r + 1)] - routing->begin[first_expert(r)];
    for (int e = 0; e < n_own(); ++e) x.in.count[r] += x.counts[r * n_own() + e];
  }
  lay_out(x.out);
  x.n_in = lay_out(x.in);
  return x;
}

static void free_exchange(Exchange* x) {
  free_blocks(x->out);
  free_blocks(x->in);
  free(x->counts);
}

static void copy_row(float* to, size_t to_row, const float* from, size_t from_row) {
  memcpy(to + to_row * kModel, from + from_row * kModel, sizeof(float) * kModel);
}

/* Received rows are sorted by rank and then by expert; this gives their order by expert. */
static size_t* order_by_expert(const Exchange* x) {
  size_t* order = allocate((size_t)x->n_in, sizeof(size_t));
  Blocks next = make_blocks();
  memcpy(next.at, x->in.at, sizeof(int) * (size_t)n_ranks);
  size_t n = 0;
  for (int e = 0; e < n_own(); ++e) {
    for (int r = 0; r < n_ranks; ++r) {
      for (int i = 0; i < x->counts[r * n_own() + e]; ++i) order[n++] = (size_t)next.at[r]++;
    }
  }
  free_blocks(next);
  return order;
}

/* Runs this rank's experts on the received rows, in place. An expert gets the rows of all ranks at
 * once, so that its weights are read once. */
static void run_own(const Layer* layer, const Exchange* x, float* rows) {
  const size_t n_in = (size_t)x->n_in;
  size_t* order = order_by_expert(x);
  float* batch = floats(n_in, kModel);
  for (size_t i = 0; i < n_in; ++i) copy_row(batch, i, rows, order[i]);
  float* next = batch;
  for (int e = 0; e < n_own(); ++e) {
    size_t n = 0;
    for (int r = 0; r < n_ranks; ++r) n += (size_t)x->counts[r * n_own() + e];
    forward(layer->experts[first_expert(rank) + e], next, n, next);
    next += n * kModel;
  }
  for (size_t i = 0; i < n_in; ++i) copy_row(rows, order[i], batch, i);
  free(batch);
  free(order);
}

/* Adds in ascending order of experts, which is the order of the pairs. */
static void combine(const Routing* routing, const float* outputs, int n, float* y) {
  memset(y, 0, sizeof(float) * (size_t)n * kModel);
  for (int p = 0; p < routing->begin[kExperts]; ++p) {
    const Pair pair = routing->pairs[p];
    for (int c = 0; c < kModel; ++c) {
      float* sum = &y[(size_t)pair.token * kModel + c];
      *sum = fmaf(pair.weight, outputs[(size_t)p * kModel + c], *sum);
    }
  }
}

typedef struct {
  double route, exchange, experts, combine; /* seconds */
  long long pairs, sent;                    /* sent: pairs whose expert is on another rank */
} Report;

/* x, y: (n, kModel). Collective: every rank calls it, with any number of tokens. */
static Report distributed_forward(const Layer* layer, const float* x, int n, float* y) {
  const double t0 = MPI_Wtime();
  Routing routing = route(layer, x, n);
  const int n_pairs = routing.begin[kExperts];
  const double t1 = MPI_Wtime();

  Exchange e = plan(&routing);
  float* mine = floats((size_t)n_pairs, kModel);
  float* theirs = floats((size_t)e.n_in, kModel);
  for (int p = 0; p < n_pairs; ++p) {
    copy_row(mine, (size_t)p, x, (size_t)routing.pairs[p].token);
  }
  MPI_Alltoallv(mine, e.out.count, e.out.at, row_type, theirs, e.in.count, e.in.at, row_type,
                MPI_COMM_WORLD);
  const double t2 = MPI_Wtime();
  run_own(layer, &e, theirs);
  const double t3 = MPI_Wtime();
  MPI_Alltoallv(theirs, e.in.count, e.in.at, row_type, mine, e.out.count, e.out.at, row_type,
                MPI_COMM_WORLD);
  const double t4 = MPI_Wtime();
  combine(&routing, mine, n, y);

  const Report report = {t1 - t0,          t2 - t1 + t4 - t3, t3 - t2,
                         MPI_Wtime() - t4, n_pairs,           n_pairs - e.out.count[rank]};
  free_exchange(&e);
  free(routing.pairs);
  free(mine);
  free(theirs);
  return report;
}

/* ---- The program ---- */

/* Gathers the rows of all ranks on rank 0. */
static float* gather(const float* mine, int n_tokens) {
  Blocks blocks = make_blocks();
  for (int r = 0; r < n_ranks; ++r) blocks.count[r] = share(n_tokens, r + 1) - share(n_tokens, r);
  float* all = floats((size_t)lay_out(blocks), kModel);
  MPI_Gatherv(mine, blocks.count[rank], row_type, all, blocks.count, blocks.at, row_type, 0,
              MPI_COMM_WORLD);
  free_blocks(blocks);
  return all;
}

/* On rank 0: the number of rows that differ from those of one process. */
static int compare(const Job* job, const float* x, const float* y, int n) {
  float* expected = floats((size_t)n, kModel);
  moe_layer* whole = make_whole(job);
  forward(whole, x, (size_t)n, expected);
  moe_layer_free(whole);
  int different = 0;
  for (size_t t = 0; t < (size_t)n; ++t) {
    different += memcmp(expected + t * kModel, y + t * kModel, sizeof(float) * kModel) != 0;
  }
  free(expected);
  return different;
}

/* The FNV-1a hash of the bytes of y, which is the same for every number of ranks. */
static uint64_t hash(const float* y, size_t n) {
  uint64_t h = 14695981039346656037u;
  const unsigned char* bytes = (const unsigned char*)y;
  for (size_t i = 0; i < n * sizeof *y; ++i) h = (h ^ bytes[i]) * 1099511628211u;
  return h;
}

static Report add_up(Report mine) {
  Report all = {0};
  MPI_Reduce(&mine.route, &all.route, 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine.pairs, &all.pairs, 2, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  return all;
}

static int run(const Job* job, int n_tokens) {
  const int first = share(n_tokens, rank), n = share(n_tokens, rank + 1) - first;
  float* tokens = random_floats((size_t)n_tokens, kModel, kTokenSeed);
  const float* x = tokens + (size_t)first * kModel;
  float* y = floats((size_t)n, kModel);
  Layer layer = make_distributed(job);
  distributed_forward(&layer, x, n, y); /* the first call is not timed */
  MPI_Barrier(MPI_COMM_WORLD);
  const Report report = add_up(distributed_forward(&layer, x, n, y));
  free_distributed(&layer);

  float* all = gather(y, n_tokens);
  int different = rank == 0 ? compare(job, tokens, all, n_tokens) : 0;
  if (rank == 0) {
    printf("%s, %s: %d tokens, %lld pairs, hash %016llx, %d rows differ\n", job->routing,
           job->weights, n_tokens, report.pairs,
           (unsigned long long)hash(all, (size_t)n_tokens * kModel), different);
    fprintf(stderr,
            "%d ranks: %lld pairs to another rank; route %.1f ms, exchange %.1f, experts %.1f, "
            "combine %.1f\n",
            n_ranks, report.sent, report.route * 1e3, report.exchange * 1e3, report.experts * 1e3,
            report.combine * 1e3);
  }
  MPI_Bcast(&different, 1, MPI_INT, 0, MPI_COMM_WORLD);
  free(tokens);
  free(y);
  free(all);
  return different == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
  MPI_Type_contiguous(kModel, MPI_FLOAT, &row_type);
  MPI_Type_commit(&row_type);

  Job job = {.routing = argc > 1 ? argv[1] : "topk:2,renormalised",
             .router = MOE_INIT(moe_router),
             .weights = argc > 2 ? argv[2] : "ternary2"};
  const int n_tokens = argc > 3 ? atoi(argv[3]) : 512;
  require(n_tokens > 0 && n_tokens <= 65536, "TOKENS: expected 1..65536");
  moe_env_params params = {.struct_size = sizeof params, .threads = 1, .device = "cpu"};
  moe_error error;
  check(moe_router_parse(job.routing, &job.router, &error), &error);
  check(moe_env_create(&params, &job.env, &error), &error);
  const int result = run(&job, n_tokens);
  moe_env_free(job.env);
  MPI_Type_free(&row_type);
  MPI_Finalize();
  return result;
}
