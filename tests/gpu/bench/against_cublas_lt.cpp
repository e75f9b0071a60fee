// SPDX-License-Identifier: MIT
// Products with one activation scale per row: our kernels, cuBLASLt with the work around it, and
// cuBLASLt alone.

#include "kernels/cuda/matmul/cublas_lt.h"
#include "kernels/cuda/matmul/matmul.h"
#include "tests/gpu/bench/bench.h"
#include "tests/gpu/bench/matrices.h"

namespace moe::cuda {
namespace {

using Json = nlohmann::json;

/// cublasLtMatmul on row-major codes, with weights in rotation, and the speed of the others
/// relative to it.
void bare_cublas_lt(const Bench& bench, lt::Library& library, const Product& p, Json* result) {
  const Matrix shape = p.matrices.at(0);
  const Matrices plain(kind_of(FormatId::kInt8), shape.rows, shape.cols, bench.rotation(), 2);
  const Buffer sums(static_cast<size_t>(p.n) * static_cast<size_t>(shape.rows) * 4);
  const Buffer workspace(ProductLibraryOptions().workspace_bytes);
  const Codes& in = p.inputs.in.a8;
  lt::Plan plan =
      library.plan({shape.rows, p.n, shape.cols, shape.cols, static_cast<int32_t>(in.ld), 256},
                   workspace.bytes());
  if (!plan.usable) {
    (*result)["bare"] = "no algorithm";
    return;
  }
  const int calls = static_cast<int>(std::min<size_t>(plain.size(), 32));
  const Times t = bench.time(calls, [&](cudaStream_t s, int i) {
    const Matrix m = plain.at(static_cast<size_t>(i));
    const auto* weights = reinterpret_cast<const int8_t*>(m.tiles);
    return library.multiply(plan, weights, in.codes, sums.as<int32_t>(), workspace.as<void>(),
                            workspace.bytes(), s) == lt::kSuccess
               ? cudaSuccess
               : cudaErrorLaunchFailure;
  });
  library.clear(&plan);
  (*result)["bare_us"] = t.median_us;
  for (const std::string way : {"own", "cublas_lt"}) {
    const auto us = result->find(way + "_us");
    if (us == result->end()) continue;
    (*result)[way + "_share_of_bare"] = t.median_us / us->get<double>();
  }
}

void report(Bench& bench, const char* name, double operations, Json result) {
  for (const std::string way : {"own", "cublas_lt", "bare"}) {
    const auto found = result.find(way + "_us");
    if (found == result.end()) continue;
    const double us = found->get<double>();
    result[way + "_operations_per_s"] = operations / us * 1e6;
    std::fprintf(stderr, "%-42s %-9s %9.2f us  %7.1f TOP/s\n", name, way.c_str(), us,
                 operations / us * 1e-6);
  }
  bench.add("against_cublas_lt", std::move(result));
}

void compare(Bench& bench, const char* name, FormatId format, int32_t n, int32_t size) {
  MatrixKind kind = kind_of(format);
  kind.act = ActPrecision::kA8;
  const Product p(kind, n, size, size, bench.rotation());
  GpuMemory memory;
  memory.set_limit(uint64_t{1} << 30);
  bool taken = true;  // whether cuBLASLt computed the product
  const auto with = [&](ProductKernels family) {
    CublasLt library(memory, {});  // its own: a later one must not wait for events captured here
    return bench.time(p.calls(32), [&](cudaStream_t s, int i) {
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
  const bool found = library.open(kCublasLtNames);
  if (found) {
    result["cublas_lt_version"] = library.version();
    const double us = with(ProductKernels::kLibrary).median_us;
    if (taken) result["cublas_lt_us"] = us;
    if (!taken) result["cublas_lt"] = "left to own kernels";
    bare_cublas_lt(bench, library, p, &result);
  } else {
    result["cublas_lt_version"] = "not found";
  }
  report(bench, name, p.operations, std::move(result));
  if (!found) throw std::runtime_error("no libcublasLt.so.13 or .12 to compare with");
}

}  // namespace

void measure_against_cublas_lt(Bench& bench) {
  const struct {
    FormatId format;
    int32_t n, size;
  } cases[] = {{FormatId::kInt8, 4096, 4096},    {FormatId::kInt8, 512, 4096},
               {FormatId::kInt8, 512, 2048},     {FormatId::kInt8, 256, 2048},
               {FormatId::kInt8, 128, 2048},     {FormatId::kTernary2, 4096, 4096},
               {FormatId::kTernary2, 512, 4096}, {FormatId::kTernary2, 256, 4096},
               {FormatId::kTernary2, 512, 2048}};
  for (const auto& c : cases) {
    const int32_t n = bench.rows(c.n);
    const std::string size = std::to_string(bench.width(c.size));
    bench.attempt(
        std::string(format_info(c.format).name) + " " + size + " x " + size + ", " +
            std::to_string(n) + " rows, with cuBLASLt",
        [&](const char* name) { compare(bench, name, c.format, n, bench.width(c.size)); });
  }
}

}  // namespace moe::cuda
