// SPDX-License-Identifier: MIT
// The bytes and the expected damage of each format that a matrix may have, and the best of them for
// a number of bytes.
#include "src/convert/choose_formats.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "src/base/checked.h"
#include "src/convert/weights/storage.h"

namespace moe {
namespace {

// A matrix that is off by no more (squared, relative) has nothing to gain from a larger format.
constexpr double kNoError = 1.0 / 1024 / 1024;

// Two formats hold ternary values exactly. The larger one is faster, and better if there is room.
constexpr double kSlower = 1e-12;

bool is_reported(const PlannedMatrix& m) {
  return m.slot.kind != SlotKind::kVector && m.slot.kind != SlotKind::kTable;
}

bool is_product(const PlannedMatrix& m) {
  return m.slot.kind == SlotKind::kLinear || m.slot.kind == SlotKind::kVocab;
}

// A request, the caller's or one that the model was trained with, is no matter of choice.
bool is_open(const PlannedMatrix& m) {
  return is_product(m) && !m.precision.weights && !m.precision.fixed && !m.precision.as_source;
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

double damage_of(const FormatGroup& group, const Candidate& candidate) {
  return group.damage * grown(candidate.error()) +
         group.table_damage * grown(candidate.table_error);
}

double order_of(const FormatGroup& group, const Candidate& candidate) {
  return damage_of(group, candidate) + (candidate.format == FormatId::kTernary3 ? kSlower : 0);
}

// Candidates are in order of their bytes.
void leave_useful(FormatGroup* group) {
  std::vector<Candidate>& all = group->candidates;
  const auto enough = std::find_if(all.begin(), all.end(), [](const Candidate& c) {
    return c.format != FormatId::kTernary3 && c.weight_error <= kNoError;
  });
  if (enough != all.end()) all.erase(enough + 1, all.end());
}

}  // namespace

void check_goal(const SizeGoal& goal) {
  if (goal.most_bytes != 0 && goal.most_bits != 0) {
    fail(MOE_ERR_ARGUMENT, "size: expected bytes or bits per weight, found both");
  }
  if (!(goal.most_bits >= 0 && goal.most_bits <= 64)) {
    fail(MOE_ERR_ARGUMENT, "bits: expected 0 to 64 per weight, found %g", goal.most_bits);
  }
}

FormatChoice::FormatChoice(const SizeGoal& goal, Plan& plan, const ModelConfig& config,
                           const Checkpoint& checkpoint, ThreadPool& pool, FileBytes file_bytes,
                           std::function<void()> tick)
    : goal_(goal),
      plan_(plan),
      config_(config),
      file_bytes_(std::move(file_bytes)),
      tick_(std::move(tick)),
      source_{plan, checkpoint, pool, tick_} {
  list_units();
  for (Unit& unit : units_) {
    set_damages(&unit);
    for (FormatGroup& group : unit.groups) list_candidates(source_, &group);
  }
  check_smallest();
}

bool FormatChoice::can_calibrate() const {
  if (fixed_calibrated_) return true;
  for (const Unit& unit : units_) {
    for (const FormatGroup& group : unit.groups) {
      for (const Candidate& c : group.candidates) {
        if (c.calibrated) return true;
      }
    }
  }
  return false;
}

SizeReport FormatChoice::choose(Calibration* calibration) {
  measure(calibration);
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
    const Unit& unit = units_[u];
    const Selection& selection = unit.selections[chosen[u]];
    put(unit, selection);
    for (size_t g = 0; g < unit.groups.size(); ++g) {
      report.damage += damage_of(unit.groups[g], unit.groups[g].candidates[selection[g]]);
    }
    for (const FormatGroup& group : unit.fixed) {
      report.damage += damage_of(group, group.candidates[0]);
    }
  }
  report.bits = 8 * static_cast<double>(matrix_bytes()) / n_weights_;
  return report;
}

void FormatChoice::list_units() {
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

void FormatChoice::add_matrix(const MatrixPlace& place, Unit* unit) {
  const PlannedMatrix& m = source_.at(place);
  const double n_weights = static_cast<double>(m.slot.rows) * static_cast<double>(m.slot.cols);
  if (is_reported(m)) n_weights_ += n_weights;
  const bool open = is_open(m);
  blobs_[place.segment].emplace_back();  // of a candidate
  if (!open) {
    const Storage storage = choose_storage(m, source_.checkpoint, nullptr, source_.pool, tick_);
    blobs_[place.segment].back() = blob_matrix(m.slot, storage);
    fixed_calibrated_ = fixed_calibrated_ || moe::can_calibrate(m, storage);
  }
  if (!is_product(m)) return;
  std::vector<FormatGroup>& groups = open ? unit->groups : unit->fixed;
  const Role role = m.slot.role == Role::kGate ? Role::kUp : m.slot.role;
  // A format that the caller fixed does damage; one that the model was trained with does none.
  auto group = std::find_if(groups.begin(), groups.end(), [&](const FormatGroup& g) {
    return g.role == role && source_.at(g.places[0]).precision.fixed == m.precision.fixed;
  });
  if (group == groups.end()) {
    groups.emplace_back();
    group = groups.end() - 1;
    group->role = role;
    group->fixed = !open;
    if (!open) group->candidates.emplace_back();
  }
  group->places.push_back(place);
  group->n_weights += n_weights;
}

// Matrices of a role that have fixed formats count by their share of its weights.
void FormatChoice::set_damages(Unit* unit) const {
  std::map<Role, double> n_weights;
  for (std::vector<FormatGroup>* groups : {&unit->groups, &unit->fixed}) {
    for (const FormatGroup& group : *groups) n_weights[group.role] += group.n_weights;
  }
  const PlannedSegment& segment = plan_.segments[unit->segments[0]];
  for (std::vector<FormatGroup>* groups : {&unit->groups, &unit->fixed}) {
    for (FormatGroup& group : *groups) {
      const double share = group.n_weights / n_weights[group.role];
      const auto damage_in = [&](Part part) {
        return sensitivity(part, segment.layer, group.role, config_) * share;
      };
      const bool both = segment.part == Part::kEmbedding && config_.embedding_is_head();
      group.damage = damage_in(both ? Part::kHead : segment.part);
      if (both) group.table_damage = damage_in(Part::kEmbedding);
    }
  }
  // Rounding that a model was trained with does it no damage.
  std::erase_if(unit->fixed, [&](const FormatGroup& group) {
    return !source_.at(group.places[0]).precision.fixed;
  });
}

void FormatChoice::select(const Unit& unit, const Selection& selection) {
  for (size_t g = 0; g < unit.groups.size(); ++g) {
    const FormatGroup& group = unit.groups[g];
    const Candidate& candidate = group.candidates[selection[g]];
    for (size_t i = 0; i < group.places.size(); ++i) {
      blobs_[group.places[i].segment][group.places[i].matrix] = candidate.blobs[i];
    }
  }
}

BlobLayout FormatChoice::layout_of(size_t segment) const {
  BlobLayout layout;
  for (const BlobMatrix& blob : blobs_[segment]) check(layout.matrices.push(blob));
  check(place(&layout));
  return layout;
}

uint64_t FormatChoice::file_bytes() const {
  std::vector<BlobLayout> layouts;
  for (size_t s = 0; s < blobs_.size(); ++s) layouts.push_back(layout_of(s));
  return file_bytes_(layouts);
}

// A file has no more beside its segments, in any choice. It describes each layout once, so here
// those of all units differ, and their matrices have every field.
uint64_t FormatChoice::most_description_bytes() const {
  constexpr uint64_t kNames = 1024;  // those of formats, each once, and other alternatives
  std::vector<BlobLayout> layouts(blobs_.size());
  uint64_t bytes = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    for (const size_t s : units_[u].segments) {
      layouts[s] = layout_of(s);
      for (BlobMatrix& m : layouts[s].matrices) {
        m.scale = ScaleKind::kGroup;
        m.act = ActPrecision::kA8Group;
        m.group = static_cast<int32_t>(u) + 1;
        m.offset = m.scales_offset = kMatrixAlign;
      }
      bytes += round_up(layouts[s].bytes, kSegmentAlign);
    }
  }
  return file_bytes_(layouts) - bytes + kNames;
}

uint64_t FormatChoice::matrix_bytes(size_t segment) const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < blobs_[segment].size(); ++i) {
    if (is_reported(source_.at({segment, i}))) bytes += stored_bytes(blobs_[segment][i]);
  }
  return bytes;
}

uint64_t FormatChoice::matrix_bytes() const {
  uint64_t bytes = 0;
  for (size_t s = 0; s < blobs_.size(); ++s) bytes += matrix_bytes(s);
  return bytes;
}

// The goal limits these.
uint64_t FormatChoice::bytes_of(const Unit& unit) const {
  uint64_t bytes = 0;
  for (const size_t s : unit.segments) {
    bytes += goal_.most_bits != 0 ? matrix_bytes(s) : round_up(layout_of(s).bytes, kSegmentAlign);
  }
  return bytes;
}

// A decimal fraction as a double may be a little less than what was written.
uint64_t FormatChoice::bytes_for_bits() const {
  return static_cast<uint64_t>(goal_.most_bits * n_weights_ / 8 * (1 + 1e-14));
}

// Leaves the smallest candidates, the first ones, selected.
void FormatChoice::check_smallest() {
  for (const Unit& unit : units_) select(unit, Selection(unit.groups.size()));
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

void FormatChoice::measure(Calibration* calibration) {
  std::vector<FormatGroup*> groups;
  for (Unit& unit : units_) {
    for (FormatGroup& group : unit.groups) groups.push_back(&group);
    for (FormatGroup& group : unit.fixed) groups.push_back(&group);
  }
  measure_candidates(source_, calibration, groups);
  for (Unit& unit : units_) {
    for (FormatGroup& group : unit.groups) leave_useful(&group);
  }
}

void FormatChoice::add_option(const Selection& selection, Unit* unit) {
  select(*unit, selection);
  double damage = 0;
  for (size_t g = 0; g < unit->groups.size(); ++g) {
    damage += order_of(unit->groups[g], unit->groups[g].candidates[selection[g]]);
  }
  unit->selections.push_back(selection);
  unit->options.push_back({bytes_of(*unit), damage});
}

// The first option has the smallest candidates. Several groups give the hull of all.
void FormatChoice::list_options(Unit* unit) {
  add_option(Selection(unit->groups.size()), unit);
  if (unit->groups.size() == 1) {
    for (size_t c = 1; c < unit->groups[0].candidates.size(); ++c) add_option({c}, unit);
    return;
  }
  std::vector<SizeOptions> parts;
  Selection selection;
  for (const FormatGroup& group : unit->groups) {
    parts.emplace_back();
    for (const Candidate& c : group.candidates) {
      parts.back().push_back({c.bytes(), order_of(group, c)});
    }
    selection.push_back(convex_hull(parts.back())[0]);
  }
  add_option(selection, unit);
  for (const SizeStep& step : steps_on_hulls(parts)) {
    selection[step.part] = step.option;
    add_option(selection, unit);
  }
}

uint64_t FormatChoice::bytes_with(const std::vector<size_t>& options) {
  for (size_t u = 0; u < units_.size(); ++u) select(units_[u], units_[u].selections[options[u]]);
  return goal_.most_bits != 0 ? matrix_bytes() : file_bytes();
}

// The options that meet the goal. What describes the segments depends a little on the formats; the
// most that it can be is set aside, so that more bytes are never worse.
std::vector<size_t> FormatChoice::fit(const std::vector<SizeOptions>& parts) {
  const bool by_bits = goal_.most_bits != 0;
  const uint64_t most = by_bits ? bytes_for_bits() : goal_.most_bytes;
  const std::vector<size_t> best = least_damage(parts, UINT64_MAX);
  if (bytes_with(best) <= most) return best;
  const std::vector<size_t> smallest = least_damage(parts, 0);
  uint64_t reserve = by_bits ? 0 : most_description_bytes();
  for (;;) {
    std::vector<size_t> chosen = least_damage(parts, most - std::min(most, reserve));
    const uint64_t found = bytes_with(chosen);
    if (found <= most) return chosen;
    if (chosen == smallest) break;
    reserve += found - most;
  }
  // These have the shortest description too, and were found to fit.
  std::vector<size_t> first(units_.size());
  (void)bytes_with(first);
  return first;
}

void FormatChoice::put(const Unit& unit, const Selection& selection) {
  for (size_t g = 0; g < unit.groups.size(); ++g) {
    const FormatGroup& group = unit.groups[g];
    const Candidate& candidate = group.candidates[selection[g]];
    for (const MatrixPlace& place : group.places) {
      PlannedMatrix& m = plan_.segments[place.segment].matrices[place.matrix];
      request(candidate, &m.precision);
      m.reason = FormatReason{std::sqrt(candidate.error()), group.damage + group.table_damage};
    }
  }
}

}  // namespace moe
