// SPDX-License-Identifier: MIT
#pragma once
// Writes small checkpoints for tests, valid and invalid ones.

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "formats/moe/header.h"
#include "tests/support/temp_folder.h"

namespace moe::test {

struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

template <class T>
std::string as_bytes(const std::vector<T>& values) {
  std::string out(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

inline RawTensor f32_tensor(std::vector<int64_t> shape, const std::vector<float>& values) {
  return {"F32", std::move(shape), as_bytes(values)};
}

/// Truncates each float to its upper half.
inline RawTensor bf16_tensor(std::vector<int64_t> shape, const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (float v : values) halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
  return {"BF16", std::move(shape), as_bytes(halves)};
}

/// A safetensors file: the length of the header, the header, and `data`.
inline std::string safetensors_text(const std::string& header, const std::string& data) {
  uint64_t n = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &n, 8);
  return out + header + data;
}

inline std::string safetensors_text(const RawTensors& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const auto& [name, t] : tensors) {
    header += ",\"" + name + "\":{\"dtype\":\"" + t.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < t.shape.size(); ++i) {
      header += (i == 0 ? "" : ",") + std::to_string(t.shape[i]);
    }
    header += "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + t.bytes.size()) + "]}";
    data += t.bytes;
  }
  return safetensors_text(header + "}", data);
}

/// Begins as a model file, which a conversion may replace.
inline std::string old_model() {
  return std::string(reinterpret_cast<const char*>(kMagic), sizeof kMagic) + "old";
}

}  // namespace moe::test
