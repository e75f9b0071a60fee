// SPDX-License-Identifier: MIT
// Formats that a matrix may have, the bytes and the expected damage of each, and the best of them
// for a number of bytes.
#include "src/convert/choose_formats.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "src/base/checked.h"
#include "src/convert/least_damage.h"
#include "src/convert/sensitivity.h"
#include "src/convert/weights/in_order.h"
#include "src/convert/weights/row_reader.h"
#include "src/convert/weights/storage.h"
#include "src/convert/weights/tile_packer.h"

namespace moe {
namespace {

// A sample of a role's matrices in a layer: this many of its experts, and tiles of all together.
constexpr size_t kSampledMatrices = 8;
constexpr size_t kSampledTiles = 4;

constexpr double kTooLarge = std::numeric_limits<double>::infinity();  // for the format

constexpr double squared(double v) { return v * v; }

// A matrix that is off by no more has nothing to gain from a larger format.
constexpr double kNoError = squared(1.0 / 1024);
constexpr double kSlower = 1e-12;

// Formats for the codes of some checkpoints: others gain nothing by them.
bool only_keeps_codes(FormatId format) {
  return format == FormatId::kInt4Min || format == FormatId::kNf4 || format == FormatId::kFp4;
}

struct Place {
  size_t segment = 0;
  size_t matrix = 0;
};

// A format that all matrices of a group may have.
struct Candidate {
  FormatId format = FormatId::kF32;
  std::vector<BlobMatrix> blobs;  // of each matrix
  bool exact = false;             // holds the checkpoint's values
  double error = 0;               // relative, squared, with that of the inputs

  uint64_t bytes() const {
    uint64_t n = 0;
    for (const BlobMatrix& blob : blobs) n += stored_bytes(blob);
    return n;
  }
};

// Matrices that share one format: those of a role in a layer, also in all of its experts. A gate
// and its up belong together, as the file interleaves them.
struct Group {
  Role role = Role::kWeight;
  std::vector<Place> places;
  std::vector<Candidate> candidates;
  double damage = 0;  // per squared error
};

// Segments of one part in one layer, whose size in the file depends on all of its groups.
struct Unit {
  std::vector<size_t> segments;
  std::vector<Group> groups;
  std::vector<std::vector<size_t>> selections;  // options: for each group a candidate
  SizeOptions options;
};

struct Sample {
  Group* group = nullptr;
  Place place;
  std::vector<Storage> storages;  // of each candidate
  std::vector<double> errors;     // the same
};

bool is_reported(const PlannedMatrix& m) {
  return m.slot.kind != SlotKind::kVector && m.slot.kind != SlotKind::kTable;
}

// A request, the caller's or one that the model was trained with, is no matter of choice.
bool is_open(const PlannedMatrix& m) {
  const bool product = m.slot.kind == SlotKind::kLinear || m.slot.kind == SlotKind::kVocab;
  return product && !m.precision.weights && !m.precision.fixed && !m.precision.as_source;
}

// As if the caller had requested it by name.
void request(FormatId format, PrecisionChoice* choice) {
  choice->weights = format;
  choice->only_codes = false;
}

// "of 12345 bytes (12.3 kB)": a number to type, and one to read.
std::string sized(uint64_t bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) value /= 1000, ++unit;
  char text[64];
  (void)snprintf(text, sizeof text, "%llu bytes (%.3g %s)", static_cast<unsigned long long>(bytes),
                 value, kUnits[unit]);
  return text;
}

class Choice final : public FormatChoice {
 public:
  Choice(const SizeGoal& goal, Plan& plan, const ModelShape& shape, const Checkpoint& checkpoint,
         ThreadPool& pool, FileBytes file_bytes, std::function<void()> tick)
      : goal_(goal),
        plan_(plan),
        shape_(shape),
        checkpoint_(checkpoint),
        pool_(pool),
        file_bytes_(std::move(file_bytes)),
        tick_(std::move(tick)) {
    list_units();
    for (Unit& unit : units_) {
      for (Group& group : unit.groups) list_candidates(&group);
    }
    check_smallest();
  }

  SizeReport choose(const InputStatistics* inputs) override {
    measure(inputs);
    std::vector<SizeOptions> parts;
    for (Unit& unit : units_) {
      list_options(&unit);
      parts.push_back(unit.options);
    }
    const std::vector<size_t> chosen = fit(parts);
    SizeReport report;
    report.most_bytes = goal_.most_bytes;
    report.most_bits = goal_.most_bits;
    for (size_t u = 0; u < units_.size(); ++u) {
      put(units_[u], units_[u].selections[chosen[u]]);
      report.damage += units_[u].options[chosen[u]].damage;
    }
    report.bits = 8 * static_cast<double>(matrix_bytes()) / n_weights_;
    return report;
  }

 private:
  const PlannedMatrix& at(const Place& place) const {
    return plan_.segments[place.segment].matrices[place.matrix];
  }

  void list_units() {
    std::map<std::pair<Part, int32_t>, size_t> known;
    for (size_t s = 0; s < plan_.segments.size(); ++s) {
      const PlannedSegment& segment = plan_.segments[s];
      const auto [found, is_new] = known.try_emplace({segment.part, segment.layer}, units_.size());
      if (is_new) units_.emplace_back();
      Unit& unit = units_[found->second];
      unit.segments.push_back(s);
      blobs_.emplace_back();
      for (size_t i = 0; i < segment.matrices.size(); ++i) add_matrix({s, i}, &unit);
    }
  }

  void add_matrix(const Place& place, Unit* unit) {
    const PlannedMatrix& m = at(place);
    if (is_reported(m)) {
      n_weights_ += static_cast<double>(m.slot.rows) * static_cast<double>(m.slot.cols);
    }
    if (!is_open(m)) {
      const Storage storage = choose_storage(m, checkpoint_, nullptr, pool_, tick_);
      blobs_[place.segment].push_back(blob_matrix(m.slot, storage));
      return;
    }
    blobs_[place.segment].emplace_back();  // of a candidate
    const Role role = m.slot.role == Role::kGate ? Role::kUp : m.slot.role;
    auto group = std::find_if(unit->groups.begin(), unit->groups.end(),
                              [&](const Group& g) { return g.role == role; });
    if (group == unit->groups.end()) {
      unit->groups.emplace_back();
      group = unit->groups.end() - 1;
      group->role = role;
      const PlannedSegment& segment = plan_.segments[place.segment];
      group->damage = sensitivity(segment.part, segment.layer, role, shape_);
    }
    group->places.push_back(place);
  }

  void list_candidates(Group* group) {
    const bool ternary = all_ternary(*group);
    FormatId own = own_format(at(group->places[0]).tensor->type);
    for (const Place& place : group->places) {
      if (own_format(at(place).tensor->type) != own) own = FormatId::kF32;
    }
    for (const WeightFormat& format : kWeightFormats) {
      if (format.table || (format.ternary() && !ternary)) continue;
      // Other floats are no smaller, or lose what the checkpoint has.
      const bool half = format.id == FormatId::kBf16 && own == FormatId::kF32;
      if (!format.integer && format.id != own && !half) continue;
      std::optional<Candidate> candidate = candidate_of(*group, format);
      if (!candidate || (only_keeps_codes(format.id) && !candidate->exact)) continue;
      candidate->exact |= format.id == own;
      group->candidates.push_back(std::move(*candidate));
    }
    std::stable_sort(group->candidates.begin(), group->candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bytes() < b.bytes(); });
  }

  // Only without loss: others are ruined.
  bool all_ternary(const Group& group) {
    return std::all_of(group.places.begin(), group.places.end(), [&](const Place& place) {
      PlannedMatrix m = at(place);
      if (m.slot.kind != SlotKind::kLinear) return false;
      m.precision = {};
      m.precision.int8_by_row = true;  // looks no further than for ternary values
      return choose_storage(m, checkpoint_, nullptr, pool_, tick_).fit.scale_kind !=
             ScaleKind::kNone;
    });
  }

  // Nothing if one of the matrices cannot have the format.
  std::optional<Candidate> candidate_of(const Group& group, const WeightFormat& format) {
    Candidate candidate;
    candidate.format = format.id;
    candidate.exact = true;
    for (const Place& place : group.places) {
      PlannedMatrix m = at(place);
      request(format.id, &m.precision);
      const ActPrecision act = m.precision.activations_for(format.id);
      if (activations_instead(format, act) != nullptr) return std::nullopt;
      const Storage storage = choose_storage(m, checkpoint_, nullptr, pool_, tick_);
      const bool ternary = storage.fit.scale_kind != ScaleKind::kNone;
      if (format.ternary() && !ternary) return std::nullopt;
      candidate.exact &= storage.own_codes || ternary;
      candidate.blobs.push_back(blob_matrix(m.slot, storage));
      BlobLayout alone;
      check(alone.matrices.push(candidate.blobs.back()));
      if (!moe::place(&alone).ok()) return std::nullopt;
    }
    return candidate;
  }

  void select(const Unit& unit, const std::vector<size_t>& selection) {
    for (size_t g = 0; g < unit.groups.size(); ++g) {
      const Group& group = unit.groups[g];
      const Candidate& candidate = group.candidates[selection[g]];
      for (size_t i = 0; i < group.places.size(); ++i) {
        blobs_[group.places[i].segment][group.places[i].matrix] = candidate.blobs[i];
      }
    }
  }

  BlobLayout layout_of(size_t segment) const {
    BlobLayout layout;
    for (const BlobMatrix& blob : blobs_[segment]) check(layout.matrices.push(blob));
    check(place(&layout));
    return layout;
  }

  uint64_t file_bytes() const {
    std::vector<BlobLayout> layouts;
    for (size_t s = 0; s < blobs_.size(); ++s) layouts.push_back(layout_of(s));
    return file_bytes_(layouts);
  }

  uint64_t matrix_bytes(size_t segment) const {
    uint64_t bytes = 0;
    for (size_t i = 0; i < blobs_[segment].size(); ++i) {
      if (is_reported(at({segment, i}))) bytes += stored_bytes(blobs_[segment][i]);
    }
    return bytes;
  }

  uint64_t matrix_bytes() const {
    uint64_t bytes = 0;
    for (size_t s = 0; s < blobs_.size(); ++s) bytes += matrix_bytes(s);
    return bytes;
  }

  // The goal limits these.
  uint64_t bytes_of(const Unit& unit) const {
    uint64_t bytes = 0;
    for (const size_t s : unit.segments) {
      bytes += goal_.most_bits != 0 ? matrix_bytes(s) : round_up(layout_of(s).bytes, kSegmentAlign);
    }
    return bytes;
  }

  uint64_t bytes_for_bits() const {
    return static_cast<uint64_t>(goal_.most_bits * n_weights_ / 8);
  }

  void check_smallest() {
    for (const Unit& unit : units_) select(unit, std::vector<size_t>(unit.groups.size()));
    if (goal_.most_bits != 0) {
      const uint64_t bytes = matrix_bytes();
      if (bytes <= bytes_for_bits()) return;
      const double bits = std::ceil(8 * static_cast<double>(bytes) / n_weights_ * 1000) / 1000;
      fail(MOE_ERR_ARGUMENT, "bits: this model needs at least %.3f per weight, %g are asked for",
           bits, goal_.most_bits);
    }
    const uint64_t bytes = file_bytes();
    if (bytes <= goal_.most_bytes) return;
    fail(MOE_ERR_ARGUMENT,
         "size: the smallest possible file of this model has %s, %llu are asked for",
         sized(bytes).c_str(), static_cast<unsigned long long>(goal_.most_bytes));
  }

  std::vector<Sample> list_samples(const InputStatistics* inputs) {
    std::vector<Sample> samples;
    for (Unit& unit : units_) {
      for (Group& group : unit.groups) {
        const size_t n = std::min(group.places.size(), kSampledMatrices);
        for (size_t i = 0; i < n; ++i) {
          Sample sample{&group, group.places[group.places.size() * i / n], {}, {}};
          PlannedMatrix m = at(sample.place);
          for (const Candidate& candidate : group.candidates) {
            request(candidate.format, &m.precision);
            sample.storages.push_back(
                choose_storage(m, checkpoint_, importance(inputs, m), pool_, tick_));
          }
          sample.errors.resize(group.candidates.size());
          samples.push_back(std::move(sample));
        }
      }
    }
    return samples;
  }

  static const float* importance(const InputStatistics* inputs, const PlannedMatrix& m) {
    return inputs == nullptr ? nullptr : inputs->importance(m.slot.short_name());
  }

  // Squared relative error of some tiles, or kTooLarge.
  double error_of(const Sample& sample, const Storage& storage, const float* importance) const {
    const PlannedMatrix& m = at(sample.place);
    std::vector<float> scales = first_scales(m, storage);
    TilePacker packer(m, storage, checkpoint_, {importance, nullptr}, &scales);
    std::vector<uint8_t> tile(format_info(storage.format).tile_bytes(m.slot.cols));
    const auto n_tiles = static_cast<size_t>((m.slot.rows + kTileRows - 1) / kTileRows);
    const size_t n_sampled = std::min(sample.group->places.size(), kSampledMatrices);
    const size_t n = std::min(n_tiles, std::max<size_t>(kSampledTiles / n_sampled, 1));
    try {
      for (size_t i = 0; i < n; ++i) {
        packer.pack(static_cast<int32_t>(n_tiles * i / n), tile.data());
      }
    } catch (const Failure& failure) {
      if (failure.status().code() != MOE_ERR_RANGE) throw;
      return kTooLarge;
    }
    const StorageError error = packer.take_error();
    return squared(packer.is_weighted() ? error.weighted() : error.relative());
  }

  void measure(const InputStatistics* inputs) {
    std::vector<Sample> samples = list_samples(inputs);
    InOrder work;
    work.n = std::ssize(samples);
    work.make = [&](int, int64_t i, size_t) {
      Sample& sample = samples[static_cast<size_t>(i)];
      for (size_t c = 0; c < sample.storages.size(); ++c) {
        sample.errors[c] =
            error_of(sample, sample.storages[c], importance(inputs, at(sample.place)));
      }
    };
    work.use = [&](int64_t i, size_t) {
      const Sample& sample = samples[static_cast<size_t>(i)];
      const auto n = static_cast<double>(std::min(sample.group->places.size(), kSampledMatrices));
      for (size_t c = 0; c < sample.errors.size(); ++c) {
        sample.group->candidates[c].error += sample.errors[c] / n;
      }
      return true;
    };
    work.tell = [&](int64_t) { tick_(); };
    for (const Sample& sample : samples) {  // each thread would hold many rows
      const PlannedMatrix& m = at(sample.place);
      work.alone |= !rows_are_together(*m.tensor, m.source);
    }
    run_in_order(pool_, work);
    for (Unit& unit : units_) {
      for (Group& group : unit.groups) leave_useful(&group);
    }
  }

  // Candidates are in order of their bytes. Of two that hold ternary values the larger one, which
  // is faster, is the better one.
  static void leave_useful(Group* group) {
    std::vector<Candidate>& all = group->candidates;
    std::erase_if(all, [](const Candidate& c) { return c.error == kTooLarge; });
    const auto enough = std::find_if(all.begin(), all.end(), [](const Candidate& c) {
      return c.format != FormatId::kTernary3 && (c.exact || c.error <= kNoError);
    });
    if (enough != all.end()) all.erase(enough + 1, all.end());
    for (Candidate& c : all) {
      c.error += input_error(c.blobs[0].act);
      if (c.format == FormatId::kTernary3) c.error += kSlower;
    }
  }

  void add_option(const std::vector<size_t>& selection, Unit* unit) {
    select(*unit, selection);
    double damage = 0;
    for (size_t g = 0; g < unit->groups.size(); ++g) {
      const Group& group = unit->groups[g];
      damage += group.damage * grown(group.candidates[selection[g]].error);
    }
    unit->selections.push_back(selection);
    unit->options.push_back({bytes_of(*unit), damage});
  }

  // Several groups give the hull of all: their steps are in the order of what they buy per byte.
  void list_options(Unit* unit) {
    struct Step {
      size_t group, candidate;
      double per_byte;
    };
    std::vector<Step> steps;
    std::vector<size_t> selection;
    for (size_t g = 0; g < unit->groups.size(); ++g) {
      const Group& group = unit->groups[g];
      SizeOptions options;
      for (const Candidate& c : group.candidates) {
        options.push_back({c.bytes(), group.damage * grown(c.error)});
      }
      const std::vector<size_t> hull = convex_hull(options);
      selection.push_back(hull[0]);
      for (size_t i = 1; i < hull.size(); ++i) {
        const SizeOption &from = options[hull[i - 1]], &to = options[hull[i]];
        steps.push_back(
            {g, hull[i], (from.damage - to.damage) / static_cast<double>(to.bytes - from.bytes)});
      }
    }
    if (unit->groups.size() == 1) {
      for (size_t c = 0; c < unit->groups[0].candidates.size(); ++c) add_option({c}, unit);
      return;
    }
    std::stable_sort(steps.begin(), steps.end(),
                     [](const Step& a, const Step& b) { return a.per_byte > b.per_byte; });
    add_option(selection, unit);
    for (const Step& step : steps) {
      selection[step.group] = step.candidate;
      add_option(selection, unit);
    }
  }

  // The options that meet the goal. A file has more than its segments: a description of each, whose
  // length depends a little on the formats.
  std::vector<size_t> fit(const std::vector<SizeOptions>& parts) {
    const uint64_t most = goal_.most_bits != 0 ? bytes_for_bits() : goal_.most_bytes;
    const std::vector<size_t> smallest = least_damage(parts, 0);
    uint64_t reserve = 0;
    for (;;) {
      std::vector<size_t> chosen = least_damage(parts, most - std::min(most, reserve));
      const uint64_t found = bytes_with(chosen);
      if (found <= most) return chosen;
      if (chosen == smallest) break;
      reserve += found - most;
    }
    // These are the smallest of those whose segments round to one size in the file.
    const std::vector<size_t> first(units_.size());
    const uint64_t found = bytes_with(first);
    if (found <= most) return first;
    fail(MOE_ERR_ARGUMENT, "size: with formats that can hold its values, this model needs %s",
         sized(found).c_str());
  }

  uint64_t bytes_with(const std::vector<size_t>& options) {
    for (size_t u = 0; u < units_.size(); ++u) select(units_[u], units_[u].selections[options[u]]);
    return goal_.most_bits != 0 ? matrix_bytes() : file_bytes();
  }

  void put(const Unit& unit, const std::vector<size_t>& selection) {
    for (size_t g = 0; g < unit.groups.size(); ++g) {
      const Group& group = unit.groups[g];
      const Candidate& candidate = group.candidates[selection[g]];
      for (const Place& place : group.places) {
        PlannedMatrix& m = plan_.segments[place.segment].matrices[place.matrix];
        request(candidate.format, &m.precision);
        m.reason = FormatReason{std::sqrt(candidate.error), group.damage};
      }
    }
  }

  const SizeGoal goal_;
  Plan& plan_;
  const ModelShape shape_;
  const Checkpoint& checkpoint_;
  ThreadPool& pool_;
  const FileBytes file_bytes_;
  const std::function<void()> tick_;
  std::vector<Unit> units_;
  std::vector<std::vector<BlobMatrix>> blobs_;  // of each segment, as last selected
  double n_weights_ = 0;                        // of the matrices in a report
};

}  // namespace

void check_goal(const SizeGoal& goal) {
  if (goal.most_bytes != 0 && goal.most_bits != 0) {
    fail(MOE_ERR_ARGUMENT, "size: expected bytes or bits per weight, found both");
  }
  if (!(goal.most_bits >= 0 && goal.most_bits <= 64)) {
    fail(MOE_ERR_ARGUMENT, "bits: expected 0 to 64 per weight, found %g", goal.most_bits);
  }
}

std::unique_ptr<FormatChoice> list_formats(const SizeGoal& goal, Plan& plan,
                                           const ModelConfig& config, const Checkpoint& checkpoint,
                                           ThreadPool& pool, FileBytes file_bytes,
                                           std::function<void()> tick) {
  ModelShape shape{config.n_layers(), true};
  for (const PlannedSegment& segment : plan.segments) {
    for (const PlannedMatrix& m : segment.matrices) {
      if (segment.part == Part::kHead && m.slot.kind == SlotKind::kVocab) shape.tied_head = false;
    }
  }
  return std::make_unique<Choice>(goal, plan, shape, checkpoint, pool, std::move(file_bytes),
                                  std::move(tick));
}

}  // namespace moe
