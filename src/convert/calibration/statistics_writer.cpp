// SPDX-License-Identifier: MIT
// Writes the file of a calibration's statistics: a header of known size, then the tensors as they
// come.
#include <algorithm>
#include <bit>
#include <cmath>

#include "formats/import/failure.h"
#include "formats/import/json.h"
#include "formats/import/safetensors.h"
#include "formats/moe/little_endian.h"
#include "src/convert/calibration/statistics_names.h"

namespace moe {
namespace {

using namespace statistics;

using ull = unsigned long long;

constexpr uint64_t kMetadataBytes = 512;

std::string entry(const std::string& name, const char* type, uint64_t n, uint64_t begin,
                  uint64_t end) {
  return "," + Json(name).dump() + ":{\"dtype\":\"" + type + "\",\"shape\":[" + std::to_string(n) +
         "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

StatisticsWriter::StatisticsWriter(ModelSink& sink, std::vector<InputKey> inputs, uint64_t identity)
    : sink_(sink), inputs_(std::move(inputs)), identity_(identity) {
  uint64_t n = kMetadataBytes;
  for (const InputKey& input : inputs_) {
    for (const char* kind : {kTokens, kSquares, kMoments}) {
      n += entry(tensor_name(input.name, kind), "F32", n_moments(input.n_inputs), INT64_MAX,
                 INT64_MAX)
               .size();
    }
  }
  header_bytes_ = (n + 7) / 8 * 8;
  if (header_bytes_ > kMaxSafetensorsHeader) {
    fail(MOE_ERR_RANGE,
         "statistics: the header for %zu inputs takes up to %llu bytes, at most %llu are possible",
         inputs_.size(), static_cast<ull>(header_bytes_), static_cast<ull>(kMaxSafetensorsHeader));
  }
}

void StatisticsWriter::begin(const std::string& key, const char* kind, const char* type,
                             uint64_t n) {
  const uint64_t bytes = n * find_source_type(type)->bytes;
  entries_ += entry(tensor_name(key, kind), type, n, position_, position_ + bytes);
}

void StatisticsWriter::put(const void* bytes, size_t n) {
  hash_.add(bytes, n);
  check(sink_.write(kLengthBytes + header_bytes_ + position_, bytes, n));
  position_ += n;
}

void StatisticsWriter::put_means(const std::string& key, const float* means, size_t n) {
  std::vector<uint8_t> bytes(n * sizeof(float));
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(means[i])) {
      fail(MOE_ERR_NON_FINITE, "statistics of %.200s: found a mean beyond the largest f32",
           key.c_str());
    }
    store_le(std::bit_cast<uint32_t>(means[i]), bytes.data() + i * sizeof(float));
  }
  put(bytes.data(), bytes.size());
}

void StatisticsWriter::put_inputs(
    const std::function<const InputSums&(const std::string& key)>& find) {
  for (const InputKey& input : inputs_) {
    uint8_t bytes[sizeof(int64_t)];
    store_le(find(input.name).n_tokens, bytes);
    begin(input.name, kTokens, "I64", 1);
    put(bytes, sizeof bytes);
  }
  for (const InputKey& input : inputs_) {
    const InputSums& sums = find(input.name);
    if (sums.n_tokens == 0) continue;
    std::vector<float> means;
    for (const double sum : sums.squares) means.push_back(saved_mean(sum, sums.n_tokens));
    begin(input.name, kSquares, "F32", means.size());
    put_means(input.name, means.data(), means.size());
  }
}

void StatisticsWriter::put_moments(const std::string& key, const SecondMoments& moments) {
  begin(key, kMoments, "F32", moments.size());
  std::vector<float> means(std::min(kPiece, moments.size()));
  for (size_t first = 0; first < moments.size(); first += kPiece) {
    const size_t n = std::min(kPiece, moments.size() - first);
    moments.means(first, n, means.data());
    put_means(key, means.data(), n);
  }
}

void StatisticsWriter::finish(const TextRead& text) {
  const std::string tokens = std::to_string(text.n_tokens);
  const std::string perplexity = Json(text.perplexity).dump();  // null if not finite
  hash_.add(tokens.data(), tokens.size());
  hash_.add(perplexity.data(), perplexity.size());
  const Json metadata = {{"format", kFormat},        {"version", kVersion},
                         {"model", hex(identity_)},  {"tokens", tokens},
                         {"perplexity", perplexity}, {"xxh64", hex(hash_.value())}};
  std::string header = kMetadata + metadata.dump() + entries_ + "}";
  header.resize(static_cast<size_t>(header_bytes_), ' ');
  uint8_t length[kLengthBytes];
  store_le(header_bytes_, length);
  check(sink_.write(0, length, sizeof length));
  check(sink_.write(kLengthBytes, header.data(), header.size()));
}

}  // namespace moe
