// SPDX-License-Identifier: MIT
// Operations on texts for templates: search, strip, split, replace, case, indent, join, slices.
#include <cstdlib>

#include "src/base/number.h"
#include "src/base/string.h"
#include "src/text/characters/utf8.h"
#include "src/text/chat/jinja/evaluator.h"
#include "src/text/chat/jinja/number.h"

namespace moe::jinja {

Value Evaluator::as_text(Value value) {
  switch (value.kind) {
    case Kind::kString:
      return value;
    case Kind::kUndefined:
      return literal("");
    case Kind::kNone:
      return literal("None");
    case Kind::kBool:
      return literal(value.number != 0 ? "True" : "False");
    case Kind::kInt: {
      char digits[24];
      size_t at = sizeof digits;
      uint64_t n = value.number < 0 ? 0 - static_cast<uint64_t>(value.number)
                                    : static_cast<uint64_t>(value.number);
      do {
        digits[--at] = static_cast<char>('0' + n % 10);
        n /= 10;
      } while (n != 0);
      if (value.number < 0) digits[--at] = '-';
      return literal({digits + at, sizeof digits - at});
    }
    case Kind::kFloat: {
      char text[kMaxFloatText];
      charge(16384);  // tries up to 17 digits
      return literal({text, write_float(float_of(value), text)});
    }
    default:
      return fail_kind("writing a value", value);
  }
}

Value Evaluator::concatenate(Value left, Value right) {
  if (!ok()) return {};
  if (left.a + left.b == heap_.text.size()) {  // grows in place
    put(right);
    return since(left.a);
  }
  const size_t begin = heap_.text.size();
  put(left);
  put(right);
  return since(begin);
}

// Charges each candidate position: a skipping search is slow on adversarial texts.
size_t Evaluator::find(std::string_view text, std::string_view what, size_t from) {
  if (what.empty()) return from;
  for (;; ++from) {
    const size_t at = text.find(what[0], from);
    const size_t end = std::min(at, text.size());
    const bool ended = !charge(end - from + what.size()) || what.size() > text.size() - end;
    if (ended) return std::string_view::npos;
    if (slice(text, at, what.size()) == what) return at;
    from = at;
  }
}

Value Evaluator::strip(Value text, Value characters, Ends ends) {
  const bool given = characters.is(Kind::kString);
  if (!given && !characters.is(Kind::kUndefined) && !characters.is(Kind::kNone)) {
    return fail_kind("strip", characters);
  }
  const std::string_view set = given ? heap_.view(characters) : std::string_view();
  const std::string_view all = heap_.view(text);
  const auto goes = [&](std::string_view c) {
    if (!given) return charge(0) && is_python_space(utf8_next(c.data()).code);
    return find(set, c, 0) != std::string_view::npos;
  };
  size_t begin = 0;
  size_t end = all.size();
  while (ends != Ends::kRight && begin < end) {
    const uint32_t n = utf8_next(all.data() + begin).length;
    if (!goes(slice(all, begin, n))) break;
    begin += n;
  }
  while (ends != Ends::kLeft && begin < end) {
    const uint32_t n = utf8_previous_length(all.data() + end);
    if (!goes(slice(all, end - n, n))) break;
    end -= n;
  }
  return text_value(child_text(text, begin, end - begin));
}

// Without a separator: split at white space, without empty parts.
Value Evaluator::split(Value text, Value separator, int64_t most) {
  Array<Value> parts(allocator_);
  const std::string_view all = heap_.view(text);
  size_t begin = 0;
  if (!separator.is(Kind::kString)) {
    if (!separator.is(Kind::kUndefined) && !separator.is(Kind::kNone)) {
      return fail_kind("split", separator);
    }
    charge(kLook * all.size());
    for (size_t i = 0; i <= all.size() && ok();) {
      const Utf8Char c = i < all.size() ? utf8_next(all.data() + i) : Utf8Char{};
      const bool end = i == all.size() || is_python_space(c.code);
      if (end && i > begin) keep(parts.push(text_value(child_text(text, begin, i - begin))));
      i += i < all.size() ? c.length : 1;
      if (end) begin = i;
    }
    if (most >= 0) return fail(MOE_ERR_UNSUPPORTED, "split at white space with a limit");
    return new_list(parts);
  }
  const std::string_view what = heap_.view(separator);
  if (what.empty()) return fail(MOE_ERR_TEXT, "split: an empty separator");
  while (ok() && (most < 0 || static_cast<int64_t>(parts.size()) < most)) {
    const size_t at = find(all, what, begin);
    if (at == std::string_view::npos) break;
    keep(parts.push(text_value(child_text(text, begin, at - begin))));
    begin = at + what.size();
  }
  keep(parts.push(text_value(child_text(text, begin, all.size() - begin))));
  return new_list(parts);
}

Value Evaluator::replace(Value text, Value from, Value to, int64_t most) {
  if (!from.is(Kind::kString)) return fail_kind("replace", from);
  if (!to.is(Kind::kString)) return fail_kind("replace", to);
  if (from.b == 0) return fail(MOE_ERR_UNSUPPORTED, "replacing an empty text");
  const size_t out = heap_.text.size();
  size_t begin = 0;
  while (ok() && most != 0) {
    const size_t at = find(heap_.view(text), heap_.view(from), begin);
    if (at == std::string_view::npos) break;
    put(text_value(child_text(text, begin, at - begin)));
    put(to);
    begin = at + from.b;
    if (most > 0) --most;
  }
  put(text_value(child_text(text, begin, text.b - begin)));
  return since(out);
}

Value Evaluator::change_case(Value text, Case to) {
  const size_t begin = heap_.text.size();
  put(text);
  if (!charge(kLook * text.b)) return {};
  for (size_t i = begin; i < heap_.text.size(); ++i) {
    char& c = heap_.text.chars[i];
    if (static_cast<uint8_t>(c) >= 0x80) {
      return fail(MOE_ERR_UNSUPPORTED, "upper and lower case beyond ASCII");
    }
    const bool up = to == Case::kUpper || (to == Case::kCapitalized && i == begin);
    if (up && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (!up) c = ascii_lower(c);
  }
  return since(begin);
}

// A filter's words begin after white space, - and opening brackets; a method's after any character
// that is not a letter.
Value Evaluator::title(Value text, bool as_filter) {
  const Value lower = change_case(text, Case::kLower);
  bool begins = true;
  for (uint32_t i = 0; i < lower.b && ok(); ++i) {
    char& c = heap_.text.chars[lower.a + i];
    const bool letter = c >= 'a' && c <= 'z';
    if (letter && begins) c = static_cast<char>(c - 'a' + 'A');
    const bool opens = is_python_space(static_cast<uint8_t>(c)) ||
                       std::string_view("-({[<").find(c) != std::string_view::npos;
    begins = as_filter ? opens : !letter;
  }
  return lower;
}

// indent(width, first, blank)
Value Evaluator::indent(Value text, const Arguments& arguments) {
  const Value width = argument(arguments, 0, "width");
  const bool first = truth(argument(arguments, 1, "first"));
  const bool blank = truth(argument(arguments, 2, "blank"));
  const int64_t n = is_integer(width) ? width.number : 4;
  const Value spaces = width.is(Kind::kString) ? width : repeated(literal(" "), n);
  const size_t begin = heap_.text.size();
  if (first) put(spaces);
  for (uint32_t at = 0; ok();) {
    const std::string_view all = heap_.view(text);
    const auto end = static_cast<uint32_t>(std::min(all.find('\n', at), all.size()));
    put(text_value(child_text(text, at, end - at)));
    if (end == text.b) break;
    put("\n", heap_.text.marks[text.a + end]);
    at = end + 1;
    if (blank || (at < text.b && heap_.view(text)[at] != '\n')) put(spaces);
  }
  return since(begin);
}

Value Evaluator::join(Value list, Value separator, Value attribute) {
  list = iterable(list, "join");
  separator = as_text(separator);
  const bool of_attribute = !attribute.is(Kind::kUndefined) && !attribute.is(Kind::kNone);
  Array<Value> texts(allocator_);  // writing numbers would interleave with the parts
  for (uint32_t i = 0; i < list.b && ok(); ++i) {
    Value item = heap_.items[list.a + i];
    if (of_attribute) item = attribute_path(item, attribute);
    keep(texts.push(as_text(item)));
  }
  const size_t begin = heap_.text.size();
  for (size_t i = 0; i < texts.size() && ok(); ++i) {
    if (i > 0) put(separator);
    put(texts[i]);
  }
  return since(begin);
}

// Characters begin, begin + step ... before end; bounds are already clamped.
Value Evaluator::slice_text(Value text, int64_t begin, int64_t end, int64_t step) {
  size_t at = 0;  // of character `index`
  int64_t index = 0;
  const auto seek = [&](int64_t to) {
    charge(2 * kLook * static_cast<size_t>(std::abs(to - index)));
    const std::string_view all = heap_.view(text);  // moves as the heap grows
    for (; index < to; ++index) at += utf8_next(all.data() + at).length;
    for (; index > to; --index) at -= utf8_previous_length(all.data() + at);
    return at;
  };
  if (step == 1) {
    const size_t first = seek(begin);
    return text_value(child_text(text, first, begin < end ? seek(end) - first : 0));
  }
  const size_t out = heap_.text.size();
  for (int64_t i = begin; ok() && (step > 0 ? i < end : i > end); i += step) {
    const size_t first = seek(i);
    put(text_value(child_text(text, first, seek(i + 1) - first)));
  }
  return since(out);
}

int64_t Evaluator::length(Value value) {
  if (value.is(Kind::kList) || value.is(Kind::kDict)) return value.b;
  if (value.is(Kind::kUndefined)) return 0;
  if (!value.is(Kind::kString)) {
    fail_kind("length", value);
    return 0;
  }
  charge(size_t{4} * value.b);
  int64_t n = 0;
  for (const char c : heap_.view(value)) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0;
  return n;
}

}  // namespace moe::jinja
