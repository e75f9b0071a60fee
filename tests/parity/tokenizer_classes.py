#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sweeps tokenizer classes, keys of tokenizer_config.json and files, against `transformers` 5.

    tokenizer_classes.py --tokenize_lines build/release/tests/tokenize_lines [--cases 3000] [--seed 1] [--show]

Each case is a folder with a tokenizer.json in the style of some model, a tokenizer_config.json (or none) with random
keys and a config.json with a random model type. The ids of some texts must be those of AutoTokenizer.from_pretrained,
or a warning must say that keys or class and file disagree. Neither is a silent difference, which there must not be.
docs/checkpoints.md says which of the two it is, and why. Needs no PyTorch.
"""
import argparse
import collections
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "text"))
import compare_with_tokenizers as styles  # noqa: E402
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

TEXTS = ["ab ab", " the water", "  two", "year 2024, 3.5", "a<s>the</s>of", "<s>\nthe water", "the <pad>of<mask> and",
         "It's  a\tb\nnumber ", "of <extra> the", "of<extra>the", "", " ", "<|endoftext|>the", "the<|endoftext|> of",
         "x <unk> y", "HELLO Water é", "for (int i = 0; i < n; ++i) {\n\n", "[CLS] the [SEP]", "en_XX the"]

CLASSES = ["PreTrainedTokenizerFast", "TokenizersBackend", "LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer",
           "GPT2Tokenizer", "GPT2TokenizerFast", "CodeGenTokenizer", "Qwen2Tokenizer", "Qwen2TokenizerFast",
           "Qwen3_5Tokenizer", "GPTNeoXTokenizer", "GPTNeoXTokenizerFast", "RobertaTokenizer", "BartTokenizerFast",
           "CohereTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast", "T5Tokenizer", "T5TokenizerFast",
           "XLMRobertaTokenizer", "XLMRobertaTokenizerFast", "MBartTokenizer", "AlbertTokenizer", "BloomTokenizerFast",
           "SomeUnknownTokenizer"]
MODEL_TYPES = ["llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "granite", "granitemoe",
               "granitemoeshared", "olmo", "olmo2", "olmo3", "olmoe", "flex_olmo", "smollm3", "phi3", "phimoe", "gemma", "gemma2",
               "gemma3_text", "glm4_moe", "glm4_moe_lite", "ernie4_5_moe", "minimax_m2", "gpt_oss", "deepseek_v2", "deepseek_v3", "dots1",
               "bitnet", "xlm-roberta", "roberta", "bart", "mbart", "modernbert", "maple"]


def edit(document, **members):
    document = copy.deepcopy(document)
    document.update(members)
    return document


def json_of(step):
    return json.loads(step.__getstate__())


def byte_files():
    plain = json.loads(styles.template(with_tokens(styles.byte_level(size=420)), []).to_str())
    plain["post_processor"] = None
    bytes_ = plain["pre_tokenizer"]
    prefixed = edit(bytes_, add_prefix_space=True)
    digits = dict(type="Digits", individual_digits=True)
    split = json_of(pre_tokenizers.Split(Regex(styles.QWEN2), "isolated"))
    whole = edit(bytes_, use_regex=False)
    sequence = lambda *steps: dict(type="Sequence", pretokenizers=list(steps))
    nfc = dict(type="NFC")
    out = {"gpt2": plain, "gpt2 prefix": edit(plain, pre_tokenizer=prefixed),
           "digits": edit(plain, pre_tokenizer=sequence(digits, bytes_)),
           "digits prefix": edit(plain, pre_tokenizer=sequence(digits, prefixed)),
           "qwen2": edit(plain, pre_tokenizer=sequence(split, whole), normalizer=nfc),
           "qwen2 prefix": edit(plain, pre_tokenizer=sequence(split, edit(whole, add_prefix_space=True)), normalizer=nfc),
           "neox": edit(plain, normalizer=nfc)}
    for name in ("gpt2", "neox"): out[name + " bos"] = edit(out[name], post_processor=around(plain, ["<s>"], []))
    roberta = processors.RobertaProcessing(("</s>", token_id(plain, "</s>")), ("<s>", token_id(plain, "<s>")))
    out["roberta"] = edit(plain, post_processor=json_of(roberta))
    out["ignore_merges"] = edit(plain, model=edit(plain["model"], ignore_merges=True))
    return out


def with_tokens(tok):
    tok.add_special_tokens(["<s>", "</s>", "<pad>", "<mask>", "<unk>", "en_XX"])
    tok.add_tokens(["<extra>"])
    return tok


def token_id(document, text):
    return Tokenizer.from_str(json.dumps(document)).token_to_id(text)


def around(document, before, after):
    return json_of(processors.TemplateProcessing(single=" ".join([*before, "$A", *after]),
                                                 special_tokens=[(t, token_id(document, t)) for t in before + after]))


def piece_files():
    legacy = json.loads(with_tokens(styles.llama2(460)).to_str())
    space = dict(type="Replace", pattern=dict(String=" "), content="▁")
    meta = lambda scheme: json_of(pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False))
    no_strip = edit(legacy["decoder"], decoders=legacy["decoder"]["decoders"][:-1])
    bare = edit(legacy, normalizer=None)
    out = {"legacy": legacy, "legacy without BOS": edit(legacy, post_processor=None)}
    for scheme in ("first", "always"): out[scheme] = edit(bare, pre_tokenizer=meta(scheme))
    out["never"] = edit(bare, pre_tokenizer=meta("never"), decoder=no_strip)
    out["replaced"] = edit(bare, normalizer=space, decoder=no_strip)
    out["gemma"] = edit(out["replaced"], pre_tokenizer=json_of(pre_tokenizers.Split(" ", "merged_with_previous")))
    return out


def unigram_files():
    base = json.loads(styles.precompiled().to_str())
    charsmap = base["normalizer"]["normalizers"][0]
    pieces = [p for p in base["model"]["vocab"] if p[0] not in ("<unk>", "<s>", "</s>")]
    first = {3: ["<s>", "<pad>", "</s>", "<unk>"], 2: ["<pad>", "</s>", "<unk>", "<s>"]}
    words = dict(type="Sequence", pretokenizers=[dict(type="WhitespaceSplit"), json_of(pre_tokenizers.Metaspace())])
    newer = [charsmap, json_of(normalizers.Strip(False, True)), json_of(normalizers.Replace(Regex(" {2,}"), "▁"))]
    out = {}
    for unk, names in first.items():
        names = names + ["<mask>", "en_XX"]
        vocab = [[n, 0.0] for n in names] + pieces
        added = [dict(id=i, content=n, single_word=False, lstrip=n == "<mask>", rstrip=False, normalized=False,
                      special=True) for i, n in enumerate(names)]
        d = edit(base, model=edit(base["model"], vocab=vocab, unk_id=unk), added_tokens=added, normalizer=charsmap,
                 pre_tokenizer=words, post_processor=None)
        post = around(d, ["<s>"], ["</s>"]) if unk == 3 else around(d, [], ["</s>"])
        d["post_processor"] = post
        out[f"unigram {unk}"] = d
        out[f"unigram {unk} newer"] = edit(d, normalizer=dict(type="Sequence", normalizers=newer),
                                           pre_tokenizer=json_of(pre_tokenizers.Metaspace()))
        out[f"unigram {unk} plain"] = edit(d, normalizer=None)
    return out


FITTING = {"gpt2": ["GPT2", "CodeGen", "Roberta", "Bart"], "qwen2": ["Qwen2"], "neox": ["GPTNeoX"],
           "roberta": ["Roberta", "Bart", "GPT2"], "digits": ["Cohere", "GPT2"], "unigram 3": ["XLM", "MBart"],
           "unigram 2": ["T5"], "gemma": ["Gemma"], "replaced": ["Gemma", "Llama"], "legacy": ["Llama"],
           "first": ["Llama", "CodeLlama"], "always": ["Llama"], "never": ["Llama"]}


def random_class(r, file):
    if r.random() < 0.15: return None
    fitting = [c for c in CLASSES for f, names in FITTING.items() if file.startswith(f) for n in names if c.startswith(n)]
    return r.choice(fitting) if fitting and r.random() < 0.6 else r.choice(CLASSES)


def random_decoder(r, document):
    """added_tokens_decoder as saved, with changed properties, or without one of the tokens."""
    out = {}
    for token in document["added_tokens"]:
        entry = {k: v for k, v in token.items() if k != "id"}
        if r.random() < 0.15:
            for key in ("lstrip", "rstrip", "single_word", "normalized"): entry[key] = r.random() < 0.5
        out[str(token["id"])] = entry
    if r.random() < 0.15: out.pop(r.choice(list(out)))
    return out


def random_config(r, file, document):
    if r.random() < 0.05: return None
    config = {}
    kind = random_class(r, file)
    if kind: config["tokenizer_class"] = kind
    choices = {"add_prefix_space": [True, False, False, None], "legacy": [True, False], "add_bos_token": [True, False],
               "add_eos_token": [True, False], "split_special_tokens": [True, False],
               "clean_up_tokenization_spaces": [True, False], "do_lower_case": [True, False], "model_max_length": [512],
               "padding_side": ["left"], "some_unknown_key": [1], "extra_ids": [0], "src_lang": ["en_XX"],
               "use_default_system_prompt": [True], "errors": ["replace"], "trim_offsets": [True, False]}
    for key, values in choices.items():
        if r.random() < (0.35 if key in ("add_prefix_space", "legacy") else 0.08): config[key] = r.choice(values)
    if kind and "T5" in kind: config["extra_ids"] = 0
    tokens = {"bos_token": ["<s>", None], "eos_token": ["</s>"], "unk_token": ["<unk>", None], "pad_token": ["<pad>", None],
              "mask_token": ["<mask>"], "image_token": ["<extra>", "<missing>", "the"]}
    for key, values in tokens.items():
        if r.random() < (0.05 if key == "image_token" else 0.5): config[key] = r.choice(values)
    if r.random() < 0.3: config["added_tokens_decoder"] = random_decoder(r, document)
    if r.random() < 0.1: config["additional_special_tokens"] = ["<extra>"]
    return config


def write(folder, files):
    for name in os.listdir(folder): os.remove(os.path.join(folder, name))
    for name, document in files.items():
        if document is None: continue
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f: json.dump(document, f, ensure_ascii=False)


def theirs(folder):
    tok = AutoTokenizer.from_pretrained(folder)
    n = len(tok)
    return type(tok).__name__, n, [dict(ids=tok.encode(t), text=tok.decode(tok.encode(t), skip_special_tokens=True))
                                   for t in TEXTS]


def ours(program, folder, lines):
    run = subprocess.run([program, folder, lines], capture_output=True, text=True)
    if run.returncode != 0: return None, run.stderr.strip()
    return json.loads(run.stdout), run.stderr.strip()


def case(r, files):
    name = r.choice(list(files))
    document = files[name]
    config = random_config(r, name, document)
    model = {"model_type": r.choice(MODEL_TYPES if r.random() < 0.5 else ["llama", "maple"])}
    if r.random() < 0.05: model["tokenizer_class"] = r.choice(CLASSES)
    special = None
    if config is not None and "added_tokens_decoder" not in config and r.random() < 0.1:
        special = {"bos_token": "<s>", "eos_token": "</s>"}
    return name, {"tokenizer.json": document, "tokenizer_config.json": config, "config.json": model,
                  "special_tokens_map.json": special}


def has_odd_texts(folder):
    """Decoding in the package depends on earlier properties of tokens that are searched in normalised text."""
    read = lambda n: json.load(open(os.path.join(folder, n), encoding="utf-8"))
    if not os.path.exists(os.path.join(folder, "tokenizer_config.json")): return False
    config, file = read("tokenizer_config.json"), read("tokenizer.json")["added_tokens"]
    listed = config.get("added_tokens_decoder", {}).values()
    normalized = {t["content"] for t in file if t["normalized"]} ^ {t["content"] for t in listed if t["normalized"]}
    return bool(listed and normalized) or config.get("image_token") == "<extra>"


def outcome(program, folder, lines, n_vocabulary):
    """(kind, class, detail): what became of the case in `folder`."""
    mine, said = ours(program, folder, lines)
    try:
        kind, n, expected = theirs(folder)
    except Exception as e:  # the class cannot be built from such a file, or refuses the keys
        return "transformers fails", "", f"{type(e).__name__}: {e}"
    if mine is None: return "refused", kind, said
    # Ids that transformers hands out beyond the file's tokens have no embedding.
    different = [t for t, m, e in zip(TEXTS, mine, expected) if m["ids"] != e["ids"] and max(e["ids"], default=0) < n_vocabulary]
    if different and not said: return "SILENT", kind, repr(different[0])
    if different: return "warned", kind, said
    texts = [t for t, m, e in zip(TEXTS, mine, expected) if m["ids"] == e["ids"] and m["text"] != e["text"]]
    if texts and not said and not has_odd_texts(folder): return "SILENT TEXT", kind, repr(texts[0])
    return ("same, and warned" if said else "same"), kind, said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenize_lines", required=True)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="one case of each outcome and class")
    args = parser.parse_args()
    r = random.Random(args.seed)
    files = {**byte_files(), **piece_files(), **unigram_files()}
    counts, shown = collections.Counter(), set()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        lines = os.path.join(other, "lines.json")
        with open(lines, "w", encoding="utf-8") as f: json.dump(TEXTS, f)
        for _ in range(args.cases):
            name, documents = case(r, files)
            write(folder, documents)
            document = documents["tokenizer.json"]
            n = Tokenizer.from_str(json.dumps(document)).get_vocab_size()
            kind, cls, detail = outcome(args.tokenize_lines, folder, lines, n)
            counts[kind] += 1
            if kind.startswith("SILENT") or (args.show and (kind, cls) not in shown):
                shown.add((kind, cls))
                keys = documents["tokenizer_config.json"] or {}
                if not kind.startswith("SILENT"): keys = {k: v for k, v in keys.items() if k != "added_tokens_decoder"}
                print(f"{kind}: {name}, {cls}, {documents['config.json']}, {keys}\n    {detail}", flush=True)
    for kind, n in counts.most_common(): print(f"{n:6} {kind}")
    return 1 if any(k.startswith("SILENT") for k in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
