// SPDX-License-Identifier: MIT
#pragma once
// The rows of one forward pass, shared by the files that compute its layers and its outputs.

#include "src/run/forward.h"
#include "src/run/session_state.h"

namespace moe {

/// The rows of one pass as the device sees them.
struct Batch {
  const SessionState& lead;
  std::span<BatchPart> parts;
  const BatchRow* rows;
  const KvCacheView* caches;
  int32_t n_rows;

  const BatchPart& part_of(int32_t row) const {
    return parts[static_cast<size_t>(rows[row].session)];
  }
};

/// True if a session of the call was cancelled. In a call of several passes, a session in another
/// pass counts too.
inline bool cancel_asked(const Batch& batch) {
  for (const Session* session : batch.lead.call.group()) {
    if (SessionCall::of(*session).cancelled()) return true;
  }
  for (const BatchPart& part : batch.parts) {
    if (part.session->call.cancelled()) return true;
  }
  return false;
}

/// Runs work() and waits for its end. Repeats it if a preempted cancel() of an earlier call, whose
/// session is not cancelled any more, reached the stream only now and skipped part of the work.
template <class Work>
Status run_and_wait(SessionState& lead, const Batch& batch, Work work) {
  for (;;) {
    work();
    Status status = lead.device.sync(lead.stream());
    if (status.code() != MOE_ERR_CANCELLED || cancel_asked(batch)) return status;
    lead.stream().cancelled.store(false);
  }
}

}  // namespace moe
