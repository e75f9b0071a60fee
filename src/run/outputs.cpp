// SPDX-License-Identifier: MIT
// Delivers the logits, scores and hidden states that each part of a batch asked for.
#include "src/run/outputs.h"

#include <algorithm>

#include "src/run/head.h"

namespace moe {
namespace {

bool wants_logits(const Batch& batch, int32_t row) {
  const BatchPart& part = batch.part_of(row);
  const bool last = static_cast<size_t>(row - part.first_row) + 1 == part.tokens.size();
  if (part.rows == LogitRows::kSome) {
    return std::binary_search(part.some.begin(), part.some.end(), row - part.first_row);
  }
  return part.rows == LogitRows::kAll || (part.rows == LogitRows::kLast && last);
}

// True if the row remains on the device, in its session's memory.
bool stays_on_device(const BatchPart& part) {
  return part.session->logits.stay && part.rows == LogitRows::kLast;
}

// Copies rows that remain on the device to their sessions, and computes what sampling needs.
void store_and_sample(SessionState& lead, const Batch& batch, int32_t row, int32_t n,
                      const float* logits) {
  SampleSpec specs[kMaxSampleRows];
  float* copies[kMaxSampleRows] = {};
  bool any = false;
  for (int32_t i = 0; i < n; ++i) {
    const BatchPart& part = batch.part_of(row + i);
    if (!stays_on_device(part)) continue;
    const SessionState& session = *part.session;
    specs[i] = session.logits.spec;
    if (session.work().device_logits != logits) copies[i] = session.work().device_logits;
    any = any || wants_anything(specs[i]) || copies[i] != nullptr;
  }
  const int32_t vocab_size = lead.model.config().vocab_size;
  if (any) lead.device.sample(lead.stream(), {logits, n, vocab_size, specs, copies});
}

float* row_at(const SessionState& lead, int64_t row) {
  return lead.work().x + row * lead.model.config().d_model;
}

// Computes the requested rows of logits, as many at a time as fit in the layers' scratch.
Status write_logits(SessionState& lead, const Batch& batch) {
  const WorkMemory& work = lead.work();
  for (int32_t r = 0; r < batch.n_rows && !cancel_asked(batch);) {
    const int32_t most = std::min(work.scratch_logit_rows, batch.n_rows - r);
    int32_t n = 0;
    while (n < most && wants_logits(batch, r + n)) ++n;
    if (n == 0) {
      ++r;
      continue;
    }
    MOE_TRY(run_and_wait(lead, batch, [&] { run_head(lead, batch, r, n, work.scratch_logits); }));
    for (int32_t i = 0; i < n; ++i, ++r) {
      MOE_TRY(deliver_logits(lead, batch, r, i, work.scratch_logits));
    }
  }
  return {};
}

// Computes the log-probabilities of a part's targets, as many rows at a time as write_logits().
Status write_scores(SessionState& lead, const Batch& batch, const BatchPart& part) {
  const ScoredRows& scored = part.scored;
  double logprobs[kScratchLogitRows];
  for (size_t i = 0; i < scored.targets.size() && !cancel_asked(batch);) {
    const auto most = static_cast<size_t>(lead.work().scratch_logit_rows);
    const size_t n = std::min(most, scored.targets.size() - i);
    const float* x = row_at(lead, part.first_row + static_cast<int64_t>(scored.first + i));
    MOE_TRY(run_and_wait(lead, batch, [&] {
      compute_head(lead, x, static_cast<int32_t>(n), lead.work().scratch_logits);
    }));
    MOE_TRY(read_scores(lead, scored.targets.subspan(i, n), logprobs));
    for (size_t j = 0; j < n; ++j, ++i) {
      scored.sink.take(scored.sink.user, scored.first_index + i, logprobs[j]);
    }
  }
  return {};
}

// Delivers the outputs that the head makes of the mean hidden state, whose norm is done.
Status write_of_mean(SessionState& lead, const Batch& batch, const BatchPart& part) {
  float* const x = row_at(lead, part.first_row);  // the layers' last states are not needed any more
  const auto d = static_cast<size_t>(lead.model.config().d_model);
  MOE_TRY(lead.device.upload(x, part.hidden.mean(part.hidden.user), d * sizeof(float)));
  float* const logits = lead.work().scratch_logits;
  MOE_TRY(run_and_wait(lead, batch, [&] { compute_head(lead, Norm(), x, 1, logits); }));
  return deliver_logits(lead, batch, part.first_row, 0, logits);
}

// Delivers the hidden states after the final norm where requested.
Status write_hidden(SessionState& lead, const Batch& batch) {
  const int32_t d = lead.model.config().d_model;
  const Norm& norm = lead.model.weights().final_norm;
  for (const BatchPart& part : batch.parts) {
    if (part.hidden.take == nullptr || cancel_asked(batch)) continue;
    const float* x = lead.work().x + int64_t{part.first_row} * d;
    const auto n = static_cast<int32_t>(part.tokens.size());
    if (norm.kind != NormKind::kNone && lead.model.config().is_encoder()) {
      MOE_TRY(run_and_wait(lead, batch, [&] {
        lead.device.norm(lead.stream(), {x, lead.work().branch, n, d, norm, false, 1});
      }));
      x = lead.work().branch;
    }
    MOE_TRY(part.hidden.take(part.hidden.user, x, part.tokens.size()));
    if (part.hidden.mean != nullptr && !cancel_asked(batch)) {
      MOE_TRY(write_of_mean(lead, batch, part));
    }
  }
  return {};
}

}  // namespace

void run_head(SessionState& lead, const Batch& batch, int32_t row, int32_t n, float* logits) {
  const BatchPart& first = batch.part_of(row);
  if (n == 1 && stays_on_device(first)) logits = first.session->work().device_logits;
  compute_head(lead, row_at(lead, row), n, logits);
  store_and_sample(lead, batch, row, n, logits);
}

Status deliver_logits(SessionState& lead, const Batch& batch, int32_t row, int32_t from,
                      const float* rows) {
  const BatchPart& part = batch.part_of(row);
  SessionState& session = *part.session;
  if (stays_on_device(part)) {
    session.logits.leave_on_device(lead.device.sampled(lead.stream(), from));
    return {};
  }
  const size_t n_outputs = session.logits.row().size();
  float* logits = session.logits.row().data();
  MOE_TRY(lead.device.download(logits, rows + static_cast<size_t>(from) * n_outputs,
                               n_outputs * sizeof(float)));
  session.logits.leave_on_host();
  if (part.rows != LogitRows::kAll && part.rows != LogitRows::kSome) return {};
  return part.sink.take(part.sink.user, static_cast<size_t>(row - part.first_row), logits);
}

void norm_hidden(SessionState& lead, const Batch& batch) {
  const int32_t d = lead.model.config().d_model;
  const Norm& norm = lead.model.weights().final_norm;
  for (const BatchPart& part : batch.parts) {
    if (part.hidden.take == nullptr || norm.kind == NormKind::kNone) continue;
    float* x = lead.work().x + int64_t{part.first_row} * d;
    lead.device.norm(lead.stream(),
                     {x, x, static_cast<int32_t>(part.tokens.size()), d, norm, false, 1});
  }
}

Status write_outputs(SessionState& lead, const Batch& batch) {
  for (const BatchPart& part : batch.parts) MOE_TRY(write_scores(lead, batch, part));
  MOE_TRY(write_logits(lead, batch));
  return write_hidden(lead, batch);
}

}  // namespace moe
