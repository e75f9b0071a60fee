// SPDX-License-Identifier: MIT
// moe tokenize: the ids of a text, or the text of ids.

#include <iostream>

#include "cli/help/help.h"
#include "cli/io/terminal.h"
#include "cli/io/text_input.h"

namespace moe_cli {
namespace {

struct TokenizeOptions {
  ModelOptions model;
  TextInput input;
  bool decode = false;
  bool no_bos = false;
  bool special = false;
  bool pieces = false;
};

void print_ids(const TokenizeOptions& o, const moe_model* model, const std::vector<int32_t>& ids) {
  const moe_tokenizer* tokenizer = moe_model_tokenizer(model);
  if (o.model.json) {
    Json pieces = Json::array();
    for (int32_t id : ids) pieces.push_back(moe_tokenizer_piece(tokenizer, id));
    print_json({{"ids", ids}, {"pieces", pieces}});
    return;
  }
  if (o.pieces) {
    for (int32_t id : ids) {
      std::cout << id << "\t" << one_line(moe_tokenizer_piece(tokenizer, id)) << "\n";
    }
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : ",") << ids[i];
  std::cout << "\n";
}

void run_tokenize(const TokenizeOptions& o) {
  const std::string text = o.input.read();
  const Env env = open_env(o.model);
  const Model model = open_model(o.model, env.get());
  if (o.decode) {
    const auto ids = parse_ids(text, o.input.source());
    if (o.input.source().empty()) check_ids(ids, model.get());
    const std::string out = decode(model.get(), ids, 0);
    if (o.model.json) {
      print_json({{"text", out}});
    } else {
      std::cout << out << "\n";
    }
    return;
  }
  print_ids(o, model.get(), encode(model.get(), text, encode_flags(o.no_bos, o.special)));
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* c = app.add_subcommand("tokenize", "Show the token ids of a text");
  example(*c, "moe tokenize model.moe 'Hello, world' --pieces");
  add_reader_options(*c, o->model);
  o->input.add_positional_text(*c, "The text, the same as -p TEXT");
  o->input.add(*c, "The text; with --decode: ids separated by commas");
  auto* decode = c->add_flag("--decode", o->decode, "Turn ids into text instead");
  add_no_bos(*c, o->no_bos);
  c->add_flag("--special", o->special, "Recognise special tokens in the text");
  c->add_flag("--pieces", o->pieces, "One line per token: id and spelling")
      ->excludes(c->get_option("--json"));
  for (const char* of_text : {"--no-bos", "--special", "--pieces"}) decode->excludes(of_text);
  c->callback([o] { run_tokenize(*o); });
}

}  // namespace moe_cli
