// SPDX-License-Identifier: MIT
// Word embeddings of encoders with the row of token type 0 added to each, since texts have no other
// type.
#include "src/convert/arch/typed_embedding.h"

#include "formats/import/failure.h"

namespace moe {
namespace {

constexpr const char* kTokens = "embeddings.word_embeddings.weight";
constexpr const char* kTypes = "embeddings.token_type_embeddings.weight";

// A row is added to each.
struct ShiftedRows final : PackedRows {
  SourceTensor tensor;
  std::vector<float> row;

  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override {
    const size_t total = static_cast<size_t>(n) * row.size();
    checkpoint.read(tensor, static_cast<uint64_t>(first) * row.size(), total, out);
    for (size_t i = 0; i < total; ++i) out[i] += row[i % row.size()];
  }
  PackedCodes codes(const Checkpoint&) const override { return PackedCodes::kOther; }
  void read_scales(const Checkpoint&, int64_t, int64_t, float*, float*) const override {
    fail(MOE_ERR_INTERNAL, "a sum of rows has no scales");
  }
};

bool is_nomic_bert(const Checkpoint& checkpoint) {
  if (!checkpoint.has_document("config.json")) return false;
  const Json config = checkpoint.document("config.json");
  const Json* const type = config.find("model_type");
  return type != nullptr && *type == "nomic_bert";
}

}  // namespace

void add_text_type(Checkpoint* checkpoint) {
  const SourceTensor* const types = checkpoint->find(kTypes);
  const SourceTensor* const tokens = checkpoint->find(kTokens);
  if (types == nullptr || tokens == nullptr || !is_nomic_bert(*checkpoint)) return;
  constexpr int64_t kMostColumns = 1 << 20;
  const auto& shape = tokens->shape;
  const bool fits = shape.size() == 2 && types->shape.size() == 2 && types->shape[0] >= 1 &&
                    shape[1] >= 1 && shape[1] <= kMostColumns && types->shape[1] == shape[1];
  if (!fits) {
    fail(MOE_ERR_SHAPE, "tensor %s: expected rows as wide as those of %s, %s; file has %s", kTypes,
         kTokens, shape_text(shape).c_str(), shape_text(types->shape).c_str());
  }
  auto rows = std::make_unique<ShiftedRows>();
  rows->tensor = *tokens;
  rows->row.resize(static_cast<size_t>(shape[1]));
  checkpoint->read(*types, 0, rows->row.size(), rows->row.data());
  SourceTensor sum = *tokens;
  sum.type = SourceType::kF32;
  const std::string parts[] = {kTokens, kTypes};
  checkpoint->put_packed(std::move(sum), std::move(rows), parts);
}

}  // namespace moe
