// SPDX-License-Identifier: MIT
// Matches texts with grammars, for tests/parity/grammars.py and tests/bench/grammars.py.
// Usage: match_grammars CASES [VOCABULARY]. CASES has lines of {"kind": "schema" | "gbnf" |
// "regex", "grammar": TEXT, "texts": [TEXT, ...], "prefixes": [TEXT, ...], "samples": NUMBER,
// "seed": NUMBER, "tokens": [[TOKEN, ...], ...]}; VOCABULARY is a JSON array with the hexadecimal
// texts of tokens, otherwise the 256 bytes. Prints a line for each: {"error": TEXT} or {"whole":
// [BOOL, ...], "allowed": [[TOKEN,
// ...] or null, ...], "samples": [TEXT or null, ...], "bytes": of the compiled grammar,
// "state_bytes": at most for a text of "tokens", "compile_ns": NUMBER, "first_ns": of compiling and
// the first mask, "mask_ns": [[of each token until one that does not fit, ...], ...]}. A sample is
// null if it did not end within 2000 tokens.

#include <time.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "formats/import/failure.h"
#include "src/grammar/grammar.h"

namespace {

using namespace moe;
using Value = nlohmann::json;

std::vector<std::string> read_vocabulary(int argc, char** argv) {
  std::vector<std::string> texts;
  if (argc < 3) {
    for (int i = 0; i < 256; ++i) texts.emplace_back(1, static_cast<char>(i));
    return texts;
  }
  std::ifstream file(argv[2]);
  for (const Value& token : Value::parse(file)) {
    const auto hex = token.get<std::string>();
    std::string text;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
      text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    texts.push_back(text);
  }
  return texts;
}

grammar::Kind kind_of(const std::string& name) {
  return name == "gbnf"    ? grammar::Kind::kGbnf
         : name == "regex" ? grammar::Kind::kRegex
                           : grammar::Kind::kJsonSchema;
}

bool is_whole(const grammar::Grammar& grammar, const std::string& text) {
  grammar::Matcher matcher(grammar);
  check(matcher.init());
  bool fits = true;
  for (size_t i = 0; i < text.size() && fits; ++i) {
    check(matcher.accept_text(std::string_view(text).substr(i, 1), &fits));
    if (fits) check(matcher.tidy());
  }
  return fits && matcher.may_end();
}

Value allowed_after(const grammar::Grammar& grammar, const std::string& text) {
  grammar::Matcher matcher(grammar);
  check(matcher.init());
  bool fits = true;
  if (!text.empty()) check(matcher.accept_text(text, &fits));
  if (!fits) return nullptr;
  const grammar::TokenSet* set = nullptr;
  check(matcher.allowed(&set));
  Value out = Value::array();
  for (uint32_t i = 0; i < grammar.tokens().n_tokens(); ++i) {
    if (set->has(i)) out.push_back(i);
  }
  if (matcher.may_end()) out.push_back(-1);
  return out;
}

// A text of random tokens that ends as soon as chance lets it.
Value sample(const grammar::Grammar& grammar, std::mt19937& random) {
  grammar::Matcher matcher(grammar);
  check(matcher.init());
  std::string text;
  for (int step = 0; step < 2000; ++step) {
    const bool may_end = matcher.may_end();
    if (matcher.must_end() || (may_end && random() % 3 == 0)) return text;
    const grammar::TokenSet* set = nullptr;
    check(matcher.allowed(&set));
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < grammar.tokens().n_tokens(); ++i) {
      // Closing tokens are more probable, or few texts would end.
      const std::string_view t = grammar.tokens().text(static_cast<int32_t>(i));
      const bool closes = t.find_first_of("\"]}") != t.npos;
      if (set->has(i)) tokens.insert(tokens.end(), closes ? 30 : 1, i);
    }
    if (tokens.empty()) throw std::runtime_error("a dead end behind: " + text);
    const uint32_t token = tokens[random() % tokens.size()];
    bool fits = false;
    check(matcher.accept(static_cast<int32_t>(token), &fits));
    if (!fits) throw std::runtime_error("a token that is allowed does not fit: " + text);
    check(matcher.tidy());
    text += grammar.tokens().text(static_cast<int32_t>(token));
  }
  return nullptr;
}

// The thread's processor time, so that other programs do not count.
int64_t now_ns() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

// How long the sets of tokens of a text take, and accepting its tokens.
Value measure(const grammar::Grammar& grammar, const Value& tokens, uint64_t* state_bytes) {
  Value out = Value::array();
  grammar::Matcher matcher(grammar);
  check(matcher.init());
  for (const Value& t : tokens) {
    const auto token = t.get<int32_t>();
    const int64_t begin = now_ns();
    const grammar::TokenSet* set = nullptr;
    check(matcher.allowed(&set));
    bool fits = set->has(static_cast<size_t>(token));
    if (fits) check(matcher.accept(token, &fits));
    if (fits) check(matcher.tidy());
    out.push_back(now_ns() - begin);
    *state_bytes = std::max(*state_bytes, matcher.n_bytes());
    if (!fits) break;
  }
  return out;
}

// Compiles a grammar and finds its first set, in one go.
int64_t time_to_first(const grammar::TokenTrie& trie, grammar::Kind kind, const std::string& text) {
  const int64_t begin = now_ns();
  grammar::Grammar grammar(trie, system_allocator());
  check(grammar.create(kind, text));
  grammar::Matcher matcher(grammar);
  check(matcher.init());
  const grammar::TokenSet* set = nullptr;
  check(matcher.allowed(&set));
  return now_ns() - begin;
}

Value run(const grammar::TokenTrie& trie, const Value& c) {
  grammar::Grammar grammar(trie, system_allocator());
  const grammar::Kind kind = kind_of(c.at("kind").get<std::string>());
  const auto text = c.at("grammar").get<std::string>();
  const int64_t begin = now_ns();
  const Status made = grammar.create(kind, text);
  const int64_t compile_ns = now_ns() - begin;
  if (!made.ok()) return {{"error", made.text()}};
  Value out = {{"bytes", grammar.network().n_bytes()}, {"whole", Value::array()}};
  for (const Value& t : c.value("texts", Value::array())) {
    out["whole"].push_back(is_whole(grammar, t.get<std::string>()));
  }
  for (const Value& t : c.value("prefixes", Value::array())) {
    out["allowed"].push_back(allowed_after(grammar, t.get<std::string>()));
  }
  uint64_t state_bytes = 0;
  for (const Value& tokens : c.value("tokens", Value::array())) {
    out["mask_ns"].push_back(measure(grammar, tokens, &state_bytes));
  }
  if (c.contains("tokens")) {
    out["compile_ns"] = compile_ns;
    out["first_ns"] = time_to_first(trie, kind, text);
    out["state_bytes"] = state_bytes;
  }
  std::mt19937 random(c.value("seed", 1U));
  for (int i = 0; i < c.value("samples", 0); ++i) out["samples"].push_back(sample(grammar, random));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    const std::vector<std::string> vocabulary = read_vocabulary(argc, argv);
    const std::vector<std::string_view> texts(vocabulary.begin(), vocabulary.end());
    grammar::TokenTrie trie(system_allocator());
    check(trie.create(std::span(texts)));
    std::ifstream cases(argv[1]);
    for (std::string line; std::getline(cases, line);) {
      Value out;
      try {
        out = run(trie, Value::parse(line));
      } catch (const std::exception& e) {
        out = {{"failed", e.what()}};
      }
      std::printf("%s\n", out.dump(-1, ' ', false, Value::error_handler_t::replace).c_str());
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
