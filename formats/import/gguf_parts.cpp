// SPDX-License-Identifier: MIT
// Finds the other parts of a split GGUF model by their names, and checks that a part is the one its
// name says.
#include "formats/import/gguf_parts.h"

#include "formats/import/failure.h"

namespace moe {
namespace {

constexpr std::string_view kPartOf = "-of-";
constexpr std::string_view kPartEnd = ".gguf";
constexpr size_t kPartDigits = 5;
constexpr size_t kPartTail = 1 + kPartDigits + kPartOf.size() + kPartDigits + kPartEnd.size();
constexpr int kMaxParts = 65535;  // split.no and split.count have 16 bits

// The five digits at `at`; -1 if they are no such digits.
int number_at(const std::string& text, size_t at) {
  const std::string digits = text.substr(at, kPartDigits);
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoi(digits);
}

std::string part_name(const std::string& stem, int number, int count) {
  const auto digits = [](int n) { return std::to_string(100000 + n).substr(1); };
  return stem + "-" + digits(number) + std::string(kPartOf) + digits(count) + std::string(kPartEnd);
}

std::string file_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

GgufPart gguf_part_of_name(const std::string& path) {
  if (path.size() <= kPartTail || !path.ends_with(kPartEnd)) return {};
  const size_t at = path.size() - kPartTail;
  if (path[at] != '-' || path.compare(at + 1 + kPartDigits, kPartOf.size(), kPartOf) != 0)
    return {};
  const GgufPart part = {number_at(path, at + 1),
                         number_at(path, at + 1 + kPartDigits + kPartOf.size())};
  const bool valid = part.number >= 1 && part.number <= part.count && part.count <= kMaxParts;
  return valid ? part : GgufPart{};
}

std::vector<std::string> gguf_parts(const std::string& path) {
  std::vector<std::string> out;
  const GgufPart part = gguf_part_of_name(path);
  const std::string stem = part.count == 0 ? "" : path.substr(0, path.size() - kPartTail);
  for (int i = 1; i <= part.count; ++i) out.push_back(part_name(stem, i, part.count));
  return out;
}

void check_gguf_part(const JsonNode& metadata, const std::string& path) {
  if (!metadata.has("split.count")) return;
  const int count = metadata.integer("split.count", 1, 0, kMaxParts);
  const int number = metadata.integer("split.no", 0, 0, kMaxParts) + 1;
  if (count <= 1) return;
  const GgufPart named = gguf_part_of_name(path);
  if (named.count == count && named.number == number) return;
  const std::string name = file_name(path);
  const size_t end = named.count != 0 ? kPartTail : name.ends_with(kPartEnd) ? kPartEnd.size() : 0;
  const std::string right = part_name(name.substr(0, name.size() - end), number, count);
  fail(
      MOE_ERR_FORMAT,
      "%.100s: this is part %d of %d of a split model (split.no, split.count), which its name does "
      "not say. Give all parts their names back, this one %.80s, or join them with "
      "llama-gguf-split --merge; cat does not join them",
      path.c_str(), number, count, right.c_str());
}

void refuse_gguf_piece(const std::string& path) {
  const std::string name = file_name(path);
  for (const char* mark : {".gguf-split-", ".gguf-part-", ".gguf.part", ".gguf.split", ".gguf.0"}) {
    const size_t at = name.find(mark);
    if (at == std::string::npos || at == 0) continue;
    fail(MOE_ERR_UNSUPPORTED,
         "%.200s: a piece of %.100s; join all pieces in order with cat and convert the result",
         path.c_str(), name.substr(0, at + kPartEnd.size()).c_str());
  }
}

}  // namespace moe
