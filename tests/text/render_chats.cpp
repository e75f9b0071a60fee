// SPDX-License-Identifier: MIT
// Renders the cases of a file and prints a JSON array of texts, for tests/parity/chat_templates.py.
// Usage: render_chats CASES.json   ([{"template": TEXT, "messages": [...], ...}, ...])

#include <cstdio>

#include "tests/text/chat_support.h"

int main(int argc, char** argv) {
  using namespace moe;
  if (argc != 2) return 2;
  try {
    Json out = Json::array();
    const Json cases = read_json_file(argv[1]);
    for (const Json& c : cases) {
      out.push_back(rendered(c.at("template").get<std::string>(), read_chat_case(c)));
    }
    std::printf("%s\n", out.dump().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
