// SPDX-License-Identifier: MIT
#pragma once
// Builds GGUF files for tests, valid and invalid ones.

#include "tests/convert/checkpoint_builder.h"

namespace moe::test {

class GgufBuilder {
 public:
  template <class T>
  static std::string raw(T value) {
    return as_bytes(std::vector<T>{value});
  }
  static std::string text(const std::string& s) { return raw<uint64_t>(s.size()) + s; }

  void pair(const std::string& key, uint32_t type, const std::string& value) {
    pairs_ += text(key) + raw(type) + value;
    ++n_pairs_;
  }
  void u32(const std::string& key, uint32_t v) { pair(key, 4, raw(v)); }
  void f32(const std::string& key, float v) { pair(key, 6, raw(v)); }
  void string(const std::string& key, const std::string& v) { pair(key, 8, text(v)); }
  void strings(const std::string& key, const std::vector<std::string>& list) {
    std::string bytes = raw<uint32_t>(8) + raw<uint64_t>(list.size());
    for (const std::string& s : list) bytes += text(s);
    pair(key, 9, bytes);
  }
  template <class T>
  void numbers(const std::string& key, uint32_t type, const std::vector<T>& list) {
    pair(key, 9, raw(type) + raw<uint64_t>(list.size()) + as_bytes(list));
  }

  /// `shape` is row-major; the data is padded to a multiple of 32 bytes.
  void tensor(const std::string& name, uint32_t type, const std::vector<uint64_t>& shape,
              const std::string& bytes) {
    tensors_ += text(name) + raw<uint32_t>(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) tensors_ += raw(shape[i]);
    tensors_ += raw(type) + raw<uint64_t>(data_.size() + shift_);
    data_ += bytes + std::string((32 - bytes.size() % 32) % 32, '\0');
    ++n_tensors_;
  }
  void f32_tensor(const std::string& name, const std::vector<uint64_t>& shape, float value = 0.5f) {
    uint64_t n = 1;
    for (const uint64_t d : shape) n *= d;
    tensor(name, 0, shape, as_bytes(std::vector<float>(n, value)));
  }
  /// Adds an error to the offsets of later tensors.
  void shift(uint64_t bytes) { shift_ = bytes; }

  std::string file(uint32_t version = 3) const {
    std::string out = "GGUF" + raw(version) + raw(n_tensors_) + raw(n_pairs_) + pairs_ + tensors_;
    out += std::string((32 - out.size() % 32) % 32, '\0');
    return out + data_;
  }

 private:
  std::string pairs_, tensors_, data_;
  uint64_t n_pairs_ = 0, n_tensors_ = 0, shift_ = 0;
};

}  // namespace moe::test
