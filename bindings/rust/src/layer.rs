// SPDX-License-Identifier: MIT
//! A single MoE layer: (n, d_model) to (n, d_model).

use crate::enums::Status;
use crate::env::{made, Env, EnvHandle};
use crate::error::{call, Error, Result};
use crate::router;
use crate::sys;
use crate::text::{int, sized, zeros, Optional};
use std::fmt::Display;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// One expert. Matrices are row-major (out, in); a plain FFN has no gate.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExpertWeights<'a> {
    /// (d_ff, d_in)
    pub gate: Option<&'a [f32]>,
    /// (d_ff, d_in)
    pub up: &'a [f32],
    /// (d_in, d_ff)
    pub down: &'a [f32],
    pub gate_bias: Option<&'a [f32]>,
    pub up_bias: Option<&'a [f32]>,
    pub down_bias: Option<&'a [f32]>,
}

/// Options of a [`Layer`]. Set the sizes, the experts and the router's weight; the rest may keep
/// its default. d_in is d_model / n_subheads. Everything is copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayerOptions<'a> {
    pub d_model: usize,
    pub d_ff: usize,
    /// 0 or 1: no sub-tokens; more: MH-MoE.
    pub n_subheads: usize,
    /// Rows computed at once; 0: 256.
    pub max_rows: usize,
    /// "silu" unless set.
    pub activation: Option<&'a str>,
    /// "topk:1" unless set.
    pub router: Option<&'a str>,
    /// A format of [`crate::weight_formats`]; "f32" unless set.
    pub weights: Option<&'a str>,
    pub activations: Option<&'a str>,
    pub experts: &'a [ExpertWeights<'a>],
    /// (n_experts, d_in); cosine: (n_experts, d_e)
    pub router_weight: Option<&'a [f32]>,
    pub router_bias: Option<&'a [f32]>,
    /// Cosine: (d_e, d_in)
    pub router_proj: Option<&'a [f32]>,
    pub d_e: usize,
    pub shared_d_ff: usize,
    pub shared: Option<ExpertWeights<'a>>,
    /// (d_model)
    pub shared_gate: Option<&'a [f32]>,
    /// (d_model, d_model)
    pub head: Option<&'a [f32]>,
    pub head_bias: Option<&'a [f32]>,
    /// (d_model, d_model)
    pub merge: Option<&'a [f32]>,
    pub merge_bias: Option<&'a [f32]>,
}

/// A pointer to an array of exactly `n` numbers, which the library will read.
fn array(data: Option<&[f32]>, n: usize, what: impl Display) -> Result<*const f32> {
    match data {
        None => Ok(ptr::null()),
        Some(data) if data.len() == n => Ok(data.as_ptr()),
        Some(data) => {
            let text = format!("{what}: expected {n} numbers, found {}", data.len());
            Err(Error::new(Status::Shape, text))
        }
    }
}

fn expert(
    w: &ExpertWeights<'_>,
    d_ff: usize,
    d_in: usize,
    what: impl Display,
) -> Result<sys::moe_expert_weights> {
    let n = d_ff.saturating_mul(d_in);
    let mut weights = sized!(moe_expert_weights);
    weights.gate = array(w.gate, n, format_args!("{what}.gate"))?;
    weights.up = array(Some(w.up), n, format_args!("{what}.up"))?;
    weights.down = array(Some(w.down), n, format_args!("{what}.down"))?;
    weights.gate_bias = array(w.gate_bias, d_ff, format_args!("{what}.gate_bias"))?;
    weights.up_bias = array(w.up_bias, d_ff, format_args!("{what}.up_bias"))?;
    weights.down_bias = array(w.down_bias, d_in, format_args!("{what}.down_bias"))?;
    Ok(weights)
}

/// For one thread at a time.
pub struct Layer {
    pointer: NonNull<sys::moe_layer>,
    d_model: usize,
    _env: Arc<EnvHandle>,
}

// SAFETY: the library lets one thread after the other use a layer.
unsafe impl Send for Layer {}

impl Drop for Layer {
    fn drop(&mut self) {
        unsafe { sys::moe_layer_free(self.pointer.as_ptr()) }
    }
}

impl Layer {
    pub fn new(env: &Env, o: &LayerOptions<'_>) -> Result<Layer> {
        let (n, d, square) = (o.experts.len(), o.d_model, o.d_model.saturating_mul(o.d_model));
        let d_in = d / o.n_subheads.max(1);
        let width = if o.router_proj.is_some() { o.d_e } else { d_in }; // cosine has both
        let experts = o.experts.iter().enumerate();
        let experts = experts.map(|(i, e)| expert(e, o.d_ff, d_in, format_args!("experts[{i}]")));
        let experts = experts.collect::<Result<Vec<_>>>()?;
        let shared =
            o.shared.as_ref().map(|e| expert(e, o.shared_d_ff, d, "shared")).transpose()?;
        let (activation, parsed) =
            (Optional::new(o.activation, "activation")?, router::parse(o.router)?);
        let (weights, activations) =
            (Optional::new(o.weights, "weights")?, Optional::new(o.activations, "activations")?);

        let mut params = sized!(moe_layer_params);
        params.d_model = int(d, "d_model")?;
        params.d_ff = int(o.d_ff, "d_ff")?;
        params.n_experts = int(n, "experts")?;
        params.n_subheads = int(o.n_subheads, "n_subheads")?;
        params.max_rows = int(o.max_rows, "max_rows")?;
        params.activation = activation.pointer();
        params.router = router::pointer(&parsed);
        params.weights = weights.pointer();
        params.activations = activations.pointer();
        params.experts = experts.as_ptr();
        params.router_weight = array(o.router_weight, n.saturating_mul(width), "router_weight")?;
        params.router_bias = array(o.router_bias, n, "router_bias")?;
        params.router_proj = array(o.router_proj, o.d_e.saturating_mul(d_in), "router_proj")?;
        params.d_e = int(o.d_e, "d_e")?;
        params.shared_d_ff = int(o.shared_d_ff, "shared_d_ff")?;
        params.shared = shared.as_ref().map_or(ptr::null(), |s| s);
        params.shared_gate = array(o.shared_gate, d, "shared_gate")?;
        params.head = array(o.head, square, "head")?;
        params.head_bias = array(o.head_bias, d, "head_bias")?;
        params.merge = array(o.merge, square, "merge")?;
        params.merge_bias = array(o.merge_bias, d, "merge_bias")?;

        let (e, mut layer) = (env.handle.pointer.as_ptr(), ptr::null_mut());
        call(|error| unsafe { sys::moe_layer_create(e, &params, &mut layer, error) })?;
        Ok(Layer {
            pointer: made(layer)?,
            d_model: d,
            _env: env.handle.clone(),
        })
    }

    fn rows(&self, n: usize) -> Result<usize> {
        if n % self.d_model == 0 {
            return Ok(n / self.d_model);
        }
        let text = format!("x: expected rows of {} numbers, found {n}", self.d_model);
        Err(Error::new(Status::Shape, text))
    }

    /// The output for x, both (n, d_model).
    pub fn forward(&mut self, x: &[f32]) -> Result<Vec<f32>> {
        let (n, mut y) = (self.rows(x.len())?, zeros(x.len())?);
        let (layer, out) = (self.pointer.as_ptr(), y.as_mut_ptr());
        call(|e| unsafe { sys::moe_layer_forward(layer, x.as_ptr(), n, out, e) })?;
        Ok(y)
    }

    /// Replaces x by the output.
    pub fn forward_in_place(&mut self, x: &mut [f32]) -> Result<()> {
        let (n, layer, p) = (self.rows(x.len())?, self.pointer.as_ptr(), x.as_mut_ptr());
        call(|e| unsafe { sys::moe_layer_forward(layer, p, n, p, e) })
    }
}
