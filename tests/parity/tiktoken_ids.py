#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/text/kimi.json and qwen_tiktoken.json: a small vocabulary as tiktoken.model and qwen.tiktoken have
it, and the ids that the package `tiktoken` gives with the patterns of Kimi and of Qwen 1."""

import base64
import json
import pathlib
import unicodedata

import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
UPPER, LOWER = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]")
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}",
                    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
CHINESE = "月光落在水面上，狐狸走过田野。今天天气很好，我们去公园散步。模型在中文和英文之间切换。"
TEXTS = ["ab中ab", "Hello, world's 12345 tests!", "今天天气很好 and we're混合Text", "HTTPServer über-Straße ÉCOLE", "日本語のカナとKanji混じり文",
         "  indented\n\n\tcode = f(x)\r\n", "aaaaaaaaaaaaaaaa bbbbbbb", "don't DON'T I'LL", "한국어 텍스트 처리", "🦊 emoji 👍🏽 and e\u0301 marks", "",
         "e\u0301a\u0300 Å 한", "<|im_start|>user\nhi<|im_end|>", "<|extra_0|><|extra_204|>x<|extra_205|><|endoftext|>",
         "<|im_end|>after<|im_user|>", "[BOS]x[EOS]", "<|reserved_token_%d|>", "１２３ ² Ⅷ", "the fox and the moon over the field"]


def byte_letters():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def ranks(pattern):
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    text = [CHINESE * 20, (ROOT / "docs" / "architecture.md").read_text()]
    trained.train_from_iterator(text, trainers.BpeTrainer(vocab_size=700, show_progress=False,
                                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    back = {letter: byte for byte, letter in byte_letters().items()}
    tokens = sorted(trained.get_vocab(), key=trained.get_vocab().get)
    return {bytes(back[c] for c in token): i for i, token in enumerate(tokens)}


def write(name, encoding, config, change=lambda text: text):
    n = encoding.n_vocab - len(encoding.special_tokens_set)
    cases = []
    for text in TEXTS:
        text = text % (n + 9) if "%d" in text else text
        cases.append({"text": text, "ids": encoding.encode(change(text), allowed_special="all")})
    vocabulary = "".join(f"{base64.b64encode(encoding.decode_single_token_bytes(i)).decode()} {i}\n" for i in range(n))
    out = {"vocabulary": vocabulary, "tokenizer_config": config, "cases": cases}
    (ROOT / "tests" / "data" / "text" / name).write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    print(f"{name}: {n} tokens, {len(cases)} cases")


def kimi():
    mergeable = ranks(PATTERN)
    n = len(mergeable)
    names = {n: "[BOS]", n + 1: "[EOS]", n + 2: "<|im_end|>", n + 3: "<|im_user|>", n + 7: "[PAD]"}
    special = {names.get(i, f"<|reserved_token_{i}|>"): i for i in range(n, n + 256)}
    config = {"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]",
              "added_tokens_decoder": {str(i): {"content": t, "special": True, "lstrip": False, "rstrip": False,
                                                "single_word": False, "normalized": False} for i, t in names.items()}}
    write("kimi.json", tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=mergeable, special_tokens=special), config)


def qwen():
    """As the class QWenTokenizer: its texts are normalised first, and it has no names in the configuration."""
    mergeable = ranks(QWEN)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
    special = {name: len(mergeable) + i for i, name in enumerate(names)}
    config = {"model_max_length": 8192, "tokenizer_class": "QWenTokenizer",
              "auto_map": {"AutoTokenizer": ["tokenization_qwen.QWenTokenizer", None]}}
    write("qwen_tiktoken.json", tiktoken.Encoding("qwen", pat_str=QWEN, mergeable_ranks=mergeable, special_tokens=special),
          config, lambda text: unicodedata.normalize("NFC", text))


kimi()
qwen()
