# SPDX-License-Identifier: MIT
"""Token mixers with a state in NumPy (float64), compared with the modules of transformers; golden cases from them.

    python tests/parity/mixers.py                                             # compares
    python tests/parity/mixers.py --golden tests/data/vectors/13_mixers.json  # writes the cases, needs NumPy alone
"""

import argparse
import json
import math

import numpy as np


def sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0, x)


def convolve(x, weight, bias, history):
    """x (T, channels), weight (taps, channels), history (taps - 1, channels); the new history too."""
    taps = len(weight)
    padded = np.concatenate([history, x])
    y = np.stack([(padded[t : t + taps] * weight).sum(0) for t in range(len(x))])
    return silu(y + (0 if bias is None else bias)), padded[len(x) :]


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def delta_rule(q, k, v, decay, beta, state):
    """One head: q, k (T, keys), v (T, values), decay (T, keys or 1), beta (T), state (keys, values)."""
    out = np.zeros_like(v)
    for t in range(len(q)):
        state = decay[t][:, None] * state
        state = state + beta[t] * np.outer(k[t], v[t] - k[t] @ state)
        out[t] = q[t] @ state
    return out, state


def split(x, widths):
    return np.split(x, np.cumsum(widths)[:-1], axis=-1)


def delta_mixer(x, w, p, history, states, by_key, gate):
    """x: qkv, z, b, a side by side; returns (T, values) and the state after."""
    hk, hv, dk, dv = p["key_heads"], p["value_heads"], p["key_dim"], p["value_dim"]
    a_width = hv * dk if by_key else hv
    qkv, z, b, a = split(x, [2 * hk * dk + hv * dv, hv * dv, hv, a_width])
    conv = np.concatenate([w[n + "_conv"] for n in "qkv"], -1)
    y, history = convolve(qkv, conv, None, history)
    q, k, v = split(y, [hk * dk, hk * dk, hv * dv])
    decay = np.exp(-np.exp(w["a_log"]) * softplus(a + w["dt_bias"])).reshape(len(x), hv, -1)
    beta = p.get("beta_scale", 1) * sigmoid(b)
    outs = []
    for h in range(hv):
        g = h // (hv // hk)
        qh, kh = (unit(m[:, g * dk : (g + 1) * dk]) for m in (q, k))
        vh = v[:, h * dv : (h + 1) * dv]
        o, states[h] = delta_rule(qh / math.sqrt(dk), kh, vh, decay[:, h], beta[:, h], states[h])
        outs.append(rms_norm(o, w["norm"], p["eps"]) * gate(z[:, h * dv : (h + 1) * dv]))
    return np.concatenate(outs, -1), history, states


def gated_delta(x, w, p, history, states):
    return delta_mixer(x, w, p, history, states, False, silu)


def mamba2(x, w, p, history, states):
    """x: z, x, B, C, dt side by side; returns (T, heads * head_dim) and the state after."""
    heads, width, groups, n = p["heads"], p["head_dim"], p["groups"], p["state_dim"]
    inner = heads * width
    z, xbc, dt = split(x, [inner, inner + 2 * groups * n, heads])
    y, history = convolve(xbc, w["conv"], w.get("conv_bias"), history)
    values, b, c = split(y, [inner, groups * n, groups * n])
    dt = np.clip(softplus(dt + w["dt_bias"]), p.get("dt_low", 0), p.get("dt_high", np.inf))
    decay = np.exp(-np.exp(w["a_log"]) * dt)
    out = np.zeros_like(values)
    for t in range(len(x)):
        for h in range(heads):
            g, at = h // (heads // groups), slice(h * width, (h + 1) * width)
            add = dt[t, h] * np.outer(b[t, g * n : (g + 1) * n], values[t, at])
            states[h] = decay[t, h] * states[h] + add
            out[t, at] = c[t, g * n : (g + 1) * n] @ states[h] + w["d"][h] * values[t, at]
    gated = (out * silu(z)).reshape(len(x), groups, -1)
    return rms_norm(gated, w["norm"].reshape(groups, -1), p["eps"]).reshape(len(x), -1), history, states


def lightning(x, w, p, history, states):
    """x: q, k, v, z side by side; returns (T, heads * head_dim) and the state after."""
    heads, d = p["heads"], p["head_dim"]
    q, k, v, z = split(x, [heads * d] * 4)
    q, k, v = (silu(m).reshape(len(x), heads, d) for m in (q, k, v))
    decay = np.exp(-np.exp(w["a_log"]))[:, None, None]
    out = np.zeros((len(x), heads, d))
    for t in range(len(x)):
        states = decay * states + k[t][:, :, None] * v[t][:, None, :]
        out[t] = np.einsum("hk,hkv->hv", q[t], states)
    return rms_norm(out.reshape(len(x), -1), w["norm"], p["eps"]) * sigmoid(z), history, states


def random_lightning(rng, p, n_rows, begun):
    heads, d = p["heads"], p["head_dim"]
    w = {"a_log": rng.uniform(-10, 0, heads), "norm": rng.normal(1, 0.3, heads * d)}
    x = rng.normal(0, 1, (n_rows, 4 * heads * d))
    return x, w, [np.zeros((0, 0)), rng.normal(0, 1, (heads, d, d)) * (0.5 if begun else 0)]


def random_case(rng, p, n_rows, begun, extreme):
    hk, hv, dk, dv = p["key_heads"], p["value_heads"], p["key_dim"], p["value_dim"]
    channels = 2 * hk * dk + hv * dv
    w = {
        "q_conv": rng.normal(0, 0.6, (p["length"], hk * dk)),
        "k_conv": rng.normal(0, 0.6, (p["length"], hk * dk)),
        "v_conv": rng.normal(0, 0.6, (p["length"], hv * dv)),
        "dt_bias": rng.normal(0, 1, hv),
        "a_log": rng.uniform(-4, 2.7, hv),
        "norm": rng.normal(1, 0.3, dv),
    }
    x = rng.normal(0, 1, (n_rows, channels + hv * dv + 2 * hv))
    if extreme:  # gates that overflow, and underflow
        x[:, -2 * hv :] *= 60
        x[:, channels : channels + hv * dv] *= 200
    scale = 0.5 if begun else 0
    state = [rng.normal(0, 1, (p["length"] - 1, channels)) * scale, rng.normal(0, 1, (hv, dk, dv)) * scale]
    return x, w, state


def random_mamba2(rng, p, n_rows, begun, extreme):
    inner, heads = p["heads"] * p["head_dim"], p["heads"]
    channels = inner + 2 * p["groups"] * p["state_dim"]
    w = {
        "conv": rng.normal(0, 0.6, (p["length"], channels)),
        "conv_bias": rng.normal(0, 0.3, channels),
        "dt_bias": rng.normal(0, 1, heads),
        "a_log": rng.uniform(-4, 2.7, heads),
        "d": rng.normal(0, 1, heads),
        "norm": rng.normal(1, 0.3, inner),
    }
    x = rng.normal(0, 1, (n_rows, inner + channels + heads))
    if extreme:
        x[:, -heads:] *= 40
        x[:, :inner] *= 100
    scale = 0.5 if begun else 0
    state = [rng.normal(0, 1, (p["length"] - 1, channels)) * scale,
             rng.normal(0, 1, (heads, p["state_dim"], p["head_dim"])) * scale]
    return x, w, state


MAMBA2_CASES = [  # heads of width, groups, state, taps, tokens, from a state, extreme steps
    ("one-number", 1, 1, 1, 1, 1, 3, False, False),
    ("groups", 4, 5, 2, 6, 4, 10, True, False),
    ("wide-heads", 2, 18, 1, 17, 3, 4, True, False),
    ("extreme-steps", 2, 3, 1, 4, 2, 10, True, True),
    ("limited-steps", 2, 4, 2, 3, 2, 6, True, False),
]
LIGHTNING_CASES = [  # heads of width, tokens, from a state
    ("one-number", 1, 1, 3, False),
    ("odd-widths", 3, 5, 9, True),
    ("wide-heads", 1, 33, 4, True),
]
CASES = [  # key heads, value heads, key and value width, taps, tokens, from a state, extreme gates
    ("one-number", 1, 1, 1, 1, 1, 3, False, False),
    ("odd-widths", 1, 1, 5, 7, 3, 9, False, False),
    ("groups", 2, 4, 4, 9, 4, 10, True, False),
    ("wide-heads", 1, 1, 17, 33, 4, 4, True, False),
    ("negative-eigenvalues", 1, 1, 8, 6, 4, 19, True, False),
    ("extreme-gates", 1, 2, 3, 5, 2, 10, True, True),
    ("long-convolution", 1, 1, 4, 4, 9, 5, True, False),
]


def as_tensor(x):
    x = np.asarray(x)
    return {"shape": list(x.shape), "type": "float", "data": [float(str(np.float32(v))) for v in x.ravel()]}


def single(x):
    return np.float64(np.float32(x))


def golden_case(name, mixer, p, case, begun):
    x, w, (history, states) = case
    x, history, states, w = single(x), single(history), single(states), {k: single(v) for k, v in w.items()}
    given = {"x": as_tensor(x), **{k: as_tensor(v) for k, v in w.items()}}
    if begun:
        given["state"] = as_tensor(np.concatenate([history.ravel(), states.ravel()]))
    y, history, states = mixer(x, w, p, history, states.copy())
    state = np.concatenate([history.ravel(), states.ravel()])
    return {"id": f"{mixer.__name__}-{name}", "fn": mixer.__name__, "note": "", "in": given, "par": p,
            "out": {"y": as_tensor(y), "state": as_tensor(state)}}


def write_golden(path):
    rng = np.random.default_rng(20261126)
    cases = []
    for name, hk, hv, dk, dv, length, n_rows, begun, extreme in CASES:
        p = {"key_heads": hk, "value_heads": hv, "key_dim": dk, "value_dim": dv, "length": length, "eps": 1e-6}
        if name == "negative-eigenvalues":
            p["beta_scale"] = 2
        cases.append(golden_case(name, gated_delta, p, random_case(rng, p, n_rows, begun, extreme), begun))
    for name, heads, width, groups, n, length, n_rows, begun, extreme in MAMBA2_CASES:
        p = {"heads": heads, "head_dim": width, "groups": groups, "state_dim": n, "length": length, "eps": 1e-5}
        if name == "limited-steps":
            p.update(dt_low=0.3, dt_high=0.9)
        cases.append(golden_case(name, mamba2, p, random_mamba2(rng, p, n_rows, begun, extreme), begun))
    for name, heads, width, n_rows, begun in LIGHTNING_CASES:
        p = {"heads": heads, "head_dim": width, "eps": 1e-6}
        cases.append(golden_case(name, lightning, p, random_lightning(rng, p, n_rows, begun), begun))
    golden = {"format": 1, "set": "mixers", "tol": {"atol": 3e-5, "rtol": 3e-5}, "cases": cases}
    with open(path, "w") as out:
        out.write("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in golden.items() if k != "cases"))
        out.write(',\n"cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")


def numbers(tensor):
    return tensor.detach().double().numpy()


def run_gated_delta(weights, hidden, p):
    """weights as in a model file, those of q, k and v together in qkv; in two parts, the second from a state."""
    x = np.concatenate([hidden @ weights[n].T for n in ("qkv", "z", "b", "a")], -1)
    channels = len(weights["qkv"])
    history = np.zeros((p["length"] - 1, channels))
    states = np.zeros((p["value_heads"], p["key_dim"], p["value_dim"]))
    first, history, states = gated_delta(x[:23], weights, p, history, states)
    rest, history, states = gated_delta(x[23:], weights, p, history, states)
    return np.concatenate([first, rest]) @ weights["out"].T


def ungroup(fused, p, parts):
    """Rows of a matrix that holds, for each key head, `parts` rows of each kind: one matrix for each kind."""
    fused = fused.reshape(p["key_heads"], sum(parts), -1)
    return [part.reshape(-1, fused.shape[-1]) for part in np.split(fused, np.cumsum(parts)[:-1], axis=1)]


def common_weights(module, p, norm, out):
    keys = p["key_heads"] * p["key_dim"]
    q, k, v = np.split(numbers(module.conv1d.weight)[:, 0].T, [keys, 2 * keys], axis=1)
    return {"q_conv": q, "k_conv": k, "v_conv": v, "dt_bias": numbers(module.dt_bias), "a_log": numbers(module.A_log),
            "norm": numbers(norm.weight), "out": numbers(out.weight)}


def qwen3_next(module, p):
    group = p["value_heads"] // p["key_heads"]
    values = group * p["value_dim"]
    q, k, v, z = ungroup(numbers(module.in_proj_qkvz.weight), p, [p["key_dim"], p["key_dim"], values, values])
    b, a = ungroup(numbers(module.in_proj_ba.weight), p, [group, group])
    return {"qkv": np.concatenate([q, k, v]), "z": z, "b": b, "a": a,
            **common_weights(module, p, module.norm, module.out_proj)}


def qwen3_5(module, p):
    return {**{n: numbers(getattr(module, "in_proj_" + n).weight) for n in ("qkv", "z", "b", "a")},
            **common_weights(module, p, module.norm, module.out_proj)}


def olmo_hybrid(module, p):
    qkv = np.concatenate([numbers(getattr(module, n + "_proj").weight) for n in "qkv"])
    p["beta_scale"] = 2 if module.allow_neg_eigval else 1
    p["eps"] = 1e-5
    return {"qkv": qkv, "z": numbers(module.g_proj.weight), "b": numbers(module.b_proj.weight),
            "a": numbers(module.a_proj.weight), **common_weights(module, p, module.o_norm, module.o_proj)}


def compare_mamba2(torch):
    from transformers import GraniteMoeHybridConfig, NemotronHConfig
    from transformers.models.granitemoehybrid.modeling_granitemoehybrid import GraniteMoeHybridMambaLayer
    from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHMamba2Mixer

    failed = 0
    for heads, width, groups, n, length in [(4, 24, 1, 16, 4), (6, 16, 3, 5, 3)]:
        granite = GraniteMoeHybridConfig(
            hidden_size=48, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1, mamba_n_heads=heads,
            mamba_d_head=width, mamba_n_groups=groups, mamba_d_state=n, mamba_d_conv=length, mamba_expand=2,
            mamba_chunk_size=64, mamba_proj_bias=True, vocab_size=96)
        nemotron = NemotronHConfig(
            hidden_size=48, mamba_num_heads=heads, mamba_head_dim=width, n_groups=groups, ssm_state_size=n,
            conv_kernel=length, chunk_size=64, vocab_size=96, layers_block_type=["mamba"])
        for name, module, eps in [("granitemoehybrid", GraniteMoeHybridMambaLayer(granite, 0), granite.rms_norm_eps),
                                  ("nemotron_h", NemotronHMamba2Mixer(nemotron, 0), nemotron.layer_norm_epsilon)]:
            module = module.float().eval()
            for parameter in module.parameters():
                torch.nn.init.normal_(parameter, std=0.5)
            p = {"heads": heads, "head_dim": width, "groups": groups, "state_dim": n, "length": length, "eps": eps,
                 "dt_low": module.time_step_limit[0]}
            w = {"conv": numbers(module.conv1d.weight)[:, 0].T, "conv_bias": numbers(module.conv1d.bias),
                 "dt_bias": numbers(module.dt_bias), "a_log": numbers(module.A_log), "d": numbers(module.D),
                 "norm": numbers(module.norm.weight)}
            hidden = torch.randn(1, 150, 48)
            with torch.no_grad():
                expected = module(hidden)[0].double().numpy()
                x = module.in_proj(hidden)[0].double().numpy()
            channels = w["conv"].shape[1]
            state = np.zeros((length - 1, channels)), np.zeros((heads, n, width))
            first, *state = mamba2(x[:23], w, p, *state)
            rest, *state = mamba2(x[23:], w, p, *state)
            with torch.no_grad():
                y = torch.tensor(np.concatenate([first, rest])).float()
                found = module.out_proj(y).double().numpy()
            failed += report(f"{name} {heads} heads of {width}, {groups} groups", found, expected)
    return failed


def compare_lightning(torch):
    from transformers import MiniMaxConfig
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

    failed = 0
    for heads, width, layer in [(4, 16, 0), (3, 6, 3)]:
        config = MiniMaxConfig(hidden_size=48, num_attention_heads=heads, head_dim=width, num_hidden_layers=4, vocab_size=96,
                               layer_types=["linear_attention"] * 4, block_size=64)
        module = MiniMaxLightningAttention(config, layer).float().eval()
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        p = {"heads": heads, "head_dim": width, "eps": 1e-6}
        w = {"a_log": np.log(numbers(module.slope_rate).ravel()), "norm": numbers(module.norm.weight)}
        hidden = torch.randn(1, 150, 48)
        with torch.no_grad():
            expected = module(hidden, None, None)[0][0].double().numpy()
            qkv = module.qkv_proj(hidden)[0].double().numpy().reshape(150, heads, 3, width)
            z = module.output_gate(hidden)[0].double().numpy()
        x = np.concatenate([*(qkv[:, :, i].reshape(150, -1) for i in range(3)), z], -1)
        state = np.zeros((0, 0)), np.zeros((heads, width, width))
        first, *state = lightning(x[:23], w, p, *state)
        rest, *state = lightning(x[23:], w, p, *state)
        found = np.concatenate([first, rest]) @ numbers(module.out_proj.weight).T
        failed += report(f"minimax {heads} heads of {width}, layer {layer}", found, expected)
    return failed


def report(name, found, expected):
    error = np.abs(found - expected).max() / np.abs(expected).max()
    print(f"{'ok  ' if error < 1e-4 else 'FAIL'} {name}: largest relative difference {error:.1e}")
    return not error < 1e-4


def compare():
    import torch
    from transformers import OlmoHybridConfig, Qwen3_5TextConfig, Qwen3NextConfig
    from transformers.models.olmo_hybrid.modeling_olmo_hybrid import OlmoHybridGatedDeltaNet
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    torch.manual_seed(1)
    families = [
        ("qwen3_next", Qwen3NextConfig, Qwen3NextGatedDeltaNet, qwen3_next, {}),
        ("qwen3_5", Qwen3_5TextConfig, Qwen3_5GatedDeltaNet, qwen3_5, {}),
        ("olmo_hybrid", OlmoHybridConfig, OlmoHybridGatedDeltaNet, olmo_hybrid, {}),
        ("olmo_hybrid_positive", OlmoHybridConfig, OlmoHybridGatedDeltaNet, olmo_hybrid,
         {"linear_allow_neg_eigval": False}),
    ]
    failed = 0
    for name, config_class, module_class, weights_of, more in families:
        for hk, hv, dk, dv, length in [(2, 6, 16, 24, 4), (3, 3, 7, 5, 3)]:
            config = config_class(
                hidden_size=48, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=4, vocab_size=96,
                linear_num_key_heads=hk, linear_num_value_heads=hv, linear_key_head_dim=dk, linear_value_head_dim=dv,
                linear_conv_kernel_dim=length, **more)
            module = module_class(config, 0).float().eval()
            for parameter in module.parameters():
                torch.nn.init.normal_(parameter, std=0.5)
            p = {"key_heads": hk, "value_heads": hv, "key_dim": dk, "value_dim": dv, "length": length,
                 "eps": config.rms_norm_eps}
            weights = weights_of(module, p)
            hidden = torch.randn(1, 150, 48)  # several of transformers' chunks of 64
            with torch.no_grad():
                expected = module(hidden)[0].double().numpy()
            found = run_gated_delta(weights, hidden[0].double().numpy(), p)
            failed += report(f"{name} {hk}/{hv} heads of {dk}/{dv}", found, expected)
    return failed + compare_mamba2(torch) + compare_lightning(torch)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--golden", metavar="FILE", help="write cases for the C++ tests")
    args = parser.parse_args()
    if args.golden:
        write_golden(args.golden)
        return 0
    return compare()


if __name__ == "__main__":
    raise SystemExit(main())
