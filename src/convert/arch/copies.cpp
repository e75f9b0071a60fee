// SPDX-License-Identifier: MIT
// Compares both copies row by row; where they differ, leaving one out would change the model, or
// guesses of its tokens.
#include "src/convert/arch/copies.h"

#include <algorithm>
#include <cstring>

#include "formats/import/failure.h"
#include "formats/import/source_tensor.h"

namespace moe {
namespace {

constexpr size_t kCompared = 1 << 16;  // values compared at once

// The first row in which two matrices of one shape differ; -1 if none.
int64_t differing_row(const Checkpoint& checkpoint, const SourceTensor& a, const SourceTensor& b) {
  if (a.n_elements == 0) return -1;
  const auto cols = static_cast<size_t>(a.shape.back());
  const size_t piece = std::max<size_t>(kCompared / cols, 1) * cols;
  std::vector<float> of_a, of_b;
  for (uint64_t first = 0; first < a.n_elements; first += piece) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(piece, a.n_elements - first));
    of_a.resize(n);
    of_b.resize(n);
    checkpoint.read(a, first, n, of_a.data());
    checkpoint.read(b, first, n, of_b.data());
    for (size_t i = 0; i < n; i += cols) {
      const bool same = std::memcmp(&of_a[i], &of_b[i], cols * sizeof(float)) == 0;
      if (!same) return static_cast<int64_t>((first + i) / cols);
    }
  }
  return -1;
}

// True if some rows of both differ by no more than two roundings to two bits do. Blocks of one type
// may be rounded in two ways as well, with weights for the errors and without.
bool nearly_same(const Checkpoint& checkpoint, const SourceTensor& a, const SourceTensor& b) {
  constexpr uint64_t kRows = 64;
  constexpr double kMost = 0.25;  // of the squares; those of independent tensors differ by 2
  const auto cols = static_cast<size_t>(a.shape.back());
  if (cols == 0) return true;
  const uint64_t n_rows = a.n_elements / cols;
  const uint64_t step = std::max<uint64_t>(n_rows / kRows, 1);
  std::vector<float> of_a(cols), of_b(cols);
  double squares = 0, apart = 0;
  for (uint64_t row = 0; row < n_rows; row += step) {
    checkpoint.read(a, row * cols, cols, of_a.data());
    checkpoint.read(b, row * cols, cols, of_b.data());
    for (size_t i = 0; i < cols; ++i) {
      const double difference = double{of_a[i]} - double{of_b[i]};
      squares += double{of_a[i]} * double{of_a[i]};
      apart += difference * difference;
    }
  }
  return apart <= kMost * squares;
}

}  // namespace

bool is_copy(const Checkpoint& checkpoint, const std::string& copy, const std::string& original) {
  const SourceTensor* const a = checkpoint.find(original);
  const SourceTensor* const b = checkpoint.find(copy);
  if (b == nullptr) return true;
  if (a == nullptr || a->shape.empty() || a->shape != b->shape) return false;
  const bool exact = a->type == b->type && source_type_info(a->type).block == 1;
  return exact ? differing_row(checkpoint, *a, *b) < 0 : nearly_same(checkpoint, *a, *b);
}

void check_copy(const Checkpoint& checkpoint, const std::string& copy, const std::string& original,
                const char* key) {
  const SourceTensor* const a = checkpoint.find(original);
  const SourceTensor* const b = checkpoint.find(copy);
  if (a == nullptr || b == nullptr || a->shape.empty()) return;
  const std::string way_out =
      *key == '\0' ? "" : std::string("; to use both, set ") + key + " in config.json";
  if (b->shape != a->shape) {
    fail(MOE_ERR_SHAPE, "tensor %.200s: expected %s, as of %.200s, file has %s%s", copy.c_str(),
         shape_text(a->shape).c_str(), original.c_str(), shape_text(b->shape).c_str(),
         way_out.c_str());
  }
  const int64_t row = differing_row(checkpoint, *a, *b);
  if (row < 0) return;
  fail(MOE_ERR_UNSUPPORTED,
       "tensor %.200s: row %lld is not that of %.200s, though config.json says that they are one%s",
       copy.c_str(), static_cast<long long>(row), original.c_str(), way_out.c_str());
}

}  // namespace moe
