// SPDX-License-Identifier: MIT
// moe embed: one vector per line of a text, or how similar the lines are.

#include <algorithm>
#include <cstring>
#include <iostream>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/output_file.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"
#include "cli/model/context.h"
#include "cli/model/memory.h"
#include "cli/text/similarity.h"

namespace moe_cli {
namespace {

constexpr size_t kMostCompared = 4096;  // texts: their table takes 64 MiB
constexpr const char* kNoPrompt = "none";

struct EmbedOptions {
  ModelOptions model;
  TextInput input;
  std::string pooling;  // empty: as the model says
  bool normalize = false;
  bool as_it_is = false;
  bool similarity = false;
  bool truncate = false;
  std::string prompt;  // name of one of the model's; empty: its default
  std::string out;
};

/// (n, d) floats as NumPy's format 1.0, which is little-endian here.
void write_npy(OutputFile& file, const std::vector<float>& values, size_t n, size_t d) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(n) +
                       ", " + std::to_string(d) + "), }";
  constexpr size_t kPreamble = 10, kAlign = 64;
  header.append(kAlign - 1 - (kPreamble + header.size()) % kAlign, ' ');
  header += '\n';
  const char size[] = {static_cast<char>(header.size() & 0xff),
                       static_cast<char>(header.size() >> 8)};
  std::ostream& out = file.begin();
  out.write("\x93NUMPY\x01\x00", 8);
  out.write(size, sizeof size);
  out << header;
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  file.finish();
}

Json rows_json(const std::vector<float>& values, size_t n, size_t d) {
  Json rows = Json::array();
  for (size_t i = 0; i < n; ++i) {
    rows.push_back(std::vector<float>(values.begin() + static_cast<long>(i * d),
                                      values.begin() + static_cast<long>((i + 1) * d)));
  }
  return rows;
}

/// The text of the prompt to put before each line.
std::string prompt_text(const EmbedOptions& o, const moe_model* model) {
  const moe_model_info info = model_info(model);
  std::string known;
  for (int32_t i = 0; i < info.n_prompts; ++i) {
    const char *name = nullptr, *text = nullptr;
    moe_error error;
    check(moe_model_get_prompt(model, i, &name, &text, &error), error);
    if (o.prompt.empty() ? i == info.default_prompt : o.prompt == name) return text;
    known += std::string(i == 0 ? "" : ", ") + name;
  }
  if (o.prompt.empty() || o.prompt == kNoPrompt) return "";
  throw UsageError("--prompt-name: the model has no prompt '" + o.prompt + "'" +
                   (known.empty() ? "; it has none" : "; it has " + known));
}

/// One vector per text.
class Embedder {
 public:
  Embedder(const EmbedOptions& o, const moe_model* model, moe_session* session)
      : o_(o), model_(model), session_(session), prompt_(prompt_text(o, model)) {
    const moe_model_info info = model_info(model);
    pooling_ = !o.pooling.empty() ? o.pooling : std::strlen(info.pooling) ? info.pooling : "mean";
    normalizes_ = o.as_it_is ? false : o.normalize || info.normalized != 0;
    most_ = static_cast<size_t>(info.vector_tokens);
    const bool meaningless =
        info.is_encoder == 0 && std::strlen(info.pooling) == 0 && pooling_ == "mean";
    if (!meaningless) return;
    std::cerr << "moe: warning: this model continues texts and was not made for embeddings: the "
                 "mean over its tokens says little about a text; use an embedding model, or try "
                 "--pooling last\n";
  }

  const std::string& pooling() const { return pooling_; }
  bool normalizes() const { return normalizes_; }

  void embed(const std::string& line, size_t line_number, float* pooled) const {
    const std::vector<int32_t> tokens = tokens_of(line, line_number);
    moe_encode_params p{};
    p.struct_size = sizeof p;
    p.pooling = pooling_ == "first"  ? MOE_POOL_FIRST
                : pooling_ == "last" ? MOE_POOL_LAST
                                     : MOE_POOL_MEAN;
    p.normalize = normalizes_ ? MOE_NORMALIZE_ON : MOE_NORMALIZE_OFF;
    p.pooled = pooled;
    moe_error error;
    check_line(moe_session_encode(session_, tokens.data(), tokens.size(), &p, &error), error,
               line_number);
  }

 private:
  std::vector<int32_t> tokens_of(const std::string& line, size_t line_number) const {
    const std::string text = prompt_ + line;
    const auto tokens = encode(model_, text, 0);
    const std::string line_n = "line " + std::to_string(line_number);
    if (tokens.empty()) throw CallError(MOE_ERR_RANGE, line_n + ": the text has no tokens");
    const auto holds = static_cast<size_t>(moe_session_context(session_));
    const size_t most = most_ == 0 ? holds : std::min(most_, holds);
    if (tokens.size() > most && o_.truncate) return cut(tokens, text, most);
    check_fits(line_n + " has", tokens.size(), session_, model_);
    if (tokens.size() <= most) return tokens;
    throw CallError(MOE_ERR_TOO_LONG, line_n + " has " + counted(tokens.size(), "token") +
                                          "; this model is for " + "texts of at most " +
                                          std::to_string(most) +
                                          ", and --truncate leaves the rest of longer ones out");
  }

  // The first tokens, with those that the tokenizer puts before and after every text.
  std::vector<int32_t> cut(const std::vector<int32_t>& tokens, const std::string& text,
                           size_t most) const {
    const auto plain = encode(model_, text, encode_flags(true));
    const size_t n_around = tokens.size() - plain.size();
    if (n_around >= most) throw CallError(MOE_ERR_TOO_LONG, "--truncate leaves nothing of a text");
    size_t n_before = 0;
    while (n_before < n_around &&
           !std::equal(plain.begin(), plain.end(), tokens.begin() + static_cast<long>(n_before))) {
      ++n_before;
    }
    const size_t n_after = n_around - n_before;
    std::vector<int32_t> out(tokens.begin(), tokens.begin() + static_cast<long>(most - n_after));
    out.insert(out.end(), tokens.end() - static_cast<long>(n_after), tokens.end());
    return out;
  }

  const EmbedOptions& o_;
  const moe_model* model_;
  moe_session* session_;
  std::string prompt_;
  std::string pooling_;
  bool normalizes_ = false;
  size_t most_ = 0;  // tokens of a text; 0: the context's
};

void check_model(const EmbedOptions& o, const moe_model_info& info) {
  if (info.is_encoder_decoder == 0) return;
  throw CallError(MOE_ERR_UNSUPPORTED,
                  o.model.path +
                      ": an encoder-decoder; embed needs an encoder or a decoder "
                      "('moe translate' runs encoder-decoders)");
}

void check_lines(const EmbedOptions& o, size_t n) {
  if (!o.similarity || (n >= 2 && n <= kMostCompared)) return;
  throw UsageError("--similarity compares 2 to " + std::to_string(kMostCompared) +
                   " texts, found " + std::to_string(n) + "; give each with -p TEXT, or a line " +
                   "of -f FILE");
}

void run_embed(const EmbedOptions& o) {
  keep_input(o.out, o.model.path, "the model");
  o.input.keep_from(o.out);
  const std::vector<std::string> lines = lines_of(o.input.read());
  check_lines(o, lines.size());
  const Env env = open_env(o.model);
  const Model model = open_model_to_run(o.model, env.get());
  const moe_model_info info = model_info(model.get());
  check_model(o, info);
  OutputFile out(o.out);
  const Session session = open_session(o.model, model.get());
  const CurrentSession current(session.get());
  const Embedder embedder(o, model.get(), session.get());
  const size_t n = lines.size();
  auto width = static_cast<size_t>(info.d_model);
  std::vector<float> values(n * width);
  for (size_t i = 0; i < n; ++i) {
    stop_if_interrupted();
    embedder.embed(lines[i], i + 1, values.data() + i * width);
  }
  if (o.similarity) {
    values = similarities(values, n, width);
    width = n;
  }
  if (!o.out.empty()) return write_npy(out, values, n, width);
  Json j = {{"pooling", embedder.pooling()}, {"normalized", embedder.normalizes()}};
  if (!o.similarity) j["d_model"] = width;
  j[o.similarity ? "similarity" : "embeddings"] = rows_json(values, n, width);
  std::cout << j << "\n";
}

}  // namespace

void add_embed(CLI::App& app) {
  auto o = std::make_shared<EmbedOptions>();
  CLI::App* c = app.add_subcommand("embed", "Turn each line of a text into a vector");
  example(*c, "moe embed model.moe -f sentences.txt -o vectors.npy");
  add_model_options(*c, o->model, {.json = false});
  o->input.take_whole_files();
  o->input.take_several();
  o->input.add(*c, "Texts, one per line; can be given several times");
  c->add_option("--pooling,--pool", o->pooling,
                "mean over all tokens, or the vector of the first or last one (default what the "
                "model file says, otherwise mean)")
      ->check(one_of({"mean", "first", "last"}))
      ->option_text("mean|first|last");
  auto* normalize =
      c->add_flag("--normalize", o->normalize,
                  "Give every vector the length 1 (default what the model file says)");
  c->add_flag("--no-normalize", o->as_it_is, "Leave every vector's length as it is")
      ->excludes(normalize);
  c->add_flag("--similarity", o->similarity,
              "Print the cosine of every pair of texts instead of vectors");
  c->add_option("--prompt-name", o->prompt,
                "Put this prompt of the model file, such as query, before each text; none: no "
                "prompt (default the model's default, if it has one)")
      ->check(not_empty())
      ->option_text("NAME");
  c->add_flag("--truncate", o->truncate, "Leave out the end of texts that are too long");
  c->add_option("-o,--output,--out", o->out, "Write a NumPy file instead of JSON on stdout")
      ->check(not_empty())
      ->check(no_stdout())
      ->option_text("FILE");
  add_encoder_options(*c, o->model);
  c->callback([o] { run_embed(*o); });
}

}  // namespace moe_cli
