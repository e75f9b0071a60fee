// SPDX-License-Identifier: MIT
// Reads blocks of codes, scales and zero points in each method's order and presents rows of floats.
#include "src/convert/packed/packed_matrix.h"

#include <algorithm>

#include "formats/import/failure.h"

namespace moe {
namespace {

constexpr int kWordBits = 32;
constexpr int kScaleInputs = 32;  // inputs per scale in read_scales
// AWQ's position of output j of eight: nibble kAwqPlace[j].
constexpr int kAwqPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};

// Rows [row, row + n_rows) and columns [col, col + n_cols) of a tensor.
template <class T>
std::vector<T> window(const Checkpoint& checkpoint, const SourceTensor& tensor, int64_t row,
                      int64_t n_rows, int64_t col, int64_t n_cols) {
  std::vector<T> out(static_cast<size_t>(n_rows * n_cols));
  const int64_t width = tensor.shape.size() < 2 ? 1 : tensor.shape[1];
  const bool whole = col == 0 && n_cols == width;
  const int64_t n_reads = whole ? 1 : n_rows;
  for (int64_t i = 0; i < n_reads; ++i) {
    checkpoint.read(tensor, static_cast<uint64_t>((row + i) * width + col),
                    static_cast<size_t>(whole ? n_rows * n_cols : n_cols), out.data() + i * n_cols);
  }
  return out;
}

// Codes packed P per word along one axis of a tensor, from position `first` on.
struct Words {
  int bits;
  int64_t first_word;

  Words(int b, int64_t first) : bits(b), first_word(first / (kWordBits / b)) {}
  int64_t per_word() const { return kWordBits / bits; }
  int64_t count(int64_t first, int64_t n) const {
    return (first + n + per_word() - 1) / per_word() - first_word;
  }
  int64_t word(int64_t at) const { return at / per_word() - first_word; }
  int code(int64_t word, int64_t place) const {
    return static_cast<int>(static_cast<uint64_t>(word) >> (place * bits) & ((1u << bits) - 1));
  }
};

// A block of rows being read.
class Block {
 public:
  Block(const PackedMatrix& matrix, const Checkpoint& checkpoint, int64_t first, int64_t n)
      : m_(matrix), c_(checkpoint), first_(first), n_(n), across_(matrix.bits, first) {}

  bool in_order() {
    read_index();
    for (size_t c = 0; c < group_.size(); ++c) {
      if (group_[c] != static_cast<int64_t>(c) / m_.group) return false;
    }
    return true;
  }

  // True if all zero points are the middle code.
  bool symmetric() {
    read_zeros();
    return std::all_of(zeros_.begin(), zeros_.end(),
                       [this](float zero) { return zero == middle(); });
  }

  void read_row_scales(float* scales) {
    read_scales();
    std::copy(scales_.begin(), scales_.end(), scales);
  }

  void read_scales(float* scales, float* minimums) {
    read_scales();
    read_zeros();
    const int64_t repeats = m_.group / kScaleInputs;
    for (size_t i = 0; i < scales_.size(); ++i) {
      for (int64_t j = 0; j < repeats; ++j) {
        *scales++ = scales_[i];
        *minimums++ = -scales_[i] * zeros_[i];
      }
    }
  }

  void read(float* out) {
    read_index();
    read_scales();
    read_zeros();
    switch (m_.layout) {
      case CodeLayout::kGptq:
        return read_gptq(out);
      case CodeLayout::kAwq:
        return read_awq(out);
      case CodeLayout::kWords:
        return read_words(out);
      case CodeLayout::kBytes:
        return read_bytes(out);
    }
  }

 private:
  float middle() const {
    return m_.layout == CodeLayout::kBytes ? 0.0f : static_cast<float>(1 << (m_.bits - 1));
  }
  bool scales_across() const {
    return m_.layout == CodeLayout::kGptq || m_.layout == CodeLayout::kAwq;
  }

  // group_[c]: group of input c.
  void read_index() {
    group_.resize(static_cast<size_t>(m_.cols));
    for (size_t c = 0; c < group_.size(); ++c) group_[c] = static_cast<int64_t>(c) / m_.group;
    if (!m_.index) return;
    c_.read(*m_.index, 0, group_.size(), group_.data());
    for (size_t c = 0; c < group_.size(); ++c) {
      if (group_[c] >= 0 && group_[c] < m_.groups()) continue;
      fail(MOE_ERR_RANGE, "tensor %.200s: element %zu: expected 0..%lld, found %lld",
           m_.index->name.c_str(), c, static_cast<long long>(m_.groups() - 1),
           static_cast<long long>(group_[c]));
    }
  }

  // Both (n, groups).
  void read_scales() {
    const int64_t g = m_.groups();
    scales_ = scales_across() ? window<float>(c_, m_.scales, 0, g, first_, n_)
                              : of_rows<float>(m_.scales);
    if (scales_across()) scales_ = transposed(scales_, g);
  }

  // (n, groups) of a tensor that has them for each row, or for all.
  template <class T>
  std::vector<T> of_rows(const SourceTensor& tensor) const {
    if (!m_.one_scale) return window<T>(c_, tensor, first_, n_, 0, m_.groups());
    return std::vector<T>(static_cast<size_t>(n_), window<T>(c_, tensor, 0, 1, 0, 1)[0]);
  }

  std::vector<float> transposed(const std::vector<float>& in, int64_t height) const {
    std::vector<float> out(in.size());
    for (int64_t i = 0; i < height; ++i) {
      for (int64_t r = 0; r < n_; ++r) {
        out[static_cast<size_t>(r * height + i)] = in[static_cast<size_t>(i * n_ + r)];
      }
    }
    return out;
  }

  void read_zeros() {
    const int64_t g = m_.groups();
    const bool bytes = m_.layout == CodeLayout::kBytes;
    zeros_.assign(static_cast<size_t>(n_ * g), middle());
    if (!m_.zeros) return;
    std::vector<int64_t> in;
    if (bytes) {
      in = of_rows<int64_t>(*m_.zeros);
      for (size_t i = 0; i < in.size(); ++i) zeros_[i] = static_cast<float>(in[i]);
      return;
    }
    const int64_t n_words = across_.count(first_, n_);
    const bool groups_down = m_.layout != CodeLayout::kWords;
    in = groups_down ? window<int64_t>(c_, *m_.zeros, 0, g, across_.first_word, n_words)
                     : window<int64_t>(c_, *m_.zeros, across_.first_word, n_words, 0, g);
    for (int64_t r = 0; r < n_; ++r) {
      for (int64_t i = 0; i < g; ++i) {
        const int64_t word = across_.word(first_ + r);
        const int64_t value =
            in[static_cast<size_t>(groups_down ? i * n_words + word : word * g + i)];
        zeros_[static_cast<size_t>(r * g + i)] =
            zero_point(across_.code(value, place_of_output(r)) + m_.zero_offset, r, i);
      }
    }
  }

  // Past the last code: programs differ in what it stands for.
  float zero_point(int zero, int64_t r, int64_t group) const {
    const int last = (1 << m_.bits) - 1;
    if (zero <= last) return static_cast<float>(zero);
    fail(MOE_ERR_RANGE,
         "tensor %.200s: output %lld, group %lld: expected a zero point in %d..%d, found %d",
         m_.zeros->name.c_str(), static_cast<long long>(first_ + r), static_cast<long long>(group),
         m_.zero_offset, last, zero);
  }

  int64_t place_of_output(int64_t r) const {
    const int64_t place = (first_ + r) % across_.per_word();
    return m_.layout == CodeLayout::kAwq ? kAwqPlace[place] : place;
  }

  float weight(int64_t r, int64_t c, int code) const {
    const auto at = static_cast<size_t>(r * m_.groups() + group_[static_cast<size_t>(c)]);
    return scales_[at] * (static_cast<float>(code) - zeros_[at]);
  }

  void read_gptq(float* out) const {
    const Words down(m_.bits, 0);
    const auto words = window<int64_t>(c_, m_.words, 0, m_.cols / down.per_word(), first_, n_);
    for (int64_t r = 0; r < n_; ++r) {
      for (int64_t c = 0; c < m_.cols; ++c) {
        const int64_t word = words[static_cast<size_t>(c / down.per_word() * n_ + r)];
        out[r * m_.cols + c] = weight(r, c, down.code(word, c % down.per_word()));
      }
    }
  }

  void read_awq(float* out) const {
    const int64_t n_words = across_.count(first_, n_);
    const auto words = window<int64_t>(c_, m_.words, 0, m_.cols, across_.first_word, n_words);
    for (int64_t r = 0; r < n_; ++r) {
      const int64_t place = place_of_output(r), column = across_.word(first_ + r);
      for (int64_t c = 0; c < m_.cols; ++c) {
        const int64_t word = words[static_cast<size_t>(c * n_words + column)];
        out[r * m_.cols + c] = weight(r, c, across_.code(word, place));
      }
    }
  }

  void read_words(float* out) const {
    const Words along(m_.bits, 0);
    const int64_t width = m_.cols / along.per_word();
    const auto words = window<int64_t>(c_, m_.words, first_, n_, 0, width);
    for (int64_t r = 0; r < n_; ++r) {
      for (int64_t c = 0; c < m_.cols; ++c) {
        const int64_t word = words[static_cast<size_t>(r * width + c / along.per_word())];
        out[r * m_.cols + c] = weight(r, c, along.code(word, c % along.per_word()));
      }
    }
  }

  void read_bytes(float* out) const {
    const auto codes = window<int64_t>(c_, m_.words, first_, n_, 0, m_.cols);
    for (int64_t r = 0; r < n_; ++r) {
      for (int64_t c = 0; c < m_.cols; ++c) {
        const int64_t code = codes[static_cast<size_t>(r * m_.cols + c)];
        out[r * m_.cols + c] = weight(r, c, static_cast<int>(code));
      }
    }
  }

  const PackedMatrix& m_;
  const Checkpoint& c_;
  const int64_t first_, n_;
  const Words across_;  // along outputs
  std::vector<int64_t> group_;
  std::vector<float> scales_, zeros_;
};

}  // namespace

// In order of inputs, each 32 or a whole row in one group, and around a zero point or not.
PackedCodes PackedMatrix::codes(const Checkpoint& checkpoint) const {
  const bool in_groups = group % kScaleInputs == 0 || has_row_scales();
  if (!in_groups || !Block(*this, checkpoint, 0, 1).in_order()) {
    return bits == 4 ? PackedCodes::kOther : PackedCodes::kOther8;
  }
  const bool middle = symmetric(checkpoint);
  if (bits == 4) return middle ? PackedCodes::kSigned : PackedCodes::kMinimum;
  if (!middle) return PackedCodes::kOther8;
  return has_row_scales() ? PackedCodes::kRows8 : PackedCodes::kGroups8;
}

bool PackedMatrix::symmetric(const Checkpoint& checkpoint) const {
  if (!zeros) return true;
  constexpr int64_t kRows = 1024;
  for (int64_t first = 0; first < rows; first += kRows) {
    if (!Block(*this, checkpoint, first, std::min(kRows, rows - first)).symmetric()) return false;
  }
  return true;
}

void PackedMatrix::read_scales(const Checkpoint& checkpoint, int64_t first, int64_t n,
                               float* to_scales, float* to_minimums) const {
  Block block(*this, checkpoint, first, n);
  if (has_row_scales()) return block.read_row_scales(to_scales);
  block.read_scales(to_scales, to_minimums);
}

void PackedMatrix::read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const {
  Block(*this, checkpoint, first, n).read(out);
}

}  // namespace moe
