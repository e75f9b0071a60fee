# SPDX-License-Identifier: MIT
"""Layers that guess the tokens after the next one (multi-token prediction), which `transformers` leaves out of its models.

Random ones are added to checkpoints under the names of published files. Their logits are computed with a decoder layer of
`transformers` between the joined inputs and the layer's own norm.
"""

import copy
import json
import os

import torch
from safetensors.torch import load_file, save_file

from checkpoint import randomise

SEED = 1000  # of the layer, beyond the case's own


def before_norm(model, ids):
    """The hidden states that the model's final norm reads."""
    seen = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.model(torch.tensor([ids]))
    hook.remove()
    return seen[0][0]


class Guesser(torch.nn.Module):
    """The layer, like `like`, of a model. raw: it reads hidden states before the final norm, and its own outputs
    before its norm. hidden_first: of its two inputs. norm: null, or the model's, which is its norm too."""

    def __init__(self, model, like, raw=False, hidden_first=False, norm=None):
        super().__init__()
        self.raw, self.hidden_first = raw, hidden_first
        self.others = [model, norm]  # in a list, so that their parameters are not this module's
        d = model.config.hidden_size
        kind = type(model.model.norm)
        self.enorm, self.hnorm = (kind(d, eps=model.config.rms_norm_eps) for _ in range(2))
        if norm is None:
            self.own_norm = kind(d, eps=model.config.rms_norm_eps)
        self.fc = torch.nn.Linear(2 * d, d, bias=False)
        self.layer = copy.deepcopy(like)
        for module in self.layer.modules():  # how K and V are rounded is set there
            if hasattr(module, "config"):
                module.config = model.config

    @property
    def model(self):
        return self.others[0]

    @property
    def norm(self):
        return self.own_norm if self.others[1] is None else self.others[1]

    def run(self, tokens, hidden):
        """The layer's outputs before its norm (n, d), for tokens and the hidden states before them."""
        model = self.model
        inputs = [self.enorm(model.model.embed_tokens(tokens)), self.hnorm(hidden)]
        x = self.fc(torch.cat(inputs[::-1] if self.hidden_first else inputs, -1))[None]
        n = len(tokens)
        places = torch.arange(n)[None]
        mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
        out = self.layer(x, attention_mask=mask, position_ids=places,
                         position_embeddings=model.model.rotary_emb(x, places))
        return (out[0] if isinstance(out, tuple) else out)[0]

    @torch.no_grad()
    def guesses(self, ids, n, kv16):
        """Logits (n, vocab) of the n tokens after `ids`, the most probable one of each row taken for the next."""
        model = self.model
        model.config._attn_implementation = "kv16" if kv16 else "eager"
        hidden = before_norm(model, ids[:-1])
        if not self.raw:
            hidden = model.model.norm(hidden)
        tokens, rows = torch.tensor(ids[1:]), []
        for _ in range(n):
            out = self.run(tokens, hidden)[-1:]
            normed = self.norm(out)
            rows.append(model.lm_head(normed[0]))
            tokens = torch.cat([tokens, rows[-1].argmax()[None]])
            hidden = torch.cat([hidden, out if self.raw else normed])
        return torch.stack(rows)


def layer_tensors(layer):
    """By name, with each expert's matrices by themselves."""
    out = {}
    for name, tensor in layer.state_dict().items():
        if name == "mlp.experts.gate_up_proj":
            for e, both in enumerate(tensor):
                for part, matrix in zip(("gate", "up"), both.chunk(2)):
                    out[f"mlp.experts.{e}.{part}_proj.weight"] = matrix
        elif name == "mlp.experts.down_proj":
            for e, matrix in enumerate(tensor):
                out[f"mlp.experts.{e}.down_proj.weight"] = matrix
        else:
            out[name] = tensor
    return out


def joining(guesser, tokens, hidden, both):
    """The tensors that join a token and a hidden state, by their names in the checkpoint."""
    return {tokens: guesser.enorm.weight, hidden: guesser.hnorm.weight, both: guesser.fc.weight}


def names_of_deepseek(guesser, prefix):
    model = guesser.model
    return {**joining(guesser, prefix + "enorm.weight", prefix + "hnorm.weight", prefix + "eh_proj.weight"),
            prefix + "shared_head.norm.weight": guesser.norm.weight,
            prefix + "embed_tokens.weight": model.model.embed_tokens.weight,
            prefix + "shared_head.head.weight": model.lm_head.weight,
            **{prefix + name: t for name, t in layer_tensors(guesser.layer).items()}}


def names_of_qwen(guesser):
    return {**joining(guesser, "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.fc.weight"),
            "mtp.norm.weight": guesser.norm.weight,
            **{"mtp.layers.0." + name: t for name, t in layer_tensors(guesser.layer).items()}}


def names_of_mimo(guesser):
    prefix = "model.mtp_layers.0."
    parts = (f"{prefix}{part}.weight" for part in ("token_layernorm", "hidden_layernorm", "input_proj"))
    return {**joining(guesser, *parts), prefix + "final_layernorm.weight": guesser.norm.weight,
            **{prefix + name: t for name, t in layer_tensors(guesser.layer).items()}}


def names_of_ernie(guesser):
    return {**joining(guesser, *(f"model.mtp_{part}.0.weight" for part in ("emb_norm", "hidden_norm", "linear_proj"))),
            **{"model.mtp_block.0." + name: t for name, t in layer_tensors(guesser.layer).items()}}


def names_of_ling_3(guesser, prefix):
    model = {f"{prefix}{part}.weight" for part in ("embed_tokens", "shared_head.head")}  # it has no copies of them
    names = {}
    for name, tensor in names_of_deepseek(guesser, prefix).items():
        new = name
        for old, published in (("shared_head.norm", "final_layernorm"), ("self_attn.o_proj", "attention.dense"),
                               ("self_attn.", "attention."), ("gate.e_score_correction_bias", "gate.expert_bias")):
            new = new.replace(old, published)
        if name not in model:
            names[new] = tensor
    return names


def add(case, folder, reference):
    """Adds the layer to the checkpoint; `reference.guesses` then gives its logits."""
    model = reference.model
    layers, after = model.model.layers, f"model.layers.{len(model.model.layers)}."
    attends = [layer for layer in layers
               if hasattr(layer, "self_attn") and getattr(layer, "block_type", None) != "linear_attention"]
    key, options, name = "num_nextn_predict_layers", {}, lambda guesser: names_of_deepseek(guesser, after)
    like = attends[-1]
    if case.family.startswith("Ernie"):  # a dense layer
        like, options, name = layers[0], dict(raw=True, norm=model.model.norm), names_of_ernie
    elif case.family == "BailingHybrid":
        name = lambda guesser: names_of_ling_3(guesser, after)
    elif case.family == "Qwen2":
        options, name = dict(raw=True, hidden_first=True), names_of_mimo
    elif case.family.startswith("Qwen"):
        key, name = "mtp_num_hidden_layers", names_of_qwen
    guesser = randomise(Guesser(model, like, **options), case.seed + SEED)
    path = os.path.join(folder, "model.safetensors")
    more = {name: tensor.detach().bfloat16().contiguous().clone() for name, tensor in name(guesser).items()}
    save_file({**load_file(path), **more}, path)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config[key] = 1
    json.dump(config, open(path, "w"), indent=2)
    reference.guesses = guesser.guesses
    return reference


def with_guesses(make):
    """A maker of checkpoints with such a layer, from one of those without."""
    return lambda case, folder: add(case, folder, make(case, folder))
