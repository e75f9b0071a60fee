// SPDX-License-Identifier: MIT
// Opens the checkpoint's float model, reads a text in windows, and tells which matrix an observed
// input belongs to.
#include "src/convert/calibration/source_model.h"

#include <algorithm>

#include "formats/import/failure.h"
#include "formats/moe/reader.h"
#include "src/base/os/machine.h"
#include "src/run/perplexity.h"

namespace moe {

uint64_t machine_share() {
  constexpr uint64_t kUnknown = uint64_t{1} << 30;
  MachineMemory memory;
  return machine_memory(&memory) ? memory.available / 2 : kUnknown;
}

SourceModel::SourceModel(ModelSink& file, uint64_t n_bytes, uint64_t memory_bytes, ThreadPool& pool,
                         InputWatcher& watch)
    : file_(file) {
  device_.reset(take(open_cpu_device(nullptr, pool, system_allocator(), kParallelWork, &watch)));
  FileSource source = FileSource::from_callbacks({n_bytes, read, this});
  Box<MoeFile> opened = take(MoeFile::open(std::move(source), system_allocator()));
  ModelOptions options;
  options.verify = false;
  options.memory_bytes = memory_bytes != 0 ? memory_bytes : sensible_bytes(n_bytes);
  model_ = take(Model::open(std::move(opened), options, *device_, logger_, system_allocator()));
  SessionOptions session;
  session.context = std::min(model_->config().context_length, kWindow);
  session_ = take(Session::create(*model_, session, system_allocator()));
}

double SourceModel::read_text(const CalibrationText& text, const ReadingProgress& progress) {
  if (model_->config().is_encoder()) {
    encode(text, progress);
    return 0;
  }
  PerplexityOptions options;
  options.prefix = text.prefix;
  if (progress) options.progress = call_progress;
  options.user = const_cast<void*>(static_cast<const void*>(&progress));
  Perplexity found;
  check(measure_perplexity(*session_, text.tokens, options, &found));
  return found.perplexity;
}

bool SourceModel::read(void* user, uint64_t offset, void* buffer, size_t n) {
  return static_cast<SourceModel*>(user)->file_.read(offset, buffer, n).ok();
}

bool SourceModel::call_progress(void* user, uint64_t done, uint64_t total) {
  return (*static_cast<const ReadingProgress*>(user))(done, total);
}

uint64_t SourceModel::sensible_bytes(uint64_t n_bytes) {
  MachineMemory memory;
  if (!machine_memory(&memory) || n_bytes <= memory.available / 2) return 0;
  return memory.available / 2;
}

const void* SourceModel::owner(const PlannedSegment& segment, const TensorRow& row) const {
  if (segment.layer < 0) return &model_->weights();
  const LayerWeights& layer = model_->layer(segment.layer);
  if (segment.part == Part::kMixer) return layer.mixer;
  return row.of_network() ? static_cast<const void*>(&layer.ffn) : &layer;
}

// Refers to its networks in place.
Expert SourceModel::networks_of(const PlannedSegment& segment) const {
  ExpertSource& experts = *model_->layer(segment.layer).experts;
  Expert expert;
  check(experts.acquire(segment.expert, {ExpertWait::kRoom, nullptr, nullptr}, &expert));
  experts.release(segment.expert);
  return expert;
}

void SourceModel::encode(const CalibrationText& text, const ReadingProgress& progress) {
  std::vector<float> pooled(static_cast<size_t>(model_->config().d_model));
  Encoding out;
  out.pooled = pooled.data();
  const auto context = static_cast<size_t>(session_->context());
  if (text.prefix.size() >= context) {
    fail(MOE_ERR_RANGE, "calibration: a context of %d has no room beside the prefix",
         session_->context());
  }
  const size_t room = context - text.prefix.size();
  for (size_t done = 0; done < text.tokens.size();) {
    const size_t n = std::min(room, text.tokens.size() - done);
    std::vector<int32_t> window = text.prefix;
    window.insert(window.end(), text.tokens.data() + done, text.tokens.data() + done + n);
    check(session_->encode(window, out));
    done += n;
    if (progress && !progress(done, text.tokens.size())) fail(MOE_ERR_CANCELLED, "cancelled");
  }
}

}  // namespace moe
