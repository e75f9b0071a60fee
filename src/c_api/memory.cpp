// SPDX-License-Identifier: MIT
// The memory of models, of their sessions and of this machine.

#include "src/run/memory.h"

#include "formats/moe/reader.h"
#include "src/base/os/machine.h"
#include "src/c_api/handles.h"

namespace moe {

Status check_given_session(const Model& model, const moe_session_params* given) {
  if (model.budget().unlimited()) return {};
  SessionOptions options;
  MOE_TRY(session_options(given, &options));
  MemoryAccount account;
  MOE_TRY(account_memory(model, options, &account));
  return check_room(model, account);
}

namespace {

// The memory of a model with so many sessions and no others.
Status account_sessions(const moe_model* model, const moe_session_params* params,
                        int32_t n_sessions, bool least, MemoryAccount* account) {
  if (model == nullptr) return null_argument("model");
  if (n_sessions < 1) {
    return Status::error(MOE_ERR_RANGE, "n_sessions: expected at least 1, found %d", n_sessions);
  }
  SessionOptions options;
  MOE_TRY(session_options(params, &options));
  return account_memory(*model->model, options, {.n_sessions = n_sessions, .least = least},
                        account);
}

Status get_memory(const moe_model* model, const moe_session_params* params, int32_t n_sessions,
                  moe_memory_line* lines, size_t capacity, size_t* n_lines) {
  if (n_lines == nullptr) return null_argument("n_lines");
  MemoryAccount account;
  MOE_TRY(account_sessions(model, params, n_sessions, false, &account));
  moe_memory_line out[MemoryAccount::kMaxLines];
  const auto n = static_cast<size_t>(account.n_lines);
  for (size_t i = 0; i < n; ++i) out[i] = {account.lines[i].what, account.lines[i].bytes};
  return write_array(out, n, lines, capacity, n_lines);
}

Status get_memory_plan(const moe_model* model, const moe_session_params* params, int32_t n_sessions,
                       moe_memory_plan* out) {
  MOE_TRY(check_out_struct(out, "out"));
  MemoryAccount account;
  MemoryAccount least;
  MOE_TRY(account_sessions(model, params, n_sessions, false, &account));
  MOE_TRY(account_sessions(model, params, n_sessions, true, &least));
  const Model& m = *model->model;
  moe_memory_plan plan{};
  plan.chunk = account.chunk;
  plan.cap_bytes = m.budget().cap();
  plan.needed_bytes = account.total;
  plan.least_bytes = least.total;
  plan.session_bytes = account.session_bytes;
  for (const FileSegment& s : m.file().segments()) {
    if (s.part != Part::kExperts || s.layer >= m.config().n_layers()) continue;  // out of use
    ++plan.n_experts;
    plan.expert_bytes += s.raw;
  }
  const uint64_t slot = m.cache_shape().slot_bytes;
  plan.n_in_memory = slot == 0 ? plan.n_experts : account.cache_bytes / slot;
  write_struct(plan, out);
  return {};
}

Status get_memory_info(moe_memory_info* out) {
  MOE_TRY(check_out_struct(out, "out"));
  MachineMemory memory;
  if (!machine_memory(&memory)) {
    return Status::error(MOE_ERR_UNSUPPORTED, "this system does not report its memory");
  }
  moe_memory_info info{};
  info.total_bytes = memory.total;
  info.available_bytes = memory.available;
  info.budget_bytes = memory.budget();
  write_struct(info, out);
  return {};
}

Status suggest_memory(const moe_model* model, const moe_session_params* params, int32_t n_sessions,
                      uint64_t* bytes) {
  if (bytes == nullptr) return null_argument("memory_bytes");
  MemoryAccount account;
  MOE_TRY(account_sessions(model, params, n_sessions, false, &account));
  MachineMemory memory;
  *bytes = 0;
  if (!model->env->device.get()->uses_host_memory() || model->model->file().in_memory() ||
      !machine_memory(&memory)) {
    return {};
  }
  const uint64_t most = memory.budget();
  // If a cap of `most` would be refused, prefer none.
  const uint64_t least = account.total - model->model->spare_bytes();
  if (account.total > (least <= most ? most : memory.available)) *bytes = most;
  return {};
}

moe_expert_stats public_stats(const ExpertStats& s) {
  return {s.n_uses, s.n_hits, s.read_bytes, static_cast<double>(s.wait_ns) * 1e-9};
}

Status get_memory_stats(const moe_session* session, moe_memory_stats* out) {
  MOE_TRY(check_session(session));
  MOE_TRY(check_out_struct(out, "out"));
  const Model& model = *session->model->model;
  const Budget::Usage memory = model.budget().usage();
  const ExpertCacheUse cache = model.cache_use();
  moe_memory_stats value{};
  value.session = public_stats(session->session->expert_stats());
  value.model = public_stats(model.expert_stats());
  value.cap_bytes = memory.cap;
  value.counted_bytes = memory.counted;
  value.peak_bytes = memory.peak;
  value.arena_bytes = cache.arena_bytes;
  value.expert_bytes = cache.expert_bytes;
  value.filled_bytes = cache.filled_bytes;
  write_struct(value, out);
  return {};
}

}  // namespace
}  // namespace moe

moe_status moe_model_get_memory(const moe_model* model, const moe_session_params* params,
                                int32_t n_sessions, moe_memory_line* lines, size_t capacity,
                                size_t* n_lines, moe_error* error) {
  return moe::deliver(moe::get_memory(model, params, n_sessions, lines, capacity, n_lines), error);
}

moe_status moe_model_get_memory_plan(const moe_model* model, const moe_session_params* params,
                                     int32_t n_sessions, moe_memory_plan* out, moe_error* error) {
  return moe::deliver(moe::get_memory_plan(model, params, n_sessions, out), error);
}

moe_status moe_get_memory_info(moe_memory_info* out, moe_error* error) {
  return moe::deliver(moe::get_memory_info(out), error);
}

moe_status moe_model_suggest_memory(const moe_model* model, const moe_session_params* params,
                                    int32_t n_sessions, uint64_t* memory_bytes, moe_error* error) {
  return moe::deliver(moe::suggest_memory(model, params, n_sessions, memory_bytes), error);
}

moe_status moe_session_get_memory_stats(const moe_session* session, moe_memory_stats* out,
                                        moe_error* error) {
  return moe::deliver(moe::get_memory_stats(session, out), error);
}
