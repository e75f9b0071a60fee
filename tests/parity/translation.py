# SPDX-License-Identifier: MIT
"""Compares random BART, mBART and Marian checkpoints, saved by `transformers`, with `moe`.

    python tests/parity/translation.py                       # build/release must be built
    python tests/parity/translation.py --golden tests/data/translation    # writes the data of the C++ tests

Logits of given texts must agree within a relative error of 1e-3, and a beam search must find the same texts
as `generate`, with each stopping rule. `generate` does not score the EOS that it forces at the maximal
length, but moe adds its log-probability; a processor makes `generate` do the same here.
Needs the packages in tests/parity/requirements.txt.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tokenizers as tk
import torch
import transformers as tr
from safetensors.numpy import save_file

TOLERANCE = 1e-3
N_SOURCES = 20
MOST = 20  # largest number of tokens of a text, without the EOS
WORDS = "the a cat dog sat on mat ran to house and saw tree bird blue red small big".split()
SIZES = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
             decoder_attention_heads=4, encoder_ffn_dim=40, decoder_ffn_dim=48,
             max_position_embeddings=48)
MODELS = {
    "bart": (tr.BartConfig, tr.BartForConditionalGeneration,
             dict(bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2)),
    "mbart": (tr.MBartConfig, tr.MBartForConditionalGeneration,
              dict(bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
                   scale_embedding=True)),
    "marian": (tr.MarianConfig, tr.MarianMTModel,
               dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=1, scale_embedding=True,
                    activation_function="swish")),
}
FORCED = {"mbart": 4}  # the first token of every text: a language
EOS = {"bart": 5.0, "mbart": 1.5, "marian": 5.0}


def make_tokenizer():
    special = ["<s>", "<pad>", "</s>", "<unk>", "en_XX"]
    tokenizer = tk.Tokenizer(tk.models.Unigram(
        [(p, 0.0) for p in special] +
        [("\u2581" + w, -2.0 - 0.1 * i) for i, w in enumerate(WORDS)] +
        [(c, -9.0 - 0.1 * i) for i, c in enumerate("\u2581abcdefghijklmnopqrstuvwxyz.")], unk_id=3))
    tokenizer.pre_tokenizer = tk.pre_tokenizers.Metaspace()
    tokenizer.decoder = tk.decoders.Metaspace()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = tk.processors.TemplateProcessing(
        single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", 2)])
    return tr.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                                      unk_token="<unk>", pad_token="<pad>")


def randomise(model, seed, eos):
    """Weights with which every part affects the outputs; `eos` makes some texts end early."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not p.requires_grad:
                continue  # Marian's positions
            x = torch.randn(p.shape, generator=g)
            if name.endswith("norm.weight") or name.endswith("layernorm_embedding.weight"):
                x = 1 + 0.2 * x
            elif p.dim() == 1:
                x = 0.2 * x
            elif "shared" in name:
                x = x * 0.35
            elif "embed_positions" in name:
                x = x * 0.5
            else:
                x = x * 1.3 / p.shape[-1] ** 0.5
            p.copy_(x)
        model.final_logits_bias.copy_(0.3 * torch.randn(model.final_logits_bias.shape, generator=g))
        model.final_logits_bias[0, 2] += eos
    return model.eval()


def make(name, seed, folder):
    config_class, model_class, special = MODELS[name]
    tokenizer = make_tokenizer()
    config = config_class(vocab_size=len(tokenizer), forced_eos_token_id=None, **SIZES, **special)
    if name == "marian":
        config.decoder_vocab_size = len(tokenizer)
    model = randomise(model_class(config), seed, EOS[name])
    model.generation_config.forced_bos_token_id = FORCED.get(name)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


class LastIsEos(tr.LogitsProcessor):
    """After MOST tokens allows only the EOS, with its own log-probability."""

    def __init__(self, begin):
        self.begin = begin  # tokens before the text

    def __call__(self, input_ids, scores):
        if input_ids.shape[1] < self.begin + MOST:
            return scores
        out = torch.full_like(scores, -float("inf"))
        out[:, 2] = scores[:, 2]
        return out


def search(model, source, stop, beam=5, alpha=1.0):
    """Texts with their scores, best first."""
    early = {"step": True, "bound": False}[stop]
    with torch.no_grad():
        found = model.generate(
            torch.tensor([source]), num_beams=beam, num_return_sequences=beam, early_stopping=early,
            length_penalty=alpha, max_length=MOST + 2, do_sample=False, suppress_tokens=[1],
            logits_processor=tr.LogitsProcessorList([LastIsEos(1)]), return_dict_in_generate=True,
            output_scores=True)
    texts = []
    for ids in found.sequences.tolist():
        ids = ids[1:]
        texts.append(ids[:ids.index(2) + 1])
    return texts, found.sequences_scores.tolist()


def sources(vocab_size, seed, n):
    g = np.random.default_rng(seed)
    return [g.integers(5, vocab_size, g.integers(3, 30)).tolist() + [2] for _ in range(n)]


def logits_of(model, source, text):
    with torch.no_grad():
        out = model(torch.tensor([source]), decoder_input_ids=torch.tensor([text]))
    return out.logits[0].numpy()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(" ".join(command) + ": " + done.stderr.strip())
    return done.stdout


def check_one(session, model, source, seed):
    """The largest relative error of logits, and the number of searches that found other texts."""
    start = session.model.info.start_token
    g = np.random.default_rng(seed)
    text = [start] + g.integers(3, session.model.info.vocab_size, 12).tolist()
    session.read_source(source)
    found, expected = session.eval_all(text), logits_of(model, source, text)
    worst, other = float(np.abs(found - expected).max() / np.abs(expected).max()), 0
    for stop in ("step", "bound"):
        for alpha in (1.0, 0.6):
            texts, scores = search(model, source, stop, alpha=alpha)
            got = session.translate(source, beam=5, n_best=5, stop=stop, length_penalty=alpha,
                                    max_tokens=MOST, min_tokens=0)
            same = [t.tokens for t in got] == texts
            close = np.allclose([t.score for t in got], scores, atol=1e-4) if same else False
            other += not (same and close)
    return worst, other


def check(name, args, scratch):
    folder, path = os.path.join(scratch, name), os.path.join(scratch, name + ".moe")
    model = make(name, args.seed, folder)
    run([args.moe, "convert", folder, path, "--verify", "--weights", "f32"])
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bindings/python/src"))
    os.environ["MOE_LIBRARY"] = os.path.abspath(args.library)
    import moe

    worst, other = 0.0, 0
    with moe.Model(path) as loaded:
        session = loaded.session(kv=moe.KvType.F32)
        for i, source in enumerate(sources(loaded.info.vocab_size, args.seed, N_SOURCES)):
            w, o = check_one(session, model, source, i)
            worst, other = max(worst, w), other + o
    good = worst <= TOLERANCE and other == 0
    print(f"{'ok  ' if good else 'FAIL'} {name:8s} logits within {worst:.1e}, {other} of "
          f"{4 * N_SOURCES} searches found something else")
    return good


def write_golden(name, args):
    folder = os.path.join(args.golden, name)
    model = make(name, args.seed, folder)
    cases, tensors = [], {}
    for i, source in enumerate(sources(model.config.vocab_size, 7, 3)):
        text = [model.config.decoder_start_token_id, 9, 5, 17, 8]
        tensors[f"logits.{i}"] = logits_of(model, source, text)
        case = {"source": source, "text": text}
        for stop in ("step", "bound"):
            case[stop], case[stop + "_scores"] = search(model, source, stop)
        cases.append(case)
    save_file(tensors, os.path.join(folder, "golden.safetensors"))
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump({"max_tokens": MOST, "cases": cases}, f)
    print("wrote", folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moe", default="build/release/bin/moe")
    parser.add_argument("--library", default="build/release/lib/libmoe.so")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden", metavar="FOLDER", help="write cases for the C++ tests")
    args = parser.parse_args()
    tr.logging.set_verbosity_error()
    if args.golden:
        for name in MODELS:
            write_golden(name, args)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        results = [check(name, args, scratch) for name in MODELS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
