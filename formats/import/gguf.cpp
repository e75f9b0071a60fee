// SPDX-License-Identifier: MIT
// Reads a GGUF header and checks it, as the file is untrusted: types, sizes, the place of every
// tensor, and block types whose number means two things.
#include "formats/import/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "formats/import/failure.h"
#include "formats/import/gguf_parts.h"
#include "src/base/checked.h"
#include "src/base/number.h"

namespace moe {
namespace {

using ull = unsigned long long;
constexpr uint64_t kMaxPairs = 65536;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxData = uint64_t{1} << 60;
constexpr uint64_t kMaxValues = 4'000'000;  // limits the tree to about 400 MB
constexpr uint32_t kMaxRank = 4;
constexpr size_t kMaxName = 256;
constexpr char kMagic[4] = {'G', 'G', 'U', 'F'};

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// Sequential reader with a window of the file.
class Cursor {
 public:
  explicit Cursor(const InputFile& file) : file_(file) {}

  uint64_t position() const { return start_ + at_; }

  /// Throws if fewer than n bytes are left.
  void need(uint64_t n) const {
    const uint64_t end = std::min(file_.size(), kMaxGgufHeader);
    if (position() <= end && n <= end - position()) return;
    fail(MOE_ERR_FORMAT,
         "%s: cut off in the header (an incomplete download?): expected %llu more bytes at byte "
         "%llu, found %llu",
         file_.path().c_str(), static_cast<ull>(n), static_cast<ull>(position()),
         static_cast<ull>(end - std::min(position(), end)));
  }

  void bytes(void* out, size_t n) {
    need(n);
    auto* to = static_cast<unsigned char*>(out);
    while (n != 0) {
      if (at_ == window_.size()) refill();
      const size_t count = std::min(n, window_.size() - at_);
      std::memcpy(to, window_.data() + at_, count);
      at_ += count;
      to += count;
      n -= count;
    }
  }

  template <class T>
  T number() {
    T value;
    bytes(&value, sizeof value);
    return value;
  }

  std::string string() {
    const auto n = number<uint64_t>();
    need(n);
    std::string text(n, '\0');
    bytes(text.data(), text.size());
    return text;
  }

  const std::string& path() const { return file_.path(); }

 private:
  void refill() {
    start_ += window_.size();
    at_ = 0;
    window_.resize(std::min<uint64_t>(1 << 16, file_.size() - start_));
    file_.read(start_, window_.data(), window_.size());
  }

  const InputFile& file_;
  uint64_t start_ = 0;
  size_t at_ = 0;
  std::vector<unsigned char> window_;
};

Json number_value(double value) {
  return std::isfinite(value) ? Json(value) : Json("not a finite number");
}

Json read_scalar(Cursor& in, uint32_t type, const std::string& key) {
  switch (type) {
    case kU8:
      return in.number<uint8_t>();
    case kI8:
      return in.number<int8_t>();
    case kU16:
      return in.number<uint16_t>();
    case kI16:
      return in.number<int16_t>();
    case kU32:
      return in.number<uint32_t>();
    case kI32:
      return in.number<int32_t>();
    case kF32:
      return number_value(static_cast<double>(in.number<float>()));
    case kBool:
      return in.number<uint8_t>() != 0;
    case kString:
      return in.string();
    case kU64:
      return in.number<uint64_t>();
    case kI64:
      return in.number<int64_t>();
    case kF64:
      return number_value(in.number<double>());
    default:
      fail(MOE_ERR_FORMAT, "%s: key %.100s has unknown type %u", in.path().c_str(), key.c_str(),
           type);
  }
}

Json read_value(Cursor& in, const std::string& key, uint64_t* n_values) {
  const auto type = in.number<uint32_t>();
  if (type != kArray) return read_scalar(in, type, key);
  const auto element = in.number<uint32_t>();
  const auto n = in.number<uint64_t>();
  if (n > kMaxValues - *n_values) {
    fail(MOE_ERR_FORMAT, "%s: key %.100s has %llu elements, at most %llu are accepted in all",
         in.path().c_str(), key.c_str(), static_cast<ull>(n), static_cast<ull>(kMaxValues));
  }
  *n_values += n;
  Json out = Json::array();
  for (uint64_t i = 0; i < n; ++i) out.push_back(read_scalar(in, element, key));
  return out;
}

// Where a file holds zeros, its header goes on with names of no letters.
[[noreturn]] void fail_nameless(const Cursor& in, const char* what, uint64_t number, uint64_t at) {
  fail(MOE_ERR_FORMAT,
       "%s: %s %llu, at byte %llu, has no name (zeros of an incomplete download?); download it "
       "again",
       in.path().c_str(), what, static_cast<ull>(number), static_cast<ull>(at));
}

Json read_metadata(Cursor& in, uint64_t n) {
  Json out = Json::object();
  uint64_t n_values = 0;  // in arrays
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t at = in.position();
    const std::string key = in.string();
    if (key.empty()) fail_nameless(in, "key", i + 1, at);
    Json value = read_value(in, key, &n_values);
    if (!out.items().emplace(key, std::move(value)).second) {
      fail(MOE_ERR_FORMAT, "%s: key %.100s is given twice", in.path().c_str(), key.c_str());
    }
  }
  return out;
}

// The weights of a ternary model must not be quantised to anything else.
bool is_ternary_model(const Json& metadata) {
  std::string names;
  for (const char* key : {"general.architecture", "general.name", "general.basename"}) {
    const Json* value = metadata.find(key);
    if (value != nullptr && value->is_string()) names += value->text() + " ";
  }
  for (char& c : names) c = ascii_lower(c);
  const auto says = [&](const char* word) { return names.find(word) != std::string::npos; };
  return says("bitnet") || says("1.58") || says("1_58") || says("ternary") || says("maple");
}

constexpr uint32_t kI8S = 37, kTl1 = 38;  // of bitnet.cpp

constexpr const char* kOtherTernaryFiles =
    "; take a file of the model in TQ1_0 or TQ2_0, or convert its safetensors checkpoint";

[[noreturn]] void fail_ternary_type(const std::string& path, const std::string& tensor,
                                    const char* type, bool known) {
  fail(MOE_ERR_UNSUPPORTED,
       "%s: tensor %.100s has type %s, which cannot be read%s. Take a file of the model in I2_S, "
       "TQ1_0 or TQ2_0, or convert its safetensors checkpoint",
       path.c_str(), tensor.c_str(), type,
       known ? "" : ": its order depends on how bitnet.cpp was built, which the file does not say");
}

SourceType source_type(const Cursor& in, uint32_t number, const std::string& tensor,
                       const Json& metadata) {
  if (const SourceTypeInfo* info = find_gguf_type(number)) return info->type;
  const std::string name = unreadable_gguf_type(number);
  if (number == kI8S || number == kTl1 || is_ternary_model(metadata)) {
    fail_ternary_type(in.path(), tensor, name.c_str(), number != kTl1);
  }
  fail(MOE_ERR_UNSUPPORTED,
       "%s: tensor %.100s has type %s, which cannot be read; %s can. Take another file of the "
       "model, or make one with llama.cpp: llama-quantize F16.gguf OUT.gguf Q4_K_M",
       in.path().c_str(), tensor.c_str(), name.c_str(), gguf_type_names().c_str());
}

SourceTensor read_tensor(Cursor& in, uint32_t shard, uint64_t number, const Json& metadata) {
  const uint64_t at = in.position();
  SourceTensor tensor;
  tensor.name = in.string();
  if (tensor.name.empty()) fail_nameless(in, "tensor", number, at);
  const auto rank = in.number<uint32_t>();
  if (tensor.name.size() > kMaxName || rank > kMaxRank) {
    fail(MOE_ERR_FORMAT, "%s: tensor \"%.60s\" has %u dimensions", in.path().c_str(),
         tensor.name.c_str(), rank);
  }
  tensor.n_elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto dim = in.number<uint64_t>();
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dim));
    if (dim > INT64_MAX || !checked_mul(tensor.n_elements, dim, &tensor.n_elements) ||
        tensor.n_elements > uint64_t{1} << 48) {
      fail(MOE_ERR_FORMAT, "%s: tensor %.100s: the number of elements overflows", in.path().c_str(),
           tensor.name.c_str());
    }
  }
  tensor.type = source_type(in, in.number<uint32_t>(), tensor.name, metadata);
  tensor.offset = in.number<uint64_t>();
  tensor.file = shard;
  return tensor;
}

uint64_t rounded_up(uint64_t n, uint64_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}

// Checks each tensor's space: up to the next tensor, or the end. Offsets are still relative to the
// data.
void check_places(const std::vector<const SourceTensor*>& order, uint64_t data_bytes,
                  uint64_t alignment, const std::string& path) {
  uint64_t end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const SourceTensor* t = order[i];
    const SourceTypeInfo& info = source_type_info(t->type);
    const uint64_t row = t->shape.empty() ? 1 : static_cast<uint64_t>(t->shape.back());
    if (row % info.block != 0) {
      fail(MOE_ERR_FORMAT,
           "%s: tensor %.100s: rows of %llu are not a multiple of %s's blocks of %u", path.c_str(),
           t->name.c_str(), static_cast<ull>(row), info.name, info.block);
    }
    const uint64_t bytes = stored_bytes(*t);
    if (t->offset % alignment != 0 || t->offset < end || t->offset > data_bytes ||
        bytes > data_bytes - t->offset) {
      fail(MOE_ERR_FORMAT,
           "%s: tensor %.100s: %llu bytes at offset %llu lie outside the data (%llu bytes) or on "
           "another tensor",
           path.c_str(), t->name.c_str(), static_cast<ull>(bytes), static_cast<ull>(t->offset),
           static_cast<ull>(data_bytes));
    }
    end = t->offset + bytes;
    // Files have no gaps, so excess bytes indicate another type.
    const uint64_t next = i + 1 < order.size() ? order[i + 1]->offset : data_bytes;
    if (next > rounded_up(end, alignment)) {
      const bool ternary = t->type == SourceType::kI2S, last = i + 1 == order.size();
      fail(MOE_ERR_FORMAT, "%s: tensor %.100s: %s takes %llu bytes, the file has %llu for it%s",
           path.c_str(), t->name.c_str(), info.name, static_cast<ull>(bytes),
           static_cast<ull>(next - t->offset),
           ternary ? kOtherTernaryFiles
           : last  ? ", up to its end (more than one file in it?); download it again"
                   : "");
    }
  }
}

// Before any tensor is examined: a file that was cut off lacks the last ones. The ends of tensors
// that do not overlap tell its size; a single wrong offset does not.
void check_complete(const std::vector<SourceTensor*>& order, uint64_t data_start,
                    uint64_t file_size, const std::string& path) {
  uint64_t end = 0;
  for (const SourceTensor* t : order) {
    if (t->offset < end || t->offset > kMaxData) return;
    end = t->offset + stored_bytes(*t);
  }
  if (data_start + end > file_size) fail_cut_off(path, file_size, data_start + end);
}

// The number of MXFP4 is bitnet.cpp's of TL2, whose tensors have a scale beside them.
void refuse_tl2(const GgufHeader& header, const std::string& path) {
  const Json* const arch = header.metadata.find("general.architecture");
  const bool bitnet = arch != nullptr && arch->is_string() && arch->text().starts_with("bitnet");
  std::set<std::string> names;
  for (const SourceTensor& t : header.tensors) names.insert(t.name);
  for (const SourceTensor& t : header.tensors) {
    if (t.type != SourceType::kBlockMxfp4) continue;
    if (bitnet || names.contains(t.name + "_scale")) fail_ternary_type(path, t.name, "TL2", false);
  }
}

// The number of Q2_0 means two block types: 64 weights in 18 bytes and, in files of its first
// users, 128 in 34. The distance to the next tensor tells which.
void find_q2_blocks(std::vector<SourceTensor*>& order, uint64_t data_bytes, uint64_t alignment) {
  bool fits64 = true, fits128 = true;
  for (size_t i = 0; i < order.size(); ++i) {
    const SourceTensor& t = *order[i];
    if (t.type != SourceType::kQ2_0) continue;
    const bool last = i + 1 == order.size();
    const uint64_t room = (last ? data_bytes : order[i + 1]->offset) - t.offset;
    const auto fits = [&](SourceType type) {
      const uint64_t bytes = source_bytes(type, t.n_elements);
      return room == rounded_up(bytes, alignment) || (last && room == bytes);
    };
    fits64 = fits64 && fits(SourceType::kQ2_0);
    fits128 = fits128 && fits(SourceType::kQ2_0Group128) && t.n_elements % 128 == 0;
  }
  if (fits64 || !fits128) return;
  for (SourceTensor* t : order) {
    if (t->type == SourceType::kQ2_0) t->type = SourceType::kQ2_0Group128;
  }
}

void place_tensors(std::vector<SourceTensor>* tensors, uint64_t data_start, uint64_t file_size,
                   uint64_t alignment, const std::string& path) {
  std::vector<SourceTensor*> order;
  for (SourceTensor& t : *tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](const SourceTensor* a, const SourceTensor* b) { return a->offset < b->offset; });
  check_complete(order, data_start, file_size, path);
  const uint64_t data_bytes = file_size - std::min(data_start, file_size);
  find_q2_blocks(order, data_bytes, alignment);
  check_places({order.begin(), order.end()}, data_bytes, alignment, path);
  for (SourceTensor& t : *tensors) t.offset += data_start;
}

constexpr uint32_t swapped(uint32_t number) { return number << 24; }  // below 256

void check_magic(const InputFile& file, const char (&magic)[4]) {
  if (std::memcmp(magic, kMagic, sizeof kMagic) == 0) return;
  const std::string start = foreign_start(file);
  if (!start.empty()) fail(MOE_ERR_FORMAT, "%s is %s", file.path().c_str(), start.c_str());
  const std::string archive = archive_kind(file);
  if (!archive.empty()) fail(MOE_ERR_FORMAT, "%s is %s", file.path().c_str(), archive.c_str());
  const bool zeros = std::all_of(std::begin(magic), std::end(magic), [](char c) { return c == 0; });
  fail(MOE_ERR_FORMAT, "%s: not a GGUF file%s", file.path().c_str(),
       zeros ? ": it begins with zeros (an incomplete download?)" : "");
}

}  // namespace

GgufHeader read_gguf_header(const InputFile& file, uint32_t shard) {
  static_assert(std::endian::native == std::endian::little);
  Cursor in(file);
  char magic[4] = {};
  if (file.size() >= sizeof magic) in.bytes(magic, sizeof magic);
  check_magic(file, magic);
  const auto version = in.number<uint32_t>();
  if (version == swapped(2) || version == swapped(3)) {
    fail(MOE_ERR_UNSUPPORTED,
         "%s: a big-endian GGUF file; gguf-convert-endian FILE little (pip install gguf) makes one "
         "that can be read",
         file.path().c_str());
  }
  if (version != 2 && version != 3) {
    fail(MOE_ERR_UNSUPPORTED, "%s: GGUF version %u; 2 and 3 (little-endian) are read",
         file.path().c_str(), version);
  }
  const auto n_tensors = in.number<uint64_t>(), n_pairs = in.number<uint64_t>();
  if (n_tensors > kMaxTensors || n_pairs > kMaxPairs) {
    fail(MOE_ERR_FORMAT, "%s: %llu tensors and %llu keys, at most %llu and %llu are accepted",
         file.path().c_str(), static_cast<ull>(n_tensors), static_cast<ull>(n_pairs),
         static_cast<ull>(kMaxTensors), static_cast<ull>(kMaxPairs));
  }
  GgufHeader header;
  header.metadata = read_metadata(in, n_pairs);
  const JsonNode node(header.metadata, file.path());
  check_gguf_part(node, file.path());
  for (uint64_t i = 0; i < n_tensors; ++i) {
    header.tensors.push_back(read_tensor(in, shard, i + 1, header.metadata));
  }
  refuse_tl2(header, file.path());
  const auto alignment = static_cast<uint64_t>(node.integer("general.alignment", 32, 1, 1 << 20));
  place_tensors(&header.tensors, rounded_up(in.position(), alignment), file.size(), alignment,
                file.path());
  return header;
}

}  // namespace moe
