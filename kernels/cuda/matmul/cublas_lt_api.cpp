// SPDX-License-Identifier: MIT
// Opens cuBLASLt by name, finds an algorithm for a shape, and calls it.
#include "kernels/cuda/matmul/cublas_lt_api.h"

#include <cstring>

#include "src/base/os/module.h"

namespace moe::cuda::lt {
namespace {

constexpr size_t kFunctions = sizeof kFunctionNames / sizeof kFunctionNames[0];
static_assert(sizeof(Functions) == kFunctions * sizeof(void*));

}  // namespace

Library::~Library() { close(); }

// Never unloaded, like libmoe_cuda: CUDA libraries cannot be unloaded safely.
bool Library::open_one(const char* name) {
  file_ = open_module(name, {.stays = true}, nullptr, 0);
  if (file_ == nullptr) return false;
  for (size_t i = 0; i < kFunctions; ++i) {
    void* function = module_symbol(file_, kFunctionNames[i]);
    if (function == nullptr) return false;
    std::memcpy(reinterpret_cast<unsigned char*>(&functions_) + i * sizeof function, &function,
                sizeof function);
  }
  return start();
}

bool Library::start() {
  if (functions_.create(&context_) != kSuccess) {
    context_ = nullptr;
    return false;
  }
  MatmulDesc* desc = nullptr;
  if (functions_.desc_create(&desc, kCompute32I, kR32I) != kSuccess) return false;
  const int32_t transposed = kOpT;
  const int32_t as_it_is = kOpN;
  if (functions_.desc_set(desc, kDescTransA, &transposed, sizeof transposed) != kSuccess ||
      functions_.desc_set(desc, kDescTransB, &as_it_is, sizeof as_it_is) != kSuccess) {
    functions_.desc_destroy(desc);
    return false;
  }
  desc_ = desc;
  return true;
}

void Library::close() {
  if (desc_ != nullptr) functions_.desc_destroy(desc_);
  if (context_ != nullptr) functions_.destroy(context_);
  if (file_ != nullptr) close_module(file_);
  desc_ = nullptr;
  context_ = nullptr;
  file_ = nullptr;
}

bool Library::open(const char* const* names) {
  for (; *names != nullptr; ++names) {
    if (open_one(*names)) return true;
    close();
  }
  return false;
}

bool Library::find_algorithm(Preference* preference, Plan* plan, size_t workspace_bytes) {
  const uint64_t bytes = workspace_bytes;
  const auto alignment = static_cast<uint32_t>(plan->shape.codes_alignment);
  Heuristic best{};
  int found = 0;
  const auto set = [&](PreferenceAttribute what, const auto& value) {
    return functions_.preference_set(preference, what, &value, sizeof value) == kSuccess;
  };
  if (!set(kPreferWorkspaceBytes, bytes) || !set(kPreferAlignmentB, alignment)) return false;
  if (functions_.find_algorithms(context_, desc_, plan->weights, plan->codes, plan->sums,
                                 plan->sums, preference, 1, &best, &found) != kSuccess) {
    return false;
  }
  plan->algo = best.algo;
  return found > 0 && best.state == kSuccess && best.workspace_bytes <= workspace_bytes;
}

Plan Library::plan(const Shape& shape, size_t workspace_bytes) {
  Plan p;
  p.shape = shape;
  const auto m = static_cast<uint64_t>(shape.m);
  const auto n = static_cast<uint64_t>(shape.n);
  const auto k = static_cast<uint64_t>(shape.k);
  Preference* preference = nullptr;
  const auto made = [](Result r, auto** what) {
    if (r != kSuccess) *what = nullptr;
    return r == kSuccess;
  };
  p.usable = made(functions_.layout_create(&p.weights, kR8I, k, m, shape.ld_weights), &p.weights) &&
             made(functions_.layout_create(&p.codes, kR8I, k, n, shape.ld_codes), &p.codes) &&
             made(functions_.layout_create(&p.sums, kR32I, m, n, shape.m), &p.sums) &&
             made(functions_.preference_create(&preference), &preference) &&
             find_algorithm(preference, &p, workspace_bytes);
  if (preference != nullptr) functions_.preference_destroy(preference);
  return p;
}

void Library::clear(Plan* plan) {
  for (Layout* layout : {plan->weights, plan->codes, plan->sums}) {
    if (layout != nullptr) functions_.layout_destroy(layout);
  }
  *plan = {};
}

Result Library::multiply(const Plan& plan, const int8_t* weights, const int8_t* codes,
                         int32_t* sums, void* workspace, size_t workspace_bytes,
                         cudaStream_t stream) {
  const int32_t one = 1;
  const int32_t zero = 0;
  return functions_.matmul(context_, desc_, &one, weights, plan.weights, codes, plan.codes, &zero,
                           sums, plan.sums, sums, plan.sums, &plan.algo, workspace, workspace_bytes,
                           stream);
}

}  // namespace moe::cuda::lt
