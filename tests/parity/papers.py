# SPDX-License-Identifier: MIT
"""Compares encoders and encoder-decoders of torchscale and XMoE with `moe`.

    pip install --no-deps torchscale                        # in addition to tests/parity/requirements.txt
    python tests/parity/papers.py                           # build/release must be built
    python tests/parity/papers.py --golden tests/data/papers    # writes the data of the C++ tests

The package torchscale makes, runs and saves its models. XMoE's translation models need fairseq and
DeepSpeed; xmoe.py has our own PyTorch model of them. Outputs must agree within a relative error of 1e-3.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import types

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import torch
from safetensors.torch import save_file

import xmoe

TOLERANCE = 1e-3
VOCAB, N_POSITIONS = 40, 34
SIZES = dict(vocab_size=VOCAB, moe_expert_count=4, moe_eval_capacity_token_fraction=1.0)
ENCODER = dict(encoder_embed_dim=16, encoder_attention_heads=2, encoder_ffn_embed_dim=20, encoder_layers=2)
DECODER = dict(decoder_embed_dim=16, decoder_attention_heads=4, decoder_ffn_embed_dim=24, decoder_layers=3)
XMOE = dict(moe_freq=2, use_xmoe=True)
TOP1 = dict(XMOE, moe_top1_expert=True)
BERT = dict(head="masked", layernorm_embedding=True, share_encoder_input_output_embed=True)
BOTH = dict(ENCODER, **DECODER, share_all_embeddings=True)

# Name, kind and configuration. "head" is the head of an encoder.
CASES = [
    ("encoder_xmoe_top1", "torchscale", dict(ENCODER, **BERT, **TOP1)),
    ("encoder_xmoe_top2", "torchscale", dict(ENCODER, **XMOE, head="plain", no_scale_embedding=False)),
    ("encoder_post_norm", "torchscale", dict(ENCODER, **BERT, moe_freq=1, moe_top1_expert=True, subln=False,
                                             encoder_normalize_before=False, activation_fn="relu")),
    ("encoder_deepnorm", "torchscale", dict(ENCODER, **BERT, **TOP1, deepnorm=True)),
    ("encoder_deepnorm_bare", "torchscale", dict(ENCODER, **XMOE, deepnorm=True, head="none",
                                                 activation_fn="swish")),
    ("encoder_no_output_norm", "torchscale", dict(ENCODER, head="none", normalize_output=False, positions=False)),
    ("translator_xmoe", "torchscale", dict(BOTH, **TOP1)),
    ("translator_post_norm", "torchscale", dict(BOTH, moe_freq=3, moe_top1_expert=False, subln=False,
                                                encoder_normalize_before=False, decoder_normalize_before=False,
                                                layernorm_embedding=True, no_scale_embedding=False)),
    ("translator_threshold", "xmoe", dict()),
    ("translator_top2", "xmoe", dict(moe_type="topk", encoder_normalize_before=True, decoder_normalize_before=True,
                                     encoder_learned_pos=True, decoder_learned_pos=True)),
    ("translator_decoder_experts", "xmoe", dict(no_encoder_moe=True, layernorm_embedding=True)),
]


def import_torchscale():
    """Imports the package without the modules that it needs only for several machines, in a process group of one."""
    nn, layers = types.ModuleType("fairscale.nn"), types.ModuleType("timm.models.layers")
    nn.checkpoint_wrapper = nn.wrap = layers.drop_path = None
    for name, module in (("fairscale", None), ("fairscale.nn", nn), ("timm", None), ("timm.models", None),
                         ("timm.models.layers", layers)):
        sys.modules[name] = module or types.ModuleType(name)
    here = sys.path.pop(0)  # this folder has another module torchscale
    importlib.import_module("torchscale.architecture.encoder_decoder")
    sys.path.insert(0, here)
    histogram = torch.histc  # torchscale counts loads with it, but on a CPU it does not support integers
    torch.histc = lambda x, **bins: histogram(x.float(), **bins)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)


class MaskedHead(torch.nn.Module):
    """The head of torchscale's example of an encoder for fairseq, which the package does not contain."""

    def __init__(self, d, activation, weight):
        super().__init__()
        self.dense, self.layer_norm = torch.nn.Linear(d, d), torch.nn.LayerNorm(d)
        self.activation = activation
        self.weight, self.bias = weight, torch.nn.Parameter(torch.zeros(weight.shape[0]))

    def forward(self, x):
        return torch.nn.functional.linear(self.layer_norm(self.activation(self.dense(x))), self.weight, self.bias)


def randomise(model, seed):
    """Weights with which every part affects the outputs."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=g)
            if p.dim() == 1:
                x = 0.2 * x + (1 if name.endswith("norm.weight") or name.endswith("ln.weight") else 0)
            elif "embed" in name:
                x = 0.3 * x
            elif not name.endswith("gate.wg"):
                x = x * 1.3 / p.shape[-1] ** 0.5
            p.copy_(x)
    return model.eval()


def torchscale_model(case):
    from torchscale.architecture.config import EncoderConfig, EncoderDecoderConfig
    from torchscale.architecture.encoder import Encoder
    from torchscale.architecture.encoder_decoder import EncoderDecoder
    from torchscale.component.embedding import PositionalEmbedding, TextEmbedding
    from torchscale.component.feedforward_network import get_activation_fn

    case = {**SIZES, **case}
    head, positions = case.pop("head", None), case.pop("positions", True)
    both = "decoder_layers" in case
    config = (EncoderDecoderConfig if both else EncoderConfig)(**case)
    for key in ("subln", "encoder_normalize_before", "decoder_normalize_before"):
        if key in case:
            setattr(config, key, case[key])  # as the configuration's override() does
    d = config.encoder_embed_dim

    def embeddings():
        return TextEmbedding(VOCAB, d), PositionalEmbedding(N_POSITIONS, d) if positions else None

    if both:
        source, target = embeddings(), embeddings()
        model = EncoderDecoder(config, *source, None, target[1])
    else:
        tokens, rows = embeddings()
        config.no_output_layer = head == "none"
        masked = MaskedHead(d, get_activation_fn(config.activation_fn), tokens.weight) if head == "masked" else None
        model = torch.nn.Module()
        model.encoder = Encoder(config, tokens, rows, masked)
    for module in model.modules():
        if hasattr(module, "second_expert_policy"):
            module.second_expert_policy = "all"  # "random" samples the second expert even at inference
    return config, model


class Torchscale:
    def __init__(self, case, seed, folder):
        config, self.model = torchscale_model(case)
        randomise(self.model, seed)
        self.both = hasattr(self.model, "decoder")
        save_file({k: v.clone() for k, v in self.model.state_dict().items()},
                  os.path.join(folder, "model.safetensors"))
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump({"model_type": "torchscale", **vars(config)}, f, indent=1)

    def __call__(self, ids, text=None):
        with torch.no_grad():
            if self.both:
                return self.model(torch.tensor([ids]), torch.tensor([text]))[0][0].numpy()
            return self.model.encoder(torch.tensor([ids]))["encoder_out"][0].numpy()


def make(kind, case, folder):
    os.makedirs(folder, exist_ok=True)
    return Torchscale(case, 1, folder) if kind == "torchscale" else xmoe.make_translator(case, 1, folder)


def texts(seed, n):
    g = np.random.default_rng(seed)
    return [g.integers(3, VOCAB, g.integers(5, 20)).tolist() + [2] for _ in range(n)]


def given(reference, i):
    """The input of a model: a text, or a source and a text."""
    ids = texts(7, 8)[i]
    return (ids, [2] + texts(8, 8)[i][:9]) if reference.both else (ids,)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(" ".join(command) + ": " + done.stderr.strip())


def outputs(session, read, bare):
    if len(read) == 2:
        session.read_source(read[0])
        return session.eval_all(read[1])
    got = session.encode(read[0], outputs=not bare)
    return got.hidden if bare else got.outputs


def check(name, kind, case, args, scratch):
    folder, path = os.path.join(scratch, name), os.path.join(scratch, name + ".moe")
    reference = make(kind, case, folder)
    run([args.moe, "convert", folder, path, "--verify", "--weights", "f32"])
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bindings/python/src"))
    os.environ["MOE_LIBRARY"] = os.path.abspath(args.library)
    import moe

    worst = 0.0
    with moe.Model(path) as model:
        session = model.session(kv=moe.KvType.F32)
        for i in range(8):
            read = given(reference, i)
            expected = reference(*read)
            found = outputs(session, read, case.get("head") == "none")
            worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
    good = worst <= TOLERANCE
    print(f"{'ok  ' if good else 'FAIL'} {kind:10s} {name:26s} outputs within {worst:.1e}", flush=True)
    return good


def write_golden(name, kind, case, root):
    folder = os.path.join(root, name)
    reference = make(kind, case, folder)
    cases, tensors = [], {}
    for i in range(2):
        read = given(reference, i)
        cases.append({"source": read[0], "text": read[1]} if reference.both else {"ids": read[0]})
        tensors[f"outputs.{i}"] = torch.tensor(reference(*read))
    save_file(tensors, os.path.join(folder, "golden.safetensors"))
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump({"cases": cases}, f)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moe", default="build/release/bin/moe")
    parser.add_argument("--library", default="build/release/lib/libmoe.so")
    parser.add_argument("--golden", metavar="FOLDER", help="write cases for the C++ tests")
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["MOE"] = os.path.abspath(args.moe)
    import_torchscale()
    if args.golden:
        for name, kind, case in CASES:
            write_golden(name, kind, case, args.golden)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        results = [check(*case, args, scratch) for case in CASES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
