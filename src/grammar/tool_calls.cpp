// SPDX-License-Identifier: MIT
// Writes the calls of each format as a network, around the rules of the tools' arguments.
#include "src/grammar/tool_calls.h"

#include "src/grammar/automaton.h"
#include "src/grammar/grammar.h"
#include "src/grammar/schema.h"
#include "src/grammar/token_trie.h"
#include "src/grammar/tool_text.h"
#include "src/text/chat/json/scanner.h"
#include "src/text/chat/json/text.h"
#include "src/text/chat/tools/argument.h"

namespace moe::grammar {
namespace {

constexpr uint32_t kMostIndent = 8;
constexpr size_t kMostName = 256;         // as ToolCallParser
constexpr size_t kMostChannelName = 128;  // a header is kept up to 256 bytes (ReplySplitter)
constexpr size_t kMostTools = 1024;       // a state of the machine has a few items for each
constexpr std::string_view kAnyObject = R"({"type": "object"})";
constexpr std::string_view kNoArguments = R"({"type": "object", "maxProperties": 0})";

using Mark = ToolFormat::Mark;

class CallCompiler {
 public:
  CallCompiler(const ToolFormat& format, std::string_view tools, const CallChoice& choice,
               const Tokenizer& tokenizer, Network& network)
      : format_(format),
        list_(json::trimmed(tools)),
        choice_(choice),
        tokenizer_(tokenizer),
        network_(network),
        tools_(network.allocator()) {}

  Status compile(uint32_t* root) {
    space_ = network_.add_rule();
    network_.define(space_, network_.byte(' ', ' ', kEnd));
    line_ = network_.add_rule();
    network_.define(line_, network_.byte('\n', '\n', kEnd));
    MOE_TRY(add_tools());
    MOE_TRY(check_arguments());
    *root = network_.add_rule();
    const bool channels = format_.syntax == ToolSyntax::kChannels;
    if (channels) MOE_TRY(check_channels());
    if (choice_.required) {
      network_.define(*root, channels ? channel() : required());
      return network_.status();
    }
    const uint32_t begin = network_.open_split();
    network_.define(*root, begin);
    if (channels) return build_channels(tokenizer_, network_, begin, recipient(kAnywhere));
    return build_text(format_, tokenizer_, network_, begin, body(begin),
                      format_.bare ? gap(object(begin)) : kNever);
  }

 private:
  struct Tool {
    Tool(size_t i, const Allocator& a) : index(i), name(a) {}
    size_t index;  // in the list
    String name;
    uint32_t arguments = 0;  // the rule
  };

  bool single() const { return choice_.one; }

  // The tools that may be called. Of two with the same name the reader takes the first.
  Status add_tools() {
    std::string_view key;
    std::string_view tool;
    size_t i = 0;
    for (json::Parts parts(list_); parts.next(&key, &tool); ++i) {
      const std::string_view function = json::member(tool, "function");
      Tool made(i, network_.allocator());
      MOE_TRY(json::read_string(json::member(function, "name"), made.name));
      const std::string_view name = made.name.view();
      const auto same = [&](const Tool& t) { return t.name.view() == name; };
      if (!choice_.only.empty() && name != choice_.only) continue;
      if (std::any_of(tools_.begin(), tools_.end(), same)) continue;
      if (tools_.size() == kMostTools) {
        return Status::error(MOE_ERR_UNSUPPORTED,
                             "tools[%zu].function.name: expected at most %zu tools for calls that "
                             "are held to a form, found '%.60s' behind them",
                             i, kMostTools, made.name.c_str());
      }
      MOE_TRY(check_name(made));
      MOE_TRY(add_arguments(function, made));
      MOE_TRY(tools_.push(std::move(made)));
    }
    if (!tools_.empty()) return {};
    if (choice_.only.empty()) {
      return Status::error(MOE_ERR_ARGUMENT, "tools: a call is asked for, and there is none");
    }
    return Status::error(MOE_ERR_ARGUMENT, "tools: there is none with the name '%.*s'",
                         static_cast<int>(std::min<size_t>(choice_.only.size(), 60)),
                         choice_.only.data());
  }

  Status check_name(const Tool& tool) const {
    const std::string_view name = tool.name.view();
    const size_t most = format_.syntax == ToolSyntax::kChannels ? kMostChannelName : kMostName;
    if (name.size() > most) {
      return Status::error(
          MOE_ERR_UNSUPPORTED,
          "tools[%zu].function.name: expected at most %zu bytes for a call that is "
          "held to a form, found %zu",
          tool.index, most, name.size());
    }
    if (format_.syntax == ToolSyntax::kJson) return {};
    const auto plain = [](char c) {
      return static_cast<uint8_t>(c) > ' ' && c != 0x7F &&
             std::string_view("\"':;<>[]{}").find(c) == std::string_view::npos;
    };
    if (std::all_of(name.begin(), name.end(), plain)) return {};
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "tools[%zu].function.name: a call in the format %s cannot be held to a "
                         "form if the name has white space or one of \"':;<>[]{}, found '%.60s'",
                         tool.index, format_.name, tool.name.c_str());
  }

  Status add_arguments(std::string_view function, Tool& tool) {
    const std::string_view strict = json::member(function, "strict");
    std::string_view schema = json::member(function, "parameters");
    const bool held = strict == "true" || (choice_.required && strict != "false");
    if (schema.empty() || schema == "null") schema = kNoArguments;
    const Status status = make_arguments(schema, held, tool);
    if (status.ok() || status.code() == MOE_ERR_MEMORY) return status;
    return Status::error(status.code(), "tools[%zu].function.parameters: %.300s%s", tool.index,
                         status.text(),
                         strict == "true" ? "" : "; with \"strict\": false they are any object");
  }

  Status check_arguments() const {
    Array<uint32_t> rules(network_.allocator());
    Array<uint8_t> some(network_.allocator());
    for (const Tool& tool : tools_) MOE_TRY(rules.push(tool.arguments));
    MOE_TRY(network_.satisfiable(rules.span(), some));
    for (size_t i = 0; i < tools_.size(); ++i) {
      if (some[i] != 0) continue;
      return Status::error(MOE_ERR_RANGE,
                           "tools[%zu].function.parameters: no object satisfies the schema",
                           tools_[i].index);
    }
    return {};
  }

  Status make_arguments(std::string_view schema, bool held, Tool& tool) {
    const bool tags = format_.syntax == ToolSyntax::kTags;
    if (!held) {  // the tools share the rule
      if (!made_any_) {
        MOE_TRY(tags ? free_tags(&any_) : whole_object(kAnyObject, &any_));
      }
      made_any_ = true;
      tool.arguments = any_;
      return {};
    }
    if (!tags) return whole_object(schema, &tool.arguments);
    parameters_ = schema;
    const TagStyle style = {.value_end = mark(Mark::kValueEnd),
                            .argument = argument,
                            .types = types,
                            .writable = writable,
                            .user = this};
    return compile_tags(schema, style, network_, work_, &tool.arguments);
  }

  Status whole_object(std::string_view schema, uint32_t* rule) {
    const std::string_view quote = mark(Mark::kKeyOpen);
    const Notation notation = {.quote = quote, .token = special_token(tokenizer_, quote)};
    const bool gemma = format_.syntax == ToolSyntax::kGemma;
    return compile_object(schema, gemma ? &notation : nullptr, network_, work_, rule);
  }

  std::string_view mark(Mark m) const { return format_.marks[m]; }

  // White space as templates have it between parts: nothing, a space, or lines' ends and spaces.
  uint32_t gap(uint32_t next) {
    const uint32_t lines =
        network_.repeat(line_, 1, 2, network_.repeat(space_, 0, kMostIndent, next));
    const uint32_t ways[] = {next, network_.byte(' ', ' ', next), lines};
    return network_.split(ways);
  }

  // A mark is a special token if there is one with its spelling.
  uint32_t spelled(std::string_view text, uint32_t next) {
    const int32_t id = special_token(tokenizer_, text);
    return id >= 0 ? read_token(network_, id, next) : network_.literal(text, next);
  }
  uint32_t read(Mark m, uint32_t next) { return spelled(mark(m), next); }

  // Characters of a set that is a regular expression.
  uint32_t characters(std::string_view set, uint32_t next) {
    Expressions e(network_.allocator());
    uint32_t expr = 0;
    network_.fail(parse_regex(set, e, &expr));
    return network_.status().ok() ? e.build(network_, expr, Spelling::kPlain, next) : kNever;
  }

  // A choice of f(tool) for the tools.
  template <class F>
  uint32_t each_tool(F&& f) {
    Array<uint32_t> targets(network_.allocator());
    for (const Tool& tool : tools_) network_.fail(targets.push(f(tool)));
    return network_.split(targets.span());
  }

  // One f(next), or several one after the other.
  template <class F>
  uint32_t sequence(uint32_t next, F&& f) {
    const uint32_t behind = network_.open_split();
    const uint32_t first = f(behind);
    const uint32_t targets[] = {next, single() ? kNever : first};
    network_.close_split(behind, targets);
    return first;
  }

  uint32_t required() {
    const uint32_t behind = network_.open_split();
    uint32_t call = read(Mark::kOpen, body(behind));
    uint32_t more = kNever;
    if (format_.bare) {
      const uint32_t bare = object(behind);
      call = network_.optional(bare, call);
      more = gap(network_.literal(";", gap(bare)));
    }
    const uint32_t first = gap(call);
    const uint32_t targets[] = {kEnd, single() ? kNever : first, single() ? kNever : more};
    network_.close_split(behind, targets);
    return first;
  }

  // The rest of a call behind the first mark.
  uint32_t body(uint32_t next) {
    switch (format_.syntax) {
      case ToolSyntax::kNamed:
        return gap(sequence(gap(read(Mark::kClose, next)),
                            [&](uint32_t behind) { return gap(named(behind)); }));
      case ToolSyntax::kTags:
        if (mark(Mark::kClose).empty()) return tagged(next);  // a line's end would end the name
        return sequence(gap(read(Mark::kClose, next)),
                        [&](uint32_t behind) { return gap(tagged(behind)); });
      case ToolSyntax::kGemma:
        return mapping(read(Mark::kClose, next));
      case ToolSyntax::kMistral: {
        const uint32_t ways[] = {gap(json(next)), gap(mistral(next))};
        return network_.split(ways);
      }
      default:
        return gap(json(mark(Mark::kClose).empty() ? next : gap(read(Mark::kClose, next))));
    }
  }

  // An object for a call, or a list of them.
  uint32_t json(uint32_t next) {
    if (!format_.object.list) return object(next);
    const uint32_t end = gap(network_.literal("]", next));
    const uint32_t behind = network_.open_split();
    const uint32_t first = object(behind);
    const uint32_t more = gap(network_.literal(",", gap(first)));
    const uint32_t targets[] = {end, single() ? kNever : more};
    network_.close_split(behind, targets);
    return network_.literal("[", gap(first));
  }

  uint32_t key(std::string_view name, uint32_t value) {
    return network_.literal("\"", network_.literal(name, network_.literal("\":", gap(value))));
  }
  uint32_t comma(uint32_t next) { return network_.literal(",", gap(next)); }

  // Models write the name or the arguments first, as they were trained.
  uint32_t object(uint32_t next) {
    uint32_t end = gap(network_.literal("}", next));
    const std::string_view id = format_.object.id;
    const auto with_id = [&](uint32_t after) {
      return key(id, characters("\"[0-9A-Za-z_\\-]{1,64}\"", after));
    };
    if (!id.empty()) end = network_.optional(comma(with_id(end)), end);
    const uint32_t one = each_tool([&](const Tool& tool) {
      const auto name = [&](uint32_t after) {
        const uint32_t text =
            read_text(network_, tool.name.view(), Spelling::kJson, network_.literal("\"", after));
        return key(format_.object.name, network_.literal("\"", text));
      };
      const auto arguments = [&](uint32_t after) {
        return key(format_.object.arguments, network_.call(tool.arguments, after));
      };
      const uint32_t ways[] = {name(comma(arguments(end))), arguments(comma(name(end)))};
      return network_.split(ways);
    });
    const uint32_t first = id.empty() ? one : network_.optional(with_id(comma(one)), one);
    return network_.literal("{", gap(first));
  }

  // A call by its name, in the older form of DeepSeek's with a block of Markdown.
  uint32_t named(uint32_t next) {
    const uint32_t end = gap(read(Mark::kCallClose, next));
    const bool kimi = std::string_view(format_.name) == "kimi-k2";
    const uint32_t all = each_tool([&](const Tool& tool) {
      const uint32_t arguments = gap(network_.call(tool.arguments, end));
      const std::string_view name = tool.name.view();
      uint32_t behind = read(Mark::kNameEnd, arguments);
      if (kimi) {
        behind = network_.literal(":", characters("[0-9]{1,9}", behind));
        return network_.literal("functions.", network_.literal(name, behind));
      }
      const uint32_t fenced = network_.literal(
          "\n```json", gap(network_.call(tool.arguments, gap(network_.literal("```", end)))));
      const uint32_t ways[] = {
          network_.literal(name, behind),
          network_.literal("function", read(Mark::kNameEnd, network_.literal(name, fenced)))};
      return network_.split(ways);
    });
    return read(Mark::kCallOpen, all);
  }

  uint32_t mistral(uint32_t next) {
    return each_tool([&](const Tool& tool) {
      const uint32_t rest = read(Mark::kNameEnd, gap(network_.call(tool.arguments, next)));
      const uint32_t id = read(Mark::kKeyOpen, characters("[0-9A-Za-z]{9}", rest));
      return network_.literal(tool.name.view(), network_.optional(id, rest));
    });
  }

  uint32_t mapping(uint32_t next) {
    return network_.literal("call:", each_tool([&](const Tool& tool) {
                              return network_.literal(tool.name.view(),
                                                      network_.call(tool.arguments, next));
                            }));
  }

  uint32_t tagged(uint32_t next) {
    const uint32_t end = read(Mark::kCallClose, next);
    return read(Mark::kCallOpen, each_tool([&](const Tool& tool) {
                  const uint32_t rest = gap(network_.call(tool.arguments, end));
                  return network_.literal(tool.name.view(), read(Mark::kNameEnd, rest));
                }));
  }

  // An argument in its tags, whose value `value` makes of the node behind it.
  template <class F>
  uint32_t tag(std::string_view name, F&& value, uint32_t next) {
    const uint32_t end = read(Mark::kValueEnd, gap(next));
    uint32_t inside = value(format_.lines ? network_.literal("\n", end) : end);
    if (format_.lines) inside = network_.literal("\n", inside);
    if (!mark(Mark::kValueOpen).empty()) inside = gap(read(Mark::kValueOpen, inside));
    const uint32_t behind = read(Mark::kKeyEnd, inside);
    return read(Mark::kKeyOpen, name.empty() ? characters("[^<>\"\\s]{1,64}", behind)
                                             : network_.literal(name, behind));
  }

  static uint32_t argument(void* user, Network& network, std::string_view name,
                           uint32_t value_rules[2], uint32_t next) {
    auto* self = static_cast<CallCompiler*>(user);
    return self->tag(
        name,
        [&](uint32_t end) {
          const uint32_t ways[] = {network.call(value_rules[0], end),
                                   network.call(value_rules[1], end)};
          return network.split(ways);
        },
        next);
  }
  static uint32_t types(void* user, std::string_view name) {
    const auto* self = static_cast<const CallCompiler*>(user);
    return argument_types(self->parameters_, name);
  }
  static bool writable(void* user, std::string_view name) {
    const auto* self = static_cast<const CallCompiler*>(user);
    const auto control = [](char c) { return static_cast<uint8_t>(c) < ' '; };
    return !name.empty() && name.find(self->mark(Mark::kKeyEnd)) == std::string_view::npos &&
           name.front() != ' ' && name.back() != ' ' &&
           std::none_of(name.begin(), name.end(), control);
  }

  // Any arguments in tags.
  Status free_tags(uint32_t* rule) {
    Expressions e(network_.allocator());
    uint32_t expr = 0;
    Automaton end(network_.allocator());
    Automaton any(network_.allocator());
    Automaton text(network_.allocator());
    String pattern(network_.allocator());
    MOE_TRY(regex_of(mark(Mark::kValueEnd), pattern));
    MOE_TRY(parse_regex(pattern.view(), e, &expr));
    MOE_TRY(end.from_expression(e, expr, Match::kAnywhere));
    MOE_TRY(any.from_lengths(0, kNoLimit));
    MOE_TRY(text.combine(any, end, Automaton::Op::kWithout));
    *rule = network_.add_rule();
    const uint32_t loop = network_.open_split();
    const auto value = [&](uint32_t next) { return text.build(network_, Spelling::kPlain, next); };
    const uint32_t targets[] = {kEnd, tag({}, value, loop)};
    network_.close_split(loop, targets);
    network_.define(*rule, loop);
    return network_.status();
  }

  Status check_channels() const {
    for (const char* piece : {"<|channel|>", "<|message|>", "<|start|>", "<|end|>"}) {
      if (special_token(tokenizer_, piece) >= 0) continue;
      return Status::error(MOE_ERR_UNSUPPORTED,
                           "tools: calls cannot be held to a schema or asked for: the tokenizer "
                           "has no special token %s; leave 'strict' and the choice of a tool out",
                           piece);
    }
    return {};
  }

  // A message of analysis or a preamble, or the call.
  uint32_t channel() {
    const uint32_t begin = network_.open_split();
    const uint32_t text = network_.open_split();
    const uint32_t next = spelled("<|start|>", network_.literal("assistant", begin));
    const uint32_t goes_on[] = {network_.byte(0, kTokenByte - 1, text), spelled("<|end|>", next)};
    network_.close_split(text, goes_on);
    const uint32_t message = spelled("<|message|>", text);
    const uint32_t call = network_.literal(" to=functions.", recipient(kInChannel));
    const uint32_t behind[] = {message, call};
    const uint32_t names[] = {network_.literal("analysis", message),
                              network_.literal("commentary", network_.split(behind))};
    const uint32_t ways[] = {spelled("<|channel|>", network_.split(names)),
                             network_.literal(" to=functions.", recipient(kInRole))};
    network_.close_split(begin, ways);
    return begin;
  }

  // The name and the arguments; behind a role the channel follows the name.
  enum Where : uint8_t { kInRole, kInChannel, kAnywhere };
  uint32_t recipient(Where where) {
    return each_tool([&](const Tool& tool) {
      const uint32_t arguments = spelled("<|message|>", gap(network_.call(tool.arguments, kEnd)));
      const uint32_t kinds[] = {arguments, network_.literal(" json", arguments),
                                network_.literal(" ", constrained(arguments))};
      const uint32_t kind = network_.split(kinds);
      const uint32_t named = spelled("<|channel|>", network_.literal("commentary", kind));
      const uint32_t either[] = {named, kind};
      const uint32_t rest = where == kInRole      ? named
                            : where == kInChannel ? kind
                                                  : network_.split(either);
      return network_.literal(tool.name.view(), rest);
    });
  }
  uint32_t constrained(uint32_t next) {
    return special_token(tokenizer_, "<|constrain|>") < 0
               ? kNever
               : spelled("<|constrain|>", network_.literal("json", next));
  }

  const ToolFormat& format_;
  const std::string_view list_;
  const CallChoice choice_;
  const Tokenizer& tokenizer_;
  Network& network_;
  Array<Tool> tools_;
  SchemaWork work_;
  std::string_view parameters_;  // the schema that is compiled
  bool made_any_ = false;
  uint32_t any_ = 0;    // the rule of any arguments
  uint32_t space_ = 0;  // the rules of one character
  uint32_t line_ = 0;
};

}  // namespace

Status compile_calls(const ToolFormat& format, std::string_view tools, const CallChoice& choice,
                     const Tokenizer& tokenizer, Network& network, uint32_t* root) {
  return CallCompiler(format, tools, choice, tokenizer, network).compile(root);
}

Status Grammar::create_calls(const ToolFormat& format, std::string_view tools,
                             const CallChoice& choice, const Tokenizer& tokenizer) {
  uint32_t root = 0;
  MOE_TRY(compile_calls(format, tools, choice, tokenizer, network_, &root));
  return network_.finish(root, tokens_.writable()).with_context("tools");
}

}  // namespace moe::grammar
