// Times the kernels of the CUDA device: graph replays between events, with weights in rotation over
// more than twice the size of the L2 cache, compared with a copy measured in the same run.
//   gpu_bench [FILE]
// Prints one JSON object, or rewrites FILE with it after each case. A case that fails is listed
// under "failures"; after an error from which CUDA does not recover, so are the others.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/matmul/cublas_lt.h"
#include "kernels/cuda/matmul/matmul.h"
#include "quant/formats.h"
#include "quant/random.h"

namespace moe::cuda {
namespace {

using Json = nlohmann::json;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

/// Device memory filled with random bytes or zeros.
class Buffer {
 public:
  explicit Buffer(size_t bytes, bool random = false) : bytes_(bytes) {
    check(cudaMalloc(&data_, bytes), "cudaMalloc");
    check(cudaMemset(data_, 0, bytes), "cudaMemset");
    // Otherwise kernels on non-blocking streams could run before it.
    check(cudaDeviceSynchronize(), "cudaMemset");
    if (!random) return;
    std::vector<uint32_t> host((bytes + 3) / 4);
    std::mt19937 rng(static_cast<uint32_t>(bytes));
    for (uint32_t& w : host) w = rng();
    check(cudaMemcpy(data_, host.data(), bytes, cudaMemcpyHostToDevice), "upload");
  }
  template <class T>
  explicit Buffer(const std::vector<T>& values)
      : Buffer(std::max<size_t>(1, values.size()) * sizeof(T)) {
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
          "upload");
  }
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

struct Times {
  double median_us;
  double low_us;  // quartiles
  double high_us;
};

/// The time of one call, from graphs of `n` calls; call(stream, i) enqueues the i-th.
Times measure(int n, const std::function<cudaError_t(cudaStream_t, int)>& call) {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  for (int i = 0; i < n; ++i) check(call(stream, i), "call");  // loads every kernel
  check(cudaStreamSynchronize(stream), "warm-up");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
  for (int i = 0; i < n; ++i) check(call(stream, i), "call");
  cudaGraph_t graph;
  check(cudaStreamEndCapture(stream, &graph), "capture");
  cudaGraphExec_t exec;
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin;
  cudaEvent_t end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<double> us;
  for (int r = 0; r < 33; ++r) {
    check(cudaEventRecord(begin, stream), "record");
    check(cudaGraphLaunch(exec, stream), "launch");
    check(cudaEventRecord(end, stream), "record");
    check(cudaEventSynchronize(end), "wait");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (r >= 3) us.push_back(1e3 * static_cast<double>(ms) / n);
  }
  std::sort(us.begin(), us.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return {us[us.size() / 2], us[us.size() / 4], us[us.size() * 3 / 4]};
}

Codes& codes_of(PrepareOp& op, ActPrecision act) {
  if (act == ActPrecision::kA8) return op.a8;
  return act == ActPrecision::kA8Group ? op.a8_group : op.a8_block;
}

/// Random matrices of one shape and an integer format, enough to fill `bytes`.
class Matrices {
 public:
  Matrices(FormatId format, int32_t rows, int32_t cols, size_t bytes, size_t least)
      : bytes_of_one_(matrix_bytes(format, rows, cols).value()),
        n_(std::max(least, bytes / bytes_of_one_ + 1)),
        tiles_(make_tiles(format)),
        scales_(std::vector<float>(static_cast<size_t>(rows), 0.01f)) {
    like_.format = format;
    like_.group = format_info(format).group;
    like_.scale_kind = like_.group != 0            ? ScaleKind::kGroup
                       : format == FormatId::kInt8 ? ScaleKind::kRow
                                                   : ScaleKind::kTensor;
    like_.act = format_info(format).act;
    like_.rows = rows;
    like_.cols = cols;
    like_.tile_stride = static_cast<int64_t>(bytes_of_one_ / static_cast<size_t>((rows + 15) / 16));
  }
  size_t size() const { return n_; }
  /// Uses activation codes with one scale per row.
  void use_a8() { like_.act = ActPrecision::kA8; }
  size_t bytes_of_one() const { return bytes_of_one_; }
  Matrix at(size_t i) const {
    Matrix m = like_;
    m.tiles = tiles_.as<uint8_t>() + i % n_ * bytes_of_one_;
    m.scales = scales_.as<float>();
    return m;
  }

 private:
  Buffer make_tiles(FormatId format) const {
    std::vector<uint8_t> bytes(n_ * bytes_of_one_);
    Random random(5);
    format_info(format).random_tile(random, bytes.size(), 0.01f, bytes.data());
    return Buffer(bytes);
  }

  size_t bytes_of_one_;
  size_t n_;
  Buffer tiles_;
  Buffer scales_;
  Matrix like_;
};

/// Activation codes of n rows of d inputs, in every precision.
struct Inputs {
  Inputs(int32_t n, int32_t d)
      : codes(static_cast<size_t>(n * codes_ld(d)), true),
        scales(std::vector<float>(static_cast<size_t>(n * (d / kActGroup + 1)), 0.01f)),
        sums(static_cast<size_t>(n * (d / kActGroup + 1)) * 4) {
    in.a8 = {codes.as<int8_t>(), codes_ld(d), scales.as<float>(), sums.as<int32_t>()};
    in.a8_block = in.a8;
    in.a8_group = in.a8;
  }
  Buffer codes, scales, sums;
  MatmulInput in;
};

/// The product of n rows of inputs with one of many matrices.
struct Product {
  Product(FormatId format, int32_t n_, int32_t rows, int32_t cols, size_t bytes)
      : n(n_),
        matrices(format, rows, cols, bytes, 2),
        inputs(n, cols),
        y(static_cast<size_t>(n) * static_cast<size_t>(rows) * 4),
        operations(2.0 * n * static_cast<double>(rows) * cols) {}
  MatmulOp op(int i) const {
    const Matrix m = matrices.at(static_cast<size_t>(i));
    MatmulOp op;
    op.rows.rows.n = n;
    op.in = inputs.in;
    op.n_outs = 1;
    op.outs[0].weight = {m, nullptr};
    op.outs[0].y = y.as<float>();
    op.outs[0].ld_y = m.rows;
    return op;
  }
  int calls(size_t most) const { return static_cast<int>(std::min(matrices.size(), most)); }

  int32_t n;
  Matrices matrices;
  Inputs inputs;
  Buffer y;
  double operations;
};

class Bench {
 public:
  Bench(const cudaDeviceProp& gpu, int driver, const char* file)
      : file_(file), rotation_(2 * static_cast<size_t>(gpu.l2CacheSize) + (size_t{16} << 20)) {
    out_["gpu"] = gpu.name;
    out_["driver"] = driver;
    out_["l2_bytes"] = gpu.l2CacheSize;
  }

  /// Runs measure(name), whose failure ends this case alone.
  template <class F>
  void attempt(const std::string& name, F&& measure_case) {
    try {
      measure_case(name.c_str());
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%-44s failed: %s\n", name.c_str(), e.what());
      out_["failures"].push_back({{"name", name}, {"error", e.what()}});
      (void)cudaGetLastError();
    }
    if (file_ != nullptr) write();
  }
  bool failed() const { return out_.contains("failures"); }
  void write() const {
    if (file_ == nullptr) {
      std::printf("%s\n", out_.dump(2).c_str());
      return;
    }
    const std::string partial = std::string(file_) + ".partial";
    std::FILE* to = std::fopen(partial.c_str(), "w");
    const bool good = to != nullptr && std::fprintf(to, "%s\n", out_.dump(2).c_str()) > 0;
    const bool closed = to != nullptr && std::fclose(to) == 0;
    if (!good || !closed || std::rename(partial.c_str(), file_) != 0) {
      throw std::runtime_error(std::string("cannot write ") + file_);
    }
  }

  void copy() {
    const size_t bytes = size_t{1} << 30;
    const Buffer from(bytes, false);
    const Buffer to(bytes);
    const Times t = measure(2, [&](cudaStream_t s, int) {
      return cudaMemcpyAsync(to.as<void>(), from.as<void>(), bytes, cudaMemcpyDeviceToDevice, s);
    });
    copy_bytes_per_s_ = 2.0 * static_cast<double>(bytes) / t.median_us * 1e6;
    out_["copy_bytes_per_s"] = copy_bytes_per_s_;
  }

  void linear(const char* name, FormatId format, int32_t n, int32_t rows, int32_t cols) {
    const Product p(format, n, rows, cols, rotation_);
    const Times t = measure(p.calls(64), [&](cudaStream_t s, int i) { return matmul(s, p.op(i)); });
    report(name, t, static_cast<double>(p.matrices.bytes_of_one()), p.operations);
  }

  /// Products of int8 (or ternary2) with one activation scale per row: our own kernels, cuBLASLt
  /// with the work around it, and cublasLtMatmul alone on row-major weights.
  void against_cublas_lt(const char* name, FormatId format, int32_t n, int32_t rows, int32_t cols) {
    Product p(format, n, rows, cols, rotation_);
    p.matrices.use_a8();
    GpuMemory memory;
    memory.set_limit(uint64_t{1} << 30);
    bool taken = true;  // whether cuBLASLt computed the product
    const auto with = [&](ProductKernels family) {
      CublasLt library(
          memory, {});  // one per measurement: a later one must not wait for events captured here
      return measure(p.calls(32), [&](cudaStream_t s, int i) {
        const MatmulOp op = p.op(i);
        if (family != ProductKernels::kLibrary) return matmul_with(s, op, family);
        bool done = false;
        const cudaError_t error = library.multiply(s, n, op.in, op.outs[0], true, &done);
        taken = taken && done;
        return error;
      });
    };
    Json result = {{"name", name}, {"own_us", with(ProductKernels::kManyRowsWide).median_us}};
    lt::Library library;
    if (library.open(kCublasLtNames)) {
      result["cublas_lt_version"] = library.version();
      const double us = with(ProductKernels::kLibrary).median_us;
      if (taken) result["cublas_lt_us"] = us;
      if (!taken) result["cublas_lt"] = "left to own kernels";
      bare_cublas_lt(library, p.inputs, n, rows, cols, &result);
    } else {
      result["cublas_lt_version"] = "not found";
    }
    for (const std::string way : {"own", "cublas_lt", "bare"}) {
      const auto found = result.find(way + "_us");
      if (found == result.end()) continue;
      const double us = found->get<double>();
      result[way + "_operations_per_s"] = p.operations / us * 1e6;
      std::fprintf(stderr, "%-34s %-9s %9.2f us  %7.1f TOP/s\n", name, way.c_str(), us,
                   p.operations / us * 1e-6);
    }
    out_["against_cublas_lt"].push_back(result);
  }

  /// One token for each of `experts` networks: gate and up, quantisation, down.
  void experts(const char* name, FormatId format, int32_t experts, int32_t d, int32_t f) {
    const size_t least = static_cast<size_t>(experts);
    const Matrices gate(format, f, d, rotation_ / 3, least);
    const Matrices up(format, f, d, rotation_ / 3, least);
    const Matrices down(format, d, f, rotation_ / 3, least);
    const size_t sets = gate.size() / least;
    const Inputs in(experts, d);
    const Inputs mid(experts, f);
    const Buffer hidden(static_cast<size_t>(experts * f) * 4);
    const Buffer y(static_cast<size_t>(experts * d) * 4);
    std::vector<int32_t> ids(least + 1);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    const Buffer identity(ids);
    const auto table = [&](const Matrices& m) {
      std::vector<Weight> w;
      for (size_t i = 0; i < sets * least; ++i) w.push_back({m.at(i), nullptr});
      return Buffer(w);
    };
    const Buffer gates = table(gate);
    const Buffer ups = table(up);
    const Buffer downs = table(down);
    const int calls = static_cast<int>(std::min<size_t>(sets, 64));
    const Times t = measure(calls, [&](cudaStream_t s, int i) {
      const size_t first = static_cast<size_t>(i) % sets * least;
      RowGroups rows;
      rows.rows.n = experts;
      rows.max_groups = experts;
      rows.group = identity.as<int32_t>();
      rows.begin = identity.as<int32_t>();
      GatedOp g;
      g.rows = rows;
      g.in = in.in;
      g.gate.weight.matrix = gate.at(0);
      g.gate.table = gates.as<Weight>() + first;
      g.up.weight.matrix = up.at(0);
      g.up.table = ups.as<Weight>() + first;
      g.hidden = hidden.as<float>();
      g.ld_hidden = f;
      cudaError_t error = gated_matmul(s, g);
      if (error != cudaSuccess) return error;
      PrepareOp p;
      p.rows.n = experts;
      p.d = f;
      p.x = hidden.as<float>();
      p.ld_x = f;
      codes_of(p, format_info(format).act) = mid.in.a8;
      error = prepare_rows(s, p);
      if (error != cudaSuccess) return error;
      MatmulOp m;
      m.rows = rows;
      m.in = mid.in;
      m.n_outs = 1;
      m.outs[0].weight.matrix = down.at(0);
      m.outs[0].table = downs.as<Weight>() + first;
      m.outs[0].y = y.as<float>();
      m.outs[0].ld_y = d;
      return matmul(s, m);
    });
    report(name, t,
           static_cast<double>(experts) *
               static_cast<double>(gate.bytes_of_one() + up.bytes_of_one() + down.bytes_of_one()),
           6.0 * experts * static_cast<double>(d) * f);
  }

  /// sample_rows() on n rows of logits. They are not in rotation: the head has just written them.
  void sample(const char* name, int32_t n, int32_t vocab, const SampleSpec& spec) {
    const auto rows = static_cast<size_t>(n);
    const auto spans = static_cast<size_t>(sample_spans(vocab));
    const auto classes = rows * static_cast<size_t>(kLogitClasses);
    std::mt19937 rng(3);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> values(rows * static_cast<size_t>(vocab));
    for (float& v : values) v = normal(rng);
    const Buffer logits(values);
    const Buffer specs(std::vector<SampleSpec>(rows, spec));
    const Buffer copies(rows * sizeof(float*));
    const Buffer best(rows * spans * 8), bad(rows * spans * 4), counts(classes * 4);
    const Buffer weights(classes * 8), cursor(rows * 4);
    const size_t told = sizeof(SampleHead) + 16 * spans + sizeof(TokenCandidate) * kMaxCandidates;
    uint8_t* pinned = nullptr;
    check(cudaMallocHost(&pinned, rows * told), "pinned memory");
    DeviceSampleOp op;
    op.op = {logits.as<float>(), n, vocab, specs.as<SampleSpec>(), copies.as<float*>()};
    op.candidates = wants_candidates(spec);
    op.best = best.as<uint64_t>();
    op.bad = bad.as<int32_t>();
    op.counts = counts.as<uint32_t>();
    op.classes = weights.as<unsigned long long>();
    op.cursor = cursor.as<int32_t>();
    op.heads = reinterpret_cast<SampleHead*>(pinned);
    op.span_sums = reinterpret_cast<uint64_t*>(op.heads + rows);
    op.span_weights = op.span_sums + rows * spans;
    op.candidates_of = reinterpret_cast<TokenCandidate*>(op.span_weights + rows * spans);
    const Times t = measure(16, [&](cudaStream_t s, int) { return sample_rows(s, op); });
    report(name, t, static_cast<double>(values.size()) * sizeof(float), 0);
    cudaFreeHost(pinned);
  }
  /// The copy of such a row to the host, which sample_rows() avoids.
  void bring(const char* name, int32_t vocab) {
    const size_t bytes = static_cast<size_t>(vocab) * sizeof(float);
    const Buffer logits(bytes);
    float* pinned = nullptr;
    check(cudaMallocHost(&pinned, bytes), "pinned memory");
    const Times t = measure(16, [&](cudaStream_t s, int) {
      return cudaMemcpyAsync(pinned, logits.as<float>(), bytes, cudaMemcpyDeviceToHost, s);
    });
    report(name, t, static_cast<double>(bytes), 0);
    cudaFreeHost(pinned);
  }

 private:
  void report(const char* name, const Times& t, double bytes, double operations) {
    const double rate = bytes / t.median_us * 1e6;
    out_["kernels"].push_back({{"name", name},
                               {"us", t.median_us},
                               {"us_quartiles", {t.low_us, t.high_us}},
                               {"weight_bytes_per_s", rate},
                               {"share_of_copy", rate / copy_bytes_per_s_},
                               {"operations_per_s", operations / t.median_us * 1e6}});
    std::fprintf(stderr, "%-44s %9.2f us  %6.1f %% of copy  %7.1f TOP/s\n", name, t.median_us,
                 100 * rate / copy_bytes_per_s_, operations / t.median_us * 1e-6);
  }

  /// cublasLtMatmul on row-major codes, with weights in rotation, and the speed of the others
  /// relative to it.
  void bare_cublas_lt(lt::Library& library, const Inputs& inputs, int32_t n, int32_t rows,
                      int32_t cols, Json* result) {
    const Matrices plain(FormatId::kInt8, rows, cols, rotation_, 2);
    const Buffer sums(static_cast<size_t>(n) * static_cast<size_t>(rows) * 4);
    const Buffer workspace(ProductLibraryOptions().workspace_bytes);
    const auto ld = static_cast<int32_t>(inputs.in.a8.ld);
    lt::Plan plan = library.plan({rows, n, cols, cols, ld, 256}, workspace.bytes());
    if (!plan.usable) {
      (*result)["bare"] = "no algorithm";
      return;
    }
    const int calls = static_cast<int>(std::min<size_t>(plain.size(), 32));
    const Times t = measure(calls, [&](cudaStream_t s, int i) {
      const Matrix m = plain.at(static_cast<size_t>(i));
      const auto* weights = reinterpret_cast<const int8_t*>(m.tiles);
      return library.multiply(plan, weights, inputs.in.a8.codes, sums.as<int32_t>(),
                              workspace.as<void>(), workspace.bytes(), s) == lt::kSuccess
                 ? cudaSuccess
                 : cudaErrorUnknown;
    });
    library.clear(&plan);
    (*result)["bare_us"] = t.median_us;
    for (const std::string way : {"own", "cublas_lt"}) {
      const auto us = result->find(way + "_us");
      if (us == result->end()) continue;
      (*result)[way + "_share_of_bare"] = t.median_us / us->get<double>();
    }
  }

  const char* file_;
  size_t rotation_;
  double copy_bytes_per_s_ = 1;
  Json out_ = Json::object();
};

void measure_products(Bench& bench) {
  const struct {
    const char* name;
    FormatId format;
  } formats[] = {{"ternary2", FormatId::kTernary2},    {"int8", FormatId::kInt8},
                 {"int8_group", FormatId::kInt8Group}, {"int4", FormatId::kInt4},
                 {"int4_min", FormatId::kInt4Min},     {"int4_k", FormatId::kInt4K},
                 {"int6_k", FormatId::kInt6K},         {"nl4", FormatId::kNl4}};
  for (const auto& f : formats) {
    const std::string of = f.name;
    bench.attempt(of + " experts, OLMoE, 8 of 2048 x 1024, 1 token",
                  [&](const char* name) { bench.experts(name, f.format, 8, 2048, 1024); });
    bench.attempt(of + " experts, Maple, 8 of 2048 x 512, 1 token",
                  [&](const char* name) { bench.experts(name, f.format, 8, 2048, 512); });
    for (const int32_t n : {1, 8, 32, 512, 4096}) {
      bench.attempt(of + " linear 4096 x 4096, " + std::to_string(n) + " rows",
                    [&](const char* name) { bench.linear(name, f.format, n, 4096, 4096); });
    }
  }
}

void measure_against_cublas_lt(Bench& bench) {
  const struct {
    const char* name;
    FormatId format;
    int32_t n, size;
  } cases[] = {{"int8 4096 x 4096, 4096 rows", FormatId::kInt8, 4096, 4096},
               {"int8 4096 x 4096, 512 rows", FormatId::kInt8, 512, 4096},
               {"int8 2048 x 2048, 512 rows", FormatId::kInt8, 512, 2048},
               {"ternary2 4096 x 4096, 4096 rows", FormatId::kTernary2, 4096, 4096},
               {"ternary2 4096 x 4096, 512 rows", FormatId::kTernary2, 512, 4096}};
  for (const auto& c : cases) {
    bench.attempt(c.name, [&](const char* name) {
      bench.against_cublas_lt(name, c.format, c.n, c.size, c.size);
    });
  }
}

void measure_sampling(Bench& bench) {
  constexpr int32_t kVocab = 151936;
  const struct {
    const char* name;
    SampleSpec spec;
  } ways[] = {{"sample greedily", {0, 0, 0, 0}},
              {"sample by temperature", {0.8f, 0, 0, 0}},
              {"sample by top-k 40", {0.8f, 0, 0, 40}},
              {"sample by top-p 0.9", {0.8f, 0, 0.9f, 0}}};
  bench.attempt("logits, 151936, to the host",
                [&](const char* name) { bench.bring(name, kVocab); });
  for (const int32_t n : {1, 32}) {
    for (const auto& way : ways) {
      bench.attempt(way.name + (", 151936, " + std::to_string(n) + " rows"),
                    [&](const char* name) { bench.sample(name, n, kVocab, way.spec); });
    }
  }
}

/// True if every case was measured.
bool run(const char* file) {
  cudaDeviceProp gpu;
  check(cudaGetDeviceProperties(&gpu, 0), "no GPU");
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "driver");
  Bench bench(gpu, driver, file);
  bench.attempt("copy", [&](const char*) { bench.copy(); });
  measure_products(bench);
  measure_against_cublas_lt(bench);
  measure_sampling(bench);
  if (file == nullptr) bench.write();
  return !bench.failed();
}

}  // namespace
}  // namespace moe::cuda

int main(int argc, char** argv) {
  try {
    return moe::cuda::run(argc > 1 ? argv[1] : nullptr) ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_bench: %s\n", e.what());
    return 1;
  }
}
