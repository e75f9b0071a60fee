// SPDX-License-Identifier: MIT
#pragma once
// Evaluates a program. The first error is stored; every function then returns soon. Steps, text,
// items and depth are limited, so that no template or conversation can block the caller.

#include "src/text/chat/jinja/value.h"

namespace moe::jinja {

struct Limits {
  uint64_t max_steps = 20'000'000;  // each up to about 50 ns: a node, 64 bytes copied or compared
  size_t max_text = size_t{64} << 20;  // bytes of each string created, and of the result
  size_t max_items = size_t{1} << 20;  // in all lists and dicts together
  int max_depth = 160;                 // nesting of nodes and macros
  /// Called occasionally with `user`; true ends the run with MOE_ERR_CANCELLED. May be null.
  bool (*cancelled)(const void* user) = nullptr;
  const void* user = nullptr;
};

/// Factor for charge() for work slower than copying: examining one entry or character.
inline constexpr size_t kLook = 8;

class Evaluator {
 public:
  /// `program` has been parsed. date: "YYYY-MM-DD" for strftime_now, or empty for none.
  Evaluator(const Program& program, const Limits& limits, const Allocator& allocator);

  Status prepare(std::string_view date);
  // Values for the template's variables.
  Status make_text(std::string_view text, bool from_user, Value* out);
  Status make_list(const Array<Value>& items, Value* out);
  Status make_dict(const Array<Entry>& entries, Value* out);
  /// A value of valid JSON (json::is_valid), whose texts are from the user.
  Status make_json(std::string_view json, Value* out);
  Status set_global(std::string_view name, Value value);

  /// Appends the result to `out`, which is unchanged on failure.
  Status run(MarkedText& out);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  enum Function : uint32_t { kRaise, kDate, kNamespaceOf, kRange, kDictOf };
  struct Variable {
    Text name;
    Value value;
  };
  struct Member {
    uint32_t owner;
    Text name;
    Value value;
  };
  struct Loop {
    Value items;
    uint32_t index;
    uint32_t node;   // the statement
    uint32_t scope;  // around it
    uint32_t level;  // 1 for a loop that did not call itself
  };
  // Its variables start at `first`; they end where the next scope begins. Names that it lacks are
  // looked up in `parent`, the scope around it in the template.
  struct Scope {
    size_t first;
    uint32_t parent;
    int64_t serial;  // differs from all others
  };

  // statements (evaluate_statement.cpp)
  Flow execute(uint32_t node);
  Flow execute_body(const Node& node);
  Flow execute_if(const Node& node);
  Flow execute_for(uint32_t index);
  Flow run_loop(uint32_t index, Value items, uint32_t parent, uint32_t level);
  Flow execute_with(const Node& node);
  Value iterable(Value value, const char* what);
  Value filtered(const Node& node, Value items);
  void assign(uint32_t target, Value value);
  void define(Text name, Value value);
  Value captured(uint32_t body);
  Value cut_output(size_t begin);
  uint32_t scope() const { return static_cast<uint32_t>(scopes_.size()) - 1; }
  void push_scope(uint32_t parent);
  void pop_scope();

  // expressions (evaluate_expression.cpp)
  Value evaluate(uint32_t node);
  Value evaluate_inner(const Node& node);
  Value lookup(Text name);
  Value member(Value object, Value key, bool attribute);
  Member* find_member(uint32_t owner, Text name);
  Value loop_member(const Loop& loop, std::string_view name);
  Value slice_of(Value object, const Node& node);
  Value binary(const Node& node);
  Value compare_chain(const Node& node);
  bool compare(std::string_view op, Value left, Value right);
  Value integers(std::string_view op, int64_t a, int64_t b);
  Value fractions(std::string_view op, double a, double b);
  Value power(Value base, Value exponent);
  Value repeated(Value value, int64_t times);
  Value arithmetic(std::string_view op, Value left, Value right);
  Value literal_list(const Node& node);
  Value literal_dict(const Node& node);
  Value choice(const Node& node);

  // calls (calls.cpp)
  struct Arguments {
    explicit Arguments(const Allocator& a) : values(a), names(a) {}
    Array<Value> values;
    Array<Text> names;  // size 0: by position
  };
  void read_arguments(const Node& node, Arguments& out);
  void spread(const Node& node, Arguments& out);
  bool check_arguments(const char* kind, std::string_view name, const Arguments& arguments);
  Value call(const Node& node);
  Value call_value(const Node& node, Value function, const Arguments& arguments);
  Value held_function(Value object, Text name);
  Value call_function(const Node& node, Value function, const Arguments& arguments);
  Value call_macro(const Node& node, Value macro, const Arguments& arguments);
  void bind_parameters(const Node& macro, const Arguments& arguments);
  Value call_loop(const Node& node, Value loop, const Arguments& arguments);
  Value call_namespace(const Arguments& arguments);
  Value range(const Arguments& arguments);
  Value format_date(std::string_view format);
  bool put_date_field(char field);
  Value method(Value object, std::string_view name, const Arguments& arguments, bool* known);
  Value string_method(Value object, std::string_view name, const Arguments& arguments, bool* known);
  Value find_in(Value text, const Arguments& arguments);
  Value begins_or_ends(Value text, bool front, const Arguments& arguments);
  bool take_part(Value* text, const Arguments& arguments, int64_t* begin);
  Value dict_method(Value object, std::string_view name, const Arguments& arguments, bool* known);

  // filters and tests (filters.cpp, tests.cpp)
  Value filter(const Node& node);
  Value apply_filter(std::string_view name, Value value, const Arguments& arguments);
  Value simple_filter(std::string_view name, Value value, const Arguments& arguments, bool* known);
  Value text_filter(std::string_view name, Value text, const Arguments& arguments, bool* known);
  Value number_filter(std::string_view name, Value value, const Arguments& arguments);
  Value items_of(Value value);
  Value json(Value value, const Arguments& arguments);
  void put_json(Value value, int depth, int64_t indent);
  void put_json_line(int depth, int64_t indent);
  void put_json_text(Value text);
  bool test(std::string_view name, Value value, std::span<const Value> arguments);
  bool test_kind(std::string_view name, Value value, bool* known);

  // filters of lists (list_filters.cpp)
  Value list_filter(std::string_view name, Value value, const Arguments& arguments, bool* known);
  Value select(Value list, const Arguments& arguments, bool of_attribute, bool keep_if);
  Value map(Value list, const Arguments& arguments);
  Value attribute_path(Value value, Value path);
  Value sort(std::string_view name, Value list, const Arguments& arguments);
  Value sort_key(Value value, Value path, bool ignore_case);
  Value unique(Value list, const Arguments& arguments);
  Value sum(Value list, const Arguments& arguments);
  Value reverse(Value value);

  // strings (strings.cpp)
  Value as_text(Value value);
  Value concatenate(Value left, Value right);
  enum class Ends : uint8_t { kLeft, kRight, kBoth };
  Value strip(Value text, Value characters, Ends ends);
  Value split(Value text, Value separator, int64_t most);
  Value replace(Value text, Value from, Value to, int64_t most);
  enum class Case : uint8_t { kLower, kUpper, kCapitalized };  // the last: the first letter upper
  Value change_case(Value text, Case to);
  Value title(Value text, bool as_filter);
  Value indent(Value text, const Arguments& arguments);
  Value join(Value list, Value separator, Value attribute);
  Value slice_text(Value text, int64_t begin, int64_t end, int64_t step);
  int64_t length(Value value);
  size_t find(std::string_view text, std::string_view what, size_t from);

  // comparison (tests.cpp)
  bool truth(Value value);
  bool equal(Value a, Value b, int depth = 0);
  bool contains(Value container, Value value);
  bool less(Value a, Value b);

  // values of JSON (from_json.cpp)
  Status make_json_number(std::string_view json, Value* out);
  Status make_json_object(std::string_view json, Value* out);

  // shared (evaluator.cpp)
  bool ok() const { return status_.ok(); }
  Value fail(moe_status code, const char* format, ...) MOE_FORMAT(3, 4);
  Value fail_kind(const char* what, Value found);
  Value fail_unknown(const char* what, std::string_view name);
  Value fail_unsupported(const Node& node);
  Value macro_value(uint32_t node) const {
    return {Kind::kMacro, node, scope(), scopes_.back().serial};
  }
  void keep(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  bool charge(size_t bytes);
  bool same(Text a, std::string_view b);
  void put(std::string_view text, uint8_t mark);
  void put(Value text);
  Value since(size_t begin) const {
    return text_value(
        {static_cast<uint32_t>(begin), static_cast<uint32_t>(heap_.text.size() - begin)});
  }
  Value new_list(const Array<Value>& items);
  Value literal(std::string_view text);
  Text child_text(Value v, size_t from, size_t n) const {
    return {static_cast<uint32_t>(v.a + from), static_cast<uint32_t>(n)};
  }
  const Node& node_at(uint32_t i) const { return program_.nodes[i]; }
  uint32_t child(const Node& node, uint32_t i) const { return program_.children[node.first + i]; }
  Value argument(const Arguments& arguments, size_t position, std::string_view name);

  const Program& program_;
  const Limits limits_;
  const Allocator& allocator_;
  Heap heap_;
  MarkedText out_;
  Array<Variable> variables_;
  Array<Member> members_;  // all namespaces
  Array<Loop> loops_;
  Array<Scope> scopes_;  // the top level, then each scope inside the one that runs
  Text loop_name_;
  Text date_;
  uint32_t n_namespaces_ = 0;
  int64_t n_scopes_ = 0;
  uint64_t steps_ = 0;
  uint64_t next_look_ = 0;  // next check for a cancel
  int depth_ = 0;
  uint32_t line_ = 0;
  Status status_;
};

const char* kind_name(Kind kind);

}  // namespace moe::jinja
