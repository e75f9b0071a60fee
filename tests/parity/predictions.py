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


class Guesser(torch.nn.Module):
    """The layer, like `like`, of a model."""

    def __init__(self, model, like):
        super().__init__()
        self.main = [model]  # in a list, so that its parameters are not this module's
        d = model.config.hidden_size
        norm = type(model.model.norm)
        self.enorm, self.hnorm, self.norm = (norm(d, eps=model.config.rms_norm_eps) for _ in range(3))
        self.fc = torch.nn.Linear(2 * d, d, bias=False)
        self.layer = copy.deepcopy(like)
        for module in self.layer.modules():  # how K and V are rounded is set there
            if hasattr(module, "config"):
                module.config = model.config

    def run(self, tokens, hidden):
        """The layer's outputs after its norm (n, d), for tokens and the hidden states before them."""
        model = self.main[0]
        x = self.fc(torch.cat([self.enorm(model.model.embed_tokens(tokens)), self.hnorm(hidden)], -1))[None]
        n = len(tokens)
        places = torch.arange(n)[None]
        mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
        out = self.layer(x, attention_mask=mask, position_ids=places,
                         position_embeddings=model.model.rotary_emb(x, places))
        return self.norm(out[0] if isinstance(out, tuple) else out)[0]

    @torch.no_grad()
    def guesses(self, ids, n, kv16):
        """Logits (n, vocab) of the n tokens after `ids`, the most probable one of each row taken for the next."""
        model = self.main[0]
        model.config._attn_implementation = "kv16" if kv16 else "eager"
        hidden = model.model(torch.tensor([ids[:-1]])).last_hidden_state[0]
        tokens, rows = torch.tensor(ids[1:]), []
        for _ in range(n):
            out = self.run(tokens, hidden)
            rows.append(model.lm_head(out[-1]))
            tokens = torch.cat([tokens, rows[-1].argmax()[None]])
            hidden = torch.cat([hidden, out[-1:]])
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


def names_of_deepseek(guesser, prefix):
    model = guesser.main[0]
    return {prefix + "enorm.weight": guesser.enorm.weight, prefix + "hnorm.weight": guesser.hnorm.weight,
            prefix + "eh_proj.weight": guesser.fc.weight, prefix + "shared_head.norm.weight": guesser.norm.weight,
            prefix + "embed_tokens.weight": model.model.embed_tokens.weight,
            prefix + "shared_head.head.weight": model.lm_head.weight,
            **{prefix + name: t for name, t in layer_tensors(guesser.layer).items()}}


def names_of_qwen(guesser):
    return {"mtp.pre_fc_norm_embedding.weight": guesser.enorm.weight, "mtp.pre_fc_norm_hidden.weight": guesser.hnorm.weight,
            "mtp.fc.weight": guesser.fc.weight, "mtp.norm.weight": guesser.norm.weight,
            **{"mtp.layers.0." + name: t for name, t in layer_tensors(guesser.layer).items()}}


def add(case, folder, reference):
    """Adds the layer to the checkpoint; `reference.guesses` then gives its logits."""
    model = reference.model
    layers = model.model.layers
    qwen = case.family.startswith("Qwen")
    attends = [layer for layer in layers if hasattr(layer, "self_attn")]
    guesser = randomise(Guesser(model, (attends if qwen else layers)[-1]), case.seed + SEED)
    tensors = names_of_qwen(guesser) if qwen else names_of_deepseek(guesser, f"model.layers.{len(layers)}.")
    path = os.path.join(folder, "model.safetensors")
    more = {name: tensor.detach().bfloat16().contiguous().clone() for name, tensor in tensors.items()}
    save_file({**load_file(path), **more}, path)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config["mtp_num_hidden_layers" if qwen else "num_nextn_predict_layers"] = 1
    json.dump(config, open(path, "w"), indent=2)
    reference.guesses = guesser.guesses
    return reference


def with_guesses(make):
    """A maker of checkpoints with such a layer, from one of those without."""
    return lambda case, folder: add(case, folder, make(case, folder))
