// SPDX-License-Identifier: MIT
// Looks at all weights for the formats that can hold them, and packs some tiles in each format for
// its error.
#include "src/convert/candidates.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "src/convert/sensitivity.h"
#include "src/convert/weights/in_order.h"
#include "src/convert/weights/largest.h"
#include "src/convert/weights/row_reader.h"
#include "src/convert/weights/source_scales.h"
#include "src/convert/weights/storage.h"
#include "src/convert/weights/tile_packer.h"

namespace moe {
namespace {

// A sample has tiles of up to so many matrices of a group, and so many tiles of a single one.
constexpr size_t kSampledMatrices = 8;
constexpr size_t kSampledTiles = 4;

// Where a few tokens have nearly all of the second moments (massive activations, Sun et al. 2024),
// these say that next to nothing of an error reaches the outputs, which holds for those tokens
// alone. Of 211 matrices of SmolLM2-135M four are below this share of the error of the weights, one
// of them at 0.003; half are above 0.2.
constexpr double kLeastShare = 0.05;

struct Sample {
  FormatGroup* group = nullptr;
  size_t index = 0;  // among those of the group
  MatrixPlace place;
  std::vector<Storage> storages;  // of each candidate
  KnownInputs inputs;
};

// Formats for the codes of some checkpoints: others gain nothing by them.
bool only_keeps_codes(FormatId format) {
  return format_info(format).only_blocks() || format == FormatId::kInt4Min ||
         format == FormatId::kNf4 || format == FormatId::kFp4;
}

Storage storage_of(const CandidateSource& source, const PlannedMatrix& m,
                   const float* importance = nullptr) {
  return choose_storage(m, source.checkpoint, importance, source.pool, source.tick);
}

// Ternary formats only without loss: others are ruined.
bool all_ternary(const CandidateSource& source, const FormatGroup& group) {
  return std::all_of(group.places.begin(), group.places.end(), [&](const MatrixPlace& place) {
    PlannedMatrix m = source.at(place);
    if (m.slot.kind != SlotKind::kLinear) return false;
    m.precision = {};
    m.precision.int8_by_row = true;  // looks no further than for ternary values
    return storage_of(source, m).fit.scale_kind != ScaleKind::kNone;
  });
}

float largest_of(const CandidateSource& source, const FormatGroup& group) {
  float largest = 0;
  for (const MatrixPlace& place : group.places) {
    const PlannedMatrix& m = source.at(place);
    largest = std::max(largest, largest_weight(m, source.checkpoint, source.pool, source.tick));
  }
  return largest;
}

// Every format that holds the largest weight holds all.
bool holds(const WeightFormat& format, float weight) {
  std::vector<uint8_t> tile(format.tile_bytes(1));
  float stored = 0;
  if (format.quantise_row != nullptr) {
    int8_t code = 0;
    float scale = 1;
    if (!format.quantise_row(&weight, 1, &code, &scale).ok()) return false;
    stored = static_cast<float>(code) * scale;
  } else {
    if (format.quantise_tile != nullptr) {
      if (!format.quantise_tile(&weight, 1, 1, 1, nullptr, tile.data()).ok()) return false;
    } else {
      format.pack_values(&weight, 1, 1, 1, tile.data());
    }
    read_weights(format, tile.data(), 1, 0, &stored);
  }
  return std::isfinite(stored);
}

// Nothing if one of the matrices cannot have the candidate's format. Sets all but the errors.
std::optional<Candidate> completed(const CandidateSource& source, const FormatGroup& group,
                                   Candidate candidate) {
  candidate.exact = true;
  for (const MatrixPlace& place : group.places) {
    PlannedMatrix m = source.at(place);
    request(candidate, &m.precision);
    const std::optional<FormatId> own = format_of_codes(m, source.checkpoint);
    if (candidate.as_stored && !own) return std::nullopt;
    const WeightFormat& format = format_info(candidate.as_stored ? *own : candidate.format);
    const ActPrecision act = m.precision.activations_for(format.id);
    if (activations_instead(format, act) != nullptr) return std::nullopt;
    const Storage storage = storage_of(source, m);
    const bool ternary = storage.fit.scale_kind != ScaleKind::kNone;
    if (format.ternary() && !ternary) return std::nullopt;
    if (candidate.as_stored && storage.format != format.id) return std::nullopt;
    candidate.exact &= storage.own_codes || ternary;
    candidate.calibrated |= can_calibrate(m, storage);
    candidate.blobs.push_back(blob_matrix(m.slot, storage));
    BlobLayout alone;
    check(alone.matrices.push(candidate.blobs.back()));
    if (!moe::place(&alone).ok()) return std::nullopt;
  }
  return candidate;
}

// Nothing unless the matrices have codes of several formats, as gates and ups may.
std::optional<Candidate> as_stored(const CandidateSource& source, const FormatGroup& group) {
  Candidate candidate;
  candidate.as_stored = true;
  std::optional<Candidate> out = completed(source, group, std::move(candidate));
  if (!out) return out;
  const FormatId first = out->blobs[0].format;
  const bool differ = std::any_of(out->blobs.begin(), out->blobs.end(),
                                  [&](const BlobMatrix& blob) { return blob.format != first; });
  return differ ? out : std::nullopt;
}

size_t sampled_matrices(const FormatGroup& group) {
  return std::min(group.places.size(), kSampledMatrices);
}

// Sample i is from the i-th of equal stretches. Gates and ups take turns in a group: so does the
// place in the stretch.
size_t sampled_place(const FormatGroup& group, size_t i) {
  const size_t n = sampled_matrices(group), size = group.places.size();
  const size_t begin = size * i / n, end = size * (i + 1) / n;
  return begin + i % (end - begin);
}

const float* importance_of(const InputStatistics* inputs, const PlannedMatrix& m) {
  return inputs == nullptr ? nullptr : inputs->importance(m.slot.short_name());
}

// In the order of the plan: statistics are prepared segment by segment, and matrices that share
// their inputs are neighbours.
std::vector<Sample> list_samples(const CandidateSource& source, const InputStatistics* inputs,
                                 const std::vector<FormatGroup*>& groups) {
  std::vector<Sample> samples;
  for (FormatGroup* group : groups) {
    for (size_t i = 0; i < sampled_matrices(*group); ++i) {
      Sample sample;
      sample.group = group;
      sample.index = i;
      sample.place = group->places[sampled_place(*group, i)];
      PlannedMatrix m = source.at(sample.place);
      for (const Candidate& candidate : group->candidates) {
        if (!group->fixed) request(candidate, &m.precision);
        sample.storages.push_back(storage_of(source, m, importance_of(inputs, m)));
      }
      samples.push_back(std::move(sample));
    }
  }
  std::stable_sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
    return std::pair(a.place.segment, a.place.matrix) < std::pair(b.place.segment, b.place.matrix);
  });
  return samples;
}

struct Errors {
  double of_outputs = 0;
  double of_weights = 0;
};

// Rounds some tiles, and returns the squared errors of outputs and weights relative to what noise
// of the size of the weights would add: sensitivities are of such noise. The samples of a group are
// from different rows.
Errors errors_of(const CandidateSource& source, const Sample& sample, const Storage& storage) {
  const PlannedMatrix& m = source.at(sample.place);
  std::vector<float> scales = first_scales(m, storage);
  TilePacker packer(m, storage, source.checkpoint, sample.inputs, &scales);
  std::vector<uint8_t> tile(format_info(storage.format).tile_bytes(m.slot.cols));
  const auto n_tiles = static_cast<size_t>((m.slot.rows + kTileRows - 1) / kTileRows);
  const size_t n_matrices = sampled_matrices(*sample.group);
  const size_t n = std::min(n_tiles, std::max<size_t>(kSampledTiles / n_matrices, 1));
  for (size_t i = 0; i < n; ++i) {
    const size_t at = 2 * (i * n_matrices + sample.index) + 1;  // of 2 * n * n_matrices
    packer.pack(static_cast<int32_t>(n_tiles * at / (2 * n * n_matrices)), tile.data());
  }
  const StorageError error = packer.take_error();
  if (error.squared_norm == 0) return {};
  const double of_weights = error.squared_error / error.squared_norm;
  if (!packer.is_weighted()) return {of_weights, of_weights};
  const double of_outputs = error.weighted_error / error.squared_norm;
  return {std::max(of_outputs, kLeastShare * of_weights), of_weights};
}

// True if second moments would change how one of the sample's formats is rounded.
bool wants_moments(const CandidateSource& source, const Sample& sample) {
  return std::any_of(sample.storages.begin(), sample.storages.end(), [&](const Storage& storage) {
    return can_calibrate(source.at(sample.place), storage) &&
           Compensator::serves(format_info(storage.format));
  });
}

// One format of a sample.
struct Trial {
  const Sample* sample = nullptr;
  size_t candidate = 0;
  Errors errors;
};

void measure_segment(const CandidateSource& source, Calibration* calibration,
                     std::span<Sample> samples) {
  std::vector<Trial> trials;
  InOrder work;
  bool prepared = false;
  for (Sample& sample : samples) {
    const PlannedMatrix& m = source.at(sample.place);
    if (calibration != nullptr) {
      sample.inputs.importance = importance_of(&calibration->inputs(), m);
      if (sample.inputs.importance != nullptr && wants_moments(source, sample)) {
        if (!prepared) calibration->prepare(sample.place.segment);
        prepared = true;
        sample.inputs.feedback = calibration->inputs().feedback(m.slot.short_name());
      }
    }
    for (size_t c = 0; c < sample.storages.size(); ++c) trials.push_back({&sample, c, {}});
    work.alone |= !rows_are_together(*m.tensor, m.source);  // each thread would hold many rows
  }
  work.n = std::ssize(trials);
  work.make = [&](int, int64_t i, size_t) {
    Trial& trial = trials[static_cast<size_t>(i)];
    const Sample& sample = *trial.sample;
    trial.errors = errors_of(source, sample, sample.storages[trial.candidate]);
  };
  work.use = [&](int64_t i, size_t) {
    const Trial& trial = trials[static_cast<size_t>(i)];
    FormatGroup& group = *trial.sample->group;
    const auto n = static_cast<double>(sampled_matrices(group));
    Candidate& candidate = group.candidates[trial.candidate];
    candidate.weight_error += trial.errors.of_outputs / n;
    candidate.table_error += trial.errors.of_weights / n;
    candidate.input_error += input_error(trial.sample->storages[trial.candidate].act) / n;
    return true;
  };
  work.tell = [&](int64_t) { source.tick(); };
  run_in_order(source.pool, work);
  for (Sample& sample : samples) sample.inputs.feedback = nullptr;
}

}  // namespace

uint64_t Candidate::bytes() const {
  uint64_t n = 0;
  for (const BlobMatrix& blob : blobs) n += stored_bytes(blob);
  return n;
}

void request(const Candidate& candidate, PrecisionChoice* choice) {
  choice->weights = candidate.as_stored ? std::nullopt : std::optional(candidate.format);
  choice->only_codes = false;
}

void list_candidates(const CandidateSource& source, FormatGroup* group) {
  const bool ternary = all_ternary(source, *group);
  const float largest = largest_of(source, *group);
  FormatId own = own_format(source.at(group->places[0]).tensor->type);
  for (const MatrixPlace& place : group->places) {
    if (own_format(source.at(place).tensor->type) != own) own = FormatId::kF32;
  }
  std::vector<Candidate>& all = group->candidates;
  for (const WeightFormat& format : kWeightFormats) {
    if (format.table || (format.ternary() && !ternary)) continue;
    // Other floats are no smaller, or lose what the checkpoint has.
    const bool half = format.id == FormatId::kBf16 && own == FormatId::kF32;
    if (!format.integer && format.id != own && !half) continue;
    Candidate wanted;
    wanted.format = format.id;
    std::optional<Candidate> candidate = completed(source, *group, std::move(wanted));
    if (!candidate || (only_keeps_codes(format.id) && !candidate->exact)) continue;
    candidate->exact |= format.id == own;
    if (candidate->exact || holds(format, largest)) all.push_back(std::move(*candidate));
  }
  if (std::optional<Candidate> candidate = as_stored(source, *group)) {
    all.push_back(std::move(*candidate));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bytes() < b.bytes(); });
  // Two formats hold ternary values exactly, and the larger one is faster.
  const auto enough = std::find_if(all.begin(), all.end(), [](const Candidate& c) {
    return c.exact && c.format != FormatId::kTernary3;
  });
  if (enough != all.end()) all.erase(enough + 1, all.end());
}

void measure_candidates(const CandidateSource& source, Calibration* calibration,
                        const std::vector<FormatGroup*>& groups) {
  const InputStatistics* inputs = calibration == nullptr ? nullptr : &calibration->inputs();
  std::vector<Sample> samples = list_samples(source, inputs, groups);
  for (auto begin = samples.begin(); begin != samples.end();) {
    const auto end = std::find_if(begin, samples.end(), [&](const Sample& sample) {
      return sample.place.segment != begin->place.segment;
    });
    measure_segment(source, calibration, {begin, end});
    begin = end;
  }
}

}  // namespace moe
