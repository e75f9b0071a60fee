# SPDX-License-Identifier: MIT
"""The papers' tables that the rows reproduce: their rows, and the orderings that the papers claim."""

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
    task: str = "language"  # Row.task of all its rows


TABLES = (
    Table(
        "Sparse layers at equal cost",
        "The baselines of all three papers in every second layer of one trunk.",
        ("dense", "switch", "smoe-top2", "fine-grained", "shared", "hash", "base"),
        (
            Claim("switch", "dense", "eight experts, one per token, beat the dense layer"),
            Claim("fine-grained", "switch", "more and smaller experts beat few large ones"),
            Claim("switch", "hash", "a learned router beats a fixed table"),
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
        "Removing a projection pays for wider experts, so that all rows cost the same.",
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
        "the measure is held-out perplexity; the encoders that the paper compares are below.",
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
        "N = 32 experts; the paper uses N/2.",
        ("x-moe-de-quarter", "x-moe", "x-moe-de-one", "x-moe-de-two", "x-moe-de-four"),
        (Claim("x-moe", "x-moe-de-four", "N/2 is better than 4N"),),
    ),
    Table(
        "X-MoE: weight of the balance loss",
        "The paper uses 1e-2.",
        ("x-moe-alpha-0", "x-moe-alpha-1e-3", "x-moe", "x-moe-alpha-1e-1"),
        (
            Claim("x-moe", "x-moe-alpha-0", "1e-2 is better than no balance loss"),
            Claim("x-moe", "x-moe-alpha-1e-1", "1e-2 is better than 1e-1"),
        ),
    ),
    Table(
        "X-MoE: encoders, fine-tuned",
        "The same systems as masked language models, then fine-tuned for three tasks "
        "(`texts/tasks.py`): classes are errors in sentences (none, the verb, the object, the order), tags are "
        "word classes, spans are table cells that answer a question. The table shows the runtime's accuracy on held-out "
        "examples, for tags per word token. The best constant answer scores 25 % for classes, about "
        "30 % for tags and 5 % for spans. SMoE is fine-tuned as a whole, X-MoE with its routing frozen.",
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
        "The capacity in the paper's script limits XMoE's rows to the operations of top-1; their actual "
        "use is measured. The row t = 1 uses all experts.",
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
        "Encoder-decoders of 4 and 2 layers with experts in every second one, translating three made-up languages into a "
        "fourth (`texts/translation.py`); held-out sentences pair nouns that no training sentence pairs. `moe translate --beam 5`: exact is "
        "the share of translations equal to the reference, words the share of reference words in the correct position. The papers "
        "measure BLEU. FLOP/token are those of one source token and one target token together. XMoE's capacity is at least "
        "four tokens per expert, which in texts this short admits more than top-1 uses.",
        ("translate-dense", "translate-switch", "translate-x-moe", "translate-xmoe"),
        (
            Claim("translate-switch", "translate-dense", "experts, one per token, beat the dense layer"),
            Claim("translate-x-moe", "translate-switch", "X-MoE beats SMoE"),
            Claim("translate-xmoe", "translate-switch", "XMoE beats top-1"),
        ),
        "translation",
    ),
)

# Rows that are trained first, in case the time does not suffice for all.
CORE = (
    "dense", "switch", "fine-grained", "mh-moe-2", "mh-moe-3", "x-moe-dense", "x-moe-smoe", "x-moe",
    "xmoe-switch", "xmoe-quarter",
)

# Rows that are also measured with other thresholds than in training.
SWEPT = ("xmoe-full", "xmoe-quarter")

MISSING = (
    ("XTREME", "nothing is downloaded; three tasks generated from the same texts replace it"),
    ("machine translation of natural languages", "nothing is downloaded; the language pair is rule-generated"),
    ("masked multi-modal modelling of MH-MoE", "it needs images"),
    ("the papers' own figures", "they are for other texts and sixteen times the width; the orderings that they "
     "claim are listed instead"),
)
