// SPDX-License-Identifier: MIT
// Parses JSON with limits on depth and size; a value of the wrong kind is reported with its key
// path.
#include "formats/import/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/import/failure.h"
#include "formats/import/file.h"
#include "formats/import/shell_quoted.h"

namespace moe {
namespace {

// Builds the tree; rejects deep nesting, too many values and duplicate keys.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const std::string& what, size_t n_bytes, const JsonLimits& limits)
      : what_(what), n_bytes_(n_bytes), limits_(limits) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    if (stack_.back()->contains(value)) {
      fail(MOE_ERR_FORMAT, "%s: key \"%.100s\" is given twice", what_.c_str(), value.c_str());
    }
    key_ = std::move(value);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    if (position > n_bytes_ && n_bytes_ != 0) {
      fail(MOE_ERR_FORMAT, "%s: not valid JSON: cut off at byte %zu (an incomplete download?)",
           what_.c_str(), n_bytes_);
    }
    fail(MOE_ERR_FORMAT, "%s: not valid JSON at byte %zu", what_.c_str(), position);
  }

 private:
  Json* place(Json value) {
    if (++n_values_ > limits_.max_values) {
      fail(MOE_ERR_FORMAT, "%s: more than %llu JSON values", what_.c_str(),
           static_cast<unsigned long long>(limits_.max_values));
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.elements().back();
    }
    return &(parent[key_] = std::move(value));
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (stack_.size() >= limits_.max_depth) {
      fail(MOE_ERR_FORMAT, "%s: JSON nested deeper than %u levels", what_.c_str(),
           limits_.max_depth);
    }
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const std::string& what_;
  const size_t n_bytes_;
  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> stack_;  // open containers; a parent does not grow while a child is open
  std::string key_;
  uint64_t n_values_ = 0;
};

constexpr size_t kMaxList = 120;  // bytes of unknown keys in an error

// A value as shown in an error: short for any content.
std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string listed(std::span<const char* const> names) {
  std::string text;
  for (const char* name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// `head` and as many whole names as an error's text can hold.
std::string with_names(std::string head, std::span<const char* const> names) {
  constexpr size_t kRoom = MOE_ERROR_TEXT_BYTES - sizeof ", ...";
  const char* separator = "";
  for (const char* name : names) {
    const std::string more = separator + std::string(name);
    if (head.size() + more.size() > kRoom) return head + separator + "...";
    head += more;
    separator = ", ";
  }
  return head;
}

// A download that stopped after its space was reserved ends in zeros, which JSON never does.
void refuse_zero_end(std::string_view text, const std::string& what) {
  const size_t end = text.find_last_not_of('\0') + 1;  // 0 if there is none
  if (end == text.size()) return;
  fail(MOE_ERR_FORMAT, "%s: not valid JSON: only zeros from byte %zu on (an incomplete download?)",
       what.c_str(), end);
}

// Python writes infinite numbers as words that JSON does not have. They become the strings "+inf"
// and "-inf", and every byte behind them keeps its place.
std::string with_infinities_as_text(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kText = "\"+inf\"  ";
  static_assert(kWord.size() == kText.size());
  std::string out(text);
  bool in_string = false;
  for (size_t i = 0; i < out.size(); ++i) {
    if (in_string && out[i] == '\\') {
      ++i;
    } else if (out[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && out.compare(i, kWord.size(), kWord) == 0) {
      const bool negative = i > 0 && out[i - 1] == '-';
      out.replace(i, kWord.size(), kText);
      if (negative) out.replace(i - 1, kText.size() + 1, "\"-inf\"   ");
      i += kWord.size() - 1;
    }
  }
  return out;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& what, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    fail(MOE_ERR_FORMAT, "%s: %zu bytes of JSON, at most %llu are accepted", what.c_str(),
         text.size(), static_cast<unsigned long long>(limits.max_bytes));
  }
  refuse_zero_end(text, what);
  std::string replaced;
  if (text.find("Infinity") != text.npos) {
    replaced = with_infinities_as_text(text);
    text = replaced;
  }
  Builder builder(what, text.size(), limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json read_json_file(const std::string& path, const JsonLimits& limits) {
  const std::string text = read_text_file(path, limits.max_bytes);
  if (text.empty()) {
    fail(MOE_ERR_FORMAT, "%s is empty (0 bytes): the download is incomplete", path.c_str());
  }
  // Documents are objects, rarely lists.
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != text.npos && text[first] != '{' && text[first] != '[') {
    const std::string start = foreign_start(std::string_view(text).substr(first));
    if (!start.empty()) fail(MOE_ERR_FORMAT, "%s is %s", path.c_str(), start.c_str());
  }
  return parse_json(text, path, limits);
}

bool erase_key(Json* value, std::string_view path) {
  if (value->is_array() && path.starts_with('[')) {
    const size_t end = std::min(path.find(']'), path.size());
    const std::string digits(path.substr(1, std::max<size_t>(end, 1) - 1));
    const bool number = !digits.empty() && digits.size() < 10 &&
                        digits.find_first_not_of("0123456789") == std::string::npos;
    if (!number || end + 1 >= path.size() || std::stoul(digits) >= value->size()) return false;
    path.remove_prefix(path[end + 1] == '.' ? end + 2 : end + 1);
    return erase_key(&(*value)[std::stoul(digits)], path);
  }
  if (!value->is_object()) return false;
  if (value->contains(path)) {
    value->erase(path);
    return true;
  }
  for (auto& [key, member] : value->items()) {
    if (!path.starts_with(key) || path.size() <= key.size() + 1) continue;
    const char after = path[key.size()];
    if (after == '.' && erase_key(&member, path.substr(key.size() + 1))) return true;
    if (after == '[' && erase_key(&member, path.substr(key.size()))) return true;
  }
  return false;
}

std::string find_key(const Json& value, std::string_view key) {
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string found = find_key(value[i], key);
      if (!found.empty()) {
        return "[" + std::to_string(i) + "]" + (found.starts_with('[') ? "" : ".") + found;
      }
    }
  }
  if (!value.is_object()) return "";
  if (value.contains(key)) return std::string(key);
  for (const auto& [name, member] : value.items()) {
    const std::string found = find_key(member, key);
    if (!found.empty()) return name + (found.starts_with('[') ? "" : ".") + found;
  }
  return "";
}

void JsonNode::fail_expected(const std::string& expected) const {
  fail(MOE_ERR_FORMAT, "%s: expected %s, found %s", path_.c_str(), expected.c_str(),
       shown(*value_).c_str());
}

JsonNode JsonNode::child(const Json& value, const std::string& path) const {
  JsonNode node(value, path);
  node.root_ = false;
  return node;
}

JsonNode JsonNode::at(const char* key) const {
  if (!value_->is_object()) fail_expected("an object");
  const Json* found = value_->find(key);
  if (found == nullptr) {
    fail(MOE_ERR_FORMAT, "%s: \"%s\" is missing", path_.c_str(), spelled(key).c_str());
  }
  const bool is_default = spellings_ != nullptr && spellings_->defaults.contains(key);
  return child(*found, place(key) + (is_default ? " (by default)" : ""));
}

bool JsonNode::has(const char* key) const {
  if (!value_->is_object()) fail_expected("an object");
  const Json* found = value_->find(key);
  return found != nullptr && !found->is_null();
}

bool JsonNode::given(const char* key) const {
  return has(key) && (spellings_ == nullptr || !spellings_->defaults.contains(key));
}

bool JsonNode::is_beside(const std::string& key) const {
  return spellings_ != nullptr && spellings_->beside.contains(key);
}

std::string JsonNode::place(const std::string& key) const {
  if (is_beside(key)) return path_.substr(0, path_.find(": ")) + ": " + spelled(key);
  return path_ + (root_ ? ": " : ".") + spelled(key);
}

std::string JsonNode::spelled(const std::string& key) const {
  if (spellings_ == nullptr) return key;
  const auto found = spellings_->in_file.find(key);
  return found == spellings_->in_file.end() ? key : found->second;
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!value_->is_array()) fail_expected("an array");
  std::vector<JsonNode> out;
  out.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    out.push_back(child((*value_)[i], path_ + "[" + std::to_string(i) + "]"));
  }
  return out;
}

int64_t JsonNode::integer(int64_t min, int64_t max) const {
  const bool fits_type = value_->is_number_unsigned()
                             ? value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                             : value_->is_number_integer();
  const int64_t n = fits_type ? value_->get<int64_t>() : 0;
  if (!fits_type || n < min || n > max) {
    fail_expected("an integer in " + std::to_string(min) + ".." + std::to_string(max));
  }
  return n;
}

double JsonNode::number() const {
  if (!value_->is_number()) fail_expected("a number");
  const double x = value_->get<double>();
  if (!std::isfinite(x)) fail_expected("a finite number");
  return x;
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) fail_expected("true or false");
  return value_->get<bool>();
}

std::string JsonNode::string() const {
  if (!value_->is_string()) fail_expected("a string");
  return value_->get<std::string>();
}

size_t JsonNode::choice(std::span<const char* const> names) const {
  size_t i = 0;
  for (const char* name : names) {
    if (value_->is_string() && value_->text() == name) return i;
    ++i;
  }
  fail_expected("one of " + listed(names));
}

int32_t JsonNode::integer(const char* key, int32_t fallback, int32_t min, int32_t max) const {
  return has(key) ? static_cast<int32_t>(at(key).integer(min, max)) : fallback;
}

float JsonNode::number(const char* key, float fallback) const {
  if (!has(key)) return fallback;
  const JsonNode member = at(key);
  const float x = static_cast<float>(member.number());
  if (!std::isfinite(x)) member.fail_expected("a number that a 32-bit float can hold");
  return x;
}

bool JsonNode::boolean(const char* key, bool fallback) const {
  return has(key) ? at(key).boolean() : fallback;
}

std::string JsonNode::string(const char* key, const char* fallback) const {
  return has(key) ? at(key).string() : fallback;
}

size_t JsonNode::choice(const char* key, size_t fallback,
                        std::initializer_list<const char*> names) const {
  return has(key) ? at(key).choice(names) : fallback;
}

void JsonNode::only(std::span<const char* const> keys) const {
  const std::vector<std::string> unknown = others(keys);
  if (unknown.empty()) return;
  std::string list, words;
  for (const std::string& key : unknown) {
    if (list.size() > kMaxList) {
      list += ", ...";
      break;
    }
    list += (list.empty() ? "\"" : ", \"") + key.substr(0, 60) + "\"";
    words += (words.empty() ? "" : ",") + member_path(key);
  }
  // Keys of other files cannot be ignored individually.
  constexpr std::string_view kConfig = "config.json";
  const bool single = unknown.size() == 1;
  std::string head = path_ + ": unknown key" + (single ? " " : "s ") + list + "; ";
  // Some paths are descriptions ("layer 3") and not those of the file.
  const bool in_config = path_ == kConfig || path_.starts_with("config.json: ");
  if (in_config && member_path("").find(' ') == std::string::npos) {
    const std::string word = shell_quoted(words);
    head += "if " + std::string(single ? "it changes" : "they change") +
            " nothing: moe convert --ignore-key" + (word.starts_with('-') ? "=" : " ") +
            (word.size() <= kMaxList ? word : "KEY") + "; ";
  }
  fail(MOE_ERR_FORMAT, "%s", with_names(head + "known: ", keys).c_str());
}

std::vector<std::string> JsonNode::others(std::span<const char* const> keys) const {
  if (!value_->is_object()) fail_expected("an object");
  std::vector<std::string> out;
  for (const auto& [key, unused] : value_->items()) {
    bool known = key == "comment";
    for (const char* k : keys) known = known || key == k;
    if (!known) out.push_back(key);
  }
  return out;
}

std::string JsonNode::member_path(const std::string& key) const {
  if (is_beside(key)) return spelled(key);
  std::string out;
  for (size_t at = path_.find(": "); at != std::string::npos;) {
    const size_t next = path_.find(": ", at + 2);
    out += path_.substr(at + 2, next - at - 2) + ".";
    at = next;
  }
  return out + spelled(key);
}

}  // namespace moe
