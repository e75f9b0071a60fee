# SPDX-License-Identifier: MIT
"""The papers' tables that the rows reproduce: their rows, and the orderings that the papers claim."""

from __future__ import annotations

from collections.abc import Iterator
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
    seeds: int = 3  # of rows of the full width that a claim names

    def seeds_of(self, name: str) -> int:
        """How many seeds a row has here: one more where a run takes a third of the time, and one alone if no claim names it,
        because its figure is then compared with nothing."""
        if not any(name in (claim.better, claim.worse) for claim in self.claims):
            return 1
        return self.seeds + 1 if "@" in name else self.seeds


WIDTHS = (48, 96, 192)
GATED = (48, 192)  # those of the studies of gates and of 1-bit models
OWN_WIDTH = 192  # that of rows/


def at(name: str, width: int) -> str:
    """The row at that width."""
    return name if width == OWN_WIDTH else f"{name}@{width}"


STUDIED = ("smoe", "fine-grained", "mh-moe-2", "mh-moe-3")
RAW = ("fine-grained-raw", "mh-moe-2-raw", "mh-moe-3-raw")
ONE_BIT = ("smoe-1bit", "fine-grained-1bit", "mh-moe-2-1bit", "mh-moe-3-1bit")


def _by_width(pairs: tuple[tuple[str, str, str], ...], widths: tuple[int, ...] = WIDTHS) -> tuple[Claim, ...]:
    return tuple(Claim(at(a, w), at(b, w), f"{words}, d {w}") for w in widths for a, b, words in pairs)


def _orderings(ending: str) -> tuple[tuple[str, str, str], ...]:
    return (
        (f"mh-moe-2{ending}", f"smoe{ending}", "MH-MoE with 2 heads beats SMoE"),
        (f"mh-moe-2{ending}", f"fine-grained{ending}", "MH-MoE with 2 heads beats fine-grained SMoE"),
        (f"mh-moe-3{ending}", f"smoe{ending}", "MH-MoE with 3 heads beats SMoE"),
        (f"mh-moe-3{ending}", f"fine-grained{ending}", "MH-MoE with 3 heads beats fine-grained SMoE"),
        (f"mh-moe-3{ending}", f"mh-moe-2{ending}", "3 heads beat 2"),
    )


def _study(names: tuple[str, ...], widths: tuple[int, ...] = WIDTHS) -> tuple[str, ...]:
    return tuple(at(name, width) for width in widths for name in names)


TABLES = (
    Table(
        "MH-MoE: by width",
        "The same systems at a sixteenth, an eighth and a quarter of the paper's width, with the numbers of experts, heads "
        "and k unchanged: at each width all rows have the same operations per token and, within 6 %, the same parameters.",
        _study(STUDIED),
        _by_width(_orderings("")),
    ),
    Table(
        "MH-MoE: gates",
        "Gates as in eq. 1 to 3 of the paper (raw), and divided by the sum of those of the chosen experts, as the authors' "
        "training script asks and as in all other tables.",
        _study((*STUDIED[1:], *RAW), GATED),
        _by_width(tuple((name, f"{name}-raw", f"{words}: divided gates beat raw ones")
                        for name, words in zip(STUDIED[1:], ("fine-grained SMoE", "MH-MoE, 2 heads", "MH-MoE, 3 heads"), strict=True)),
                  GATED),
    ),
    Table(
        "MH-MoE: 1-bit models by width",
        "Matrices of attention, dense networks and experts are ternary with int8 activations (BitNet b1.58); routers, "
        "head and merge are not, as in the authors' code.",
        ("dense-1bit", *_study(ONE_BIT, GATED)),
        _by_width(_orderings("-1bit"), GATED),
    ),
    Table(
        "Sparse layers at equal cost",
        "The baselines in every second layer of one trunk.",
        ("dense", "smoe", "fine-grained", "hash", "base"),
        (
            Claim("smoe", "dense", "eight experts, one per token, beat the dense layer"),
            Claim("fine-grained", "smoe", "more and smaller experts beat few large ones"),
            Claim("smoe", "hash", "a learned router beats a fixed table"),
        ),
        seeds=2,
    ),
    Table(
        "MH-MoE: shared expert",
        "Each system with a shared expert of 2048 added.",
        ("smoe-shared", "fine-grained-shared", "mh-moe-2-shared", "mh-moe-3-shared"),
        tuple(Claim(a, b, words) for a, b, words in _orderings("-shared")),
        seeds=2,
    ),
    Table(
        "MH-MoE: head and merge layers",
        "Removing a projection pays for wider experts, so that all rows cost the same.",
        ("smoe", "smoe-head-merge", "fine-grained", "fine-grained-head-merge", "mh-moe-2", "mh-moe-2-head-only",
         "mh-moe-2-merge-only", "mh-moe-2-neither"),
        (
            Claim("mh-moe-2", "mh-moe-2-neither", "head and merge help MH-MoE"),
            Claim("mh-moe-2-head-only", "mh-moe-2-neither", "the head layer alone helps"),
            Claim("mh-moe-2-merge-only", "mh-moe-2-neither", "the merge layer alone helps"),
            Claim("mh-moe-2", "smoe-head-merge", "MH-MoE beats SMoE with the same two projections"),
            Claim("mh-moe-2", "fine-grained-head-merge", "MH-MoE beats fine-grained SMoE with the same two projections"),
        ),
    ),
    Table(
        "MH-MoE: initialisation",
        "Rows of all tables start with MoE outputs of one size (`steps.even_outputs`). Here they do not, which leaves "
        "the output of raw gates a fifth as large as the others'.",
        ("mh-moe-2", "mh-moe-2-plain", "mh-moe-2-raw", "mh-moe-2-raw-plain"),
        (
            Claim("mh-moe-2", "mh-moe-2-plain", "an even start helps MH-MoE"),
            Claim("mh-moe-2-raw", "mh-moe-2-raw-plain", "an even start helps MH-MoE with raw gates"),
        ),
        seeds=2,
    ),
    Table(
        "X-MoE: gates",
        "One layer of experts without attention in the middle of the trunk (eq. 2). Here the models are decoders and "
        "the measure is held-out perplexity; the encoders that the paper compares are below.",
        ("x-moe-dense", "x-moe-smoe", "x-moe-smoe-sigmoid", "x-moe", "x-moe-sigmoid", "x-moe-smoe-top2", "x-moe-top2",
         "x-moe-sigmoid-top2"),
        (
            Claim("x-moe-smoe", "x-moe-dense", "SMoE beats dense"),
            Claim("x-moe", "x-moe-smoe", "X-MoE beats SMoE, softmax gates"),
            Claim("x-moe-sigmoid", "x-moe-smoe-sigmoid", "X-MoE beats SMoE, sigmoid gates"),
            Claim("x-moe-top2", "x-moe-smoe-top2", "X-MoE beats SMoE, top-2"),
        ),
    ),
    Table(
        "X-MoE: parts and width of the routing space",
        "Without dimension reduction, without L2 norm, and other widths of the routing space: N = 32 experts, the paper "
        "uses N/2, and every width here is below that of the model.",
        ("x-moe-sigmoid", "x-moe-sigmoid-no-reduction", "x-moe-sigmoid-no-norm", "x-moe-de-quarter", "x-moe-de-one",
         "x-moe-de-four"),
        (
            Claim("x-moe-sigmoid", "x-moe-sigmoid-no-reduction", "dimension reduction helps"),
            Claim("x-moe-sigmoid", "x-moe-sigmoid-no-norm", "the L2 norm helps"),
            Claim("x-moe-sigmoid", "x-moe-de-four", "N/2 is better than 4N"),
        ),
        seeds=2,
    ),
    Table(
        "X-MoE: encoders, fine-tuned",
        "The same systems as masked language models, then fine-tuned for three tasks "
        "(`texts/tasks.py`): classes are errors in sentences (none, the verb, the object, the order), tags are "
        "word classes, spans are table cells that answer a question. The table shows the runtime's accuracy on held-out "
        "examples. The best constant answer scores 25 % for classes, about "
        "30 % for tags and 5 % for spans. SMoE is fine-tuned as a whole, X-MoE with its routers and experts frozen.",
        ("encoder-dense", "encoder-smoe", "encoder-smoe-sigmoid", "encoder-x-moe", "encoder-x-moe-sigmoid"),
        (
            Claim("encoder-smoe", "encoder-dense", "SMoE beats dense"),
            Claim("encoder-x-moe", "encoder-smoe", "X-MoE beats SMoE, softmax gates"),
            Claim("encoder-x-moe-sigmoid", "encoder-smoe-sigmoid", "X-MoE beats SMoE, sigmoid gates"),
        ),
        "encoder",
        2,
    ),
    Table(
        "X-MoE: parts and balance loss, fine-tuned",
        "The paper's ablation with the sigmoid gate: without dimension reduction, without L2 norm, without frozen routing; "
        "then the weight alpha of the balance loss, in pre-training and fine-tuning (the paper uses 1e-2).",
        ("encoder-x-moe-sigmoid", "encoder-x-moe-no-reduction", "encoder-x-moe-no-norm", "encoder-x-moe-thawed",
         "encoder-x-moe-alpha-0", "encoder-x-moe-alpha-1e-3", "encoder-x-moe-alpha-1e-1"),
        (
            Claim("encoder-x-moe-sigmoid", "encoder-x-moe-no-reduction", "dimension reduction helps"),
            Claim("encoder-x-moe-sigmoid", "encoder-x-moe-no-norm", "the L2 norm helps"),
            Claim("encoder-x-moe-sigmoid", "encoder-x-moe-thawed", "frozen routing helps"),
            Claim("encoder-x-moe-sigmoid", "encoder-x-moe-alpha-0", "1e-2 is better than no balance loss"),
            Claim("encoder-x-moe-sigmoid", "encoder-x-moe-alpha-1e-1", "1e-2 is better than 1e-1"),
        ),
        "encoder",
        2,
    ),
    Table(
        "XMoE: small experts and thresholds",
        "The capacity in the paper's script limits XMoE's rows to the operations of top-1; their actual "
        "use is measured. Training counts it over the tokens of a batch, `moe perplexity` over those of one window: the column "
        "\"capacity as in training\" is PyTorch's perplexity with eight windows counted together. The row t = 1 uses all experts.",
        (
            "xmoe-dense", "xmoe-switch", "xmoe-top2", "xmoe-top4", "xmoe-top8", "xmoe-half", "xmoe-quarter", "xmoe-eighth",
            "xmoe-eighth-t5", "xmoe-sixteenth", "xmoe-full",
        ),
        (
            Claim("xmoe-eighth", "xmoe-switch", "XMoE beats top-1"),
            Claim("xmoe-eighth", "xmoe-top8", "a threshold beats top-k with the same experts"),
            Claim("xmoe-eighth", "xmoe-half", "smaller experts are better"),
        ),
    ),
    Table(
        "XMoE: a dense network as experts",
        "A dense network trained as experts that all tokens use (t = 1), which then runs with fewer of them: the shares of its "
        "operations are under \"Other thresholds at inference\".",
        ("xmoe-dense", "xmoe-dense-8", "xmoe-dense-16"),
        (),
    ),
    Table(
        "X-MoE and XMoE: translation",
        "Encoder-decoders of 4 and 2 layers with experts in every second one, translating three made-up languages into a "
        "fourth (`texts/translation.py`); held-out sentences pair nouns that no training sentence pairs. `moe translate --beam 5`: exact is "
        "the share of translations equal to the reference, words the share of reference words in the correct position, mean over "
        "sentences. The papers "
        "measure BLEU. FLOP/token are those of one source token and one target token together. XMoE's capacity is at least "
        "four tokens per expert, which in texts this short admits more than top-1 uses.",
        ("translate-dense", "translate-switch", "translate-x-moe", "translate-xmoe"),
        (
            Claim("translate-switch", "translate-dense", "experts, one per token, beat the dense layer"),
            Claim("translate-x-moe", "translate-switch", "X-MoE beats SMoE"),
            Claim("translate-xmoe", "translate-switch", "XMoE beats top-1"),
        ),
        "translation",
        2,
    ),
)


def _width(name: str) -> int:
    """The width of a row."""
    return int(name.partition("@")[2] or OWN_WIDTH)


def _jobs(tables: tuple[Table, ...], seeds: range, width: int | None = None) -> Iterator[tuple[str, int]]:
    """The rows and seeds of tables, table after table, each seed of a table's rows after the one before; width: of the
    rows of that width alone."""
    for table in tables:
        for seed in seeds:
            for name in table.rows:
                if seed <= table.seeds_of(name) and width in (None, _width(name)):
                    yield name, seed


def planned() -> list[tuple[str, int]]:
    """Rows and seeds in order of priority. First MH-MoE by width; then its gates and 1-bit models, the narrow ones before the
    others; then two seeds of each other table, with which every claim is tested, before any third. Encoders come after
    the others, because a run of them takes two to three times as long."""
    widths, studies, others = TABLES[:1], TABLES[1:3], tuple(sorted(TABLES[3:], key=lambda table: table.task == "encoder"))
    most = max(table.seeds_of(name) for table in TABLES for name in table.rows)
    every = range(1, most + 1)
    jobs = (_jobs(widths, every), *(_jobs(studies, every, w) for w in GATED), _jobs(others, range(1, 3)), _jobs(others, every))
    return list(dict.fromkeys(job for part in jobs for job in part))


# Rows that are also measured with other thresholds than in training (language.py).
SWEPT = ("xmoe-full", "xmoe-eighth", "xmoe-dense-8", "xmoe-dense-16")

# Figures under a table, by its title: file, and what it shows.
FIGURES = (
    ("MH-MoE: by width", "results-width.svg", "Perplexity as a ratio to that of SMoE, by width of the model"),
    *(("MH-MoE: by width", f"results-steps-{w}.svg", f"Perplexity in training by step at d {w}") for w in WIDTHS),
)

# Paragraphs under a table, by its title: why a claim is contradicted.
EXPLAINED: tuple[tuple[str, str], ...] = (
    ("MH-MoE: by width",
     "MH-MoE with 2 heads goes from behind SMoE at d 48 to ahead of it at d 192. With the numbers of experts and heads unchanged, a sub-token "
     "of 24 numbers chooses among 40 experts at d 48, one of 96 numbers at d 192, and one of 384 in the paper, which would fit. Other "
     "causes are not ruled out: all runs see a million tokens, so that a parameter of d 192 sees a fifteenth of those that one of d 48 sees, and most "
     "rows that test gates, the start of training and longer runs are not run yet."),
)

MISSING = (
    ("XTREME", "nothing is downloaded; three tasks generated from the same texts replace it"),
    ("machine translation of natural languages", "nothing is downloaded; the language pair is rule-generated"),
    ("masked multi-modal modelling of MH-MoE", "it needs images"),
    ("the papers' own figures", "they are for other texts and four times the width; the orderings that they "
     "claim are listed instead"),
)
