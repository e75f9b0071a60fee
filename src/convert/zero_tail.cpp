// SPDX-License-Identifier: MIT
// Finds where a file's content ends, and decides from the tensors there whether the zeros behind it
// can be padding.
#include "src/convert/zero_tail.h"

#include <algorithm>
#include <cstring>

#include "formats/import/failure.h"

namespace moe {
namespace {

using ull = unsigned long long;
constexpr size_t kProbeBytes = 4096;
constexpr size_t kPieceBytes = size_t{1} << 20;
// The share of a matrix's rows that zeros at its end must exceed: more than padding takes.
constexpr uint64_t kVocabularyShare = 2;  // a half
constexpr uint64_t kShare = 4;            // a quarter
// The same of codes without rows, in elements.
constexpr uint64_t kFlat = 4096;
// Elements before a row's end that may be zero by chance, next to rows that are.
constexpr uint64_t kChance = 8;

bool all_zero(const uint8_t* bytes, size_t n) {
  return n == 0 || (bytes[0] == 0 && std::memcmp(bytes, bytes + 1, n - 1) == 0);
}

// The place behind the last byte that is not zero, at least `start`.
uint64_t end_of_content(const InputFile& file, uint64_t start, const std::function<void()>& step) {
  std::vector<uint8_t> piece;
  size_t most = kProbeBytes;
  for (uint64_t end = file.size(); end > start; most = kPieceBytes) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(most, end - start));
    piece.resize(n);
    file.read(end - n, piece.data(), n);
    if (!all_zero(piece.data(), n)) {
      size_t last = n;
      while (piece[last - 1] == 0) --last;
      return end - n + last;
    }
    end -= n;
    step();
  }
  return start;
}

bool contains(const std::string& name, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return name.find(part) != std::string::npos; });
}

// The codes of a matrix, as bitsandbytes stores them.
bool is_flat(const SourceTensor& t) {
  return t.shape.size() == 2 && t.shape[1] == 1 && t.name.ends_with(".weight");
}

// Biases of experts, norms of heads and zero points have two axes too, and may be zero.
bool is_matrix(const SourceTensor& t) {
  const auto axes = std::count_if(t.shape.begin(), t.shape.end(), [](int64_t n) { return n > 1; });
  return (axes >= 2 || (axes == 1 && is_flat(t))) && !contains(t.name, {"bias", "norm", "zero"});
}

bool is_vocabulary(const SourceTensor& t) {
  return t.name == "output.weight" ||
         contains(t.name, {"embed", "embd", "wte", "lm_head", "output_projection"});
}

/// The zeros at the end of a matrix, or of a stack of them, by rows of bytes.
class ZeroRows {
 public:
  /// `at`: the tensor's first byte of these zeros. A stack's second axis counts the rows.
  ZeroRows(const Checkpoint& checkpoint, const SourceTensor& t, uint64_t at)
      : checkpoint_(checkpoint), tensor_(t), at_(at) {
    const size_t n_axes = t.shape.size();
    n_stacked_ = n_axes > 2 ? static_cast<uint64_t>(t.shape[0]) : 1;
    n_rows_ = static_cast<uint64_t>(t.shape[n_axes > 2 ? 1 : 0]);
    const uint64_t cols = t.n_elements / (n_stacked_ * n_rows_);
    row_bytes_ = source_bytes(t.type, cols);
    chance_ = std::min(kChance, cols / 4) * row_bytes_ / cols;
  }

  /// True if they cannot be padding.
  bool are_cut() {
    if (row_bytes_ == 0) return false;
    const uint64_t all = n_stacked_ * n_rows_;
    const uint64_t first = (at_ + row_bytes_ - 1) / row_bytes_;  // that is zero as a whole
    if (first >= all) return false;
    if (all - first >= n_rows_) return true;  // all of an expert's
    if (is_flat(tensor_) && all - first >= kFlat) return true;
    const uint64_t share = is_vocabulary(tensor_) ? kVocabularyShare : kShare;
    return (all - first) * share >= n_rows_ || begin_inside_row();
  }

 private:
  // Columns of padding are zero in the row before, too.
  bool begin_inside_row() const {
    const uint64_t row = at_ / row_bytes_, inside = at_ % row_bytes_;
    const uint64_t left = row_bytes_ - inside;
    if (inside == 0 || left <= chance_) return false;
    if (row == 0) return true;
    std::vector<uint8_t> before(static_cast<size_t>(left));
    checkpoint_.read_bytes(tensor_, (row - 1) * row_bytes_ + inside, before.size(), before.data());
    return !all_zero(before.data(), before.size());
  }

  const Checkpoint& checkpoint_;
  const SourceTensor& tensor_;
  const uint64_t at_;
  uint64_t n_stacked_ = 1, n_rows_ = 1, row_bytes_ = 0, chance_ = 0;
};

[[noreturn]] void fail_cut(const InputFile& file, const SourceTensor& first, size_t n,
                           uint64_t content) {
  const std::string name = file.path().substr(file.path().rfind('/') + 1);
  const std::string before = n > 1 ? std::to_string(n) + " tensors, first " : "tensor ";
  fail(MOE_ERR_CORRUPT,
       "%.60s: only zeros from byte %llu to its end at %llu: %s%.100s at byte %llu%s. Probably the "
       "download stopped after its space was reserved: fetch the file again. If zeros are meant: "
       "--allow-zeros",
       name.c_str(), static_cast<ull>(content), static_cast<ull>(file.size()), before.c_str(),
       first.name.c_str(), static_cast<ull>(first.offset),
       first.offset < content ? " is cut off" : "");
}

void check_file(const Checkpoint& checkpoint, const InputFile& file,
                std::vector<const SourceTensor*> tensors, const std::function<void()>& step) {
  std::erase_if(tensors, [](const SourceTensor* t) { return t->n_elements == 0; });
  if (tensors.empty()) return;
  std::sort(tensors.begin(), tensors.end(),
            [](const SourceTensor* a, const SourceTensor* b) { return a->offset < b->offset; });
  const uint64_t content = end_of_content(file, tensors[0]->offset, step);
  const auto first = std::find_if(tensors.begin(), tensors.end(), [content](const SourceTensor* t) {
    return t->offset >= content;
  });
  const auto matrix =
      std::find_if(first, tensors.end(), [](const SourceTensor* t) { return is_matrix(*t); });
  if (matrix != tensors.end()) {
    fail_cut(file, **first, static_cast<size_t>(tensors.end() - first), content);
  }
  if (first == tensors.begin()) return;
  const SourceTensor& last = **(first - 1);  // with the last byte that is not zero
  const bool whole = content >= last.offset + stored_bytes(last);
  if (whole || !is_matrix(last)) return;
  if (ZeroRows(checkpoint, last, content - last.offset).are_cut()) {
    fail_cut(file, last, 1, content);
  }
}

}  // namespace

void check_zero_tails(const Checkpoint& checkpoint, const std::function<void()>& step) {
  std::vector<std::vector<const SourceTensor*>> in_file(checkpoint.files().size());
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (tensor.file < in_file.size()) in_file[tensor.file].push_back(&tensor);
  }
  for (size_t i = 0; i < in_file.size(); ++i) {
    check_file(checkpoint, checkpoint.files()[i], std::move(in_file[i]), step);
  }
}

}  // namespace moe
