// SPDX-License-Identifier: MIT
// Filters that take lists.

#include <utility>

#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"
#include "src/text/chat/jinja/number.h"

namespace moe::jinja {

Value Evaluator::list_filter(std::string_view name, Value value, const Arguments& arguments,
                             bool* known) {
  const bool of_attribute = name == "selectattr" || name == "rejectattr";
  if (of_attribute || name == "select" || name == "reject") {
    return select(value, arguments, of_attribute, name.starts_with("select"));
  }
  if (name == "map") return map(value, arguments);
  if (name == "reverse") return reverse(value);
  if (name == "sort" || name == "dictsort" || name == "min" || name == "max") {
    return sort(name, value, arguments);
  }
  if (name == "unique") return unique(value, arguments);
  if (name == "sum") return sum(value, arguments);
  *known = false;
  return {};
}

// selectattr(name[, test[, argument]]), select([test[, argument]])
Value Evaluator::select(Value list, const Arguments& arguments, bool of_attribute, bool keep_if) {
  if (!truth(list)) return new_list(Array<Value>(allocator_));  // nothing to select from
  list = iterable(list, "selectattr");
  if (!ok()) return {};
  const size_t n_before = of_attribute ? 1 : 0;
  const Value attribute = of_attribute ? argument(arguments, 0, "") : Value{};
  const Value test_name = argument(arguments, n_before, "");
  if (of_attribute && !attribute.is(Kind::kString)) return fail_kind("selectattr", attribute);
  for (const Text name : arguments.names) {
    if (name.size != 0) return fail(MOE_ERR_UNSUPPORTED, "a named argument of select and reject");
  }
  Array<Value> out(allocator_);
  std::span<const Value> rest = arguments.values.span();
  rest = rest.subspan(std::min(rest.size(), n_before + 1));
  for (uint32_t i = 0; i < list.b && charge(0); ++i) {
    const Value item = heap_.items[list.a + i];
    const Value value = of_attribute ? attribute_path(item, attribute) : item;
    const bool yes =
        test_name.is(Kind::kString) ? test(heap_.view(test_name), value, rest) : truth(value);
    if (yes == keep_if) keep(out.push(item));
  }
  return new_list(out);
}

// A name, or names with points between them, or an index.
Value Evaluator::attribute_path(Value value, Value path) {
  if (!path.is(Kind::kString)) return member(value, path, false);
  for (size_t begin = 0; ok();) {
    const std::string_view names = heap_.view(path);
    const size_t end = std::min(names.find('.', begin), names.size());
    const std::string_view name = slice(names, begin, end - begin);
    int64_t index = 0;
    if (read_integer(name, 0, &index) == Reading::kDone) {
      value = member(value, int_value(index), false);
    } else {
      value = member(value, text_value(child_text(path, begin, end - begin)), true);
    }
    if (end == names.size()) break;
    begin = end + 1;
  }
  return value;
}

// map(attribute=name[, default=value]) or map(filter[, arguments])
Value Evaluator::map(Value list, const Arguments& arguments) {
  list = iterable(list, "map");
  const Value attribute = argument(arguments, ~size_t{0}, "attribute");
  const Value otherwise = argument(arguments, ~size_t{0}, "default");
  const Value called = argument(arguments, 0, "");
  if (!ok()) return {};
  const bool of_attribute = !attribute.is(Kind::kUndefined);
  if (!of_attribute && !called.is(Kind::kString)) return fail_kind("map", called);
  const bool with_default = !otherwise.is(Kind::kUndefined);
  if (of_attribute && arguments.values.size() > (with_default ? 2U : 1U)) {
    return fail(MOE_ERR_UNSUPPORTED, "an argument of map(attribute=...), other than default,");
  }
  Arguments rest(allocator_);
  for (size_t i = 1; i < arguments.values.size(); ++i) {
    keep(rest.values.push(arguments.values[i]));
    keep(rest.names.push(arguments.names[i]));
  }
  Array<char> name(allocator_);  // the memory of `called` moves as filters write
  if (!of_attribute) keep(name.append(heap_.view(called).data(), called.b));
  Array<Value> out(allocator_);
  for (uint32_t i = 0; i < list.b && charge(0); ++i) {
    const Value item = heap_.items[list.a + i];
    Value value = of_attribute ? attribute_path(item, attribute)
                               : apply_filter({name.data(), name.size()}, item, rest);
    if (of_attribute && value.is(Kind::kUndefined)) value = otherwise;
    keep(out.push(value));
  }
  return new_list(out);
}

Value Evaluator::reverse(Value value) {
  if (value.is(Kind::kString)) return slice_text(value, length(value) - 1, -1, -1);
  value = iterable(value, "reverse");
  Array<Value> out(allocator_);
  for (uint32_t i = value.b; i > 0 && ok(); --i) keep(out.push(heap_.items[value.a + i - 1]));
  return new_list(out);
}

Value Evaluator::sort_key(Value value, Value path, bool ignore_case) {
  if (!path.is(Kind::kUndefined) && !path.is(Kind::kNone)) value = attribute_path(value, path);
  return ok() && ignore_case && value.is(Kind::kString) ? change_case(value, Case::kLower) : value;
}

// sort(reverse, case_sensitive, attribute), dictsort(case_sensitive, by, reverse), min and max
// (case_sensitive, attribute). Stable, by insertion into what is sorted; every comparison is
// charged.
Value Evaluator::sort(std::string_view name, Value list, const Arguments& arguments) {
  const bool of_dict = name == "dictsort";
  const bool best = name == "min" || name == "max";
  const size_t first = name == "sort" ? 1 : 0;
  const bool backwards =
      name == "max" || (!best && truth(argument(arguments, of_dict ? 2 : 0, "reverse")));
  const bool cased = truth(argument(arguments, first, "case_sensitive"));
  Value path = of_dict ? int_value(0) : argument(arguments, first + 1, "attribute");
  if (const Value by = argument(arguments, 1, "by"); of_dict && by.is(Kind::kString)) {
    path = int_value(heap_.view(by) == "value" ? 1 : 0);
  }
  list = of_dict ? items_of(list) : iterable(list, "sort");
  Array<std::pair<Value, Value>> sorted(allocator_);  // key, value
  for (uint32_t i = 0; i < list.b && ok(); ++i) {
    const Value item = heap_.items[list.a + i];
    const Value key = sort_key(item, path, !cased);
    keep(sorted.push({key, item}));
    if (!ok()) return {};
    for (size_t k = sorted.size() - 1; k > 0 && charge(0); --k) {
      auto& before = sorted[k - 1];
      auto& here = sorted[k];
      const bool swaps =
          backwards ? less(before.first, here.first) : less(here.first, before.first);
      if (!swaps) break;
      std::swap(before, here);
    }
    if (best && sorted.size() > 1) sorted.pop();
  }
  if (best) return sorted.empty() ? Value{} : sorted[0].second;
  Array<Value> out(allocator_);
  for (const auto& [key, value] : sorted) keep(out.push(value));
  return new_list(out);
}

Value Evaluator::unique(Value list, const Arguments& arguments) {
  const bool cased = truth(argument(arguments, 0, "case_sensitive"));
  const Value path = argument(arguments, 1, "attribute");
  list = iterable(list, "unique");
  Array<Value> keys(allocator_);
  Array<Value> out(allocator_);
  for (uint32_t i = 0; i < list.b && ok(); ++i) {
    const Value item = heap_.items[list.a + i];
    const Value key = sort_key(item, path, !cased);
    bool known = false;
    for (size_t k = 0; k < keys.size() && !known && ok(); ++k) known = equal(keys[k], key);
    if (known) continue;
    keep(keys.push(key));
    keep(out.push(item));
  }
  return new_list(out);
}

// sum(attribute, start)
Value Evaluator::sum(Value list, const Arguments& arguments) {
  const Value path = argument(arguments, 0, "attribute");
  const Value start = argument(arguments, 1, "start");
  list = iterable(list, "sum");
  Value total = start.is(Kind::kUndefined) ? int_value(0) : start;
  for (uint32_t i = 0; i < list.b && charge(0); ++i) {
    total = arithmetic("+", total, sort_key(heap_.items[list.a + i], path, false));
  }
  return total;
}

}  // namespace moe::jinja
