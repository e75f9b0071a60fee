# SPDX-License-Identifier: MIT
"""The cost of a row, and the expert width with which it costs as much as another row.

    python parity.py [ROW ...]                          parameters and operations per token (default: all rows)
    python parity.py --like switch --heads 2 --k 2      width and number of experts of an MH-MoE layer
                                                        that costs what a layer of that row costs

Operations are the leading term of MH-MoE, eq. 6, and, for a layer with capacity, of XMoE, eq. 6, both per
token: matrix products alone, two operations per weight. For an encoder-decoder they are those of one token
of the source and one of the text.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import config as cfg
import costs
import rows


@dataclass(frozen=True)
class Cost:
    params: int  # of the whole model
    ffn_params: int  # of feed-forward layers, without routers and norms
    ffn_flops: float  # per token, in all feed-forward layers
    flops: float  # per token, in the whole model, without attention's products with keys and values


def _matrices(ffn: cfg.Config) -> int:
    return 3 if ffn["gated"] else 2


def experts_bound(ffn: cfg.Config) -> float:
    """The number of experts of a (sub-)token; with a capacity, its upper bound on average."""
    m = ffn["moe"]
    r, n, gamma = m["router"], m["n_experts"], m["capacity"]["gamma"]
    most = {"threshold": n, "sparsemixer": 2, "hash": 1, "base": 1}.get(r["kind"], r.get("k", 1))
    return min(most, gamma) if gamma > 0 else most


def _moe(d: int, ffn: cfg.Config, experts: float) -> tuple[int, float]:
    """Parameters, and operations per token, of an MoE layer in which a (sub-)token takes `experts` experts."""
    m = ffn["moe"]
    both = m["n_subheads"] > 1 or m["mh"]
    head, merge = (both if m[k] is None else m[k] for k in ("head", "merge"))
    one = costs.moe_cost(1, d, ffn["d_ff"], 1, m["n_experts"], m["n_subheads"], ffn["gated"])
    square = (int(head) + int(merge)) * d * d
    shared = _matrices(ffn) * d * m["shared"]["d_ff"] if m["shared"] else 0
    blocks = max(1, m["n_sublayers"])
    params = square + shared + one["params"] * blocks
    return params, 2 * (square + shared) + one["flops_leading"] * blocks * experts


def _ffn(d: int, ffn: cfg.Config, experts: float | None) -> tuple[int, float]:
    if ffn["kind"] == "dense":
        params = _matrices(ffn) * d * ffn["d_ff"]
        return params, 2 * params
    return _moe(d, ffn, experts_bound(ffn) if experts is None else experts)


def _router_params(c: cfg.Config, ffn: cfg.Config) -> int:
    m = ffn["moe"]
    r, n, width = m["router"], m["n_experts"], c["d_model"] // m["n_subheads"]
    if r["kind"] == "hash":
        return 0
    if r["kind"] != "cosine":
        return n * width
    d_e = width if r.get("identity") else r.get("d_e", max(1, n // 2))
    return d_e * (width + n) + 1  # and the temperature


def _attentions(own: cfg.Config) -> list[cfg.Config]:
    """The attention blocks of a layer."""
    return [own[key] for key in ("attention", "cross_attention") if key in own]


def _norm_params(c: cfg.Config, own: cfg.Config) -> int:
    """Parameters of a layer's norms, which are RMS norms in all rows."""
    d, count = c["d_model"], 0
    for a in _attentions(own):
        count += d * a["norm"] + a["n_heads"] * a["head_dim"] * a["sub_norm"]
    ffn = own["ffn"]
    m = ffn["moe"] or {"n_experts": 1, "n_subheads": 1, "n_sublayers": 0}
    inner = m["n_sublayers"] * d // m["n_subheads"] or ffn["d_ff"] * ffn["sub_norm"]
    return count + d * ffn["norm"] + m["n_experts"] * inner


def _head(c: cfg.Config) -> int:
    """The weights of the dense layer before the output matrix."""
    return c["d_model"] ** 2 if cfg.head(c)["dense"] else 0


def _outer_params(row: rows.Row) -> int:
    """Learned positions, the norm after an encoder-decoder's encoder, biases and norm of a head."""
    c = row.config
    h = cfg.head(c)
    head = c["vocab_size"] + c["d_model"] * (h["dense"] + h["norm"]) if row.biases else 0
    positions = c["context_length"] + c.get("source_length", 0) if c["positions"] == "learned" else 0
    return c["d_model"] * (positions + c.get("encoder_norm", False)) + head


def cost(row: rows.Row, experts: Sequence[float] | None = None) -> Cost:
    """The cost of a row; experts: the measured experts per (sub-)token of each MoE layer."""
    c, d = row.config, row.config["d_model"]
    measured = iter(experts) if experts is not None else None
    params = ffn_params = 0
    ffn_flops = attention = 0.0
    for layer in range(c["n_layers"]):
        own = cfg.layer_config(c, layer)
        ffn, is_moe = own["ffn"], own["ffn"]["kind"] == "moe"
        size, work = _ffn(d, ffn, next(measured) if is_moe and measured else None)
        ffn_params, ffn_flops = ffn_params + size, ffn_flops + work
        params += _norm_params(c, own) + (_router_params(c, ffn) if is_moe else 0)
        for a in _attentions(own):
            attention += 2 * d * a["head_dim"] * (a["n_heads"] + a["n_kv_heads"])
    embedding = c["vocab_size"] * d
    params += ffn_params + int(attention) + embedding + d + _head(c) + _outer_params(row)
    return Cost(params, ffn_params, ffn_flops, ffn_flops + 2 * (attention + embedding + _head(c)))


def print_table(names: Sequence[str]) -> None:
    print(f"{'row':22} {'parameters':>10} {'of FFNs':>9} {'FLOP/token':>11} {'of FFNs':>9}")
    for name in names:
        c = cost(rows.read(name))
        print(f"{name:22} {c.params:10} {c.ffn_params:9} {c.flops:11.0f} {c.ffn_flops:9.0f}")


def solve(like: str, heads: int, k: int, projections: int) -> tuple[float, float]:
    """The inner width and number of experts with the cost of the MoE layer of row `like`."""
    row = rows.read(like)
    ffn = next((f for f in row.ffns() if f["kind"] == "moe"), None)
    if ffn is None or ffn["moe"]["n_subheads"] > 1 or ffn["moe"]["n_sublayers"] or ffn["moe"]["shared"]:
        raise rows.BadRow(f"{like}: expected a row of plain experts to compare with")
    if heads < 1 or row.config["d_model"] % heads:
        raise rows.BadRow(f"--heads: expected a divisor of {row.config['d_model']}, found {heads}")
    if k < 1:
        raise rows.BadRow(f"--k: expected 1 or more, found {k}")
    return costs.mh_moe_parity(
        row.config["d_model"], ffn["d_ff"], round(experts_bound(ffn)), heads, ffn["moe"]["n_experts"],
        ffn["gated"], k, projections,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", help="rows to show (default: all)")
    parser.add_argument("--like", help="solve for a layer with the cost of this row's")
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--k", type=int, default=2, help="experts per sub-token")
    parser.add_argument("--projections", type=int, choices=(0, 1, 2), default=2, help="head and merge")
    args = parser.parse_args()
    try:
        if args.like:
            width, n = solve(args.like, args.heads, args.k, args.projections)
            print(f"{n:.2f} experts of inner width {width:.2f}")
        else:
            print_table(args.rows or rows.names())
    except ValueError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
