// SPDX-License-Identifier: MIT
// Conversions with failing allocations, including those of the libraries underneath: every third
// one alone, and every 13th together with all later ones. MOE_EVERY_ALLOCATION=1 convert_alloc_test
// tries all of them, which takes minutes.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "include/moe_c.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/support/failing_malloc.h"

namespace moe {
namespace {

struct Case {
  const char* name;
  const char* source;
  bool compress;
  bool verify;
  const char* calibration = nullptr;
  int32_t split_ffn = 0;
  enum { kNone, kSave, kUse } statistics = kNone;
};
constexpr Case kCases[] = {
    {"research", "tests/data/pytorch/rope_longrope_short", true, true},
    {"tokenizer", "tests/data/chat/script", false, false},
    {"calibrated", "tests/data/chat/script", false, false, "a text", 0, Case::kSave},
    {"saved", "tests/data/chat/script", false, false, "a text", 0, Case::kUse},
    {"split", "tests/data/encoders/xlmr_maskedlm", false, false, "a text", 2},
    {"granite", "tests/data/families/granite", false, false},
    {"gguf", "tests/data/families/gguf_llama3", false, true}};

class ConvertAlloc : public testing::TestWithParam<Case> {
 protected:
  ConvertAlloc() {
    moe_convert_params p = params();
    p.save_statistics = statistics_.c_str();
    if (GetParam().statistics == Case::kNone) return;
    EXPECT_EQ(moe_convert(GetParam().source, path_.c_str(), &p, &error_), MOE_OK) << error_.text;
  }
  static moe_convert_params params() {
    moe_convert_params p{};
    p.struct_size = sizeof p;
    p.compress = GetParam().compress ? 1 : 0;
    p.verify = GetParam().verify ? 1 : 0;
    p.calibration = GetParam().calibration;
    p.n_calibration = p.calibration != nullptr ? std::strlen(p.calibration) : 0;
    p.split_ffn = GetParam().split_ffn;
    p.split_by_clusters = 1;
    p.report = [](void*, const char*) {};
    return p;
  }
  moe_status convert(size_t fail_at, bool and_after) {
    moe_convert_params p = params();
    if (GetParam().statistics == Case::kSave) p.save_statistics = statistics_.c_str();
    if (GetParam().statistics == Case::kUse) {
      p.calibration = nullptr;
      p.n_calibration = 0;
      p.statistics = statistics_.c_str();
    }
    const std::string gguf = std::string(GetParam().source) + "/model.gguf";
    const std::string source = std::filesystem::exists(gguf) ? gguf : GetParam().source;
    failing_malloc_arm(fail_at, and_after);
    const moe_status status = moe_convert(source.c_str(), path_.c_str(), &p, &error_);
    failed_ = failing_malloc_disarm();
    live_ = failing_malloc_live();
    return status;
  }
  void sweep(bool and_after) {
    const bool every = std::getenv("MOE_EVERY_ALLOCATION") != nullptr;
    const size_t step = every ? 1 : and_after ? 29 : 7;
    convert(SIZE_MAX,
            false);  // the C library keeps some memory of the first threads, which is no leak
    for (size_t n = 0;; n += step) {
      target_.write("m.moe", test::old_model());
      const moe_status status = convert(n, and_after);
      ASSERT_EQ(target_.names(), std::vector<std::string>{"m.moe"}) << n;
      ASSERT_LE(side_.names().size(), 1u) << n;
      ASSERT_EQ(live_, 0) << "leaked when allocation " << n << " failed";
      if (status != MOE_OK) {
        ASSERT_TRUE(failed_) << n << ": " << error_.text;
        ASSERT_EQ(status, MOE_ERR_MEMORY) << n << ": " << error_.text;
        ASSERT_EQ(target_.text("m.moe"), test::old_model()) << n;
      }
      if (failed_) continue;
      EXPECT_GT(n, 1000U);
      break;
    }
  }

  test::TempFolder target_, side_;
  std::string statistics_ = side_.file("s");
  std::string path_ = target_.file("m.moe");
  moe_error error_{};
  bool failed_ = false;
  long live_ = 0;
};

TEST_P(ConvertAlloc, OneFails) { sweep(false); }
TEST_P(ConvertAlloc, AllFailFromOneOn) { sweep(true); }

INSTANTIATE_TEST_SUITE_P(Sources, ConvertAlloc, testing::ValuesIn(kCases),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace moe
