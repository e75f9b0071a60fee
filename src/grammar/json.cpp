// SPDX-License-Identifier: MIT
// Parses JSON.
#include "src/grammar/json.h"

#include "src/base/number.h"
#include "src/grammar/cursor.h"
#include "src/grammar/keys.h"

namespace moe::grammar {
namespace {

constexpr uint32_t kMaxJsonDepth = 256;

}  // namespace

class JsonReader {
 public:
  JsonReader(std::string_view text, Json& to) : in_(text), to_(to) {}

  Status read() {
    uint32_t parent = Json::kNone;
    uint32_t depth = 0;
    do {
      uint32_t node = 0;
      skip_space();
      MOE_TRY(value(parent, &node));
      if (is_list(node)) {
        in_.skip();
        if (++depth > kMaxJsonDepth) return error("more than 256 lists inside each other");
        parent = node;
        skip_space();
        if (!in_.take(to_.kind(node) == Json::kObject ? '}' : ']')) continue;
        parent = to_.nodes_[node].parent;
        --depth;
      }
      MOE_TRY(close_lists(&parent, &depth));
    } while (parent != Json::kNone);
    skip_space();
    if (!in_.at_end()) return error("expected the end");
    return to_.index();
  }

 private:
  bool is_list(uint32_t i) const {
    return to_.kind(i) == Json::kObject || to_.kind(i) == Json::kArray;
  }
  Status error(const char* what) const {
    return Status::error(MOE_ERR_FORMAT, "JSON, byte %zu: %s", in_.at(), what);
  }
  void skip_space() {
    for (char c = in_.peek(); !in_.at_end() && (c == ' ' || c == '\n' || c == '\t' || c == '\r');
         c = in_.peek()) {
      in_.skip();
    }
  }

  // After a value: a comma, or the ends of the lists that it is the last of.
  Status close_lists(uint32_t* parent, uint32_t* depth) {
    while (*parent != Json::kNone) {
      skip_space();
      if (in_.take(',')) return {};
      const bool object = to_.kind(*parent) == Json::kObject;
      if (!in_.take(object ? '}' : ']'))
        return error(object ? "expected , or }" : "expected , or ]");
      *parent = to_.nodes_[*parent].parent;
      --*depth;
    }
    return {};
  }

  Status value(uint32_t parent, uint32_t* out) {
    Json::Node node;
    node.parent = parent;
    if (parent != Json::kNone && to_.kind(parent) == Json::kObject) {
      if (in_.peek() != '"') return error("expected the name of a member");
      MOE_TRY(string(&node.name, &node.n_name));
      skip_space();
      if (!in_.take(':')) return error("expected :");
      skip_space();
    }
    const char c = in_.peek();
    if (c == '"') {
      node.kind = Json::kString;
      MOE_TRY(string(&node.text, &node.n_text));
    } else if (c == '{' || c == '[') {
      node.kind = c == '{' ? Json::kObject : Json::kArray;
    } else if (c == '-' || is_digit(c)) {
      node.kind = Json::kNumber;
      MOE_TRY(number(node));
    } else if (in_.take("true")) {
      node.kind = Json::kTrue;
    } else if (in_.take("false")) {
      node.kind = Json::kFalse;
    } else if (!in_.take("null")) {
      return error("expected a value");
    }
    *out = static_cast<uint32_t>(to_.nodes_.size());
    MOE_TRY(to_.nodes_.push(node));
    if (parent == Json::kNone) return {};
    Json::Node& p = to_.nodes_[parent];
    if (p.last == Json::kNone) {
      p.first = *out;
    } else {
      to_.nodes_[p.last].next = *out;
    }
    p.last = *out;
    ++p.n_children;
    return {};
  }

  Status digits() {
    if (!is_digit(in_.peek())) return error("expected a digit");
    while (is_digit(in_.peek())) in_.skip();
    return {};
  }

  Status number(Json::Node& node) {
    const size_t begin = in_.at();
    (void)in_.take('-');
    if (!in_.take('0')) MOE_TRY(digits());
    if (in_.take('.')) MOE_TRY(digits());
    if (in_.take('e') || in_.take('E')) {
      if (!in_.take('+')) (void)in_.take('-');
      MOE_TRY(digits());
    }
    node.text = static_cast<uint32_t>(to_.texts_.size());
    const std::string_view text = in_.from(begin);
    node.n_text = static_cast<uint32_t>(text.size());
    return to_.texts_.append(text.data(), text.size());
  }

  Status string(uint32_t* begin, uint32_t* n) {
    in_.skip();
    *begin = static_cast<uint32_t>(to_.texts_.size());
    while (!in_.take('"')) {
      if (in_.at_end()) return error("a string that is not closed");
      if (static_cast<uint8_t>(in_.peek()) < 0x20) return error("a control character in a string");
      uint32_t code = 0;
      if (in_.take('\\')) {
        MOE_TRY(escape(&code));
      } else {
        code = in_.take_char();
      }
      char bytes[4];
      MOE_TRY(to_.texts_.append(bytes, utf8_write(code, bytes)));
    }
    *n = static_cast<uint32_t>(to_.texts_.size()) - *begin;
    return {};
  }

  Status escape(uint32_t* code) {
    constexpr std::string_view kShort[] = {"b\b", "f\f", "n\n", "r\r", "t\t", "\"\"", "\\\\", "//"};
    for (const std::string_view s : kShort) {
      if (!in_.take(s[0])) continue;
      *code = static_cast<uint8_t>(s[1]);
      return {};
    }
    if (!in_.take('u') || !in_.take_hex(4, code)) return error("an unknown escape");
    if (*code < 0xD800 || *code > 0xDFFF) return {};
    uint32_t low = 0;
    if (*code > 0xDBFF || !in_.take("\\u") || !in_.take_hex(4, &low) || low < 0xDC00 ||
        low > 0xDFFF) {
      return error("half of a pair of \\u");
    }
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return {};
  }

  Cursor in_;
  Json& to_;
};

Status Json::parse(std::string_view text) {
  if (!utf8_is_valid(text)) {
    return Status::error(MOE_ERR_FORMAT, "JSON: not UTF-8 at byte %zu", utf8_valid_prefix(text));
  }
  return JsonReader(text, *this).read();
}

uint64_t Json::hash(uint32_t object, std::string_view name) const {
  return hash_bytes(name) ^ (object * 0x9E3779B97F4A7C15ULL >> 20);
}

// Fills the table of members; no name may be twice in an object.
Status Json::index() {
  size_t n = 64;
  while (n < 2 * nodes_.size()) n *= 2;
  MOE_TRY(slots_.resize(n));
  for (uint32_t i = 1; i < nodes_.size(); ++i) {
    if (kind(parent(i)) != kObject) continue;
    const auto first = static_cast<size_t>(hash(parent(i), name(i)));
    size_t at = first;
    for (; slots_[at & (n - 1)] != 0; ++at) {
      const uint32_t other = slots_[at & (n - 1)] - 1;
      if (parent(other) == parent(i) && name(other) == name(i)) {
        const std::string_view twice = slice(name(i), 0, 60);
        return Status::error(MOE_ERR_FORMAT, "JSON: the name \"%.*s\" twice in an object",
                             static_cast<int>(twice.size()), twice.data());
      }
      if (at - first >= kMaxProbes) return too_alike();
    }
    slots_[at & (n - 1)] = i + 1;
  }
  return {};
}

uint32_t Json::find(uint32_t object, std::string_view name) const {
  if (kind(object) != kObject) return kNone;
  const auto first = static_cast<size_t>(hash(object, name));
  for (size_t at = first; at - first <= kMaxProbes; ++at) {
    const uint32_t slot = slots_[at & (slots_.size() - 1)];
    if (slot == 0) return kNone;
    if (parent(slot - 1) == object && this->name(slot - 1) == name) return slot - 1;
  }
  return kNone;
}

uint32_t Json::element(uint32_t array, uint32_t index) const {
  uint32_t c = first(array);
  for (; c != kNone && index > 0; --index) c = next(c);
  return c;
}

Status Json::path(uint32_t i, String& to) const {
  Array<uint32_t> steps(allocator());
  for (; nodes_[i].parent != kNone; i = nodes_[i].parent) MOE_TRY(steps.push(i));
  MOE_TRY(to.assign("#"));
  for (; !steps.empty(); steps.pop()) {
    const uint32_t step = steps.back();
    const uint32_t parent = nodes_[step].parent;
    MOE_TRY(to.append("/"));
    if (kind(parent) == kObject) {
      for (const char c : name(step)) {
        const std::string_view one(&c, 1);
        MOE_TRY(to.append(c == '~' ? "~0" : c == '/' ? "~1" : one));
      }
      continue;
    }
    uint32_t index = 0;
    for (uint32_t c = first(parent); c != step; c = next(c)) ++index;
    char digits[16];
    const int n = format(digits, sizeof digits, "%u", index);
    MOE_TRY(to.append({digits, static_cast<size_t>(n)}));
  }
  return {};
}

Status unescape_pointer(std::string_view step, String& to) {
  to.clear();
  Cursor in(step);
  while (!in.at_end()) {
    char c = in.peek();
    in.skip();
    uint32_t byte = 0;
    if (c == '%' && in.take_hex(2, &byte)) {
      c = static_cast<char>(byte);
    } else if (c == '~' && in.take('1')) {
      c = '/';
    } else if (c == '~') {
      (void)in.take('0');
    }
    MOE_TRY(to.append({&c, 1}));
  }
  return {};
}

}  // namespace moe::grammar
