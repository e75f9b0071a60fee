# SPDX-License-Identifier: MIT
"""Compares random encoders with every head, saved by `transformers`, with `moe`: XLM-R, BERT, ModernBERT,
NomicBert; and vectors of texts from a folder of `sentence-transformers`, or from one that is given.

    python tests/parity/encoders.py                          # build/release must be built
    python tests/parity/encoders.py bert --golden tests/data/encoders    # writes the data of the C++ tests
    python tests/parity/encoders.py --folder FOLDER         # a real checkpoint, such as all-MiniLM-L6-v2

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
# A query and passages, and the limits of a pair that are tried with each.
QUERY = "the big cat"
PASSAGES = ["a dog sat on the mat.", "birds", "the cat ran to the tree and saw a small bird in the house " * 3]
LIMITS = (0, 40, 17, 9, 8)
HEADS = {"MaskedLM": {}, "SequenceClassification": {"num_labels": 3},
         "TokenClassification": {"num_labels": 5}, "QuestionAnswering": {}, "Model": {}}


def make_unigram():
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


def make_wordpiece():
    """A WordPiece model like BERT's."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + WORDS + [c for c in letters if c not in WORDS]
    pieces += ["##" + c for c in letters] + [".", "[MASK]"]
    tokenizer = tk.Tokenizer(tk.models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = tk.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tk.decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.post_processor = tk.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tr.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]",
                                      mask_token="[MASK]", cls_token="[CLS]", sep_token="[SEP]")


class Family:
    """Random checkpoints of one architecture."""

    def __init__(self, title, classes, config, tokenizer, heads=tuple(HEADS), **sizes):
        self.heads = heads
        self.title, self.classes, self.tokenizer = title, classes, tokenizer
        self.config = config
        self.sizes = {k: v for k, v in {**SIZES, **sizes}.items() if v is not None}

    def texts(self):
        """TEXTS with the family's own mask, and what its tokenizer does not leave as it is."""
        mask = self.tokenizer().mask_token
        texts = [text.replace("<mask>", mask) for text in TEXTS]
        return texts if mask == "<mask>" else texts + ["The C\u00e1t,  sat\u4e2don a Bird!"]


# ModernBERT's layers 1, 2 and 4 see 3 tokens on each side.
MODERN = dict(num_hidden_layers=5, local_attention=6, global_attn_every_n_layers=3, pad_token_id=0,
              bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, max_position_embeddings=40,
              reference_compile=False, norm_eps=1e-5, type_vocab_size=None)
FAMILIES = {
    "xlmr": Family("XLM-R", "XLMRoberta", tr.XLMRobertaConfig, make_unigram),
    "bert": Family("BERT", "Bert", tr.BertConfig, make_wordpiece, max_position_embeddings=40, type_vocab_size=2),
    "nomic": Family("NomicBert", "NomicBert", tr.NomicBertConfig, make_wordpiece, heads=("Model",), max_position_embeddings=40,
                    type_vocab_size=2),
    "modernbert": Family("ModernBERT", "ModernBert", tr.ModernBertConfig, make_wordpiece, **MODERN),
}


def randomise(model, seed):
    """Weights with which every part affects the outputs."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=g)
            if name.endswith("weight") and "norm" in name.lower().split(".")[-2]:
                x = 1 + 0.2 * x
            elif p.dim() == 1:
                x = 0.2 * x
            elif "embeddings" not in name:
                x = x * 1.3 / p.shape[-1] ** 0.5
            p.copy_(x)
    return model.eval()


def make(family, head, seed, folder):
    f = FAMILIES[family]
    tokenizer = f.tokenizer()
    config = f.config(vocab_size=len(tokenizer), **f.sizes, **HEADS[head])
    name = f.classes + ("Model" if head == "Model" else "For" + head)
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


def check_fill(args, path, family, model, tokenizer):
    for text in FAMILIES[family].texts()[:2]:
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


def embed(args, path, texts, scratch, *options):
    lines, out = os.path.join(scratch, "lines.txt"), os.path.join(scratch, "vectors.npy")
    with open(lines, "w") as f:
        f.write("\n".join(texts) + "\n")
    run([args.moe, "embed", path, "-f", lines, *options, "-o", out])
    return np.load(out)


def check_embed(args, path, family, model, tokenizer, scratch):
    # `moe embed` reads special tokens as text.
    texts = [t for t in FAMILIES[family].texts() if tokenizer.mask_token not in t]
    for pooling in ("mean", "first"):
        for text, found in zip(texts, embed(args, path, texts, scratch, "--pooling", pooling), strict=True):
            h = reference(model, "Model", tokenizer(text)["input_ids"])
            np.testing.assert_allclose(found, h.mean(0) if pooling == "mean" else h[0], atol=2e-4)


def check(family, head, args, scratch):
    folder, path = os.path.join(scratch, family + head), os.path.join(scratch, family + head + ".moe")
    model, tokenizer = make(family, head, 1, folder)
    run([args.moe, "convert", folder, path, "--verify", "--weights", "f32"])
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bindings/python/src"))
    os.environ["MOE_LIBRARY"] = os.path.abspath(args.library)
    import moe

    worst = 0.0
    with moe.Model(path) as loaded:
        session = loaded.session()
        for text in FAMILIES[family].texts():
            ids = tokenizer(text)["input_ids"]
            if loaded.tokenizer.encode(text, parse_special=True) != ids:
                raise RuntimeError(f"{text!r}: other ids than transformers")
            got = session.encode(ids, outputs=head != "Model")
            found = got.hidden if head == "Model" else got.outputs
            expected = reference(model, head, ids)
            worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
    if head == "MaskedLM":
        check_fill(args, path, family, model, tokenizer)
    if head == "Model":
        check_embed(args, path, family, model, tokenizer, scratch)
    print(f"{'ok  ' if worst <= TOLERANCE else 'FAIL'} {FAMILIES[family].title} {head:24s} outputs within {worst:.1e}")
    return worst <= TOLERANCE


def make_sentences(folder):
    """A BERT with pooling, normalisation, prompts and a limit, as `sentence-transformers` saves it."""
    import sentence_transformers as st
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    inner = folder + ".inner"
    make("bert", "Model", 1, inner)
    transformer = Transformer(inner, max_seq_length=16)
    pooling = Pooling(SIZES["hidden_size"], pooling_mode="cls")
    model = st.SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu",
                                   prompts={"query": "the dog: ", "passage": ""})
    model.save(folder)
    shutil.rmtree(inner)
    return model


SENTENCES = ["the cat sat on the mat", "a small bird", "a big red house and a small blue house saw the dog and the cat"]


def cosines(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def check_sentences(args, scratch):
    folder, path = os.path.join(scratch, "sentences"), os.path.join(scratch, "sentences.moe")
    model = make_sentences(folder)
    run([args.moe, "convert", folder, path, "--weights", "f32"])
    for name in (None, "query"):
        expected = model.encode(SENTENCES, prompt_name=name)
        options = ["--truncate"] + (["--prompt-name", name] if name else [])
        np.testing.assert_allclose(embed(args, path, SENTENCES, scratch, *options), expected, atol=2e-5)
    print("ok   sentence-transformers: pooling, normalisation, prompts, truncation")
    return True


REAL = ["The cat sits on the mat.", "A dog is playing in the garden.", "Wie geht es dir heute?",
        "Na\u00efve caf\u00e9, r\u00e9sum\u00e9!", "\u4eca\u5929\u5929\u6c14\u5f88\u597d", "\U0001f600 emoji and tabs\tin a text",
        "What is the capital of France?", "Paris is the capital and largest city of France.", "e=mc^2 (1905)",
        "word " * 700, "Donaudampfschifffahrtsgesellschaftskapit\u00e4n " * 20, "x" * 150, "a"]


def check_folder(args, scratch):
    import sentence_transformers as st

    model = st.SentenceTransformer(args.folder, device="cpu")
    path = os.path.join(scratch, "real.moe")
    texts = [" ".join(text.split("\n")) for text in REAL]
    expected = model.encode(texts)
    ok = True
    for weights, least in (("f32", 0.9999), ("auto", 0.99), ("int8", 0.99)):
        run([args.moe, "convert", args.folder, path, "--weights", weights])
        found = cosines(embed(args, path, texts, scratch, "--truncate"), expected)
        print(f"{weights:5s} cosine with sentence-transformers: worst {found.min():.6f}, mean {found.mean():.6f}, "
              f"{os.path.getsize(path) / 1e6:.1f} MB")
        ok = ok and found.min() >= least
    return ok


def make_reranker(family, folder):
    """A cross-encoder: a head of one class over pairs of texts; ModernBERT's reads their mean."""
    f = FAMILIES[family]
    tokenizer = f.tokenizer()
    if family == "bert":
        tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    more = {"classifier_pooling": "mean"} if family == "modernbert" else {}
    config = f.config(vocab_size=len(tokenizer), **f.sizes, num_labels=1, **more)
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0.0"}
    model = randomise(getattr(tr, f.classes + "ForSequenceClassification")(config), 4)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def pair_cases(model, tokenizer):
    """Pairs with and without truncation: what the tokenizer and the model make of them."""
    for passage in PASSAGES:
        for limit in LIMITS:
            texts = (QUERY, passage) if limit != 9 else (passage, QUERY)  # the first text may be the longer one
            cut = {"truncation": True, "max_length": limit} if limit else {}
            found, whole = tokenizer(*texts, **cut), tokenizer(*texts)
            if len(found["input_ids"]) > SIZES["max_position_embeddings"] - 2:
                continue
            types = found.get("token_type_ids", [0])
            with torch.no_grad():
                score = model(**{k: torch.tensor([v]) for k, v in found.items()}).logits[0].numpy()
            yield {"texts": texts, "max_tokens": limit, "ids": found["input_ids"], "second": types.index(1) if 1 in types else 0,
                   "n_cut": len(whole["input_ids"]) - len(found["input_ids"])}, score


def check_reranker(family, args, scratch):
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bindings/python/src"))
    os.environ["MOE_LIBRARY"] = os.path.abspath(args.library)
    import moe

    folder, path = os.path.join(scratch, family + "pairs"), os.path.join(scratch, family + "pairs.moe")
    model, tokenizer = make_reranker(family, folder)
    run([args.moe, "convert", folder, path, "--verify", "--weights", "f32"])
    worst, n = 0.0, 0
    with moe.Model(path) as loaded:
        session = loaded.session()
        for case, score in pair_cases(model, tokenizer):
            pair = loaded.tokenizer.encode_pair(*case["texts"], max_tokens=case["max_tokens"])
            # transformers gives XLM-R no types; a model without them makes no difference.
            if (pair.tokens, pair.n_cut) != (case["ids"], case["n_cut"]) or (case["second"] and pair.second != case["second"]):
                raise RuntimeError(f"{case}: found {pair}")
            found = session.encode(pair.tokens, hidden=False, outputs=True, second=pair.second).outputs[0]
            worst, n = max(worst, float(np.abs(found - score).max())), n + 1
    with open(os.path.join(scratch, "passages.txt"), "w") as f:
        f.write("\n".join(PASSAGES[:2]) + "\n")
    lines = run([args.moe, "rerank", path, "-q", QUERY, "-f", f.name, "--json"]).splitlines()
    for line in map(json.loads, lines):
        with torch.no_grad():
            expected = model(**tokenizer(QUERY, PASSAGES[line["index"]], return_tensors="pt")).logits.item()
        worst = max(worst, abs(line["score"] - expected))
    ok = worst <= 1e-4 and len(lines) == 2
    print(f"{'ok  ' if ok else 'FAIL'} {FAMILIES[family].title} pairs: {n} scores within {worst:.1e}")
    return ok


def write_reranker(family, root):
    folder = os.path.join(root, f"{family}_pairs")
    shutil.rmtree(folder, ignore_errors=True)
    model, tokenizer = make_reranker(family, folder)
    found = list(pair_cases(model, tokenizer))
    save_file({f"outputs.{i}": score[None] for i, (_, score) in enumerate(found)}, os.path.join(folder, "golden.safetensors"))
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump({"cases": [case for case, _ in found], "tolerance": 1e-4}, f)
        f.write("\n")


def write_golden(family, head, root):
    folder = os.path.join(root, f"{family}_{head.lower()}")
    shutil.rmtree(folder, ignore_errors=True)
    model, tokenizer = make(family, head, 1, folder)
    cases = [{"text": text, "ids": tokenizer(text)["input_ids"]} for text in FAMILIES[family].texts()]
    save_file({f"outputs.{i}": reference(model, head, c["ids"]) for i, c in enumerate(cases)},
              os.path.join(folder, "golden.safetensors"))
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump({"cases": cases, "tolerance": TOLERANCE}, f)
        f.write("\n")


def write_sentences(root):
    folder = os.path.join(root, "sentences")
    shutil.rmtree(folder, ignore_errors=True)
    model = make_sentences(folder)
    if os.path.exists(os.path.join(folder, "README.md")):
        os.remove(os.path.join(folder, "README.md"))
    cases = [{"text": text, "prompt": name, "vector": model.encode([text], prompt_name=name)[0].tolist()}
             for text in SENTENCES for name in ("passage", "query")]
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump({"cases": cases}, f)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join([*FAMILIES, "sentences"]) + "; default: all")
    parser.add_argument("--moe", default="build/release/bin/moe")
    parser.add_argument("--library", default="build/release/lib/libmoe.so")
    parser.add_argument("--golden", metavar="FOLDER", help="write the golden cases there instead")
    parser.add_argument("--folder", help="compare vectors of this folder of sentence-transformers instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = args.families or [*FAMILIES, "sentences"]
    with tempfile.TemporaryDirectory() as scratch:
        if args.folder:
            sys.exit(0 if check_folder(args, scratch) else 1)
        failed = False
        for family in chosen:
            if family == "sentences":
                ok = write_sentences(args.golden) is None if args.golden else check_sentences(args, scratch)
                failed = failed or not ok
                continue
            for head in FAMILIES[family].heads:
                if args.golden:
                    write_golden(family, head, args.golden)
                else:
                    failed = not check(family, head, args, scratch) or failed
            if "SequenceClassification" not in FAMILIES[family].heads:
                continue
            if args.golden:
                write_reranker(family, args.golden)
            else:
                failed = not check_reranker(family, args, scratch) or failed
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
