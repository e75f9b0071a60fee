// SPDX-License-Identifier: MIT
// Reads any bytes as saved statistics of three inputs; the only exception is Failure.

#include "formats/import/failure.h"
#include "src/convert/calibration/saved_statistics.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/support/fuzz_bytes.h"

namespace moe {
namespace {

void read(const std::string& path) {
  static ThreadPool pool(system_allocator());
  const StatisticsFile file(path, {{"a", 3}, {"b.up", 5}, {"c", 1}}, 7);
  const Status checked = guarded([&] { file.check_values([](uint64_t) {}); });
  bool valid = true;
  for (const InputKey& input : file.inputs()) {  // also with a wrong checksum
    const Status status = guarded([&] {
      require(file.sums(input)->squares.size() == static_cast<size_t>(input.n_inputs));
      if (!file.has_moments(input.name)) return;
      const auto moments = file.moments(input);
      require(moments->is_finite());
      (void)Feedback(*moments, nullptr, pool);
    });
    require(status.code() != MOE_ERR_INTERNAL);
    valid &= status.ok();
  }
  require(valid || !checked.ok());
}

}  // namespace
}  // namespace moe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moe::test::TempFolder folder;
  folder.write("s", std::string(reinterpret_cast<const char*>(data), size));
  const moe::Status status = moe::guarded([&] { moe::read(folder.file("s")); });
  moe::require(status.code() != MOE_ERR_INTERNAL && status.code() != MOE_ERR_IO);
  return 0;
}
