// SPDX-License-Identifier: MIT
//! One MoE layer against its definition.

mod common;

use common::*;
use moe::*;

const D: usize = 24;
const F: usize = 40;
const N: usize = 5;

/// Pseudorandom numbers in -1..1, the same on every machine.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn product(w: &[f32], x: &[f32]) -> Vec<f32> {
    w.chunks(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

/// Top-k of a softmax over all experts, without renormalization, and SiLU.
fn reference(experts: &[[Vec<f32>; 3]], router: &[f32], x: &[f32], k: usize) -> Vec<f32> {
    let logits = product(router, x);
    let sum: f32 = logits.iter().map(|l| l.exp()).sum();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).unwrap());
    let mut y = vec![0.0; x.len()];
    for &i in &order[..k] {
        let [gate, up, down] = &experts[i];
        let inner: Vec<f32> = product(gate, x)
            .iter()
            .zip(product(up, x))
            .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
            .collect();
        for (out, value) in y.iter_mut().zip(product(down, &inner)) {
            *out += logits[i].exp() / sum * value;
        }
    }
    y
}

#[test]
fn computes_what_it_says() {
    let experts: Vec<[Vec<f32>; 3]> =
        (0..N as u64).map(|i| [1, 2, 3].map(|j| numbers(F * D, i * 3 + j))).collect();
    let (router, x) = (numbers(N * D, 77), numbers(7 * D, 99));
    let weights: Vec<_> = experts
        .iter()
        .map(|[gate, up, down]| ExpertWeights {
            gate: Some(gate),
            up,
            down,
            ..Default::default()
        })
        .collect();
    let options = LayerOptions {
        d_model: D,
        d_ff: F,
        experts: &weights,
        router: Some("topk:2"),
        router_weight: Some(&router),
        ..Default::default()
    };
    let env = env();
    let mut layer = Layer::new(&env, &options).unwrap();
    drop(env); // the layer keeps it
    let y = layer.forward(&x).unwrap();
    for (row, out) in x.chunks(D).zip(y.chunks(D)) {
        for (expected, found) in reference(&experts, &router, row, 2).iter().zip(out) {
            assert!((expected - found).abs() < 1e-4, "{expected} {found}");
        }
    }
    let mut in_place = x.clone();
    layer.forward_in_place(&mut in_place).unwrap();
    assert_eq!(in_place, y);
    assert_eq!(layer.forward(&[]).unwrap(), []);
    assert_eq!(status(layer.forward(&x[1..])), Status::Shape);
    assert_eq!(status(layer.forward(&[f32::NAN; D])), Status::NonFinite);
}

#[test]
fn arrays_have_just_the_right_length() {
    let (up, router) = (numbers(F * D, 1), numbers(N * D, 2));
    let expert = ExpertWeights {
        up: &up,
        down: &up,
        ..Default::default()
    };
    let make = |f: &dyn Fn(&mut LayerOptions<'_>)| {
        let experts = [expert; N];
        let mut options = LayerOptions {
            d_model: D,
            d_ff: F,
            experts: &experts,
            router_weight: Some(&router),
            activation: Some("relu2"),
            weights: Some("ternary2"),
            ..Default::default()
        };
        f(&mut options);
        Layer::new(&env(), &options).map(|_| ())
    };
    assert_eq!(make(&|_| ()), Ok(()));
    assert_eq!(status(make(&|o| o.d_ff = F - 1)), Status::Shape);
    assert_eq!(status(make(&|o| o.d_model = D + 1)), Status::Shape);
    assert_eq!(status(make(&|o| o.router_weight = Some(&[0.0; N]))), Status::Shape);
    assert_eq!(status(make(&|o| o.head = Some(&[0.0; D]))), Status::Shape);
    assert_eq!(status(make(&|o| o.router_weight = None)), Status::Argument);
    // Without a cosine router, d_e does not change the size of router_weight.
    assert_eq!(
        status(make(&|o| (o.d_e, o.router_weight) = (1, Some(&[0.0; N][..])))),
        Status::Shape
    );
    assert_eq!(status(make(&|o| o.router = Some("topk:99"))), Status::Range);
    assert_eq!(status(make(&|o| o.weights = Some("int77"))), Status::Argument);
    assert_eq!(status(make(&|o| o.experts = &[])), Status::Shape);
    assert_eq!(status(make(&|o| o.max_rows = usize::MAX)), Status::Range);
}

#[test]
fn errors_name_the_array() {
    let up = numbers(F * D, 1);
    let expert = ExpertWeights {
        up: &up,
        down: &up,
        ..Default::default()
    };
    let mut experts = [expert; N];
    let layer = |experts: &[ExpertWeights<'_>], shared, weights| {
        let options = LayerOptions {
            d_model: D,
            d_ff: F,
            experts,
            shared,
            weights,
            ..Default::default()
        };
        Layer::new(&env(), &options).err().unwrap().text().to_string()
    };
    let shared = "shared.up: expected 0 numbers, found 960";
    assert_eq!(layer(&experts, Some(expert), None), shared);
    let weights = r#"weights: contains a zero byte: "f\032""#;
    assert_eq!(layer(&experts, None, Some("f\032")), weights);
    experts[3].up_bias = Some(&up[..4]);
    let bias = "experts[3].up_bias: expected 40 numbers, found 4";
    assert_eq!(layer(&experts, None, None), bias);
}
