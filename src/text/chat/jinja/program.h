// SPDX-License-Identifier: MIT
#pragma once
// A parsed template: nodes in one array, linked by index. The language is the subset of Jinja that
// chat templates use, with the semantics of Jinja 3
// (https://jinja.palletsprojects.com/en/stable/templates/), with `trim_blocks` and `lstrip_blocks`.

#include <string_view>

#include "src/base/array.h"

namespace moe::jinja {

/// Bytes of Program::text, or of the text that an evaluation appends to it.
struct Text {
  uint32_t begin = 0;
  uint32_t size = 0;
};

inline constexpr uint32_t kNoNode = ~0U;
inline constexpr size_t kMaxSourceBytes = size_t{1} << 20;
inline constexpr int kMaxNesting = 64;  // nesting of expressions and statements

enum class TokenKind : uint8_t {
  kData,
  kOutputBegin,
  kOutputEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kNumber,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 0;
  Text text = {};
};

/// "a, b": nodes. "list": children[first, first + count). "text": Node::text.
enum class Op : uint8_t {
  // expressions
  kString,     // text
  kInt,        // number
  kFloat,      // number: the bits of a double
  kTrue,       //
  kFalse,      //
  kNone,       //
  kName,       // text
  kList,       // list
  kDict,       // list: key, value, key, value ...
  kAttribute,  // a, text
  kItem,       // a, b
  kSlice,      // a, list: begin, end, step (each may be kNoNode)
  kCall,       // a, list: arguments, named ones as kKeyword
  kFilter,     // a, text, list: arguments
  kTest,       // a, text, list: arguments
  kKeyword,    // text, a (kNoNode: a macro's parameter without a default)
  kSpread,     // a: more arguments; number 1: of a list, 2: of a mapping
  kNot,        // a
  kSign,       // a; number -1: minus, 1: plus
  kAnd,        // a, b
  kOr,         // a, b
  kChoice,     // list: condition, then, else (may be kNoNode)
  kBinary,     // a, b, text: + - * / // % ** ~
  kCompare,    // list: value, kOperand, kOperand ...
  kOperand,    // a, text: == != < <= > >= in; number 1: negated
  kCapture,    // a: body, whose output is the value
  // statements
  kData,         // text
  kOutput,       // a
  kIf,           // list: condition, body, condition, body ... [, else body]
  kFor,          // list: iterable, condition or kNoNode, body, else body or kNoNode, targets;
                 // number 1: recursive
  kSet,          // a: target (kName, kAttribute of a name, kList), b: value
  kMacro,        // text, a: body, list: parameters as kKeyword, number: MacroNames; also a value
  kWith,         // a: body in a scope of its own, list: kKeyword
  kUnsupported,  // text: a construct that is known, but not supported; also an expression
  kBreak,
  kContinue,
  kBody  // list
};

/// Names that a macro's body reads, and that its caller fills.
enum MacroNames : int64_t { kReadsCaller = 1, kReadsVarargs = 2, kReadsKwargs = 4 };

struct Node {
  Op op = Op::kNone;
  uint32_t line = 0;
  uint32_t a = kNoNode;
  uint32_t b = kNoNode;
  uint32_t first = 0;
  uint32_t count = 0;
  Text text = {};
  int64_t number = 0;
};

struct Program {
  explicit Program(const Allocator& a) : text(a), nodes(a), children(a) {}

  std::string_view view(Text t) const { return {text.data() + t.begin, t.size}; }

  Array<char> text;  // the source, then unescaped string literals
  Array<Node> nodes;
  Array<uint32_t> children;
  uint32_t root = kNoNode;
};

/// Checks and parses. MOE_ERR_FORMAT for an invalid template, MOE_ERR_UNSUPPORTED for one that
/// exceeds a limit; both name the place and its line. Constructs outside the subset become nodes
/// that fail when they are reached.
Status parse(std::string_view source, Program& program);

/// Lexer of parse(): program.text is the source; literals are appended.
Status split_tokens(Program& program, Array<Token>& tokens);

}  // namespace moe::jinja
