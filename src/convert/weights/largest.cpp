// SPDX-License-Identifier: MIT
// Reads the rows on all threads.
#include "src/convert/weights/largest.h"

#include <algorithm>

#include "quant/half.h"
#include "src/convert/weights/in_order.h"
#include "src/convert/weights/row_reader.h"
#include "src/convert/weights/storage.h"

namespace moe {
float largest_weight(const PlannedMatrix& m, const Checkpoint& checkpoint, ThreadPool& pool,
                     const std::function<void()>& tick) {
  const int32_t per_part = rows_per_part(m.slot.cols);
  MatrixReaders readers(checkpoint, *m.tensor, m.source, m.slot.rows, m.slot.cols, pool);
  std::vector<uint32_t> parts(slots_of(pool));
  uint32_t largest = 0;
  InOrder work;
  work.n = (m.slot.rows + per_part - 1) / per_part;
  work.alone = !readers.together();
  work.make = [&](int worker, int64_t part, size_t at) {
    const auto first = static_cast<int32_t>(part) * per_part;
    parts[at] = 0;
    for (int32_t r = first; r < std::min(first + per_part, m.slot.rows); ++r) {
      const float* row = readers.of(worker).row(r);
      check_finite(m, r, row);
      parts[at] = std::max(parts[at], largest_magnitude(row, m.slot.cols));
    }
  };
  work.use = [&](int64_t, size_t at) {
    largest = std::max(largest, parts[at]);
    return true;
  };
  work.tell = [&](int64_t) { tick(); };
  run_in_order(pool, work);
  return bits_to_f32(largest);
}

}  // namespace moe
