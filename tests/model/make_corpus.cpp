// SPDX-License-Identifier: MIT
// Writes the seed corpus of model_fuzz: small models of several kinds. Usage: make_model_corpus
// FOLDER

#include <fstream>

#include "tests/model/fuzz_input.h"
#include "tests/support/tiny_model.h"

namespace moe {
namespace {

// Writes the first `n_front` bytes of the segments; fuzz_file() fills in the rest.
void write_seed(const std::string& path, const ModelConfig& config, const TinyOptions& options,
                size_t n_front) {
  const auto sink = build_tiny_model(config, options);
  uint8_t bytes[kHeaderBytes];
  std::memcpy(bytes, sink->data(), sizeof bytes);
  FileHeader header;
  (void)decode_header(bytes, sink->size(), &header).ok();
  const size_t pages = header.metadata_offset / kSegmentAlign - 1;
  std::string out;
  out += static_cast<char>(options.compress ? 1 : 0);
  out += static_cast<char>(pages & 255);
  out += static_cast<char>(pages >> 8);
  for (int i = 0; i < 4; ++i) out += static_cast<char>(header.metadata_bytes >> (8 * i) & 255);
  out.append(reinterpret_cast<const char*>(sink->data()) + header.metadata_offset,
             header.metadata_bytes);
  n_front = std::min<size_t>(n_front, header.metadata_offset - kSegmentAlign);
  out.append(reinterpret_cast<const char*>(sink->data()) + kSegmentAlign, n_front);
  std::ofstream(path, std::ios::binary) << out;
}

ModelConfig small(const MoeConfig& moe) {
  ModelConfig config = tiny_config(moe);
  config.layers.pop();
  config.vocab_size = 16;
  return config;
}

void write_all(const std::string& folder) {
  TinyOptions options;
  MoeConfig moe;
  moe.n_experts = 2;
  write_seed(folder + "/plain", small(moe), options, 0);
  options.weights = FormatId::kTernary2;
  options.biases = true;
  write_seed(folder + "/ternary_bias", small(moe), options, 256);
  options.compress = true;
  write_seed(folder + "/zstd", small(moe), options, 8192);
  options = {};
  options.weights = FormatId::kTernary3;
  options.scale = ScaleKind::kRow;
  moe.n_subheads = 2;
  moe.head = moe.merge = true;
  moe.shared = {16, true};
  moe.router.kind = RouterKind::kThreshold;
  moe.router.threshold = 0.5f;
  write_seed(folder + "/multi_head", small(moe), options, 0);
  moe = {};
  moe.n_experts = 2;
  moe.n_sublayers = 2;
  moe.router.kind = RouterKind::kCosine;
  options.weights = FormatId::kInt8;
  write_seed(folder + "/cosine_stack", small(moe), options, 0);
  moe.n_sublayers = 0;
  moe.router.kind = RouterKind::kHash;
  write_seed(folder + "/hash", small(moe), options, 0);
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  moe::write_all(argv[1]);
  return 0;
}
