// SPDX-License-Identifier: MIT
#pragma once
// The parts of a session. Private to src/run.

#include "src/base/bounded_list.h"
#include "src/base/host_buffer.h"
#include "src/run/call_state.h"
#include "src/run/kv_cache.h"
#include "src/run/last_logits.h"
#include "src/run/memory.h"
#include "src/run/mixer_states.h"
#include "src/run/predictions.h"
#include "src/run/rope_tables.h"
#include "src/run/session_call.h"
#include "src/run/session_routers.h"
#include "src/run/workspace.h"

namespace moe {

/// Everything that a session keeps between its passes.
struct SessionParts {
  /// Host memory of all parts.
  void lay_out(Carver& c, const Model& model, const SessionOptions& options);

  BoundedList<int32_t> tokens;  // room for the whole context
  KvCache kv;
  MixerStates mixers;
  RopeTables rope;
  SessionRouters routers;
  LastLogits logits;
  Predictions predictions;
};

/// The workspaces of a session's passes.
struct SessionPasses {
  WorkspacePool& pool;
  PoolMember& member;
  /// Null between passes, unless the session keeps `own`.
  Workspace* workspace = nullptr;
  Box<Workspace> own = {};   // on a device with its own memory, which records steps in it
  ExpertStats experts = {};  // of all passes but one in progress
};

struct SessionState : SessionParts {
  SessionState(Model& m, WorkspacePool& pool, PoolMember& member, const SessionOptions& o,
               const Allocator& a)
      : model(m), device(m.device()), options(o), passes{pool, member}, memory(a) {}
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  Status init(const Allocator& allocator);
  /// Rows of its next pass, at most.
  int32_t chunk() const { return passes.member.demand.chunk(passes.pool.automatic_rows()); }
  /// Rows of the pass in progress. The workspace has at least a chunk's.
  int32_t pass_rows() const { return std::min(chunk(), passes.workspace->shape.rows); }
  WorkMemory& work() const { return passes.workspace->work; }
  Stream& stream() const { return *passes.workspace->stream; }
  Sampler& sampler() const { return passes.workspace->sampler; }
  int32_t position() const { return static_cast<int32_t>(tokens.size()); }
  bool keeps_latent() const { return options.kv == KvType::kLatent; }

  Model& model;
  Device& device;
  const SessionOptions options;  // every default filled in
  CallState call;
  SessionPasses passes;
  HostBuffer memory;  // of the parts
};

}  // namespace moe
