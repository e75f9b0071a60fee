"""The papers' tables that rows stand for: which rows, and which orderings the papers claim."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    better: str
    worse: str
    words: str


@dataclass(frozen=True)
class Table:
    title: str
    note: str
    rows: tuple[str, ...]
    claims: tuple[Claim, ...]
    task: str = "language"  # of all its rows: Row.task


TABLES = (
    Table(
        "Sparse layers at equal cost",
        "The baselines of all three papers in every second layer of one trunk.",
        ("dense", "switch", "smoe-top2", "fine-grained", "shared", "hash", "base"),
        (
            Claim("switch", "dense", "eight experts, one a token, beat the dense layer"),
            Claim("fine-grained", "switch", "more and smaller experts beat few large ones"),
            Claim("switch", "hash", "a learnt router beats a fixed table"),
        ),
    ),
    Table(
        "MH-MoE: language models",
        "Two heads have 40 experts of 768, three have 96 of 512, divided by 16 (eq. 6 to 10).",
        ("dense", "switch", "fine-grained", "mh-moe-2", "mh-moe-3"),
        (
            Claim("mh-moe-2", "switch", "MH-MoE with 2 heads beats SMoE"),
            Claim("mh-moe-2", "fine-grained", "MH-MoE with 2 heads beats fine-grained SMoE"),
            Claim("mh-moe-3", "switch", "MH-MoE with 3 heads beats SMoE"),
            Claim("mh-moe-3", "fine-grained", "MH-MoE with 3 heads beats fine-grained SMoE"),
            Claim("mh-moe-3", "mh-moe-2", "3 heads beat 2"),
        ),
    ),
    Table(
        "MH-MoE: head and merge layers",
        "What a projection less saves goes into wider experts, so that all rows cost the same.",
        ("switch", "smoe-head-merge", "mh-moe-2", "mh-moe-head-only", "mh-moe-merge-only", "mh-moe-neither"),
        (
            Claim("mh-moe-2", "mh-moe-neither", "head and merge help MH-MoE"),
            Claim("mh-moe-head-only", "mh-moe-neither", "the head layer alone helps"),
            Claim("mh-moe-merge-only", "mh-moe-neither", "the merge layer alone helps"),
            Claim("mh-moe-2", "smoe-head-merge", "MH-MoE beats SMoE with the same two projections"),
        ),
    ),
    Table(
        "MH-MoE: 1-bit models",
        "All matrices of attention, experts, head and merge are ternary with int8 activations (BitNet b1.58).",
        ("dense-1bit", "switch-1bit", "fine-grained-1bit", "mh-moe-2-1bit", "mh-moe-3-1bit"),
        (
            Claim("mh-moe-2-1bit", "switch-1bit", "MH-MoE with 2 heads beats SMoE"),
            Claim("mh-moe-3-1bit", "switch-1bit", "MH-MoE with 3 heads beats SMoE"),
            Claim("mh-moe-3-1bit", "fine-grained-1bit", "MH-MoE with 3 heads beats fine-grained SMoE"),
        ),
    ),
    Table(
        "X-MoE: gates",
        "One layer of experts without attention in the middle of the trunk (eq. 2). Here the models are decoders and "
        "the measure is held-out perplexity; the encoders that the paper compares stand below.",
        ("x-moe-dense", "x-moe-smoe", "x-moe-smoe-top2", "x-moe", "x-moe-top2", "x-moe-sigmoid", "x-moe-sigmoid-top2"),
        (
            Claim("x-moe-smoe", "x-moe-dense", "SMoE beats dense"),
            Claim("x-moe", "x-moe-smoe", "X-MoE beats SMoE, top-1"),
            Claim("x-moe-top2", "x-moe-smoe-top2", "X-MoE beats SMoE, top-2"),
        ),
    ),
    Table(
        "X-MoE: parts",
        "Without dimension reduction, without L2 norm, with frozen routing.",
        ("x-moe", "x-moe-no-reduction", "x-moe-no-norm", "x-moe-frozen"),
        (
            Claim("x-moe", "x-moe-no-reduction", "dimension reduction helps"),
            Claim("x-moe", "x-moe-no-norm", "the L2 norm helps"),
        ),
    ),
    Table(
        "X-MoE: width of the routing space",
        "N = 32 experts; N/2 is the paper's choice.",
        ("x-moe-de-quarter", "x-moe", "x-moe-de-one", "x-moe-de-two", "x-moe-de-four"),
        (Claim("x-moe", "x-moe-de-four", "N/2 is better than 4N"),),
    ),
    Table(
        "X-MoE: weight of the balance loss",
        "1e-2 is the paper's choice.",
        ("x-moe-alpha-0", "x-moe-alpha-1e-3", "x-moe", "x-moe-alpha-1e-1"),
        (
            Claim("x-moe", "x-moe-alpha-0", "1e-2 is better than no balance loss"),
            Claim("x-moe", "x-moe-alpha-1e-1", "1e-2 is better than 1e-1"),
        ),
    ),
    Table(
        "X-MoE: encoders, fine-tuned",
        "The same systems as encoders that learnt to fill masks in the text, then fine-tuned for three tasks "
        "(`texts/tasks.py`): classes are faults of sentences (none, the verb, the object, the order), tags say "
        "what a word is, spans are cells of a table that answer a question. Shares are of right answers on examples that were not "
        "learnt, by the runtime; for tags, of the tokens of words. The best constant answer scores 25 % of classes, about "
        "30 % of tags and 5 % of spans. SMoE is fine-tuned as a whole, X-MoE with its routing frozen.",
        ("encoder-dense", "encoder-smoe", "encoder-x-moe", "encoder-x-moe-sigmoid"),
        (
            Claim("encoder-smoe", "encoder-dense", "SMoE beats dense"),
            Claim("encoder-x-moe", "encoder-smoe", "X-MoE beats SMoE, softmax gate"),
            Claim("encoder-x-moe-sigmoid", "encoder-smoe", "X-MoE beats SMoE, sigmoid gate"),
        ),
        "encoder",
    ),
    Table(
        "X-MoE: parts, fine-tuned",
        "The paper's ablation: without dimension reduction, without L2 norm, without frozen routing.",
        ("encoder-x-moe", "encoder-x-moe-no-reduction", "encoder-x-moe-no-norm", "encoder-x-moe-thawed"),
        (
            Claim("encoder-x-moe", "encoder-x-moe-no-reduction", "dimension reduction helps"),
            Claim("encoder-x-moe", "encoder-x-moe-no-norm", "the L2 norm helps"),
            Claim("encoder-x-moe", "encoder-x-moe-thawed", "frozen routing helps"),
        ),
        "encoder",
    ),
    Table(
        "XMoE: small experts and thresholds",
        "The capacity of the paper's script bounds XMoE's rows at the operations of top-1; what they take "
        "is measured. The row t = 1 takes all experts.",
        (
            "xmoe-dense", "xmoe-dense-sliced", "xmoe-switch", "xmoe-top2", "xmoe-top4", "xmoe-half",
            "xmoe-half-t5", "xmoe-quarter", "xmoe-quarter-t7", "xmoe-quarter-t5", "xmoe-eighth",
            "xmoe-eighth-t5", "xmoe-full",
        ),
        (
            Claim("xmoe-quarter", "xmoe-switch", "XMoE beats top-1"),
            Claim("xmoe-quarter", "xmoe-top4", "a threshold beats top-k with the same experts"),
            Claim("xmoe-eighth", "xmoe-half", "smaller experts are better"),
        ),
    ),
    Table(
        "X-MoE and XMoE: translation",
        "Encoder-decoders of 4 and 2 layers with experts in every second one. Sentences of three made-up languages in a "
        "fourth (`texts/translation.py`); the held-out ones join nouns that no learnt one does. `moe translate --beam 5`: exact are "
        "translations that are the true one, words those of the true one that stand at their place. The papers "
        "measure BLEU. FLOP/token are those of a token of the source and one of the text together. XMoE's capacity is at least "
        "four tokens an expert, which in texts as short as these lets more through than top-1 takes.",
        ("translate-dense", "translate-switch", "translate-x-moe", "translate-xmoe"),
        (
            Claim("translate-switch", "translate-dense", "experts, one a token, beat the dense layer"),
            Claim("translate-x-moe", "translate-switch", "X-MoE beats SMoE"),
            Claim("translate-xmoe", "translate-switch", "XMoE beats top-1"),
        ),
        "translation",
    ),
)

# Rows that get the time where it does not suffice for all.
CORE = (
    "dense", "switch", "fine-grained", "mh-moe-2", "mh-moe-3", "x-moe-dense", "x-moe-smoe", "x-moe",
    "xmoe-switch", "xmoe-quarter",
)

# Rows that are measured under other thresholds than they were trained with.
SWEPT = ("xmoe-full", "xmoe-quarter")

MISSING = (
    ("XTREME", "nothing is downloaded; three tasks made from the same texts stand for it"),
    ("machine translation of natural languages", "nothing is downloaded; the language pair is rule-generated"),
    ("masked multi-modal modelling of MH-MoE", "it needs images"),
    ("the papers' own figures", "they are of other texts and of sixteen times the width; the orderings that they "
     "claim are named instead"),
)
