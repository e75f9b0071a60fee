"""Compares random XLM-R checkpoints with every head, saved by `transformers`, with `moe`.

    python tests/parity/encoders.py                          # build/release must be built
    python tests/parity/encoders.py --golden tests/data/encoders    # writes the data of the C++ tests

Outputs must agree within a relative error of 1e-3; the ids of texts, and the best tokens for a mask,
must be the same. Needs the packages in tests/parity/requirements.txt.
"""

import argparse
import json
import os
import shutil
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
WORDS = "the a cat dog sat on mat ran to house and saw tree bird blue red small big".split()
TEXTS = ["the cat sat on the <mask>", "a small <mask> and a big <mask> ran to the house.", "birds"]
SIZES = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20,
             max_position_embeddings=42, type_vocab_size=1, layer_norm_eps=1e-5)
HEADS = {"MaskedLM": {}, "SequenceClassification": {"num_labels": 3},
         "TokenClassification": {"num_labels": 5}, "QuestionAnswering": {}, "Model": {}}


def make_tokenizer():
    """A SentencePiece unigram model like XLM-R's."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "\u2581"] + ["\u2581" + w for w in WORDS]
    pieces += list("abcdefghijklmnopqrstuvwxyz.")
    scores = [(p, 0.0 if i < 4 else -2.0 - 0.1 * i) for i, p in enumerate(pieces)]
    tokenizer = tk.Tokenizer(tk.models.Unigram(scores, unk_id=3))
    tokenizer.normalizer = tk.normalizers.NFKC()
    tokenizer.pre_tokenizer = tk.pre_tokenizers.Metaspace()
    tokenizer.decoder = tk.decoders.Metaspace()
    mask = tk.AddedToken("<mask>", lstrip=True, special=True)
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", mask])
    tokenizer.post_processor = tk.processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)])
    return tr.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                                      unk_token="<unk>", pad_token="<pad>", mask_token="<mask>",
                                      cls_token="<s>", sep_token="</s>")


def randomise(model, seed):
    """Weights with which every part affects the outputs."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=g)
            if "LayerNorm.weight" in name or "layer_norm.weight" in name:
                x = 1 + 0.2 * x
            elif p.dim() == 1:
                x = 0.2 * x
            elif "embeddings" not in name:
                x = x * 1.3 / p.shape[-1] ** 0.5
            p.copy_(x)
    return model.eval()


def make(head, seed, folder):
    tokenizer = make_tokenizer()
    config = tr.XLMRobertaConfig(vocab_size=len(tokenizer), **SIZES, **HEADS[head])
    name = "XLMRobertaModel" if head == "Model" else "XLMRobertaFor" + head
    model = randomise(getattr(tr, name)(config), seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def reference(model, head, ids):
    """The outputs of the head, or the hidden states if there is none: (rows, outputs)."""
    with torch.no_grad():
        out = model(torch.tensor([ids]))
    if head == "Model":
        return out.last_hidden_state[0].numpy()
    if head == "QuestionAnswering":
        return torch.stack([out.start_logits[0], out.end_logits[0]], -1).numpy()
    return out.logits.reshape(-1, out.logits.shape[-1]).numpy()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(" ".join(command) + ": " + done.stderr.strip())
    return done.stdout


def check_fill(args, path, model, tokenizer):
    for text in TEXTS[:2]:
        found = json.loads(run([args.moe, "fill", path, "-p", text, "--json", "--top", "4"]))
        ids = tokenizer(text)["input_ids"]
        if found["tokens"] != ids:
            raise RuntimeError(f"{text!r}: ids {found['tokens']} for {ids}")
        p = torch.softmax(torch.tensor(reference(model, "MaskedLM", ids)), -1)
        for mask in found["masks"]:
            best = torch.topk(p[mask["position"]], 4)
            if [c["id"] for c in mask["top"]] != best.indices.tolist():
                raise RuntimeError(f"{text!r}: other tokens than transformers")
            np.testing.assert_allclose([c["p"] for c in mask["top"]], best.values, rtol=1e-3)


def check_embed(args, path, model, tokenizer, scratch):
    lines, out = os.path.join(scratch, "lines.txt"), os.path.join(scratch, "vectors.npy")
    with open(lines, "w") as f:
        f.write("\n".join(TEXTS) + "\n")
    for pooling in ("mean", "first"):
        run([args.moe, "embed", path, "-f", lines, "--pool", pooling, "-o", out])
        for text, found in zip(TEXTS, np.load(out), strict=True):
            if "<mask>" in text:
                continue  # `moe embed` reads special tokens as text
            h = reference(model, "Model", tokenizer(text)["input_ids"])
            np.testing.assert_allclose(found, h.mean(0) if pooling == "mean" else h[0], atol=2e-4)


def check(head, args, scratch):
    folder, path = os.path.join(scratch, head), os.path.join(scratch, head + ".moe")
    model, tokenizer = make(head, 1, folder)
    run([args.moe, "convert", folder, path, "--verify", "--weights", "f32"])
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bindings/python/src"))
    os.environ["MOE_LIBRARY"] = os.path.abspath(args.library)
    import moe

    worst = 0.0
    with moe.Model(path) as loaded:
        session = loaded.session()
        for text in TEXTS:
            ids = tokenizer(text)["input_ids"]
            if loaded.tokenizer.encode(text, parse_special=True) != ids:
                raise RuntimeError(f"{text!r}: other ids than transformers")
            got = session.encode(ids, outputs=head != "Model")
            found = got.hidden if head == "Model" else got.outputs
            expected = reference(model, head, ids)
            worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
    if head == "MaskedLM":
        check_fill(args, path, model, tokenizer)
    if head == "Model":
        check_embed(args, path, model, tokenizer, scratch)
    print(f"{'ok  ' if worst <= TOLERANCE else 'FAIL'} XLM-R {head:24s} outputs within {worst:.1e}")
    return worst <= TOLERANCE


def write_golden(head, root):
    folder = os.path.join(root, "xlmr_" + head.lower())
    shutil.rmtree(folder, ignore_errors=True)
    model, tokenizer = make(head, 1, folder)
    cases = [{"text": text, "ids": tokenizer(text)["input_ids"]} for text in TEXTS]
    save_file({f"outputs.{i}": reference(model, head, c["ids"]) for i, c in enumerate(cases)},
              os.path.join(folder, "golden.safetensors"))
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump({"cases": cases, "tolerance": TOLERANCE}, f)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moe", default="build/release/bin/moe")
    parser.add_argument("--library", default="build/release/lib/libmoe.so")
    parser.add_argument("--golden", metavar="FOLDER", help="write the golden cases there instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.golden:
        for head in HEADS:
            write_golden(head, args.golden)
        return
    with tempfile.TemporaryDirectory() as scratch:
        failed = [head for head in HEADS if not check(head, args, scratch)]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
