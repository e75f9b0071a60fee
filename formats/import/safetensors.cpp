// SPDX-License-Identifier: MIT
// Checks a safetensors header: tensors must fit their shapes and cover the data exactly, without
// gaps or overlaps.
#include "formats/import/safetensors.h"

#include <algorithm>
#include <cstring>

#include "formats/import/failure.h"
#include "formats/import/json.h"
#include "src/base/checked.h"

namespace moe {
namespace {

using ull = unsigned long long;
constexpr uint64_t kLengthBytes = 8;
constexpr size_t kMaxTensorName = 1024;  // bytes of a tensor's name

uint64_t first_number(const unsigned char* bytes) {
  uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = n << 8 | bytes[i];
  return n;
}

uint64_t header_length(const unsigned char* bytes, uint64_t file_size, const std::string& name) {
  const uint64_t n = first_number(bytes);
  if (n == 0) {
    fail(MOE_ERR_FORMAT,
         "%s: not a safetensors file: it begins with zeros (an incomplete download?)",
         name.c_str());
  }
  if (n < 2 || n > kMaxSafetensorsHeader) {
    fail(MOE_ERR_FORMAT,
         "%s: not a safetensors file: a header of %llu bytes (2 to %llu are accepted) in a file of "
         "%llu",
         name.c_str(), static_cast<ull>(n), static_cast<ull>(kMaxSafetensorsHeader),
         static_cast<ull>(file_size));
  }
  if (n > file_size - kLengthBytes) {
    fail(MOE_ERR_FORMAT,
         "%s: cut off, or not a safetensors file: a header of %llu bytes in a file of %llu; at "
         "least %llu bytes are missing",
         name.c_str(), static_cast<ull>(n), static_cast<ull>(file_size),
         static_cast<ull>(n - (file_size - kLengthBytes)));
  }
  return n;
}

void read_shape(const JsonNode& node, SourceTensor* tensor) {
  const std::vector<JsonNode> dims = node.elements();
  if (dims.size() > kMaxSafetensorsRank) {
    fail(MOE_ERR_FORMAT, "%s: %zu dimensions, at most %zu are accepted", node.path().c_str(),
         dims.size(), kMaxSafetensorsRank);
  }
  tensor->n_elements = 1;
  for (const JsonNode& dim : dims) {
    tensor->shape.push_back(dim.integer(0, INT64_MAX));
    if (!checked_mul(tensor->n_elements, static_cast<uint64_t>(tensor->shape.back()),
                     &tensor->n_elements)) {
      fail(MOE_ERR_FORMAT, "%s: the number of elements overflows", node.path().c_str());
    }
  }
}

SourceTensor read_entry(const std::string& name, const JsonNode& node, uint64_t data_start) {
  node.only({"dtype", "shape", "data_offsets"});
  SourceTensor tensor;
  tensor.name = name;
  const std::string dtype = node.at("dtype").string();
  const SourceTypeInfo* info = find_source_type(dtype);
  if (info == nullptr) {
    fail(MOE_ERR_FORMAT, "%s: unknown dtype \"%.30s\"", node.path().c_str(), dtype.c_str());
  }
  tensor.type = info->type;
  read_shape(node.at("shape"), &tensor);

  const JsonNode range = node.at("data_offsets");
  const std::vector<JsonNode> ends = range.elements();
  if (ends.size() != 2) range.fail_expected("[begin, end]");
  const auto begin = static_cast<uint64_t>(ends[0].integer(0, INT64_MAX));
  const auto end = static_cast<uint64_t>(ends[1].integer(0, INT64_MAX));
  uint64_t bytes = 0;
  const bool fits = checked_mul(tensor.n_elements, uint64_t{info->bytes}, &bytes);
  if (!fits || begin > end || end - begin != bytes) {
    fail(MOE_ERR_FORMAT, "%s: expected %s bytes for %s %s, data_offsets are [%llu, %llu]",
         node.path().c_str(), fits ? std::to_string(bytes).c_str() : "more than 2^64", info->name,
         shape_text(tensor.shape).c_str(), static_cast<ull>(begin), static_cast<ull>(end));
  }
  if (end > UINT64_MAX - data_start) range.fail_expected("offsets in a file");
  tensor.offset = data_start + begin;
  return tensor;
}

uint64_t tensor_bytes(const SourceTensor& t) {
  return t.n_elements * source_type_info(t.type).bytes;
}

// Before any tensor is examined: a file that was cut off lacks many of them.
void check_complete(const std::vector<SourceTensor>& tensors, uint64_t file_size,
                    const std::string& name) {
  uint64_t end = 0;
  for (const SourceTensor& t : tensors) end = std::max(end, t.offset + tensor_bytes(t));
  if (end > file_size) fail_cut_off(name, file_size, end);
}

// Every byte of data belongs to exactly one tensor.
void check_cover(const std::vector<SourceTensor>& tensors, uint64_t data_start, uint64_t file_size,
                 const std::string& name) {
  std::vector<const SourceTensor*> order;
  for (const SourceTensor& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const SourceTensor* a, const SourceTensor* b) {
    const uint64_t a_end = a->offset + tensor_bytes(*a);
    const uint64_t b_end = b->offset + tensor_bytes(*b);
    return a->offset != b->offset ? a->offset < b->offset : a_end < b_end;
  });
  uint64_t at = data_start;
  const SourceTensor* before = nullptr;
  for (const SourceTensor* t : order) {
    if (t->offset < at) {
      fail(MOE_ERR_FORMAT, "%s: tensors %.80s and %.80s overlap", name.c_str(),
           before->name.c_str(), t->name.c_str());
    }
    if (t->offset > at) {
      fail(MOE_ERR_FORMAT, "%s: %llu bytes before tensor %.80s belong to no tensor", name.c_str(),
           static_cast<ull>(t->offset - at), t->name.c_str());
    }
    at = t->offset + tensor_bytes(*t);
    before = t;
  }
  if (at != file_size) {
    fail(MOE_ERR_FORMAT,
         "%s: the last %llu bytes belong to no tensor (more than one file in it?); download it "
         "again",
         name.c_str(), static_cast<ull>(file_size - at));
  }
}

std::vector<SourceTensor> parse_entries(std::string_view json, uint64_t data_start,
                                        uint64_t file_size, const std::string& name, uint32_t shard,
                                        Json* metadata) {
  const Json header = parse_json(json, name, {.max_bytes = kMaxSafetensorsHeader, .max_depth = 4});
  if (!header.is_object())
    fail(MOE_ERR_FORMAT, "%s: the header is not a JSON object", name.c_str());
  std::vector<SourceTensor> tensors;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") {
      if (metadata != nullptr) *metadata = value;
      continue;
    }
    if (key.size() > kMaxTensorName) {
      fail(MOE_ERR_FORMAT, "%s: tensor %.100s...: a name of %zu bytes, at most %zu are accepted",
           name.c_str(), key.c_str(), key.size(), kMaxTensorName);
    }
    const JsonNode node(value, name + ": tensor " + key.substr(0, 100));
    tensors.push_back(read_entry(key, node, data_start));
    tensors.back().file = shard;
  }
  check_complete(tensors, file_size, name);
  check_cover(tensors, data_start, file_size, name);
  return tensors;
}

void check_size(uint64_t size, const std::string& name) {
  if (size < kLengthBytes) {
    fail(MOE_ERR_FORMAT, "%s: cut off, or not a safetensors file: %llu bytes", name.c_str(),
         static_cast<ull>(size));
  }
}

}  // namespace

std::vector<SourceTensor> parse_safetensors_header(std::string_view header, uint64_t file_size,
                                                   const std::string& name, uint32_t shard) {
  check_size(std::min<uint64_t>(header.size(), file_size), name);
  const uint64_t n = header_length(reinterpret_cast<const unsigned char*>(header.data()),
                                   std::min<uint64_t>(header.size(), file_size), name);
  return parse_entries(header.substr(kLengthBytes, n), kLengthBytes + n, file_size, name, shard,
                       nullptr);
}

std::vector<SourceTensor> read_safetensors_header(const InputFile& file, uint32_t shard,
                                                  Json* metadata) {
  check_size(file.size(), file.path());
  unsigned char length[kLengthBytes];
  file.read(0, length, sizeof length);
  const uint64_t n = first_number(length);
  if (n > kMaxSafetensorsHeader || n > file.size() - kLengthBytes) {
    const std::string archive = archive_kind(file);
    if (!archive.empty()) fail(MOE_ERR_FORMAT, "%s is %s", file.path().c_str(), archive.c_str());
  }
  std::string json(header_length(length, file.size(), file.path()), '\0');
  file.read(kLengthBytes, json.data(), json.size());
  return parse_entries(json, kLengthBytes + json.size(), file.size(), file.path(), shard, metadata);
}

}  // namespace moe
