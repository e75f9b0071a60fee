// SPDX-License-Identifier: MIT
// Tests of the fake cuBLASLt.

#include "tests/gpu/cublas_lt_case.h"

namespace moe {
namespace {

TEST(FakeCublasLt, RefusesWhatCublasLtDoesNotSupport) {
  fake() = {};
  void* file = dlopen(MOE_FAKE_CUBLAS_LT, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(file, nullptr);
  const auto function = [&](const char* name) { return dlsym(file, name); };
  using Create = int (*)(void**);
  using CreateDesc = int (*)(void**, int, int);
  using CreateLayout = int (*)(void**, int, uint64_t, uint64_t, int64_t);
  using Set = int (*)(void*, int, const void*, size_t);
  using Destroy = int (*)(void*);
  using Find = int (*)(void*, void*, void*, void*, void*, void*, void*, int, void*, int*);
  struct Case {
    int compute = 72, scale = 10;
    int32_t trans_a = 1, trans_b = 0;
    int type_a = 3, type_d = 10;
    uint64_t m = 8, n = 5, k = 16;
    int64_t ld_a = 16, ld_b = 16, ld_d = 8;
  };
  const auto ask = [&](const Case& c) {
    void *context, *desc, *a, *b, *d, *preference;
    reinterpret_cast<Create>(function("cublasLtCreate"))(&context);
    reinterpret_cast<CreateDesc>(function("cublasLtMatmulDescCreate"))(&desc, c.compute, c.scale);
    const auto set = reinterpret_cast<Set>(function("cublasLtMatmulDescSetAttribute"));
    set(desc, 3, &c.trans_a, 4);
    set(desc, 4, &c.trans_b, 4);
    const auto layout = reinterpret_cast<CreateLayout>(function("cublasLtMatrixLayoutCreate"));
    const bool turned = c.trans_a == 1;
    layout(&a, c.type_a, turned ? c.k : c.m, turned ? c.m : c.k, c.ld_a);
    layout(&b, 3, c.k, c.n, c.ld_b);
    layout(&d, c.type_d, c.m, c.n, c.ld_d);
    reinterpret_cast<Create>(function("cublasLtMatmulPreferenceCreate"))(&preference);
    uint64_t result[16];
    int found = 0;
    const int status = reinterpret_cast<Find>(function("cublasLtMatmulAlgoGetHeuristic"))(
        context, desc, a, b, d, d, preference, 1, result, &found);
    EXPECT_EQ(found, status == 0 ? 1 : 0);
    reinterpret_cast<Destroy>(function("cublasLtMatmulPreferenceDestroy"))(preference);
    for (void* l : {a, b, d}) {
      reinterpret_cast<Destroy>(function("cublasLtMatrixLayoutDestroy"))(l);
    }
    reinterpret_cast<Destroy>(function("cublasLtMatmulDescDestroy"))(desc);
    reinterpret_cast<Destroy>(function("cublasLtDestroy"))(context);
    return status;
  };
  const auto with = [](auto change) {
    Case c;
    change(c);
    return c;
  };
  EXPECT_EQ(ask({}), 0);
  EXPECT_EQ(ask(with([](Case& c) { c.ld_a = 20, c.ld_b = 128, c.ld_d = 12, c.n = 1; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.compute = 68; })), 0);  // float sums
  EXPECT_NE(ask(with([](Case& c) { c.scale = 0; })), 0);     // float alpha
  EXPECT_NE(ask(with([](Case& c) { c.trans_a = 0; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.trans_b = 1; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.type_a = 8; })), 0);  // unsigned
  EXPECT_NE(ask(with([](Case& c) { c.type_d = 0; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.m = 6; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.k = 14; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.ld_a = 18; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.ld_b = 12; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.ld_d = 9; })), 0);
  EXPECT_EQ(fake().objects, 0);
}

}  // namespace
}  // namespace moe
