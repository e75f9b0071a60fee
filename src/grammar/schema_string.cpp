// SPDX-License-Identifier: MIT
// Strings: lengths, patterns and formats.
#include "src/grammar/schema_compiler.h"

namespace moe::grammar {
namespace {

#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP_YEAR \
  "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                       \
  "(?:" YEAR                                                                       \
  "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]" \
  "[0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME                                                                                      \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+\\-](?:[01][0-9]|2[0-3]):[" \
  "0-5][0-9])"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H "[0-9A-Fa-f]{1,4}"
#define LETTER "[A-Za-z0-9]"
#define LABEL LETTER "(?:[A-Za-z0-9\\-]{0,61}" LETTER ")?"
#define LABEL_22 LETTER "(?:[A-Za-z0-9\\-]{0,20}" LETTER ")?"
#define LABEL_6 LETTER "(?:[A-Za-z0-9\\-]{0,4}" LETTER ")?"
#define ANY_LABEL LETTER "(?:[A-Za-z0-9\\-]*" LETTER ")?"
#define HOST(label) label "(?:\\." label ")*"
// A host name has at most 253 characters, an address of mail 254, and 64 before the @. To count
// them beside those of a label would take 30,000 states, so of many labels only few are long.
#define HOSTNAME                                                                             \
  "(?:" LABEL "(?:\\." LABEL "){0,2}(?:\\." LABEL_22 "){0,2}|(?:" LABEL_22 "\\.){0,3}" LABEL \
  "(?:\\." LABEL_22 "){0,5}|" LABEL_6 "(?:\\." LABEL_6 "){0,34})"
#define MAIL_HOST                                                                        \
  "(?:" LABEL "(?:\\." LABEL ")?(?:\\." LABEL_22 "){0,2}|(?:" LABEL_22 "\\.){0,2}" LABEL \
  "(?:\\." LABEL_22 "){0,3}|" LABEL_6 "(?:\\." LABEL_6 "){0,24})"
// Those of other languages have no label with two hyphens, which may stand for other characters.
#define IDN_LABEL LETTER "(?:\\-?" LETTER "){0,31}"
#define IDN_LABEL_21 LETTER "(?:\\-?" LETTER "){0,10}"
#define IDN_HOSTNAME \
  "(?:" IDN_LABEL "(?:\\." IDN_LABEL "){0,2}|" IDN_LABEL_21 "(?:\\." IDN_LABEL_21 "){0,10})"
#define ANY_IDN_LABEL LETTER "(?:\\-?" LETTER ")*"
#define URI_CHAR "(?:[A-Za-z0-9\\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})"

#define URI                                                                              \
  "[A-Za-z][A-Za-z0-9+\\-.]*:" URI_CHAR "+(?:\\?(?:" URI_CHAR "|\\?)*)?(?:#(?:" URI_CHAR \
  "|\\?)*)"                                                                              \
  "?"
#define PATH_CHAR "(?:[A-Za-z0-9\\-._~!$&'()*+,;=@]|%[0-9A-Fa-f]{2})"
#define URI_REFERENCE                                                        \
  "(?:" URI "|(?:/?" PATH_CHAR "+(?:/" PATH_CHAR "*)*|/)?(?:\\?(?:" URI_CHAR \
  "|\\?)*)?(?:#(?:" URI_CHAR "|\\?)*)?)"
#define MAIL_CHAR "[A-Za-z0-9!#$%&'*+/=?\\^_`{|}~\\-]"
#define NAME "(?:" MAIL_CHAR "(?:\\.?" MAIL_CHAR "){0,31}|" MAIL_CHAR "{33,64})"
#define EMAIL NAME "@" MAIL_HOST
#define ANY_NAME MAIL_CHAR "+(?:\\." MAIL_CHAR "+)*"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define VARIABLE "[A-Za-z0-9_]+(?:\\*|:[1-9][0-9]{0,3})?"
#define SCHEME "^[A-Za-z][A-Za-z0-9+\\-.]*:"

struct Format {
  std::string_view name;
  std::string_view texts;  // some or all that have it
  std::string_view all;    // part of all texts that have it; empty: `texts` are all
  // Where parts of a text have lengths: `texts` have at most `longest` characters. Beside other
  // keywords `short_texts` are taken, which have the format if they are not longer than `bound`;
  // and a text of `listed` has it if it is not longer than `most`.
  uint32_t longest = kNoLimit;
  std::string_view short_texts = {};
  uint32_t bound = 0;
  std::string_view listed = {};
  uint32_t most = kNoLimit;
};
constexpr std::string_view kAnything = "^";
constexpr uint32_t kLongestLabel = 63;
constexpr uint32_t kLongestHost = 3 * (22 + 1) + kLongestLabel + 5 * (1 + 22);
constexpr uint32_t kLongestIdnHost = 21 + 10 * (1 + 21);
constexpr uint32_t kLongestMail = 64 + 1 + 2 * (22 + 1) + kLongestLabel + 3 * (1 + 22);
constexpr uint32_t kShortMail = 2 + kLongestLabel;  // no part of it is too long
constexpr uint32_t kMostHost = 253;
constexpr uint32_t kMostMail = 254;

constexpr Format kFormats[] = {
    {"date", DATE, ""},
    {"time", TIME, "^[0-9]{2}:"},
    {"date-time", DATE "T" TIME, "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]"},
    {"duration",
     "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M)?(?:[0-9]+D)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T(?:[0-9]+H(?:["
     "0-"
     "9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?|T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+"
     "M(?:"
     "[0-9]+S)?|[0-9]+S))",
     "^P"},
    {"email", EMAIL, "@", kLongestMail, ANY_NAME "@" HOST(ANY_LABEL), kShortMail,
     NAME "@" HOST(LABEL), kMostMail},
    {"idn-email", EMAIL, "@", kLongestMail, ANY_NAME "@" HOST(ANY_LABEL), kShortMail,
     NAME "@" HOST(LABEL), kMostMail},
    {"hostname", HOSTNAME, kAnything, kLongestHost, HOST(ANY_LABEL), kLongestLabel, HOST(LABEL),
     kMostHost},
    {"idn-hostname", IDN_HOSTNAME, kAnything, kLongestIdnHost, HOST(ANY_IDN_LABEL), kLongestLabel,
     HOST(IDN_LABEL), kMostHost},
    {"ipv4", IPV4, ""},
    {"ipv6",
     "(?:" H ":){7}" H "|(?:" H ":){1,7}:|(?:" H ":){1,6}:" H "|(?:" H ":){1,5}(?::" H
     "){1,2}|(?:" H ":){1,4}(?::" H "){1,3}|(?:" H ":){1,3}(?::" H "){1,4}|(?:" H ":){1,2}(?::" H
     "){1,5}|" H ":(?::" H "){1,6}|:(?:(?::" H "){1,7}|:)",
     "^[0-9A-Fa-f]*:"},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}", ""},
    {"uri", URI, SCHEME},
    {"uri-reference", URI_REFERENCE, kAnything},
    {"iri", URI, SCHEME},
    {"iri-reference", URI_REFERENCE, kAnything},
    {"uri-template",
     "(?:[A-Za-z0-9\\-._~!$&'()*+,;=:@/?#]|%[0-9A-Fa-f]{2}|\\{[+#./;?&]?" VARIABLE "(?:," VARIABLE
     ")*\\})*",
     kAnything},
    {"json-pointer", POINTER, ""},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")", "^[0-9]"},
};

/// An expression of these texts. *limits: afterwards those that it does not keep by itself.
std::string_view texts_within(const Format& format, Texts which, Lengths* limits) {
  if (format.short_texts.empty()) return format.texts;
  if (which == Texts::kListed) {
    limits->max = std::min(limits->max, format.most);
    return format.listed;
  }
  if (which == Texts::kAlone && limits->min == 0 && limits->max >= format.longest) {
    limits->max = kNoLimit;
    return format.texts;
  }
  if (limits->min > format.bound) return format.texts;
  limits->max = std::min(limits->max, format.bound);
  return format.short_texts;
}

/// The repetition of one set of characters that an expression is, between its anchors; or ~0.
uint32_t one_repetition(const Expressions& e, uint32_t expr, Match match) {
  bool begin = match == Match::kWhole;
  bool finish = begin;
  uint32_t found = ~0U;
  const Expr& x = e[expr];
  const std::span<const uint32_t> list =
      x.kind == Expr::kSequence ? e.children(x) : std::span<const uint32_t>(&expr, 1);
  for (size_t i = 0; i < list.size(); ++i) {
    const Expr::Kind kind = e[list[i]].kind;
    if (kind == Expr::kBegin && i == 0) {
      begin = true;
    } else if (kind == Expr::kFinish && i + 1 == list.size()) {
      finish = true;
    } else if (kind == Expr::kRepeat && e[e[list[i]].first].kind == Expr::kSet && found == ~0U) {
      found = list[i];
    } else {
      return ~0U;
    }
  }
  return begin && finish ? found : ~0U;
}

}  // namespace

Status SchemaCompiler::lengths(const Parts& parts, Lengths* to) const {
  return least_and_most(parts, "minLength", "maxLength", &to->min, &to->max);
}

// Parses the value of `pattern` or `format`. *limits: afterwards those that the expression does not
// keep by itself.
Status SchemaCompiler::pattern(uint32_t keyword, Texts which, Lengths* limits, Expressions& to,
                               uint32_t* expr, Match* match) const {
  if (json_.kind(keyword) != Json::kString) return malformed(keyword, "expected a string");
  std::string_view text = json_.text(keyword);
  *match = Match::kAnywhere;
  if (json_.name(keyword) == "format"sv) {
    const auto* const found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                           [&](const Format& f) { return f.name == text; });
    if (found == std::end(kFormats)) return unsupported(keyword, "an unknown format");
    const bool all = which == Texts::kAll && !found->all.empty();
    if (!all) *match = Match::kWhole;
    text = all ? found->all : texts_within(*found, which, limits);
  }
  return at(keyword, parse_regex(text, to, expr));
}

// The texts that satisfy all patterns and lengths. *any: all do, and `out` is untouched.
Status SchemaCompiler::string_set(const Parts& parts, Automaton& out, bool* any, Texts which) {
  Lengths limits;
  MOE_TRY(lengths(parts, &limits));
  MOE_TRY(texts_of(parts, which, &limits, out, any));
  if (limits.min == 0 && limits.max == kNoLimit) return {};
  if (limits.min > limits.max) {
    *any = false;
    out = Automaton(allocator());
    return {};
  }
  Automaton length(allocator());
  const uint32_t node = parts[0].node;
  MOE_TRY(at(node, length.from_lengths(limits.min, limits.max)));
  if (*any) {
    out = std::move(length);
    *any = false;
    return {};
  }
  Automaton result(allocator());
  MOE_TRY(at(node, result.combine(out, length, Automaton::Op::kAnd)));
  out = std::move(result);
  return {};
}

// The same without lengths; *limits: afterwards those that are left to check.
Status SchemaCompiler::texts_of(const Parts& parts, Texts which, Lengths* limits, Automaton& out,
                                bool* any) {
  *any = true;
  const auto both = [&](Automaton& with) -> Status {
    if (*any) {
      out = std::move(with);
      *any = false;
      return {};
    }
    Automaton result(allocator());
    MOE_TRY(result.combine(out, with, Automaton::Op::kAnd));
    out = std::move(result);
    return {};
  };
  const auto add = [&](uint32_t k) -> Status {
    Expressions e(allocator());
    uint32_t expr = 0;
    Match match = Match::kAnywhere;
    MOE_TRY(pattern(k, which, limits, e, &expr, &match));
    Automaton next(allocator());
    MOE_TRY(at(k, next.from_expression(e, expr, match)));
    MOE_TRY(spend(1000 + 10 * uint64_t{next.n_cells()}));
    MOE_TRY(at(k, both(next)));
    return spend(out.n_cells());
  };
  for (const std::string_view keyword : {"pattern"sv, "format"sv})
    MOE_TRY(each(parts, keyword, add));
  const auto all_but = [&](std::span<const std::string_view> texts) -> Status {
    Automaton others(allocator());
    MOE_TRY(others.from_all_but(texts));
    return both(others);
  };
  for (const Part& p : parts) {
    if (breaks(p, "pattern"sv) || breaks(p, "format"sv)) {
      if (*any) MOE_TRY(all_but({}));
      Expressions e(allocator());
      uint32_t expr = 0;
      Match match = Match::kAnywhere;
      MOE_TRY(pattern(p.node, Texts::kAll, limits, e, &expr, &match));
      Automaton wrong(allocator());
      MOE_TRY(at(p.node, wrong.from_expression(e, expr, match)));
      Automaton rest(allocator());
      MOE_TRY(at(p.node, rest.combine(out, wrong, Automaton::Op::kWithout)));
      MOE_TRY(spend(1000 + 10 * uint64_t{wrong.n_cells()} + rest.n_cells()));
      if (rest.empty() && breaks(p, "format"sv))
        return unsupported(p.node, "a negation of a format");
      out = std::move(rest);
    }
    const bool list = breaks(p, "enum"sv);
    Array<std::string_view> texts(allocator());
    for (uint32_t c = list                   ? json_.first(p.node)
                      : breaks(p, "const"sv) ? p.node
                                             : Json::kNone;
         c != Json::kNone; c = list ? json_.next(c) : Json::kNone) {
      if (json_.kind(c) == Json::kString) MOE_TRY(texts.push(json_.text(c)));
    }
    if (!texts.empty()) MOE_TRY(at(p.node, all_but(texts.span())));
  }
  return {};
}

Status SchemaCompiler::string(const Parts& parts, uint32_t next, uint32_t* out) {
  Lengths limits;
  MOE_TRY(lengths(parts, &limits));
  uint32_t keyword = Json::kNone;
  uint32_t n_patterns = 0;
  for (const std::string_view name : {"pattern"sv, "format"sv}) {
    MOE_TRY(each(parts, name, [&](uint32_t k) -> Status {
      keyword = k;
      ++n_patterns;
      return {};
    }));
  }
  const auto free_length = [&] { return limits.min == 0 && limits.max == kNoLimit; };
  const bool negated = std::any_of(parts.begin(), parts.end(), [&](const Part& p) {
    return breaks(p, "pattern"sv) || breaks(p, "format"sv) || breaks(p, "enum"sv) ||
           breaks(p, "const"sv);
  });
  if (n_patterns == 0 && free_length() && !negated) {
    *out = network_.call(shared(kAnyString), next);
    return {};
  }
  if (notation_ != nullptr) {
    Automaton texts(allocator());
    MOE_TRY(marked_texts(parts, texts));
    *out = quote(texts.build(network_, Spelling::kPlain, quote(next)));
    return {};
  }
  const uint32_t end = network_.byte('"', '"', next);
  uint32_t inside = kNever;
  if (limits.min > limits.max) {
  } else if (negated) {
    Automaton texts(allocator());
    bool any = false;
    MOE_TRY(string_set(parts, texts, &any));
    if (any) MOE_TRY(texts.from_lengths(0, kNoLimit));
    inside = texts.build(network_, Spelling::kJson, end);
  } else if (n_patterns == 0) {
    inside = network_.repeat(shared(kAnyChar), limits.min, limits.max, end);
  } else {
    Expressions e(allocator());
    uint32_t expr = 0;
    Match match = Match::kAnywhere;
    MOE_TRY(pattern(keyword, Texts::kAlone, &limits, e, &expr, &match));
    const uint32_t repeat = n_patterns == 1 ? one_repetition(e, expr, match) : ~0U;
    if (repeat != ~0U) {
      Expr both = e[repeat];
      both.min = std::max(both.min, limits.min);
      both.max = std::min(both.max, limits.max);
      if (both.min <= both.max) {
        MOE_TRY(e.add(both, &expr));
        inside = e.build(network_, expr, Spelling::kJson, end);
      }
    } else if (n_patterns == 1 && free_length()) {
      MOE_TRY(at(keyword, build_match(e, expr, match, Spelling::kJson, network_, end, &inside)));
    } else {
      Automaton texts(allocator());
      bool any = false;
      MOE_TRY(string_set(parts, texts, &any));
      inside = texts.build(network_, Spelling::kJson, end);
    }
  }
  *out = network_.byte('"', '"', inside);
  return {};
}

}  // namespace moe::grammar
