// SPDX-License-Identifier: MIT
// Finds all matches of patterns, for tests/parity/patterns.py.
// Usage: match_patterns CASES.json   ([{"pattern": TEXT, "text": TEXT}, ...]) prints [[MATCH, ...]
// or an error's text, ...]

#include <cstdio>
#include <fstream>

#include "formats/import/failure.h"
#include "formats/import/json.h"
#include "src/text/characters/regex.h"

namespace moe {
namespace {

Json matches_of(const std::string& pattern, const std::string& text) {
  RegexLibrary library;
  check(library.create(system_allocator()));
  Regex regex;
  if (const Status made = regex.create(pattern, library, system_allocator()); !made.ok()) {
    return made.text();
  }
  RegexSearch search;
  check(search.create(library));
  search.start(text);
  Json out = Json::array();
  for (bool found = true; found;) {
    size_t begin = 0;
    size_t end = 0;
    if (const Status status = search.next(regex, &found, &begin, &end); !status.ok()) {
      return status.text();
    }
    if (found && begin < end) out.push_back(text.substr(begin, end - begin));
  }
  return out;
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  using namespace moe;
  if (argc != 2) return 2;
  try {
    Json out = Json::array();
    const Json cases = read_json_file(argv[1]);
    for (const Json& c : cases) {
      out.push_back(
          matches_of(c.at("pattern").get<std::string>(), c.at("text").get<std::string>()));
    }
    std::printf("%s\n", out.dump().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
