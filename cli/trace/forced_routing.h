// SPDX-License-Identifier: MIT
#pragma once
// Routes a model like a recorded trace: the output is meaningless, but the sequence of experts is
// real.

#include "cli/trace/trace_file.h"
#include "include/moe_c.h"

namespace moe_cli {

/// Layer l uses the choices of the trace's layer l mod its layers. A token evaluated alone, at
/// position p, uses those of decode step p mod their number, a token of a prompt those of prompt
/// step p mod theirs. Of n sessions, number i starts i / n of the decode steps later. A token uses
/// as many experts as in the trace. Expert e of the trace, as choice number s of a token, is expert
/// e of a layer with as many experts. With more experts it is e + (s mod c) E, where E is the
/// trace's number and c how many times that fits, rounded up; e if there is no such expert. With
/// fewer, N, it is e mod N, or the next that the token has not used yet.
class ForcedRouting {
 public:
  /// UsageError if the model is dense, or its routers select fewer experts than the trace; with
  /// another router than the file's (`overridden`) a token uses as many as there is room for.
  ForcedRouting(Trace trace, const moe_model* model, bool overridden);
  ForcedRouting(const ForcedRouting&) = delete;
  ForcedRouting& operator=(const ForcedRouting&) = delete;

  /// Applies the routing to the sessions. This must outlive them.
  void apply_to(const std::vector<moe_session*>& sessions);
  const Trace& trace() const { return trace_; }

 private:
  struct Step {
    size_t first;  // of its choices, in the trace
    size_t n;
  };
  struct Layer {
    int32_t n_experts = 0;
    int32_t n_subheads = 1;
  };

  struct Routed {  // a session
    const ForcedRouting* by;
    size_t index;
  };

  static bool call(void* user, moe_routing_choices* choices);
  void route(moe_routing_choices* choices, size_t session) const;
  const Step& step(int32_t layer, int32_t position, bool decode, size_t session) const;
  int32_t map(int32_t expert, int32_t slot, int32_t n_experts) const;

  Trace trace_;
  std::vector<std::vector<Step>> steps_[2];  // of the prompt, of decoding; by layer of the trace
  std::vector<Layer> layers_;                // of the model
  std::vector<Routed> sessions_;
};

}  // namespace moe_cli
