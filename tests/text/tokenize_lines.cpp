// tokenize_lines TOKENIZER.json LINES.json: what this library makes of each line, as JSON, for
// compare_with_tokenizers.py. The tokenizer goes through a FlatBuffer, as in a model file.
#include <cstdio>
#include <iostream>

#include "formats/import/failure.h"
#include "src/convert/tokenizer_write.h"
#include "src/run/load_tokenizer.h"

namespace moe {
namespace {

Json encode(const Tokenizer& tokenizer, const std::string& text, bool add, bool parse) {
  Array<int32_t> ids;
  check(tokenizer.encode(text, add, parse, ids));
  return std::vector<int32_t>(ids.begin(), ids.end());
}

Json decode(const Tokenizer& tokenizer, const Json& list, bool skip_special) {
  const auto ids = list.get<std::vector<int32_t>>();
  String text;
  check(tokenizer.decode({ids.data(), ids.size()}, skip_special, text));
  return std::string(text.view());
}

void run(const char* tokenizer_path, const char* lines_path) {
  const TokenizerData data = parse_tokenizer(read_json_file(tokenizer_path), tokenizer_path);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(write_tokenizer(builder, data));
  const auto* table = flatbuffers::GetRoot<fbs::Tokenizer>(builder.GetBufferPointer());
  const Box<Tokenizer> tokenizer = take(load_tokenizer(*table, 0, system_allocator()));
  Json out = Json::array();
  for (const Json& line : read_json_file(lines_path)) {
    const auto text = line.get<std::string>();
    const Json ids = encode(*tokenizer, text, true, true);
    out.push_back({{"ids", ids},
                   {"plain", encode(*tokenizer, text, false, false)},
                   {"text", decode(*tokenizer, ids, true)},
                   {"full", decode(*tokenizer, ids, false)}});
  }
  std::cout << out.dump() << "\n";
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const moe::Status status = moe::guarded([&] { moe::run(argv[1], argv[2]); });
  if (!status.ok()) std::cerr << status.text() << "\n";
  return status.ok() ? 0 : 1;
}
