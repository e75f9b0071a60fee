#include "src/convert/synthetic.h"

#include <cmath>
#include <map>
#include <vector>

#include "quant/list.h"
#include "src/convert/config_write.h"
#include "src/convert/shapes.h"
#include "src/convert/slot.h"
#include "src/convert/tokenizer_write.h"

namespace moe {
namespace {

// Distinct packed tiles of one (format, cols). A model takes them in random order, so that gigabytes
// are written at the speed of memory and yet do not repeat in any short range.
constexpr size_t kPoolTiles = 64;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {  // SplitMix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  int32_t below(int32_t n) { return static_cast<int32_t>((next() >> 32) * static_cast<uint64_t>(n) >> 32); }
  float symmetric() { return static_cast<float>(below(1 << 20)) / (1 << 19) - 1; }  // [-1, 1)

 private:
  uint64_t state_;
};

class Filler {
 public:
  Filler(uint64_t seed, int32_t vocab_size) : random_(seed), vocab_size_(vocab_size) {}

  /// The whole blob of one segment.
  const std::vector<uint8_t>& fill(const BlobLayout& layout) {
    blob_.assign(layout.bytes, 0);
    for (const BlobMatrix& m : layout.matrices) {
      put_tiles(m);
      put_scales(m);
    }
    return blob_;
  }

 private:
  // Outputs of unit inputs are about 1 / sqrt(3): activations neither vanish nor grow beyond bounds.
  static float spread(int32_t cols) { return 1.0f / std::sqrt(static_cast<float>(cols)); }

  static bool is_norm(Role role) {
    return role == Role::kNorm || role == Role::kQNorm || role == Role::kKNorm || role == Role::kSubNorm;
  }

  void make_tile(const BlobMatrix& m, int n_rows, uint8_t* tile) {
    const WeightFormat& format = format_info(m.format);
    const size_t n = static_cast<size_t>(n_rows) * static_cast<size_t>(m.cols);
    if (format.integer) {
      const int32_t top = m.format == FormatId::kInt8 ? 127 : 1;
      codes_.resize(n);
      for (int8_t& c : codes_) c = static_cast<int8_t>(random_.below(2 * top + 1) - top);
      format.pack_codes(codes_.data(), m.cols, n_rows, m.cols, tile);
      return;
    }
    values_.resize(n);
    for (float& v : values_) {
      if (is_norm(m.role)) v = 1 + 0.1f * random_.symmetric();
      else if (m.format == FormatId::kI32) v = static_cast<float>(random_.below(vocab_size_));
      else v = random_.symmetric() * (m.cols == 1 ? 0.1f : spread(m.cols));
    }
    format.pack_values(values_.data(), m.cols, n_rows, m.cols, tile);
  }

  const std::vector<uint8_t>& pool(const BlobMatrix& m, size_t tile_bytes) {
    std::vector<uint8_t>& tiles = pools_[{m.format, m.cols, is_norm(m.role)}];
    if (tiles.empty()) {
      tiles.resize(kPoolTiles * tile_bytes);
      for (size_t i = 0; i < kPoolTiles; ++i) make_tile(m, kTileRows, tiles.data() + i * tile_bytes);
    }
    return tiles;
  }

  void put_tiles(const BlobMatrix& m) {
    const size_t tile_bytes = format_info(m.format).tile_bytes(m.cols);
    uint8_t* out = blob_.data() + m.offset;
    int32_t row = 0;
    if (m.rows >= kTileRows) {
      const std::vector<uint8_t>& tiles = pool(m, tile_bytes);
      for (; row + kTileRows <= m.rows; row += kTileRows, out += m.tile_stride) {
        const size_t i = static_cast<size_t>(random_.below(kPoolTiles));
        std::copy_n(tiles.data() + i * tile_bytes, tile_bytes, out);
      }
    }
    if (row < m.rows) make_tile(m, m.rows - row, out);
  }

  void put_scales(const BlobMatrix& m) {
    const size_t n = scale_floats(m);
    if (n == 0) return;
    const float scale = m.format == FormatId::kInt8 ? spread(m.cols) / 127 : spread(m.cols);
    auto* scales = reinterpret_cast<float*>(blob_.data() + m.scales_offset);
    for (size_t i = 0; i < n; ++i) scales[i] = scale * (1 + 0.1f * random_.symmetric());
  }

  struct PoolKey {
    FormatId format;
    int32_t cols;
    bool norm;
    auto operator<=>(const PoolKey&) const = default;
  };

  Random random_;
  int32_t vocab_size_;
  std::map<PoolKey, std::vector<uint8_t>> pools_;
  std::vector<uint8_t> blob_;
  std::vector<int8_t> codes_;
  std::vector<float> values_;
};

BlobMatrix stored_as(const Slot& slot, FormatId weights, const Shape& shape) {
  BlobMatrix m;
  m.role = slot.role;
  m.sublayer = std::max(slot.sublayer, 0);
  m.rows = slot.rows;
  m.cols = slot.cols;
  switch (slot.kind) {
    case SlotKind::kLinear:
      m.format = weights;
      break;
    case SlotKind::kVocab:
      m.format = format_info(weights).integer ? FormatId::kInt8 : weights;
      break;
    case SlotKind::kExact:
      m.format = FormatId::kBf16;
      break;
    case SlotKind::kVector:
      m.format = FormatId::kF32;
      break;
    case SlotKind::kTable:
      m.format = FormatId::kI32;
      break;
  }
  if (!format_info(m.format).integer) return m;
  const bool ternary = m.format != FormatId::kInt8;
  m.scale = ternary ? shape.ternary_scale : ScaleKind::kRow;
  m.act = ternary ? shape.act : ActPrecision::kA8Block;
  return m;
}

struct Plan {
  const Shape* shape = nullptr;
  ModelConfig config;
  std::vector<SlotGroup> groups;
  FormatId weights = FormatId::kTernary2;
};

Status make_plan(const std::string& name, const SyntheticOptions& options, Plan* plan) {
  plan->shape = find_shape(name);
  if (plan->shape == nullptr) {
    return Status::error(MOE_ERR_NOT_FOUND, "shape: expected one of %s; found '%.60s'", shape_names(),
                         name.c_str());
  }
  const WeightFormat* format = find_format(options.weights);
  if (format == nullptr || format->id == FormatId::kI32) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "weights: expected ternary2, ternary3, int8, bf16, f16 or f32; found '%.40s'",
                         options.weights.c_str());
  }
  plan->weights = format->id;
  MOE_TRY(plan->shape->build(&plan->config));
  MOE_TRY(plan->config.name.assign(name));
  if (options.context != 0) plan->config.context_length = options.context;
  MOE_TRY(validate(plan->config));
  plan->groups = list_slots(plan->config, std::vector<int32_t>(plan->config.layers.size(), 0));
  return {};
}

Status lay_out(const Plan& plan, const SlotGroup& group, BlobLayout* layout) {
  for (const Slot& slot : group.slots) {
    // Optional vectors are biases: the shapes with layer norms have them, routers and heads do not.
    const bool biased = plan.config.norm == NormKind::kLayer && group.part != Part::kRouter &&
                        group.part != Part::kHead;
    if (slot.optional && !biased) continue;
    MOE_TRY(layout->matrices.push(stored_as(slot, plan.weights, *plan.shape)));
  }
  return place(layout);
}

}  // namespace

uint64_t synthetic_bytes(const std::string& shape, const SyntheticOptions& options) {
  Plan plan;
  if (!make_plan(shape, options, &plan).ok()) return 0;
  uint64_t bytes = 1 << 20;
  for (const SlotGroup& group : plan.groups) {
    BlobLayout layout;
    if (!lay_out(plan, group, &layout).ok()) return 0;
    bytes += layout.bytes + kSegmentAlign;
  }
  return bytes;
}

Status write_synthetic(const std::string& shape, const SyntheticOptions& options, ModelSink& sink) {
  Plan plan;
  MOE_TRY(make_plan(shape, options, &plan));
  Filler filler(options.seed, plan.config.vocab_size);
  ModelWriter writer(sink, false);
  for (const SlotGroup& group : plan.groups) {
    BlobLayout layout;
    MOE_TRY(lay_out(plan, group, &layout));
    MOE_TRY(writer.write_segment({group.part, group.layer, group.expert}, layout, filler.fill(layout).data()));
  }
  // 256 tokens are bytes; larger vocabularies have no text to go with them.
  ModelWriter::Builder<fbs::Tokenizer> tokenizer;
  if (plan.config.vocab_size == 256) {
    tokenizer = [](flatbuffers::FlatBufferBuilder& b) { return write_tokenizer(b, TokenizerData{}); };
  }
  return finish_model(writer, plan.config, tokenizer, {{"source", plan.shape->source}, {"weights", "random"}});
}

}  // namespace moe
