// SPDX-License-Identifier: MIT

// Statistics of routing and memory, and the callback that sees or changes routing.

package moe

/*
#include <moe_c.h>
bool moeGoRouting(void* user, moe_routing_choices* choices);
*/
import "C"

import (
	"context"
	"unsafe"
)

// RoutingStats are the counts of CountRouting in one layer.
type RoutingStats struct {
	NExperts                                             int
	NTokens, NDropped, NActivations, NPositive, NSkipped uint64
	SkippedProbability                                   float64
	TokensPerExpert                                      []uint64
	ExpertsPerToken                                      []uint64 // how many (sub-)tokens were served by i experts
}

// ActivationStats are the inner activations of one layer, dense or of experts, as CountRouting
// counted them.
type ActivationStats struct {
	NActivations uint64 // 0 for a layer without an FFN
	NPositive    uint64 // of these, above zero
}

// ExpertStats are uses of experts, and how many of them were found in memory.
type ExpertStats struct {
	NUses, NHits, ReadBytes uint64
	WaitSeconds             float64
}

// MemoryStats are memory and experts of a model under a cap; zero without one.
type MemoryStats struct {
	Session, Model                                             ExpertStats
	CapBytes, CountedBytes, PeakBytes, ArenaBytes, ExpertBytes uint64
	FilledBytes                                                uint64 // read into free room, not for a miss
}

// RoutingChoices is the routing of one MoE layer for the tokens of one pass. The slices are copies
// and may be kept. What the callback writes into Counts, Experts and Weights until it returns is what
// the model then uses.
type RoutingChoices struct {
	Layer, Position, NTokens, NSlots int
	Counts                           []int32 // for each token the experts taken
	Experts                          []int32 // (NTokens, NSlots), best first
	Weights                          []float32
	Hidden                           []float32 // (NTokens, d): what the router read
	Scores                           []float32 // (NTokens, experts): logits or cosines; nil of a router by token
}

// scored is the number of scores.
func scored(c *C.moe_routing_choices) int {
	if c.scores == nil {
		return 0
	}
	return int(c.n_tokens) * int(c.n_experts)
}

func showChoices(f func(*RoutingChoices), c *C.moe_routing_choices) {
	n, slots := int(c.n_tokens), int(c.n_slots)
	counts, weights := lent[int32](c.counts, n), lent[float32](c.weights, n*slots)
	experts := lent[int32](c.experts, n*slots)
	f(&RoutingChoices{
		Layer: int(c.layer), Position: int(c.position), NTokens: n, NSlots: slots,
		Counts: counts.copy, Experts: experts.copy, Weights: weights.copy,
		Hidden: lent[float32](c.hidden, n*int(c.d)).copy,
		Scores: lent[float32](c.scores, scored(c)).copy,
	})
	counts.giveBack()
	experts.giveBack()
	weights.giveBack()
}

// SetRouter overrides the router of every MoE layer ("topk:4", "threshold:0.9"); "": as in the file.
func (s *Session) SetRouter(router string) error {
	var a arena
	defer a.free()
	parsed, err := parseRouter(&a, router)
	if err != nil {
		return err
	}
	return s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_set_router(p, parsed, e)
	})
}

// CountRouting starts counting from zero, or stops.
func (s *Session) CountRouting(on bool) error {
	return s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_count_routing(p, C.bool(on), e)
	})
}

// Routing are the counts of a layer.
func (s *Session) Routing(layer int) (stats RoutingStats, err error) {
	index, err := count(layer, "layer")
	if err != nil {
		return stats, err
	}
	var r C.moe_routing_stats
	r.struct_size = C.uint32_t(C.sizeof_moe_routing_stats)
	err = s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		status := C.moe_session_get_routing(p, index, &r, e)
		if status == C.MOE_OK { // the arrays are the session's
			stats = routingStatsOf(&r)
		}
		return status
	})
	return stats, err
}

// Activations is what was counted inside a layer, dense ones included.
func (s *Session) Activations(layer int) (ActivationStats, error) {
	index, err := count(layer, "layer")
	if err != nil {
		return ActivationStats{}, err
	}
	var a C.moe_activation_stats
	a.struct_size = C.uint32_t(C.sizeof_moe_activation_stats)
	err = s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_get_activations(p, index, &a, e)
	})
	return ActivationStats{NActivations: uint64(a.n_activations), NPositive: uint64(a.n_positive)}, err
}

func routingStatsOf(r *C.moe_routing_stats) RoutingStats {
	counts := func(p *C.uint64_t, n int) []uint64 {
		return append([]uint64(nil), unsafe.Slice((*uint64)(p), n)...)
	}
	n := int(r.n_experts)
	return RoutingStats{
		NExperts: n, NTokens: uint64(r.n_tokens), NDropped: uint64(r.n_dropped),
		NActivations: uint64(r.n_activations), NPositive: uint64(r.n_positive),
		NSkipped: uint64(r.n_skipped), SkippedProbability: float64(r.skipped_probability),
		TokensPerExpert: counts(r.tokens_per_expert, n), ExpertsPerToken: counts(r.experts_per_token, n+1),
	}
}

// WatchRouting calls f with the choices of each MoE layer before they are used; nil: removes it.
func (s *Session) WatchRouting(f func(*RoutingChoices)) error {
	var fresh arena
	w := &watcher{f: f}
	old := fresh // freed at the end: the one that is no longer used
	err := s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		var callback C.moe_routing_fn
		var user unsafe.Pointer
		if f != nil {
			callback, user = C.moe_routing_fn(C.moeGoRouting), fresh.ref(w)
		}
		status := C.moe_session_watch_routing(p, callback, user, e)
		if status == C.MOE_OK {
			old, s.watched.memory, s.watched.w = s.watched.memory, fresh, w
		} else {
			old = fresh
		}
		return status
	})
	old.free()
	return err
}

// MemoryStats are the memory and the experts of the session and its model.
func (s *Session) MemoryStats() (MemoryStats, error) {
	var m C.moe_memory_stats
	m.struct_size = C.uint32_t(C.sizeof_moe_memory_stats)
	err := s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		return C.moe_session_get_memory_stats(p, &m, e)
	})
	return MemoryStats{
		Session: expertStatsOf(&m.session), Model: expertStatsOf(&m.model),
		CapBytes: uint64(m.cap_bytes), CountedBytes: uint64(m.counted_bytes),
		PeakBytes: uint64(m.peak_bytes), ArenaBytes: uint64(m.arena_bytes), ExpertBytes: uint64(m.expert_bytes),
		FilledBytes: uint64(m.filled_bytes),
	}, err
}

func expertStatsOf(e *C.moe_expert_stats) ExpertStats {
	return ExpertStats{uint64(e.n_uses), uint64(e.n_hits), uint64(e.read_bytes), float64(e.wait_seconds)}
}
