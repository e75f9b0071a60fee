// SPDX-License-Identifier: MIT
//! Routing decisions and expert cache statistics.

use crate::callback::Guarded;
use crate::sys;
use crate::text::slice;
use std::os::raw::c_void;
use std::ptr::NonNull;

/// Counts of [`crate::Session::count_routing`] in one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutingStats {
    pub n_experts: i32,
    pub n_tokens: u64,
    pub n_dropped: u64,
    pub n_activations: u64,
    pub n_positive: u64,
    pub n_skipped: u64,
    pub skipped_probability: f64,
    pub tokens_per_expert: Vec<u64>,
    /// (Sub-)tokens routed to i experts.
    pub experts_per_token: Vec<u64>,
}

impl RoutingStats {
    /// # Safety
    /// The arrays are valid.
    pub(crate) unsafe fn of(stats: &sys::moe_routing_stats) -> RoutingStats {
        let n = stats.n_experts as usize;
        RoutingStats {
            n_experts: stats.n_experts,
            n_tokens: stats.n_tokens,
            n_dropped: stats.n_dropped,
            n_activations: stats.n_activations,
            n_positive: stats.n_positive,
            n_skipped: stats.n_skipped,
            skipped_probability: stats.skipped_probability,
            tokens_per_expert: unsafe { slice(stats.tokens_per_expert, n) }.to_vec(),
            experts_per_token: unsafe { slice(stats.experts_per_token, n + 1) }.to_vec(),
        }
    }
}

/// Inner activations of one layer, dense or of experts, as [`crate::Session::count_routing`] counted them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActivationStats {
    /// 0 for a layer without an FFN.
    pub n_activations: u64,
    /// Activations above zero.
    pub n_positive: u64,
}

impl ActivationStats {
    pub(crate) fn of(stats: &sys::moe_activation_stats) -> ActivationStats {
        ActivationStats {
            n_activations: stats.n_activations,
            n_positive: stats.n_positive,
        }
    }
}

/// Uses of experts, and how many of them were found in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertStats {
    pub n_uses: u64,
    pub n_hits: u64,
    pub read_bytes: u64,
    pub wait_seconds: f64,
}

impl ExpertStats {
    fn of(stats: &sys::moe_expert_stats) -> ExpertStats {
        ExpertStats {
            n_uses: stats.n_uses,
            n_hits: stats.n_hits,
            read_bytes: stats.read_bytes,
            wait_seconds: stats.wait_seconds,
        }
    }
}

/// Memory and experts of a model under a cap; zero without one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryStats {
    pub session: ExpertStats,
    pub model: ExpertStats,
    pub cap_bytes: u64,
    pub counted_bytes: u64,
    pub peak_bytes: u64,
    pub arena_bytes: u64,
    pub expert_bytes: u64,
    /// Read into free room, not for a miss.
    pub filled_bytes: u64,
}

impl MemoryStats {
    pub(crate) fn of(stats: &sys::moe_memory_stats) -> MemoryStats {
        MemoryStats {
            session: ExpertStats::of(&stats.session),
            model: ExpertStats::of(&stats.model),
            cap_bytes: stats.cap_bytes,
            counted_bytes: stats.counted_bytes,
            peak_bytes: stats.peak_bytes,
            arena_bytes: stats.arena_bytes,
            expert_bytes: stats.expert_bytes,
            filled_bytes: stats.filled_bytes,
        }
    }
}

/// The routing of one MoE layer for the tokens of one pass. The callback may change the slices.
pub struct RoutingChoices<'a> {
    pub layer: i32,
    /// The first token's position in the text.
    pub position: i32,
    pub n_tokens: usize,
    pub n_slots: usize,
    /// Experts per token.
    pub counts: &'a mut [i32],
    /// (n_tokens, n_slots), best first; undefined beyond the count.
    pub experts: &'a mut [i32],
    pub weights: &'a mut [f32],
    /// The router's input, (n_tokens, d): hidden states after the layer's norm.
    pub hidden: &'a [f32],
    /// (n_tokens, n_experts): logits or cosines; empty for a hash router.
    pub scores: &'a [f32],
}

type Watcher = Box<dyn FnMut(&mut RoutingChoices<'_>) + Send>;

type Watched = Guarded<Watcher>;

/// A callback registered with the library, at a fixed address.
pub(crate) struct Watch(NonNull<Watched>);

// SAFETY: the closure is Send.
unsafe impl Send for Watch {}

impl Watch {
    pub(crate) fn new(watcher: Watcher) -> Watch {
        Watch(NonNull::from(Box::leak(Box::new(Guarded::new(watcher)))))
    }

    pub(crate) fn user(&self) -> *mut c_void {
        self.0.as_ptr() as *mut c_void
    }

    /// After a call: resumes a panic of the callback.
    pub(crate) fn go_on(&mut self) {
        unsafe { self.0.as_mut() }.go_on();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

pub(crate) unsafe extern "C" fn on_routing(
    user: *mut c_void,
    choices: *mut sys::moe_routing_choices,
) -> bool {
    // SAFETY: the Watch lives as long as the session can call it; the arrays during this call.
    unsafe {
        let (watched, c) = (&mut *(user as *mut Watched), &mut *choices);
        let (n, slots) = (c.n_tokens as usize, c.n_slots as usize);
        let mut choices = RoutingChoices {
            layer: c.layer,
            position: c.position,
            n_tokens: n,
            n_slots: slots,
            counts: std::slice::from_raw_parts_mut(c.counts, n),
            experts: std::slice::from_raw_parts_mut(c.experts, n * slots),
            weights: std::slice::from_raw_parts_mut(c.weights, n * slots),
            hidden: slice(c.hidden, n * c.d as usize),
            scores: slice(c.scores, n * c.n_experts as usize),
        };
        watched.run((), |f| f(&mut choices));
        !watched.panicked()
    }
}
