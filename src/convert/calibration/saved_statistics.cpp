// SPDX-License-Identifier: MIT
// Opens such a file, checks that it belongs to this checkpoint and is whole, and reads its tensors.
#include "src/convert/calibration/saved_statistics.h"

#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <set>

#include "formats/import/failure.h"
#include "formats/import/json.h"
#include "formats/import/safetensors.h"
#include "formats/moe/little_endian.h"
#include "src/convert/calibration/statistics_names.h"

namespace moe {
namespace statistics {

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

std::string tensor_name(const std::string& key, const char* kind) { return key + "." + kind; }

uint64_t n_moments(int32_t n) { return SecondMoments::bytes(n) / sizeof(double); }

}  // namespace statistics

namespace {

using namespace statistics;

using ull = unsigned long long;

constexpr uint64_t kMostTokens = uint64_t{1} << 53;

}  // namespace

bool is_saved_statistics(const InputFile& file) {
  const std::string expected = kMetadata + Json({{"format", kFormat}}).dump();
  std::string found(expected.size() - 1, '\0');  // other members follow
  if (file.size() < kLengthBytes + found.size()) return false;
  file.read(kLengthBytes, found.data(), found.size());
  return expected.starts_with(found);
}

StatisticsFile::StatisticsFile(const std::string& path, std::vector<InputKey> inputs,
                               uint64_t identity)
    : file_(path), inputs_(std::move(inputs)) {
  Json metadata;
  for (SourceTensor& t : read_safetensors_header(file_, 0, &metadata)) {
    tensors_.emplace(t.name, std::move(t));
  }
  read_metadata(metadata, identity);
  check_tensors();
}

void StatisticsFile::read_metadata(const Json& metadata, uint64_t identity) {
  const char* path = file_.path().c_str();
  const Json* format = metadata.find("format");
  if (format == nullptr || *format != Json(kFormat)) {
    fail(MOE_ERR_FORMAT, "%s: expected statistics that a conversion saved, found other tensors",
         path);
  }
  const JsonNode node(metadata, file_.path() + ": __metadata__");
  const std::string version = node.at("version").string();
  if (version != kVersion) {
    fail(MOE_ERR_VERSION, "%s: expected version %s, found %.40s", path, kVersion, version.c_str());
  }
  hashed_ = node.at("tokens").string() + node.at("perplexity").string();
  const auto number = [&](const char* key) {
    return parse_json(node.at(key).string(), node.at(key).path());
  };
  const Json tokens = number("tokens"), perplexity = number("perplexity");
  text_.n_tokens =
      static_cast<uint64_t>(JsonNode(tokens, node.at("tokens").path()).integer(1, kMostTokens));
  const JsonNode p(perplexity, node.at("perplexity").path());
  text_.perplexity = p.is_null() ? std::nan("") : p.number();
  if (text_.perplexity < 0) p.fail_expected("0 or more");
  checksum_ = node.at("xxh64").string();
  const std::string model = node.at("model").string();
  if (model != hex(identity)) {
    fail(MOE_ERR_ARGUMENT,
         "%s: saved for another checkpoint, or with another choice of --no-mtp (no_predictions): "
         "%.40s; this one is %s",
         path, model.c_str(), hex(identity).c_str());
  }
}

const SourceTensor* StatisticsFile::find(const std::string& key, const char* kind) const {
  const auto found = tensors_.find(tensor_name(key, kind));
  return found == tensors_.end() ? nullptr : &found->second;
}

bool StatisticsFile::has_moments(const std::string& key) const {
  return find(key, kMoments) != nullptr;
}

const SourceTensor& StatisticsFile::expect(const std::string& key, const char* kind,
                                           const char* type, uint64_t n) const {
  const SourceTensor* t = find(key, kind);
  if (t == nullptr) {
    fail(MOE_ERR_FORMAT, "%s: tensor %.200s is missing; the model has this input",
         file_.path().c_str(), tensor_name(key, kind).c_str());
  }
  if (t->type != find_source_type(type)->type || t->shape.size() != 1 || t->n_elements != n) {
    fail(MOE_ERR_FORMAT, "%s: tensor %.200s: the model needs %s (%llu), the file has %s %s",
         file_.path().c_str(), t->name.c_str(), type, static_cast<ull>(n),
         source_type_info(t->type).name, shape_text(t->shape).c_str());
  }
  return *t;
}

void StatisticsFile::check_tensors() {
  std::set<std::string> known;
  for (const InputKey& input : inputs_) {
    const SourceTensor& t = expect(input.name, kTokens, "I64", 1);
    uint8_t bytes[sizeof(int64_t)];
    file_.read(t.offset, bytes, sizeof bytes);
    const auto n = load_le<uint64_t>(bytes);
    if (n > kMostTokens) {
      fail(MOE_ERR_RANGE, "%s: tensor %.200s: expected 0..%llu, found %lld", file_.path().c_str(),
           t.name.c_str(), static_cast<ull>(kMostTokens), static_cast<long long>(n));
    }
    tokens_[input.name] = n;
    known.insert(t.name);
    if (n == 0) continue;
    known.insert(expect(input.name, kSquares, "F32", static_cast<uint64_t>(input.n_inputs)).name);
    if (!has_moments(input.name)) continue;
    known.insert(expect(input.name, kMoments, "F32", n_moments(input.n_inputs)).name);
  }
  for (const auto& [name, tensor] : tensors_) {
    if (known.contains(name)) continue;
    fail(MOE_ERR_FORMAT, "%s: tensor %.200s: the model has no such input, or no token reached it",
         file_.path().c_str(), name.c_str());
  }
}

template <class F>
void StatisticsFile::each_piece(const SourceTensor& tensor, Reading* reading, F&& use) const {
  const auto n = static_cast<size_t>(tensor.n_elements);
  std::vector<uint8_t> bytes(std::min(kPiece, n) * sizeof(float));
  std::vector<float> values(std::min(kPiece, n));
  for (size_t first = 0; first < n; first += kPiece) {
    const size_t count = std::min(kPiece, n - first);
    file_.read(tensor.offset + first * sizeof(float), bytes.data(), count * sizeof(float));
    for (size_t i = 0; i < count; ++i) {
      values[i] = std::bit_cast<float>(load_le<uint32_t>(bytes.data() + i * sizeof(float)));
      if (std::isfinite(values[i])) continue;
      fail(MOE_ERR_NON_FINITE, "%s: tensor %.200s: expected finite numbers, found %g at %zu",
           file_.path().c_str(), tensor.name.c_str(), static_cast<double>(values[i]), first + i);
    }
    use(first, count, values.data());
    if (reading == nullptr) continue;
    reading->hash.add(bytes.data(), count * sizeof(float));
    reading->advance(count * sizeof(float));
  }
}

std::shared_ptr<InputSums> StatisticsFile::sums(const InputKey& input, Reading* reading) const {
  auto out = std::make_shared<InputSums>();
  out->n_inputs = input.n_inputs;
  out->n_tokens = tokens_.at(input.name);
  out->squares.resize(static_cast<size_t>(input.n_inputs));
  if (out->n_tokens != 0) {
    const SourceTensor& t = *find(input.name, kSquares);
    each_piece(t, reading, [&](size_t first, size_t n, const float* means) {
      for (size_t i = 0; i < n; ++i) {
        if (means[i] < 0) {
          fail(MOE_ERR_RANGE, "%s: tensor %.200s: expected 0 or more, found %g at %zu",
               file_.path().c_str(), t.name.c_str(), static_cast<double>(means[i]), first + i);
        }
        out->squares[first + i] = sum_of(means[i], out->n_tokens);
      }
    });
  }
  out->finish();
  return out;
}

std::unique_ptr<SecondMoments> StatisticsFile::moments(const InputKey& input,
                                                       Reading* reading) const {
  auto out = std::make_unique<SecondMoments>(input.n_inputs);
  out->set_rows(tokens_.at(input.name));
  const SourceTensor& t = *find(input.name, kMoments);
  each_piece(t, reading,
             [&](size_t first, size_t n, const float* means) { out->set_means(first, n, means); });
  for (int32_t i = 0; i < input.n_inputs; ++i) {
    if (out->at(i, i) >= 0) continue;
    fail(MOE_ERR_RANGE, "%s: tensor %.200s: expected a mean square of 0 or more, input %d has %g",
         file_.path().c_str(), t.name.c_str(), i,
         out->at(i, i) / static_cast<double>(out->n_rows()));
  }
  return out;
}

void StatisticsFile::check_values(const std::function<void(uint64_t)>& advance) const {
  Reading reading{{}, advance};
  for (const InputKey& input : inputs_) {
    uint8_t bytes[sizeof(int64_t)];
    store_le(tokens_.at(input.name), bytes);
    reading.hash.add(bytes, sizeof bytes);
  }
  for (const InputKey& input : inputs_) sums(input, &reading);
  for (const InputKey& input : inputs_) {
    if (has_moments(input.name)) moments(input, &reading);
  }
  reading.hash.add(hashed_.data(), hashed_.size());
  const std::string found = hex(reading.hash.value());
  if (found == checksum_) return;
  fail(MOE_ERR_CORRUPT, "%s: checksum: expected %.40s, found %s", file_.path().c_str(),
       checksum_.c_str(), found.c_str());
}

}  // namespace moe
