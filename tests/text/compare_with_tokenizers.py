# SPDX-License-Identifier: MIT
"""Compares this library's tokenizer with the package `tokenizers` on random text in many scripts.

    python3 tests/text/compare_with_tokenizers.py TOKENIZE_LINES [--lines 3000] [--seed 1] [--only NAME]
    python3 tests/text/compare_with_tokenizers.py TOKENIZE_LINES --golden tests/data/text
    python3 tests/text/compare_with_tokenizers.py TOKENIZE_LINES --speed TEXT

TOKENIZE_LINES is the program tests/tokenize_lines of a build. Needs `tokenizers` (0.23 was used). The script
trains tokenizers in the style of well-known models, with their real patterns. --golden writes a small set of
them, with texts and the package's results, for golden_test. --speed measures encoding of a text file with
vocabularies of 32000, on one thread.
"""
import argparse
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?|"
         r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + CONTRACTIONS + "?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL)
DEEPSEEK = ["[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+"]

WORDS = """the of and to in a is that it was for on are as with his they I at be this have from or one had by word
but not what all were we when your can said there use an each which she do how their if will up other about out many
then them these so some her would make like him into time has look two more write go see number no way could people my
than first water been call who oil its now find long down day did get come made may part""".split()
CODE = ["for (int i = 0; i < n; ++i) {", "def f(x):\n\treturn x**2", "a->b.c[10] != 0x1F", "https://example.com/a?b=c&d=1",
        "std::vector<int>", "#include <cstdio>", "\"\\n\\t\\\"\"", "x_1=y__2;", "//NOTE: fix", "{\"k\": [1, 2.5e-3]}",
        "SELECT * FROM t WHERE a='b';", "git commit -m 'x'", "if(!p)return;", "camelCaseWord HTTPServer iPhone15"]
SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x586), (0x5D0, 0x5EA),
           (0x621, 0x64A), (0x904, 0x939), (0x93E, 0x94D), (0x985, 0x9B9), (0xB85, 0xBB9), (0xE01, 0xE30), (0xE31, 0xE4D),
           (0x10D0, 0x10F0), (0x1100, 0x1112), (0x1161, 0x1175), (0x1200, 0x1248), (0x1780, 0x17B3), (0x1E00, 0x1EFF),
           (0x1F00, 0x1F15), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x4FFF), (0x9000, 0x9FA5), (0xAC00, 0xACFF),
           (0x10400, 0x1044F), (0x1D400, 0x1D454), (0x20000, 0x20040), (0xA000, 0xA0FF), (0x13A0, 0x13EF)]
DIGITS = [(0x30, 0x39)] * 6 + [(0x660, 0x669), (0x966, 0x96F), (0xFF10, 0xFF19), (0x2160, 0x2180), (0xB2, 0xB3), (0xBC, 0xBE),
                               (0x2460, 0x2473), (0x1D7CE, 0x1D7FF)]
SYMBOLS = [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0xA1, 0xBF), (0x2010, 0x2027), (0x2030, 0x205E),
           (0x20A0, 0x20BF), (0x2100, 0x214F), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2500, 0x257F), (0x24B6, 0x24E9),
           (0x3001, 0x3011), (0xFF01, 0xFF0F), (0xFB00, 0xFB06), (0xFDFA, 0xFDFB), (0x2F00, 0x2F10), (0xF900, 0xF910)]
EMOJI = ["😀", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏽", "❤️", "🤷🏻‍♀️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "☃", "1️⃣", "🫠"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085",
          "\u200b", "\u180e", "\v", "\f", "\ufeff", "\u2060", " " * 17, "\t" * 5, "\n" * 4, "\r\n\r\n"]
CONTROL = ["\x00", "\x01", "\x07", "\x1b[0m", "\x7f", "\x80", "\x9f", "\u200c", "\u200d", "\u202e", "\ufffd", "\ufffe",
           "\ue000", "\U0010ffff", "\U000e0001", "\u00ad", "▁", "▁▁", "Ġ", "Ċ", "ſ", "K", "İ", "ß", "ẞ", "ı", "Å", "ﬁ"]
MARKS = [(0x300, 0x36F), (0x483, 0x489), (0x591, 0x5BD), (0x64B, 0x65F), (0x1AB0, 0x1ABD), (0x20D0, 0x20DC), (0xFE20, 0xFE2F),
         (0x3099, 0x309A), (0xFE00, 0xFE0F), (0x1DC0, 0x1DF5)]


class Text:
    """Random lines: words, code, scripts, numbers, symbols, white space, marks, control characters."""

    def __init__(self, seed, specials=()):
        self.r = random.Random(seed)
        self.specials = list(specials)

    def of(self, ranges, low, high):
        a, b = self.r.choice(ranges)
        return "".join(chr(self.r.randint(a, b)) for _ in range(self.r.randint(low, high)))

    def marked(self):
        out = []
        for c in self.of(SCRIPTS, 1, 5):
            out.append(c + (self.of(MARKS, 1, 3) if self.r.random() < 0.5 else ""))
        return "".join(out)

    def item(self):
        r = self.r
        k = r.randrange(24)
        if k < 7:
            w = r.choice(WORDS)
            w = w.upper() if r.random() < 0.1 else w.capitalize() if r.random() < 0.2 else w
            return w + (r.choice(["'s", "'S", "'ll", "'RE", "’t", "'d", "'x"]) if r.random() < 0.15 else "")
        if k < 9: return r.choice(CODE)
        if k < 13: return self.of(SCRIPTS, 1, 8)
        if k < 15: return self.of(DIGITS, 1, 6)
        if k < 17: return self.of(SYMBOLS, 1, 4)
        if k < 18: return r.choice(EMOJI)
        if k < 19: return self.marked()
        if k < 20: return r.choice(CONTROL)
        if k < 21: return r.choice(SPACES)
        if k < 22: return "".join(r.choice(SPACES) for _ in range(r.randint(1, 4)))
        if k < 23: return r.choice("aA0. \n") * r.randint(1, 80)
        if self.specials: return r.choice(["", " ", "  ", "x", "\n"]) + r.choice(self.specials) + r.choice(["", " ", "\t ", "y", "_"])
        c = r.randrange(0x20, 0x2FFFF)
        return "x" if 0xD800 <= c < 0xE000 else chr(c)

    def line(self):
        n = self.r.choice([0, 1, 1, 2, 3, 5, 8, 13, 30])
        sep = self.r.choice(["", " ", " ", " ", "\n"])
        return sep.join(self.item() for _ in range(n))

    def broken(self):
        """Invalid UTF-8: truncated characters, stray bytes, overlong forms, surrogates."""
        data = bytearray(self.line().encode())
        for _ in range(self.r.randint(1, 4)):
            at = self.r.randint(0, len(data))
            data[at:at + self.r.randint(0, 2)] = self.r.choice(
                [b"\xff", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
        return bytes(data)

    def lines(self, n):
        return [self.line() for _ in range(n)]


def corpus():
    text = Text(7)
    lines = [" ".join(text.item() for _ in range(12)) for _ in range(1500)]
    return lines + [" ".join(text.r.choice(WORDS) for _ in range(20)) for _ in range(1500)]


def train_bpe(tok, size, specials=(), **options):
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials),
                                                          show_progress=False, **options))
    return tok


def byte_level(pattern=None, size=1500, prefix_space=False, normalizer=None, pre=(), **model):
    tok = Tokenizer(models.BPE(**model))
    if normalizer: tok.normalizer = normalizer
    steps = list(pre)
    if pattern: steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=pattern is None and not pre))
    tok.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tok.decoder = decoders.ByteLevel()
    return train_bpe(tok, size, ["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def edited(tok, edit):
    document = json.loads(tok.to_str())
    edit(document)
    return Tokenizer.from_str(json.dumps(document))


def template(tok, before, after=()):
    name = lambda t: t + " "
    tok.post_processor = processors.TemplateProcessing(
        single="".join(map(name, before)) + "$A" + "".join(" " + t for t in after),
        special_tokens=[(t, tok.token_to_id(t)) for t in {*before, *after}])
    return tok


def llama3(size=1500):
    tok = byte_level(LLAMA3, size, ignore_merges=True)
    tok.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    return template(tok, ["<|begin_of_text|>"])


def qwen2():
    tok = byte_level(QWEN2, normalizer=normalizers.NFC())
    tok.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tok.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<think>", normalized=False)])
    return tok


def add_bytes(document):
    """Puts <unk>, <s>, </s> and the 256 byte tokens first, as SentencePiece does."""
    first = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    model = document["model"]
    if isinstance(model["vocab"], dict):
        rest = [t for t in sorted(model["vocab"], key=model["vocab"].get) if t not in first]
        model["vocab"] = {t: i for i, t in enumerate(first + rest)}
        model.update(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    else:
        rest = [t for t in model["vocab"] if t[0] not in first]
        model["vocab"] = [[t, 0.0] for t in first] + rest
        model.update(unk_id=0, byte_fallback=True)
    document["added_tokens"] = [dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False,
                                     special=True) for i, t in enumerate(first[:3])]


def llama2(size=1200):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    train_bpe(tok, size, limit_alphabet=200)
    tok = edited(tok, add_bytes)
    tok.pre_tokenizer = None
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    return template(tok, ["<s>"])


def mistral():
    tok = llama2()
    tok.normalizer = None
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tok


def gemma():
    tok = llama2()
    tok.normalizer = normalizers.Replace(" ", "▁")
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tok


def unk_bpe(fuse):
    tok = llama2()
    return edited(tok, lambda d: d["model"].update(byte_fallback=False, fuse_unk=fuse))


def unigram(fallback, normalizer=None, size=800):
    tok = Tokenizer(models.Unigram())
    if normalizer: tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    few = ["".join(c for c in line if c < "\u017f" or "\u0400" < c < "\u0450") for line in corpus()]
    tok.train_from_iterator(few, trainers.UnigramTrainer(vocab_size=size, unk_token="<unk>", show_progress=False,
                                                              special_tokens=["<unk>", "<s>", "</s>"]))
    if fallback:
        tok = edited(tok, add_bytes)
        tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    else:
        tok.decoder = decoders.Metaspace()
    return template(tok, [], ["</s>"])


def charsmap(pairs):
    """SentencePiece's format: a Darts double array from source to the offset of its replacement."""
    trie, blob = {}, b""
    for source, target in pairs:
        node = trie
        for byte in source.encode(): node = node.setdefault(byte, {})
        node[-1] = len(blob)
        blob += target.encode() + b"\0"
    units = [0] * 256
    used = {0}

    def place(node, at):
        labels = [c if c >= 0 else 0 for c in node]
        base = 1
        while any(base ^ c in used or base ^ c == at for c in labels) or (at ^ base) >= 1 << 21: base += 1
        while base + 256 >= len(units): units.append(0)
        used.update(base ^ c for c in labels)
        units[at] |= (at ^ base) << 10
        for c, child in node.items():
            if c < 0:
                units[at] |= 1 << 8
                units[base] = child | 1 << 31
            else:
                units[base ^ c] = c
                place(child, base ^ c)

    place(trie, 0)
    return struct.pack("<I", 4 * len(units)) + b"".join(struct.pack("<I", u) for u in units) + blob


def precompiled():
    pairs = [("\u00a0", " "), ("\u3000", " "), ("ﬁ", "fi"), ("①", "1"), ("é", "E"), ("e\u0301", "é"), ("\u200b", ""), ("Å", "Å"),
             ("ｱ", "ア"), ("\t", " "), ("\n", " "), ("…", "..."), ("ß", "ss")]
    tok = unigram(False)

    def edit(document):
        document["normalizer"] = dict(type="Sequence", normalizers=[
            dict(type="Precompiled", precompiled_charsmap=base64.b64encode(charsmap(pairs)).decode()),
            dict(type="Replace", pattern=dict(Regex=" {2,}"), content=" ")])
    return edited(tok, edit)


def word_bpe(**model):
    tok = Tokenizer(models.BPE(unk_token="[UNK]", **model))
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    options = {k: v for k, v in model.items() if k in ("continuing_subword_prefix", "end_of_word_suffix")}
    return train_bpe(tok, 900, ["[UNK]"], limit_alphabet=120, **options)


def wordpiece(size=900, prefix="##", longest=100, decoder=True, **normalizer):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=longest))
    tok.normalizer = normalizers.BertNormalizer(**normalizer)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=specials, limit_alphabet=150, continuing_subword_prefix=prefix, show_progress=False))
    tok = edited(tok, lambda d: d["model"].update(continuing_subword_prefix=prefix, max_input_chars_per_word=longest))
    if decoder: tok.decoder = decoders.WordPiece(prefix=prefix)
    return template(tok, ["[CLS]"], ["[SEP]"])


def added(size=1500):
    tok = byte_level(size=size, normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))
    tok.add_tokens([AddedToken("Water", normalized=True), AddedToken("[L]", lstrip=True, normalized=False),
                    AddedToken("[R]", rstrip=True, normalized=False), AddedToken("one", single_word=True, normalized=True),
                    AddedToken("[LR]", lstrip=True, rstrip=True, normalized=True), AddedToken("on", normalized=False),
                    AddedToken("  ", normalized=False), AddedToken("ﬁsh", normalized=True),
                    AddedToken("number", single_word=True, normalized=False)])
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<m", special=True), "</s>"])
    return tok


def mixed():
    tok = byte_level(pre=[pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=True),
                          pre_tokenizers.Split(Regex(r"\p{Han}|\b\d|\w+@"), "merged_with_previous"),
                          pre_tokenizers.Split("the", "merged_with_next"),
                          pre_tokenizers.Split(Regex(r"[A-Z][a-z]{1,3}+"), "contiguous", invert=True)])
    return tok


def spaces():
    tok = byte_level(pre=[pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next"),
                          pre_tokenizers.Digits()], normalizer=normalizers.Sequence(
        [normalizers.Strip(), normalizers.Nmt(), normalizers.NFKD(), normalizers.Replace(Regex(r"\W{3,}"), "—")]))
    return tok


STYLES = {
    "gpt2": byte_level, "gpt2_prefix": lambda: byte_level(prefix_space=True), "llama3": llama3, "qwen2": qwen2,
    "o200k": lambda: byte_level(O200K), "llama2": llama2, "mistral": mistral, "gemma": gemma,
    "deepseek": lambda: byte_level(pre=[pre_tokenizers.Split(Regex(p), "isolated") for p in DEEPSEEK] +
                                   [pre_tokenizers.Digits(individual_digits=True)]),
    "unk": lambda: unk_bpe(False), "unk_fused": lambda: unk_bpe(True),
    "unigram": lambda: unigram(False, normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])),
    "unigram_bytes": lambda: unigram(True), "precompiled": precompiled,
    "word": lambda: word_bpe(fuse_unk=True), "word_suffix": lambda: word_bpe(end_of_word_suffix="</w>"),
    "word_prefix": lambda: word_bpe(continuing_subword_prefix="##"), "added": added, "mixed": mixed, "spaces": spaces,
    "bert": wordpiece, "bert_cased": lambda: wordpiece(lowercase=False),
    "bert_accents": lambda: wordpiece(strip_accents=False, handle_chinese_chars=False),
    "bert_raw": lambda: wordpiece(clean_text=False, lowercase=False, strip_accents=True, decoder=False),
    "bert_short": lambda: wordpiece(longest=7, prefix="@"),
}
# The tokenizers of the golden files, with small vocabularies to keep the files small.
GOLDEN = {
    "gpt2": lambda: byte_level(size=380), "llama3": lambda: llama3(380),
    "qwen2": lambda: byte_level(QWEN2, 360, normalizer=normalizers.NFC()), "o200k": lambda: byte_level(O200K, 360),
    "bert": lambda: wordpiece(360), "llama2": lambda: llama2(400), "unigram_bytes": lambda: unigram(True, size=400), "added": lambda: added(380),
}


def answers(tok, lines):
    plain = Tokenizer.from_str(tok.to_str())
    plain.encode_special_tokens = True
    out = []
    for line in lines:
        line = line if isinstance(line, str) else line.decode(errors="replace")
        ids = tok.encode(line).ids
        out.append(dict(ids=ids, plain=plain.encode(line, add_special_tokens=False).ids,
                        text=tok.decode(ids), full=tok.decode(ids, skip_special_tokens=False)))
    return out


def library(program, tok, lines, folder):
    paths = [os.path.join(folder, n) for n in ("tokenizer.json", "lines.json")]
    tok.save(paths[0])
    with open(paths[1], "w", encoding="utf-8") as f:
        json.dump([l if isinstance(l, str) else dict(bytes=list(l)) for l in lines], f)
    return json.loads(subprocess.run([program, *paths], check=True, stdout=subprocess.PIPE).stdout)


def broken_bytes(text):
    return "\ufffd" in text


def compare(program, name, tok, lines, folder):
    """Compares ids, and texts except those with byte tokens that form no character."""
    wrong, wrong_text = 0, 0
    tok = Tokenizer.from_str(tok.to_str())  # with scores as read from the file
    theirs, ours = answers(tok, lines), library(program, tok, lines, folder)
    for line, a, b in zip(lines, theirs, ours):
        for key in ("ids", "plain"):
            if a[key] != b[key]:
                wrong += 1
                if wrong <= 3:
                    i = next((i for i, (x, y) in enumerate(zip(a[key], b[key])) if x != y), min(len(a[key]), len(b[key])))
                    show = lambda x: [(t, tok.id_to_token(t)) for t in x[max(i - 2, 0):i + 5]]
                    print(f"  {name} {key}: {line[:300]!r}\n    tokenizers {show(a[key])}\n    here       {show(b[key])}")
        for key in ("text", "full"):
            if a[key] != b[key] and not broken_bytes(a[key]):
                wrong_text += 1
                if wrong_text <= 3: print(f"  {name} {key}: {a[key][:200]!r}\n     here {b[key][:200]!r}")
    print(f"{name:14} {len(lines)} lines, {sum(len(a['ids']) for a in theirs)} ids: {wrong} differ, text {wrong_text}")
    return wrong + wrong_text


def write_golden(folder, only):
    os.makedirs(folder, exist_ok=True)
    for name, make in GOLDEN.items():
        if only and name != only: continue
        tok = make()
        specials = [t.content for t in tok.get_added_tokens_decoder().values()]
        lines = [l for l in Text(99, specials).lines(120) if len(l) < 160][:50]
        document = json.loads(tok.to_str())
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            cases = [dict(line=l, **a) for l, a in zip(lines, answers(tok, lines))]
            json.dump(dict(made_with="tokenizers " + tokenizers.__version__, tokenizer=document, cases=cases), f,
                      ensure_ascii=True, separators=(",", ":"))
            f.write("\n")


def measure(program, path, folder):
    """Measures with vocabularies of real size, trained on the text itself, which is repeated up to 16 MB."""
    text = open(path, encoding="utf-8").read()
    whole = text * (16_000_000 // len(text.encode()) + 1)
    makes = {"gpt2": byte_level, "llama3": lambda size: byte_level(LLAMA3, size, ignore_merges=True),
             "qwen2": lambda size: byte_level(QWEN2, size, normalizer=normalizers.NFC()),
             "o200k": lambda size: byte_level(O200K, size), "llama2": llama2,
             "unigram": lambda size: unigram(True, size=min(size, 8000))}
    global corpus
    made_up = corpus()
    corpus = lambda: text.splitlines() + made_up
    for name, make in makes.items():
        tok = make(size=32000)
        paths = [os.path.join(folder, n) for n in ("tokenizer.json", "text.json")]
        tok.save(paths[0])
        with open(paths[1], "w", encoding="utf-8") as f: json.dump([whole], f)
        rate = subprocess.run([program, *paths, "time"], check=True, stdout=subprocess.PIPE, text=True).stdout
        print(f"{name:10} {tok.get_vocab_size()} tokens: {rate.strip()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--golden")
    parser.add_argument("--speed", metavar="TEXT")
    args = parser.parse_args()
    if args.golden:
        write_golden(args.golden, args.only)
        return 0
    if args.speed:
        with tempfile.TemporaryDirectory() as folder: measure(args.program, args.speed, folder)
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in STYLES.items():
            if args.only and name != args.only: continue
            tok = make()
            specials = [t.content for t in tok.get_added_tokens_decoder().values()]
            text = Text(args.seed, specials)
            lines = text.lines(args.lines) + [text.broken() for _ in range(args.lines // 10)]
            wrong += compare(args.program, name, tok, lines, folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
