// SPDX-License-Identifier: MIT
// Reads vocabulary, merges, scores and added tokens; the steps are in tokenizer_steps.cpp.
#include "src/convert/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "formats/import/failure.h"
#include "formats/import/file.h"
#include "src/convert/tokenizer/tokenizer_config.h"
#include "src/convert/tokenizer/tokenizer_steps.h"
#include "src/convert/tokenizer/vocab_txt.h"
#include "src/text/spec.h"

namespace moe {
namespace {

constexpr int64_t kMaxId = (int64_t{1} << 24) - 1;
constexpr size_t kMaxTableBytes = size_t{1} << 30;
constexpr size_t kMaxAround = 64;  // ids put before or after a text

using Ids = std::map<std::string, uint32_t>;  // ordered: hash collisions could be forced

// The file's pieces by id, and the model's own by text.
struct Pieces {
  std::vector<std::string> text;
  std::vector<bool> used;
  Ids model;
  size_t n_model = 0;  // entries of the vocabulary, also those without a text of their own
  uint32_t end = 0;    // number of ids: each costs memory, even without a piece

  void set(const JsonNode& where, const std::string& piece, uint32_t id) {
    if (id >= end) {
      fail(MOE_ERR_FORMAT,
           "%s: \"%.60s\" has id %u; in a vocabulary of this size below %u is expected",
           where.path().c_str(), piece.c_str(), id, end);
    }
    if (text.size() <= id) {
      text.resize(id + 1);
      used.resize(id + 1);
    }
    if (used[id] && text[id] != piece) {
      fail(MOE_ERR_FORMAT, "%s: \"%.60s\" and \"%.60s\" have the same id %u", where.path().c_str(),
           text[id].c_str(), piece.c_str(), id);
    }
    text[id] = piece;
    used[id] = true;
  }
};

// A vocabulary that maps pieces to ids.
void read_vocabulary(const JsonNode& node, Pieces& pieces) {
  if (!node.value().is_object()) node.fail_expected("an object");
  pieces.n_model = node.value().size();
  for (const auto& [piece, id] : node.value().items()) {
    const JsonNode entry(id, node.path() + "[\"" + piece + "\"]");
    if (piece.empty()) continue;  // no text has it
    const auto n = static_cast<uint32_t>(entry.integer(0, kMaxId));
    pieces.set(node, piece, n);
    pieces.model.emplace(piece, n);
  }
}

std::pair<std::string, std::string> read_merge(const JsonNode& node, const Json& merge, size_t i) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  const std::string line = merge.is_string() ? merge.get<std::string>() : "";
  const size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
    fail(MOE_ERR_FORMAT, "%s[%zu]: expected two tokens", node.path().c_str(), i);
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

// `tokenizers` uses the last of duplicate pairs.
void read_merges(const JsonNode& node, const Pieces& pieces, TokenizerData& data) {
  if (!node.value().is_array()) node.fail_expected("an array");
  const Json& list = node.value();
  const auto find = [&](const std::string& piece, size_t i) {
    const auto found = pieces.model.find(piece);
    if (found == pieces.model.end()) {
      fail(MOE_ERR_FORMAT, "%s[%zu]: \"%.60s\" is not in the vocabulary", node.path().c_str(), i,
           piece.c_str());
    }
    return found->second;
  };
  std::map<uint64_t, size_t> last;
  std::vector<uint32_t> merges;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].is_string() && list[i].text().starts_with("#version")) {
      continue;
    }
    const auto [left, right] = read_merge(node, list[i], i);
    if (right.size() < data.continuing_prefix.size()) {
      fail(MOE_ERR_FORMAT, "%s[%zu]: shorter than the prefix", node.path().c_str(), i);
    }
    const uint32_t a = find(left, i);
    const uint32_t b = find(right, i);
    last[uint64_t{a} << 32 | b] = merges.size();
    const uint32_t c = find(left + right.substr(data.continuing_prefix.size()), i);
    for (const uint32_t id : {a, b, c}) merges.push_back(id);
  }
  for (size_t i = 0; i < merges.size(); i += 3) {
    if (last[uint64_t{merges[i]} << 32 | merges[i + 1]] != i) continue;
    data.merges.insert(data.merges.end(), {merges[i], merges[i + 1], merges[i + 2]});
  }
}

void read_unknown(const JsonNode& model, const char* fallback, const Pieces& pieces,
                  TokenizerData& data) {
  const auto unk = pieces.model.find(model.string("unk_token", fallback));
  if (unk != pieces.model.end()) data.unk_id = static_cast<int32_t>(unk->second);
}

void read_bpe(const JsonNode& model, Pieces& pieces, TokenizerData& data) {
  if (model.has("dropout") && model.at("dropout").number() != 0) {
    fail(MOE_ERR_UNSUPPORTED, "%s.dropout: only none is supported", model.path().c_str());
  }
  data.kind = "bpe";
  data.byte_fallback = model.boolean("byte_fallback", false);
  data.fuse_unk = model.boolean("fuse_unk", false);
  data.ignore_merges = model.boolean("ignore_merges", false);
  data.continuing_prefix = model.string("continuing_subword_prefix", "");
  data.end_suffix = model.string("end_of_word_suffix", "");
  read_vocabulary(model.at("vocab"), pieces);
  read_merges(model.at("merges"), pieces, data);
  read_unknown(model, "", pieces, data);
}

void read_wordpiece(const JsonNode& model, Pieces& pieces, TokenizerData& data) {
  data.kind = "wordpiece";
  data.continuing_prefix = model.string("continuing_subword_prefix", "##");
  data.max_word_characters =
      static_cast<uint32_t>(model.integer("max_input_chars_per_word", 100, 0, INT32_MAX));
  read_vocabulary(model.at("vocab"), pieces);
  read_unknown(model, "[UNK]", pieces, data);
}

// The score as `tokenizers` computes it: its JSON reader divides the digits by a power of ten,
// which rounds twice, and ties between segmentations depend on the last bit.
double read_score(double exact) {
  char text[40];
  const auto end =
      std::to_chars(text, text + sizeof text, std::abs(exact), std::chars_format::scientific);
  uint64_t digits = 0;
  int n_decimals = 0;
  const char* p = text;
  for (bool after_point = false; p < end.ptr && *p != 'e'; ++p) {
    after_point = after_point || *p == '.';
    if (*p == '.') continue;
    digits = digits * 10 + static_cast<uint64_t>(*p - '0');
    n_decimals += after_point ? 1 : 0;
  }
  int exponent = 0;
  if (p < end.ptr) std::from_chars(p + (p[1] == '+' ? 2 : 1), end.ptr, exponent);
  exponent -= n_decimals;
  auto value = static_cast<double>(digits);
  for (; exponent < -308; exponent += 308) value /= 1e308;
  const std::string power = "1e" + std::to_string(std::abs(exponent));
  double scale = 1;
  std::from_chars(power.data(), power.data() + power.size(), scale);
  return std::copysign(exponent < 0 ? value / scale : value * scale, exact);
}

void read_unigram(const JsonNode& model, Pieces& pieces, TokenizerData& data) {
  data.kind = "unigram";
  data.byte_fallback = model.boolean("byte_fallback", false);
  const JsonNode list = model.at("vocab");
  if (!list.value().is_array()) list.fail_expected("an array");
  std::vector<uint32_t> same;
  pieces.n_model = list.value().size();
  for (size_t i = 0; i < list.value().size(); ++i) {
    const Json& entry = list.value()[i];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      fail(MOE_ERR_FORMAT, "%s[%zu]: expected a token and its score", list.path().c_str(), i);
    }
    const auto piece = entry[0].get<std::string>();
    const auto id = static_cast<uint32_t>(i);
    if (const auto before = pieces.model.find(piece); before != pieces.model.end()) {
      same.push_back(before->second);  // `tokenizers` encodes with the last
      before->second = id;
    } else if (!piece.empty()) {
      pieces.model.emplace(piece, id);
    }
    if (!piece.empty()) pieces.set(list, piece, id);
    data.scores.push_back(read_score(entry[1].get<double>()));
  }
  pieces.text.resize(list.value().size());
  pieces.used.resize(list.value().size());
  for (const uint32_t id : same) {
    data.added_ids.push_back(id);
    data.added_flags.push_back(kAddedDecodesOnly);
  }
  if (!same.empty()) {
    data.warnings.push_back(list.path() + ": " + std::to_string(same.size()) +
                            " tokens have the text of a later one, which encodes it");
  }
  if (model.has("unk_id")) {
    const auto n = static_cast<int64_t>(pieces.text.size());
    data.unk_id = static_cast<int32_t>(model.at("unk_id").integer(0, std::max<int64_t>(n - 1, 0)));
  }
}

void read_model(const JsonNode& model, Pieces& pieces, TokenizerData& data) {
  const char* const untyped = model.has("merges")                     ? "BPE"
                              : model.has("max_input_chars_per_word") ? "WordPiece"
                                                                      : "Unigram";
  const std::string type = model.string("type", untyped);
  if (type == "BPE") return read_bpe(model, pieces, data);
  if (type == "Unigram") return read_unigram(model, pieces, data);
  if (type == "WordPiece") return read_wordpiece(model, pieces, data);
  fail(MOE_ERR_UNSUPPORTED, "%s.type: \"%.60s\" is not supported, BPE, Unigram and WordPiece are",
       model.path().c_str(), type.c_str());
}

uint8_t read_added_flags(const JsonNode& token) {
  static constexpr std::pair<const char*, uint8_t> kFlags[] = {{"special", kAddedSpecial},
                                                               {"lstrip", kAddedLstrip},
                                                               {"rstrip", kAddedRstrip},
                                                               {"single_word", kAddedSingleWord},
                                                               {"normalized", kAddedNormalized}};
  int flags = 0;
  for (const auto& [name, bit] : kFlags) flags |= token.at(name).boolean() ? bit : 0;
  return static_cast<uint8_t>(flags);
}

// Ids of added tokens follow from the vocabulary; the file must agree.
void read_added(const JsonNode& root, Pieces& pieces, TokenizerData& data) {
  if (!root.has("added_tokens")) return;
  auto next = static_cast<uint32_t>(pieces.n_model);
  std::set<std::string> seen;
  for (const JsonNode& token : root.at("added_tokens").elements()) {
    const std::string content = token.at("content").string();
    if (content.empty()) continue;
    if (token.string("same_text", "").empty() && !seen.insert(content).second) {
      data.warnings.push_back(token.path() + ": \"" + content +
                              "\" is there twice; the first is used, as in `tokenizers`");
      continue;
    }
    // A GGUF file may have several tokens with the same text (gguf_tokenizer.cpp).
    const std::string role = token.string("same_text", "");
    const auto own = pieces.model.find(content);
    const bool in_model = own != pieces.model.end() && role.empty();
    const auto said = static_cast<uint32_t>(token.at("id").integer(0, kMaxId));
    const uint32_t id = in_model ? own->second : role.empty() ? next++ : said;
    if (said != id) {
      fail(MOE_ERR_FORMAT, "%s: \"%.60s\" has id %u, but its place in the vocabulary is %u",
           token.path().c_str(), content.c_str(), said, id);
    }
    pieces.set(token, content, id);
    data.added_ids.push_back(id);
    if (role == "decoded") {
      const bool special = token.at("special").boolean();
      data.added_flags.push_back(kAddedDecodesOnly | (special ? kAddedSpecial : 0));
      continue;
    }
    data.added_flags.push_back(
        static_cast<uint8_t>(read_added_flags(token) | (in_model ? kAddedInModel : 0)));
  }
}

void check_around(const JsonNode& node, const std::vector<uint32_t>& ids) {
  if (ids.size() <= kMaxAround) return;
  fail(MOE_ERR_UNSUPPORTED, "%s: more than %zu ids before or after a text", node.path().c_str(),
       kMaxAround);
}

// Appends the ids of a special token in a template.
void read_template_token(const JsonNode& piece, const JsonNode& processor,
                         std::vector<uint32_t>& ids) {
  const std::string name = piece.at("SpecialToken").at("id").string();
  for (const JsonNode& id : processor.at("special_tokens").at(name.c_str()).at("ids").elements()) {
    ids.push_back(static_cast<uint32_t>(id.integer(0, kMaxId)));
  }
  check_around(piece, ids);
}

// One template element: true for the text itself, otherwise appends its ids.
bool read_template_piece(const JsonNode& piece, const JsonNode& processor,
                         std::vector<uint32_t>& ids) {
  if (piece.has("Sequence")) {
    if (piece.at("Sequence").at("id").string() == "A") return true;
    fail(MOE_ERR_UNSUPPORTED, "%s: a second text", piece.path().c_str());
  }
  read_template_token(piece, processor, ids);
  return false;
}

/// The ids that a template for pairs puts before the texts A and B and after both, and the types.
struct PairTemplate {
  std::vector<uint32_t> ids[3];
  int64_t types[3] = {0, 0, 0};  // of the ids between the texts, of B and of the ids after it
  size_t n_texts = 0;
  bool plain = true;  // A, then B; types as above and otherwise 0
};

PairTemplate read_pair_template(const JsonNode& node) {
  PairTemplate out;
  for (const JsonNode& piece : node.at("pair").elements()) {
    const bool text = piece.has("Sequence");
    const JsonNode element = piece.at(text ? "Sequence" : "SpecialToken");
    const int64_t type = element.integer("type_id", 0, 0, 1 << 16);
    if (text) {
      const char* const wanted = out.n_texts == 0 ? "A" : "B";
      out.plain = out.plain && out.n_texts < 2 && element.at("id").string() == wanted;
      ++out.n_texts;
      if (out.n_texts == 2) out.types[1] = type;
    } else if (out.n_texts < 3) {
      read_template_token(piece, node, out.ids[out.n_texts]);
      if (out.n_texts > 0) out.types[out.n_texts == 1 ? 0 : 2] = type;
    }
    if (out.n_texts < 2 && type != 0) out.plain = false;
  }
  out.plain = out.plain && out.n_texts == 2;
  return out;
}

// Takes a template for pairs of texts, each surrounded as one text is, with something between them;
// a model that reads pairs has no other.
void read_pair(const JsonNode& node, TokenizerData& data) {
  data.between.clear();
  if (!node.has("pair")) return;
  const PairTemplate pair = read_pair_template(node);
  const bool second = pair.types[1] == 1;
  const bool typed =
      second ? pair.ids[2].empty() || pair.types[2] == 1 : pair.types[1] == 0 && pair.types[2] == 0;
  if (!pair.plain || !typed || pair.ids[0] != data.prefix || pair.ids[2] != data.suffix) return;
  data.between = pair.ids[1];
  data.second_type = second;
}

void read_template(const JsonNode& node, TokenizerData& data) {
  std::vector<uint32_t> before;
  std::vector<uint32_t> after;
  size_t n_texts = 0;
  for (const JsonNode& piece : node.at("single").elements()) {
    n_texts += read_template_piece(piece, node, n_texts == 0 ? before : after);
  }
  if (n_texts != 1) {
    fail(MOE_ERR_UNSUPPORTED, "%s.single: has the text %zu times", node.path().c_str(), n_texts);
  }
  data.prefix.insert(data.prefix.begin(), before.begin(), before.end());
  data.suffix.insert(data.suffix.end(), after.begin(), after.end());
  read_pair(node, data);
}

void read_post_processor(const JsonNode& node, TokenizerData& data, size_t depth) {
  if (node.is_null()) return;
  const std::string type = node.at("type").string();
  if (type == "ByteLevel") return;  // affects only offsets
  if (type == "TemplateProcessing") return read_template(node, data);
  if (type == "Sequence" && depth < 8) {
    for (const JsonNode& element : node.at("processors").elements()) {
      read_post_processor(element, data, depth + 1);
      check_around(element, data.prefix);
      check_around(element, data.suffix);
    }
    return;
  }
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    const auto id = [&](const char* name) {
      const std::vector<JsonNode> pair = node.at(name).elements();
      if (pair.size() != 2) node.at(name).fail_expected("a token and its id");
      return static_cast<uint32_t>(pair[1].integer(0, kMaxId));
    };
    data.prefix.insert(data.prefix.begin(), id("cls"));
    data.suffix.push_back(id("sep"));
    data.between.clear();
    const bool alone = data.prefix.size() == 1 && data.suffix.size() == 1;
    if (alone) data.between.assign(type == "BertProcessing" ? 1 : 2, id("sep"));
    data.second_type = type == "BertProcessing";
    return;
  }
  fail(MOE_ERR_UNSUPPORTED, "%s: \"%.60s\" is not supported", node.path().c_str(), type.c_str());
}

void write_table(const JsonNode& root, const Pieces& pieces, TokenizerData& data) {
  for (const std::string& piece : pieces.text) {
    data.token_bytes.insert(data.token_bytes.end(), piece.begin(), piece.end());
    data.token_bytes.push_back(0);
    if (data.token_bytes.size() > kMaxTableBytes) {
      fail(MOE_ERR_FORMAT, "%s: tokens of more than %zu bytes", root.path().c_str(),
           kMaxTableBytes);
    }
    data.token_ends.push_back(static_cast<uint32_t>(data.token_bytes.size()));
  }
  if (data.kind == "unigram") data.scores.resize(pieces.text.size());  // added tokens have none
}

void read_special_ids(const Json& document, const std::string& path, TokenizerData& data) {
  const JsonNode node(document, path);
  const auto find = [&](const char* key, int32_t& id) {
    const std::string name = token_name(node, key);
    if (name.empty() || id >= 0) return;
    uint32_t begin = 0;
    for (size_t i = 0; i < data.token_ends.size(); ++i) {
      const auto* text = reinterpret_cast<const char*>(data.token_bytes.data()) + begin;
      if (std::string_view(text, data.token_ends[i] - begin - 1) == name) {
        id = static_cast<int32_t>(i);
        return;
      }
      begin = data.token_ends[i];
    }
  };
  find("bos_token", data.bos_id);
  find("eos_token", data.eos_id);
  find("pad_token", data.pad_id);
  find("mask_token", data.mask_id);
}

// Whether the model is given the types of texts: tokenizer_config.json can leave them out of its
// list of inputs.
bool gives_types(const Json& config) {
  const Json* const names = config.is_object() ? config.find("model_input_names") : nullptr;
  if (names == nullptr || !names->is_array()) return true;
  return std::any_of(names->begin(), names->end(),
                     [](const Json& name) { return name == "token_type_ids"; });
}

// A text, or a list of named ones of which "default" is used.
std::string named_template(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return "";
  for (const Json& entry : value) {
    const Json* name = entry.find("name");
    const Json* text = entry.find("template");
    if (name == nullptr || text == nullptr || *name != "default" || !text->is_string()) continue;
    return text->text();
  }
  return "";
}

// Searched like in `transformers`: chat_template.jinja, chat_template.json, tokenizer_config.json.
// Stored unchanged; unsupported constructs are reported when a chat is created.
std::string read_chat_template(const Checkpoint& checkpoint) {
  constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;
  const std::string file = checkpoint.path() + "/chat_template.jinja";
  if (path_exists(file)) return read_text_file(file, kMaxTemplateBytes);
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    if (!checkpoint.has_document(name)) continue;
    const Json document = checkpoint.document(name);
    if (!document.is_object() || !document.contains("chat_template")) continue;
    const std::string text = named_template(document.at("chat_template"));
    if (text.size() > kMaxTemplateBytes) {
      fail(MOE_ERR_FORMAT, "%s/%s: chat_template: %zu bytes, at most %llu",
           checkpoint.path().c_str(), name, text.size(),
           static_cast<unsigned long long>(kMaxTemplateBytes));
    }
    if (!text.empty()) return text;
  }
  return "";
}

// Some ids may have no piece: padding up to a round number, removed parts.
uint32_t ids_end(const JsonNode& root) {
  constexpr size_t kHoles = size_t{1} << 18;
  const Json* vocabulary = root.at("model").value().find("vocab");
  const Json* added = root.value().find("added_tokens");
  const size_t n =
      (vocabulary == nullptr ? 0 : vocabulary->size()) + (added == nullptr ? 0 : added->size());
  return static_cast<uint32_t>(std::min<size_t>(2 * n + kHoles, kMaxId + 1));
}

}  // namespace

TokenizerData parse_tokenizer(const Json& document, const std::string& what) {
  const JsonNode root(document, what);
  TokenizerData data;
  Pieces pieces;
  const std::string version = root.string("version", "1.0");
  if (version != "1.0") {
    fail(MOE_ERR_UNSUPPORTED, "%s: version \"%.20s\", 1.0 is supported", what.c_str(),
         version.c_str());
  }
  pieces.end = ids_end(root);
  read_model(root.at("model"), pieces, data);
  read_added(root, pieces, data);
  if (root.has("normalizer")) data.normalizers = read_normalizers(root.at("normalizer"));
  if (root.has("pre_tokenizer")) {
    data.pre_tokenizers = read_pre_tokenizers(root.at("pre_tokenizer"));
  }
  if (root.has("decoder")) data.decoders = read_decoders(root.at("decoder"));
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), data, 0);
  write_table(root, pieces, data);
  return data;
}

namespace {

// The files of a tokenizer called `name`; has(file) and get(file) find and read one.
template <class Has, class Get>
TokenizerFiles read_files(const std::string& name, Has&& has, Get&& get) {
  const auto read = [&](const char* file) { return has(file) ? get(file) : Json(); };
  return {.tokenizer = get(name.c_str()),
          .config = read(kTokenizerConfig),
          .special_tokens_map = read("special_tokens_map.json"),
          .added_tokens = read("added_tokens.json"),
          .model = read("config.json")};
}

// Errors name tokenizer.json by `path`.
TokenizerData parse_files(TokenizerFiles files, const std::string& path) {
  CompletedTokenizer completed = complete_tokenizer(std::move(files));
  TokenizerData data = parse_tokenizer(completed.tokenizer, path);
  read_special_ids(completed.config, kTokenizerConfig, data);
  if (!gives_types(completed.config)) data.second_type = false;
  compare_around(data.prefix, data.suffix, &completed);
  data.warnings = std::move(completed.warnings);
  return data;
}

}  // namespace

TokenizerData read_tokenizer(const std::string& folder, const std::string& name) {
  const auto path = [&](const char* file) { return folder + "/" + file; };
  return parse_files(read_files(
                         name, [&](const char* file) { return path_exists(path(file)); },
                         [&](const char* file) { return read_json_file(path(file)); }),
                     folder + "/" + name);
}

TokenizerData read_tokenizer(const Checkpoint& checkpoint, const std::string& name) {
  const std::string path = checkpoint.path() + "/" + name;
  TokenizerFiles files = read_files(
      name, [&](const char* file) { return checkpoint.has_document(file); },
      [&](const char* file) {
        return file == std::string_view(kVocabTxt) ? tokenizer_of_vocab_txt(checkpoint)
                                                   : checkpoint.document(file);
      });
  const Json defaults = default_special_tokens(files.config);
  TokenizerData data;
  if (checkpoint.metadata().is_null()) {
    data = parse_files(std::move(files), path);
  } else {  // a GGUF file: it has no classes, and says of each token whether it is special
    data = parse_tokenizer(files.tokenizer, path);
    read_special_ids(files.config, kTokenizerConfig, data);
  }
  if (name == kVocabTxt) read_special_ids(defaults, path, data);
  data.chat_template = read_chat_template(checkpoint);
  return data;
}

}  // namespace moe
