// SPDX-License-Identifier: MIT
// Finds the calls in the replies of a file, for tests/parity/tool_calls.py.
// Usage: find_calls CASES.json   ([{"template", "tools", "specials", "text", "inside"}, ...])

#include <cstdio>

#include "formats/import/json.h"
#include "tests/run/reply_calls.h"

namespace {

moe::Json found_json(const moe::FoundReply& found) {
  moe::Json out = moe::Json::object();
  out["content"] = found.content;
  out["thinking"] = found.thinking;
  out["order"] = found.order;
  out["calls"] = moe::Json::array();
  for (const std::string& call : found.calls) out["calls"].push_back(call);
  return out;
}

// A reply as one token, one token for each character, and in tokens of other lengths.
moe::Json found_in(const moe::Json& c) {
  using namespace moe;
  GivenReply given{.chat_template = c.at("template").get<std::string>(),
                   .tools = c.at("tools").get<std::string>(),
                   .specials = {},
                   .text = c.at("text").get<std::string>()};
  for (const Json& s : c.at("specials")) given.specials.push_back(s.get<std::string>());
  const bool inside = c.at("inside").get<bool>();
  const FoundReply whole = find_calls(given, 0, 1 << 20, inside);
  Json out = found_json(whole);
  out["same"] = true;
  for (const size_t longest : {1, 2, 5, 13}) {
    if (!(find_calls(given, longest, longest, inside) == whole)) out["same"] = false;
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    moe::Json out = moe::Json::array();
    const moe::Json cases = moe::read_json_file(argv[1]);
    for (const moe::Json& c : cases) out.push_back(found_in(c));
    std::printf("%s\n", out.dump().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
