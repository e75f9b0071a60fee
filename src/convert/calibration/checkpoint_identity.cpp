// SPDX-License-Identifier: MIT
// A hash of configuration, tensors and samples of their values, by which saved statistics know
// their model.
#include <bit>
#include <set>

#include "formats/import/checkpoint.h"
#include "formats/moe/little_endian.h"
#include "src/convert/calibration/saved_statistics.h"
#include "src/convert/config_write.h"
#include "src/convert/weights/unpack.h"

namespace moe {
namespace {

// Values of a tensor, from its beginning to its end.
void hash_samples(const SourceTensor& tensor, const Checkpoint& checkpoint, StreamHash* hash) {
  constexpr uint64_t kValues = 256;  // whole blocks of every type
  constexpr uint64_t kStep = uint64_t{1} << 18;
  const uint64_t n = tensor.n_elements, whole = n / kValues * kValues;
  const auto add = [&](uint64_t first, uint64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    checkpoint.read(tensor, first, values.size(), values.data());
    for (const float value : values) {
      uint8_t bytes[sizeof value];
      store_le(std::bit_cast<uint32_t>(value), bytes);
      hash->add(bytes, sizeof bytes);
    }
  };
  for (uint64_t at = 0; at < whole; at += kStep) add(at, kValues);
  if (whole > kValues) add(whole - kValues, kValues);
  if (whole < n) add(whole, n - whole);
}

}  // namespace

uint64_t identity(const ModelConfig& config, const Plan& plan, const Checkpoint& checkpoint,
                  const std::function<void()>& tick) {
  StreamHash hash;
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(write_config(builder, config, Described::kComputed));
  hash.add(builder.GetBufferPointer(), builder.GetSize());
  std::set<const SourceTensor*> seen;
  for (const PlannedSegment& segment : plan.segments) {
    for (const PlannedMatrix& m : segment.matrices) {
      const std::string shape = m.slot.name + " " + std::to_string(m.slot.rows) + " " +
                                std::to_string(m.slot.cols) + "\n";
      hash.add(shape.data(), shape.size());
      if (!seen.insert(m.tensor).second) continue;
      tick();
      hash_samples(*m.tensor, checkpoint, &hash);
      if (m.source.packing == Packing::kNone) continue;
      hash_samples(find_scales(checkpoint, *m.tensor, m.source), checkpoint, &hash);
    }
  }
  return hash.value();
}

}  // namespace moe
