// SPDX-License-Identifier: MIT
// Writes a model file of a shape: random tiles of each matrix, with scales that keep activations in
// range.
#include "src/convert/synthetic.h"

#include <algorithm>
#include <cmath>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "src/convert/config_write.h"
#include "src/convert/destination.h"
#include "src/convert/importer.h"
#include "src/convert/shapes.h"
#include "src/convert/tokenizer/tokenizer_write.h"
#include "src/convert/weights/precision.h"
#include "src/convert/weights/random_tiles.h"
#include "src/convert/weights/slot.h"

namespace moe {
namespace {

struct Recipe {
  const Shape* shape = nullptr;
  std::optional<FormatId> weights;  // none: auto
  ModelConfig config;
  uint64_t seed = 0;
};

void add_prediction(ModelConfig* config) {
  const LayerConfig* const like = like_guessing(*config);
  if (like == nullptr) fail(MOE_ERR_UNSUPPORTED, "the shape has no layer with attention");
  const LayerConfig layer = *like;
  check(config->layers.push(layer));
  config->n_predictions = 1;
}

Recipe make_recipe(const std::string& name, const SyntheticOptions& options) {
  Recipe recipe;
  recipe.shape = find_shape(name.c_str());
  if (recipe.shape == nullptr) {
    fail(MOE_ERR_NOT_FOUND, "unknown shape \"%.60s\"; known: %s", name.c_str(), shape_names());
  }
  recipe.weights = parse_weights(options.weights);
  recipe.config = recipe.shape->make();
  if (options.context != 0) recipe.config.context_length = options.context;
  if (options.prediction) add_prediction(&recipe.config);
  recipe.seed = options.seed;
  check(validate(recipe.config));
  return recipe;
}

// As `moe convert --weights` stores a matrix of floats.
FormatId stored_format(std::optional<FormatId> weights, const Slot& slot) {
  return PrecisionPolicy({}, weights, {}).choose(slot).for_floats();
}

BlobMatrix blob_matrix(const Recipe& recipe, const Slot& slot) {
  BlobMatrix m;
  m.role = slot.role;
  m.sublayer = slot.sublayer;
  m.rows = slot.rows;
  m.cols = slot.cols;
  // As in published files, matrices of a few rows (of the mixers' gates) stay as they are.
  const int32_t block = recipe.config.rotation.block;
  const bool matrix = slot.kind == SlotKind::kVocab || slot.kind == SlotKind::kLinear;
  m.rotated = matrix && block > 0 && slot.rows >= block;
  if (slot.kind == SlotKind::kExact) {
    m.format = recipe.shape->router;
  } else if (matrix) {
    m.format = stored_format(recipe.weights, slot);
  }
  const WeightFormat& format = format_info(m.format);
  if (format.ternary()) {
    m.scale = recipe.shape->ternary_scale;
    m.act = recipe.shape->ternary_act;
  } else if (format.integer) {
    m.scale = format.own_scales();
    m.group = format.group;
    m.act = format.act;
  }
  return m;
}

BlobLayout layout_of(const Recipe& recipe, const SlotGroup& group) {
  BlobLayout layout;
  for (const Slot& slot : group.slots) {
    // Models with layer norms have biases, except in routers.
    if (slot.optional && (recipe.config.norm != NormKind::kLayer || group.part == Part::kRouter)) {
      continue;
    }
    check(layout.matrices.push(blob_matrix(recipe, slot)));
  }
  check(place(&layout));
  return layout;
}

// Preserves variance: outputs vary like inputs.
float amplitude_of(const BlobMatrix& m) { return std::sqrt(3.0f / static_cast<float>(m.cols)); }

float scale_of(const BlobMatrix& m, Random& random) {
  const WeightFormat& format = format_info(m.format);
  const float even = std::sqrt(format.spread / static_cast<float>(m.cols));
  return even / static_cast<float>(format.max_code) * (0.9f + 0.2f * random.uniform());
}

bool is_norm(const SlotGroup& group, const BlobMatrix& m) {
  for (const Slot& slot : group.slots) {
    if (slot.role == m.role && slot.sublayer == m.sublayer) return slot.norm;
  }
  return false;
}

// Values around `middle`.
void fill_vector(const BlobMatrix& m, float middle, Random& random, uint8_t* out) {
  std::vector<float> values(static_cast<size_t>(m.rows));
  for (float& v : values) v = 0.1f * (2 * random.uniform() - 1) + middle;
  const size_t stride = static_cast<size_t>(m.tile_stride);
  for (int32_t r = 0; r < m.rows; r += kTileRows) {
    const int n = std::min(kTileRows, m.rows - r);
    f32_pack(values.data() + r, 1, n, 1, out + static_cast<size_t>(r / kTileRows) * stride);
  }
}

// The attention of a layer with a latent; null for other parts.
const AttentionConfig* latent_attention(const Recipe& recipe, const SlotGroup& group) {
  if (group.part != Part::kAttention) return nullptr;
  const AttentionConfig& a = recipe.config.layers[static_cast<size_t>(group.layer)].attention;
  return a.latent > 0 ? &a : nullptr;
}

// As in DeepSeek: rotated dimensions of keys do not read the latent, and values are as wide as the
// unrotated part, unless they are as wide as keys. Heads and their parts are whole tiles.
bool is_zero_tile(const Recipe& recipe, const AttentionConfig& a, Role role, int32_t t) {
  const int32_t dim = t * kTileRows % a.head_dim;
  return (role == Role::kK && dim < a.rope.dims) ||
         (role == Role::kV && !recipe.shape->whole_values && dim >= a.head_dim - a.rope.dims);
}

// Copies the rotary part to each head.
void fill_rotary(const AttentionConfig& a, const BlobMatrix& m, uint8_t* out) {
  std::vector<float> rows(static_cast<size_t>(kTileRows * m.cols));
  for (int32_t first = 0; first < m.rows; first += kTileRows) {
    const int n = std::min(kTileRows, m.rows - first);
    std::fill(rows.begin(), rows.end(), 0.0f);
    for (int r = 0; r < n; ++r) {
      const int32_t dim = (first + r) % a.head_dim;
      if (dim < m.cols) rows[static_cast<size_t>(r * m.cols + dim)] = 1;
    }
    format_info(m.format).pack_values(rows.data(), m.cols, n, m.cols, out);
    out += m.tile_stride;
  }
}

// `poll` is called from time to time and may throw.
void fill_matrix(const Recipe& recipe, const SlotGroup& group, const BlobMatrix& m, Random& random,
                 uint8_t* blob, const std::function<void()>& poll) {
  const AttentionConfig* const latent = latent_attention(recipe, group);
  if (m.cols == 1) return fill_vector(m, is_norm(group, m) ? 1.0f : 0.0f, random, blob + m.offset);
  if (m.role == Role::kKRope) return fill_rotary(*latent, m, blob + m.offset);
  RandomTiles tiles(m, amplitude_of(m));
  const int32_t n_tiles = (m.rows + kTileRows - 1) / kTileRows;
  for (int32_t t = 0; t < n_tiles; ++t) {
    poll();
    uint8_t* const out = blob + m.offset + static_cast<uint64_t>(t) * m.tile_stride;
    if (latent != nullptr && is_zero_tile(recipe, *latent, m.role, t)) {
      tiles.fill_zeros(t, out);
    } else {
      tiles.fill(t, random, out);
    }
  }
  auto* scales = reinterpret_cast<float*>(blob + m.scales_offset);  // if there are any
  const size_t n_scales = scale_floats(m);
  for (size_t i = 0; i < n_scales; ++i) scales[i] = scale_of(m, random);
}

uint64_t segment_bytes(const Recipe& recipe) {
  uint64_t bytes = 0;
  for (const SlotGroup& group : list_slots(recipe.config, {})) {
    bytes += round_up(layout_of(recipe, group).bytes, kSegmentAlign);
  }
  return bytes;
}

void write_model(const Recipe& recipe, const SyntheticOptions& options, ModelSink& sink) {
  ModelWriter writer(sink, false);
  const uint64_t total = segment_bytes(recipe);
  uint64_t done = 0;
  const auto advance = [&](uint64_t bytes) {
    done += bytes;
    if (options.progress && !options.progress(done, total)) fail(MOE_ERR_CANCELLED, "cancelled");
  };
  std::vector<uint64_t> blob;  // of words: aligned for scales
  Random seeds(recipe.seed);
  for (const SlotGroup& group : list_slots(recipe.config, {})) {
    const BlobLayout layout = layout_of(recipe, group);
    const SegmentId id{group.part, group.layer, group.expert};
    if (options.outline) {
      advance(0);
      check(writer.write_hole(id, layout));
      continue;
    }
    blob.assign((layout.bytes + 7) / 8, 0);
    auto* bytes = reinterpret_cast<uint8_t*>(blob.data());
    Random random(seeds.next());
    for (const BlobMatrix& m : layout.matrices) {
      fill_matrix(recipe, group, m, random, bytes, [&] { advance(0); });
    }
    check(writer.write_segment(id, layout, bytes));
    advance(round_up(layout.bytes, kSegmentAlign));
  }
  ModelWriter::Builder<fbs::Tokenizer> tokenizer;
  if (recipe.shape->bytes_tokenizer) {
    tokenizer = [](flatbuffers::FlatBufferBuilder& b) {
      return write_tokenizer(b, TokenizerData{});
    };
  }
  check(finish_model(writer, recipe.config, tokenizer,
                     {{"importer", "synthetic"}, {"shape", recipe.shape->name}}));
}

}  // namespace

Status write_synthetic(const std::string& shape, const SyntheticOptions& options, ModelSink& sink) {
  return guarded([&] { write_model(make_recipe(shape, options), options, sink); });
}

uint64_t synthetic_bytes(const std::string& shape, const SyntheticOptions& options) {
  uint64_t bytes = 0;
  constexpr uint64_t kMetadata = uint64_t{4} << 20;  // larger than any shape's
  const Status status =
      guarded([&] { bytes = kMetadata + segment_bytes(make_recipe(shape, options)); });
  return status.ok() ? bytes : 0;
}

Status save_synthetic(const std::string& shape, const SyntheticOptions& options,
                      const std::string& path) {
  MOE_TRY(guarded([&] { check_replaces(path, Output::kModel); }));
  MOE_ASSIGN(const std::unique_ptr<ModelSink> sink, open_file_sink(path));
  return write_synthetic(shape, options, *sink);
}

}  // namespace moe
