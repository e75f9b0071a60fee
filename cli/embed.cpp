// moe embed: one vector per line of a text.

#include <cstring>
#include <iostream>

#include "cli/context.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/output_file.h"
#include "cli/text_input.h"

namespace moe_cli {
namespace {

struct EmbedOptions {
  ModelOptions model;
  TextInput input;
  std::string pooling = "mean";
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

void embed_line(const EmbedOptions& o, const moe_model* model, moe_session* session,
                const std::string& line, size_t number, float* pooled) {
  const auto tokens = encode(model, line, 0);
  const std::string line_n = "line " + std::to_string(number);
  if (tokens.empty()) throw CallError(MOE_ERR_RANGE, line_n + ": the text has no tokens");
  check_fits(line_n + " has", tokens.size(), session, model);
  moe_encode_params p{};
  p.struct_size = sizeof p;
  p.pooling = o.pooling == "first"  ? MOE_POOL_FIRST
              : o.pooling == "last" ? MOE_POOL_LAST
                                    : MOE_POOL_MEAN;
  p.pooled = pooled;
  moe_error error;
  check_line(moe_session_encode(session, tokens.data(), tokens.size(), &p, &error), error, number);
}

void print_vectors(const EmbedOptions& o, const std::vector<float>& values, size_t n, size_t d) {
  Json rows = Json::array();
  for (size_t i = 0; i < n; ++i) {
    rows.push_back(std::vector<float>(values.begin() + static_cast<long>(i * d),
                                      values.begin() + static_cast<long>((i + 1) * d)));
  }
  std::cout << Json{{"pooling", o.pooling}, {"d_model", d}, {"embeddings", rows}} << "\n";
}

void run_embed(const EmbedOptions& o) {
  keep_input(o.out, o.model.path, "the model");
  o.input.keep_from(o.out);
  const std::vector<std::string> lines = lines_of(o.input.read());
  const Env env = open_env(o.model);
  const Model model = open_model_to_run(o.model, env.get());
  const moe_model_info info = model_info(model.get());
  if (info.is_encoder_decoder != 0) {
    throw CallError(MOE_ERR_UNSUPPORTED,
                    o.model.path +
                        ": an encoder-decoder; embed needs an encoder or a decoder "
                        "('moe translate' runs encoder-decoders)");
  }
  OutputFile out(o.out);
  const Session session = open_session(o.model, model.get());
  const CurrentSession current(session.get());
  const auto d = static_cast<size_t>(info.d_model);
  std::vector<float> values(lines.size() * d);
  for (size_t i = 0; i < lines.size(); ++i) {
    stop_if_interrupted();
    embed_line(o, model.get(), session.get(), lines[i], i + 1, values.data() + i * d);
  }
  if (o.out.empty()) return print_vectors(o, values, lines.size(), d);
  write_npy(out, values, lines.size(), d);
}

}  // namespace

void add_embed(CLI::App& app) {
  auto o = std::make_shared<EmbedOptions>();
  CLI::App* c = app.add_subcommand("embed", "Turn each line of a text into a vector");
  example(*c, "moe embed model.moe -f sentences.txt -o vectors.npy");
  add_model_options(*c, o->model, {.json = false});
  o->input.take_whole_files();
  o->input.add(*c, "Texts, one per line");
  c->add_option("--pool", o->pooling,
                "mean over all tokens, or the vector of the first or last one")
      ->check(one_of({"mean", "first", "last"}))
      ->option_text("mean|first|last")
      ->capture_default_str();
  c->add_option("-o,--output,--out", o->out, "Write a NumPy file instead of JSON on stdout")
      ->check(not_empty())
      ->check(no_stdout())
      ->option_text("FILE.npy");
  add_encoder_options(*c, o->model);
  c->callback([o] { run_embed(*o); });
}

}  // namespace moe_cli
