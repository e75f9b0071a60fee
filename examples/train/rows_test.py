# SPDX-License-Identifier: MIT
"""Tests of the rows that need no PyTorch: `python3 rows_test.py`, or together with the others with pytest."""

from __future__ import annotations

import hashlib
import json
import math
import random
import statistics
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import check_config
import config as cfg
import figures
import paired
import parity
import recipes
import report
import report_routing
import results
import rows
import texts
from texts import tasks, translation
from claims import OWN_WIDTH, TABLES, planned
from stories.engine import Rng

FREE = {"xmoe-full"}  # its cost is not matched to the other rows
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"


def result(name: str, seed: int, windows: list[float], **more: Any) -> dict[str, Any]:
    """A made-up result of a language row."""
    loss = statistics.mean(windows)
    return {"row": name, "seed": seed, "key": "", "windows": windows, "pytorch": math.exp(loss), "moe": math.exp(loss) + 1e-3,
            "difference": 1e-4, "experts": [1.0], "params": 1000, "ffn_flops": 2000.0, "seconds": 3600.0, "device": "cpu",
            "steps": 8, "curve": [loss]} | more


def document(found: dict[str, list[dict[str, Any]]]) -> str:
    return report.document(report.plan_words(8, 8), "A note.", found)


def folder_with(**files: dict[str, Any]) -> Path:
    folder = Path(tempfile.mkdtemp())
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


class Rows(unittest.TestCase):
    def test_every_row_is_read_and_stands_in_a_table(self) -> None:
        shown = {name for table in TABLES for name in table.rows}
        self.assertEqual({name.partition("@")[0] for name in shown}, set(rows.names()))
        self.assertEqual({name for name, _ in planned()}, shown)
        for table in TABLES:
            self.assertEqual({rows.read(name).task for name in table.rows}, {table.task})
            for claim in table.claims:
                self.assertLessEqual({claim.better, claim.worse}, set(table.rows), claim.words)

    def test_rows_of_a_table_cost_the_same(self) -> None:
        for table in TABLES:
            names = [name for name in table.rows if name not in FREE]
            for width in {rows.read(name).config["d_model"] for name in names}:
                costs = {n: parity.cost(r) for n in names if (r := rows.read(n)).config["d_model"] == width}
                self.assertEqual(len({c.flops for c in costs.values()}), 1, (table.title, costs))
                sparse = [c.ffn_params for n, c in costs.items() if "dense" not in n]
                self.assertLessEqual(max(sparse, default=1) / min(sparse, default=1), 1.06, (table.title, costs))

    def test_rows_of_a_table_are_trained_alike(self) -> None:
        """Except for what the row is there to show."""
        own = {"alpha", "freeze_routing", "gates", "even_start"}
        for table in TABLES:
            found = [(r.settings(100), r.tuning(100)) for r in map(rows.read, table.rows)]
            for a, b in zip(found, found[1:]):
                for one, other in zip(a, b):
                    self.assertEqual({k: v for k, v in vars(one).items() if k not in own},
                                     {k: v for k, v in vars(other).items() if k not in own}, table.title)
            self.assertNotIn(None, {rows.read(name).recipe for name in table.rows})

    def test_a_row_at_another_width_keeps_its_proportions(self) -> None:
        for name in ("smoe-shared", "mh-moe-3", "x-moe-sigmoid"):
            whole, half = rows.read(name), rows.read(f"{name}@{OWN_WIDTH // 2}")
            self.assertEqual(parity.cost(whole).ffn_flops, 4 * parity.cost(half).ffn_flops)
            self.assertEqual(rows.read(f"{name}@{OWN_WIDTH}").config | {"name": name}, whole.config)
        ffn = list(rows.read("mh-moe-2@48").ffns())[1]
        self.assertEqual((ffn["d_ff"], ffn["moe"]["n_experts"], ffn["moe"]["n_subheads"]), (48, 40, 2))
        for name, words in (("smoe@", "a width behind @"), ("smoe@x", "found 'x'"), ("smoe@0", "found '0'"), ("smoe@5", "no integer")):
            with self.subTest(name), self.assertRaisesRegex(rows.BadRow, words):
                rows.read(name)

    def test_gates_are_those_of_the_recipe(self) -> None:
        weights = {name: [f["moe"]["router"].get("weights") for f in rows.read(name).ffns() if f["kind"] == "moe"]
                   for name in ("smoe", "fine-grained", "mh-moe-2", "mh-moe-2-raw", "x-moe-smoe-top2", "xmoe-top4", "hash")}
        self.assertEqual(weights, {"smoe": ["raw"] * 2, "fine-grained": ["renormalised"] * 2, "mh-moe-2": ["renormalised"] * 2,
                                   "mh-moe-2-raw": ["raw"] * 2, "x-moe-smoe-top2": ["chosen"], "xmoe-top4": ["raw"] * 2,
                                   "hash": [None] * 2})

    def test_the_parity_of_the_paper(self) -> None:
        self.assertEqual(parity.solve("smoe", 2, 2, 2)[0], rows.read("mh-moe-2").config["layers"][0]["ffn"]["d_ff"])
        self.assertEqual(parity.solve("smoe", 3, 3, 2), (128.0, 93.0))  # the paper uses 96
        self.assertEqual(parity.solve("smoe", 2, 2, 1), (224.0, 36.0))
        with self.assertRaisesRegex(rows.BadRow, "plain experts"):
            parity.solve("mh-moe-2", 2, 2, 2)
        with self.assertRaisesRegex(rows.BadRow, "divisor of 192, found 5"):
            parity.solve("smoe", 5, 2, 2)

    def test_measured_experts_count(self) -> None:
        row = rows.read("xmoe-quarter")
        bound, measured = parity.cost(row), parity.cost(row, [1.0, 2.0])
        self.assertEqual(bound.ffn_flops - measured.ffn_flops, (3 + 2) * 4 * 192 * 192)
        self.assertEqual(bound.params, measured.params)

    def test_a_router_replaces_the_base_s(self) -> None:
        router = rows.read("x-moe-sigmoid-no-norm").config["layers"][0]["ffn"]["moe"]["router"]
        self.assertEqual(router, {"kind": "sigmoid", "k": 1, "weights": "raw", "rank": 16})

    def test_a_share_of_the_run_becomes_a_step(self) -> None:
        dense = json.loads((rows.FOLDER / "dense.json").read_text())
        frozen = {"base": "dense", "system": "s", "train": {"freeze_routing": 0.5}}
        self.assertEqual(rows.read("frozen", folder_with(dense=dense, frozen=frozen)).settings(300).freeze_routing, 150)
        self.assertIsNone(rows.read("x-moe").settings(300).freeze_routing)
        self.assertEqual(rows.read("encoder-x-moe-alpha-1e-1").settings(300, alpha=0.5).alpha, 0.1)

    def test_routing_is_frozen_in_fine_tuning(self) -> None:
        row = rows.read("encoder-x-moe")
        self.assertEqual((row.settings(300).freeze_routing, row.tuning(300).freeze_routing), (None, 0))
        self.assertIsNone(rows.read("encoder-x-moe-thawed").tuning(300).freeze_routing)

    def test_what_a_row_does(self) -> None:
        wanted = {"dense": "language", "x-moe": "language", "encoder-x-moe": "encoder", "translate-xmoe": "translation"}
        self.assertEqual({name: rows.read(name).task for name in wanted}, wanted)

    def test_bad_rows(self) -> None:
        good = {"system": "s", "base": "dense"}
        dense = json.loads((rows.FOLDER / "dense.json").read_text())

        def moe(router: Any, **more: Any) -> dict[str, Any]:
            return {"layer": {"kind": "moe", "moe": {"n_experts": 2, "router": router, **more}}}

        cases = {
            "unknown colour": {"colour": 1},
            r"moe.router: unknown temperature; expected some of kind, k": moe({"kind": "softmax", "k": 1, "temperature": 1}),
            r"router.kind: expected one of softmax, .*, found sorting": moe({"kind": "sorting"}),
            r"router.tau: expected a number above 0, found nothing; a cosine": moe({"kind": "cosine", "k": 1}),
            r"router.t: expected a number of 0 or more, at most 1, found nothing": moe({"kind": "threshold"}),
            r"router.k: expected 1..2, found 3": moe({"kind": "softmax", "k": 3}),
            r"router.weights: expected one of raw, .*, found 'even'": moe({"kind": "softmax", "k": 1, "weights": "even"}),
            r"n_subheads: expected a divisor of d_model, 192, found 5": moe({"kind": "hash"}, n_subheads=5),
            r"router.t: .*at most 1, found 2": moe({"kind": "threshold", "t": 2}),
            r"layer 1: ffn.moe.shared.d_ff: expected an integer of 1 or more, found nothing": moe({"kind": "hash"}, shared={}),
            r"capacity.order: expected one of priority, arrival": moe({"kind": "hash"}, capacity={"order": "age"}),
            r"ffn.act: expected one of relu, .*, found 'sine'": {"layer": {"act": "sine"}},
            r"attention.rope.dims: expected at most head_dim, 64, found 66":
                {"config": {"layer_defaults": {"attention": {"rope": {"dims": 66}}}}},
            r"config.vocab_size: expected an integer of 1 or more, found 0": {"config": {"vocab_size": 0}},
            "back to itself": {"base": "bad"},
            "no row nowhere": {"base": "nowhere"},
        }
        for words, change in cases.items():
            with self.subTest(words), self.assertRaisesRegex(rows.BadRow, words):
                rows.read("bad", folder_with(dense=dense, bad=good | change))
        with self.assertRaisesRegex(ValueError, "unknown speed"):
            rows.read("bad", folder_with(dense=dense, bad=good | {"train": {"speed": 1}}))


class Configurations(unittest.TestCase):
    GOOD: dict[str, Any] = {"vocab_size": 60, "d_model": 16, "n_layers": 2, "context_length": 32,
                            "layer_defaults": {"attention": {"n_heads": 2}, "ffn": {"kind": "dense", "d_ff": 8, "act": "gelu"}}}

    def test_defaults(self) -> None:
        own = cfg.layer_config(cfg.complete(self.GOOD), 0)
        self.assertEqual({k: own["attention"][k] for k in ("n_kv_heads", "head_dim")}, {"n_kv_heads": 2, "head_dim": 8})
        self.assertEqual((own["attention"]["rope"]["dims"], own["ffn"]["gated"]), (8, False))
        self.assertEqual(cfg.complete(self.GOOD | {"norm": {"kind": "layer"}})["norm"], {"kind": "layer", "eps": 1e-5})

    def test_the_first_fault_is_named(self) -> None:
        cases: dict[str, dict[str, Any]] = {
            r"config.d_model: expected an integer of 1 or more, found 16.0": {"d_model": 16.0},
            r"config: unknown vocab; expected some of": {"vocab": 1},
            r"config.layers\[0\].index: expected a layer, .*found nothing": {"layers": [{"ffn": None}]},
            r"config.layers\[0\].index: expected a layer, .*found -1": {"layers": [{"index": -1}]},
            r"config.layers\[1\].index: expected a layer, .*'to'": {"layers": [{"index": 0}, {"index": {"from": 0, "to": 1}}]},
            r"config.layers\[0\]: unknown fnn": {"layers": [{"index": 0, "fnn": {}}]},
            r"config.layers: expected a list, found \{\}": {"layers": {}},
            r"config.precision\[0\].match: expected a text, found nothing": {"precision": [{"weights": "f32"}]},
            r"config.precision\[0\].activations: expected one of f32": {"precision": [{"match": "*", "activations": "a4"}]},
            r"config.norm.kind: expected one of rms, layer, found 'batch'": {"norm": {"kind": "batch"}},
            r"config.head.act: expected one of relu": {"head": {"kind": "tokens", "act": "sine"}},
            r"layer 1: attention.n_kv_heads: expected a divisor of n_heads, 2, found 3":
                {"layers": [{"index": 1, "attention": {"n_kv_heads": 3}}]},
            r"layer 0: ffn.moe: expected an object, found None": {"layers": [{"index": [0], "ffn": {"kind": "moe"}}]},
            r"layer 0: ffn.moe.router: expected an object, found nothing":
                {"layers": [{"index": 0, "ffn": {"kind": "moe", "moe": {"n_experts": 2}}}]},
        }
        for words, change in cases.items():
            with self.subTest(words), self.assertRaisesRegex(check_config.BadConfig, words):
                cfg.complete(self.GOOD | change)
        for key in ("vocab_size", "d_model", "n_layers", "context_length"):
            with self.subTest(key), self.assertRaisesRegex(check_config.BadConfig, f"config.{key}: .* found nothing"):
                cfg.complete({k: v for k, v in self.GOOD.items() if k != key})


class Recipes(unittest.TestCase):
    def test_own_settings_win(self) -> None:
        s = recipes.settings("xmoe", alpha=0.5)
        self.assertEqual((s.betas, s.weight_decay, s.capacity_factor, s.alpha), ((0.9, 0.95), 0.1, 8.0, 0.5))
        self.assertEqual(recipes.settings("x-moe").betas, (0.9, 0.98))
        self.assertEqual(recipes.settings("x-moe").eps, 1e-6)
        self.assertEqual((recipes.settings("x-moe").dropout, recipes.settings("x-moe").moe_dropout), (0.1, 0.0))
        self.assertEqual((recipes.settings("mh-moe").clip, recipes.settings("mh-moe").dropout), (2.0, 0.0))
        code = recipes.settings("mh-moe-code")
        self.assertEqual((code.betas, code.weight_decay, code.gates, code.eps), ((0.9, 0.95), 0.1, "raw", 1e-6))

    def test_bad_settings(self) -> None:
        cases = {"recipe": {"recipe": "switch"}, "dropout": {"dropout": 1.0}, "alpha": {"alpha": -1},
                 "schedule": {"schedule": "square"}, "floor": {"floor": 2}, "eps": {"eps": 0},
                 "gates": {"gates": "even"}, "MoE dropout": {"moe_dropout": -1}, "unknown lrr": {"lrr": 1}}
        for words, own in cases.items():
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                recipes.settings(**own)

    def test_learning_rates(self) -> None:
        linear = recipes.settings(lr=1.0, warmup=10)
        self.assertEqual([recipes.learning_rate(linear, s, d) for s, d in ((0, 0), (9, 0), (50, 0.5), (99, 1))],
                         [0.1, 1.0, 0.5, 0.0])
        cosine = recipes.settings(lr=1.0, warmup=1, schedule="cosine", floor=0.01)
        self.assertAlmostEqual(recipes.learning_rate(cosine, 9, 0.5), 0.505)
        self.assertAlmostEqual(recipes.learning_rate(cosine, 9, 1.0), 0.01)
        constant = recipes.settings(lr=1.0, warmup=1, schedule="constant")
        self.assertEqual(recipes.learning_rate(constant, 9, 1.0), 1.0)


class Texts(unittest.TestCase):
    def test_the_same_on_every_machine(self) -> None:
        text = texts.corpus(texts.TRAIN_SEED, 50_000).encode()
        self.assertEqual(hashlib.sha256(text).hexdigest()[:16], "300f6fbdb1a37901")

    def test_every_kind_is_there_and_held_out_texts_are_others(self) -> None:
        for kind in texts.KINDS:
            learnt = {texts.of_kind(kind, texts.TRAIN_SEED, i) for i in range(40)}
            held_out = {texts.of_kind(kind, texts.HELD_OUT_SEED, i) for i in range(40)}
            self.assertEqual(len(learnt | held_out), 80, kind)


    def test_a_pair_of_languages_has_its_rules(self) -> None:
        pairs = [translation.pair(translation.TRAIN_SEED, i) for i in range(3000)]
        self.assertEqual(hashlib.sha256(repr(pairs).encode()).hexdigest()[:16], "68cf75d8253ae195")
        meant: dict[str, set[str]] = {}
        for said, target in pairs:  # a sentence has exactly one translation
            meant.setdefault(said, set()).add(target)
        self.assertEqual({len(t) for t in meant.values()}, {1})
        verbs = {verb: {a[verb] for a in translation._VERB} for verb in range(translation.VERBS)}
        self.assertGreater(sum(len(v) == 2 for v in verbs.values()), 20)

    def test_tasks_ask_for_what_is_there(self) -> None:
        for i in range(300):
            text, label = tasks.classes(tasks.TRAIN_SEED, i)
            self.assertTrue(0 <= label < len(tasks.FAULTS) and text.count(".") == 2, text)
            text, found = tasks.tags(tasks.TRAIN_SEED, i)
            self.assertEqual([text[a:b] for (a, b), _ in found], text.replace(".", "").split(" "))
            self.assertEqual(sum(tag == 1 for _, tag in found), text.count("."))  # one verb per sentence
            text, (a, b) = tasks.spans(tasks.TRAIN_SEED, i)
            name, key = text.split("\n")[0].split(", ")
            row = next(line for line in text.split("\n")[1:] if line.startswith(f"| {name} |"))
            self.assertEqual(row.split(" | ")[("goods", "amount", "price").index(key) + 1].removesuffix(" |"), text[a:b])

    def test_a_fault_breaks_a_fact_or_the_order(self) -> None:
        a, rng = tasks.LANGUAGES[0], Rng(5)
        for fault in tasks.FAULTS:
            for _ in range(50):
                words = {tag: word for word, tag in tasks._sentence(a, rng, fault)}
                order = [tag for _, tag in tasks._sentence(a, rng, fault) if tag < 3]
                self.assertEqual(order == [0, 1, 2], fault != "order")
                subject = next(n for n in range(tasks.NOUNS) if words[0].removesuffix(a.plural) == a.nouns[n] + a.endings[n % 2])
                verb = a.verbs.index(words[1])
                noun = words[2].removesuffix(a.object_mark).removesuffix(a.plural)
                target = next(n for n in range(tasks.NOUNS) if noun == a.nouns[n] + a.endings[n % 2])
                self.assertEqual((verb in a.does[subject], target in a.acts_on[verb]), (fault != "verb", fault != "object"))

    def test_held_out_pairs_join_nouns_that_no_learnt_one_does(self) -> None:
        learnt, held_out = (self._joined(seed, 1000) for seed in (translation.TRAIN_SEED, translation.HELD_OUT_SEED))
        self.assertTrue(len(learnt) > 900 and len(held_out) > 250, (len(learnt), len(held_out)))
        self.assertEqual(learnt & held_out, set())

    def _joined(self, seed: int, n: int) -> set[tuple[int, int]]:
        """The subjects and objects of the translations of the first n pairs."""
        a, found = translation.TARGET, set()
        nouns = {translation.say(a, translation.Phrase(noun, plural, None), is_object): (noun, is_object)
                 for noun in range(translation.NOUNS) for plural in (False, True) for is_object in (False, True)}
        for i in range(n):
            for said in translation.pair(seed, i)[1].removesuffix(".").split(". "):
                joined = {is_object: noun for noun, is_object in (nouns[w] for w in said.split(" ") if w in nouns)}
                self.assertEqual(set(joined), {False, True}, said)
                found.add((joined[False], joined[True]))
        return found

    def test_the_fingerprint_knows_all_texts(self) -> None:
        known = texts.fingerprint.__wrapped__
        self.assertEqual(known(), texts.fingerprint())
        for module, name in ((texts.records, "table"), (texts, "story"), (translation, "pair"), (tasks, "classes"),
                             (tasks, "tags"), (tasks, "spans")):
            with unittest.mock.patch.object(module, name, lambda *args, **more: "other"):
                self.assertNotEqual(known(), texts.fingerprint(), name)


class Paired(unittest.TestCase):
    def test_students_t(self) -> None:
        for t, df, p in ((4.302652729749463, 2, 0.05), (12.706204736174694, 1, 0.05), (2.0, 3.3, 0.1309588644394494),
                         (6.0, 17.5, 1.2689753674565e-05), (0.0, 5, 1.0), (math.inf, 2, 0.0)):
            self.assertAlmostEqual(paired.two_sided(t, df), p, 9)
            self.assertAlmostEqual(paired.two_sided(-t, df), p, 9)
        self.assertAlmostEqual(paired.quantile(0.05, 2), 4.302652729749463, 9)

    def test_windows_are_paired(self) -> None:
        """A small difference is found though windows differ by much more, because both systems see the same ones."""
        rng = random.Random(1)
        windows = [rng.gauss(2, 0.5) for _ in range(100)]
        better = [[w + rng.gauss(0, 0.02) for w in windows] for _ in range(3)]
        worse = [[w + 0.03 + rng.gauss(0, 0.02) for w in windows] for _ in range(3)]
        test = paired.compare(better, worse)
        self.assertEqual((test.n_seeds, test.p < 0.01), (3, True))
        self.assertAlmostEqual(test.effect, 0.03, 2)
        low, high = test.interval()
        self.assertTrue(low < 0.03 < high and low > 0)
        self.assertAlmostEqual(paired.compare(worse, better).t, -test.t)

    def test_seeds_that_disagree_decide_nothing(self) -> None:
        rng = random.Random(1)
        windows = [rng.gauss(2, 0.5) for _ in range(1000)]
        better = [list(windows) for _ in range(3)]
        worse = [[w + shift for w in windows] for shift in (0.09, -0.03, 0.03)]
        test = paired.compare(better, worse)
        self.assertAlmostEqual(test.effect, 0.03)
        self.assertAlmostEqual(test.df, 2)
        self.assertGreater(test.p, 0.4)

    def test_equal_systems_are_rarely_told_apart(self) -> None:
        rng, found = random.Random(2), 0
        for _ in range(300):
            hard = [rng.gauss(0, 0.1) for _ in range(40)]
            worse = [[s + h + rng.gauss(0, 0.03) for h in hard] for s in (rng.gauss(0, 0.01) for _ in range(3))]
            found += paired.compare([[0.0] * 40] * 3, worse).p < 0.05
        self.assertTrue(3 <= found <= 30, found)

    def test_one_seed_is_no_test(self) -> None:
        self.assertIsNone(paired.compare([[1.0, 2.0]], [[2.0, 3.0]]))
        self.assertIsNone(paired.compare([], []))
        with self.assertRaisesRegex(ValueError, "same seeds and windows"):
            paired.compare([[1.0, 2.0]] * 2, [[1.0, 2.0]])

    def test_several_claims_at_once(self) -> None:
        """Two claims with p = 0.04 are both undecided; alone, one is decided, but not beside one that is not tested yet."""
        error = 1 / paired.quantile(0.04, 10)
        one, other = paired.Test(1.0, error, 10, 3), paired.Test(-1.0, error, 10, 3)
        sure = paired.Test(-1.0, 0.01, 10, 3)
        self.assertEqual(paired.verdicts([one]), [paired.SEEN])
        self.assertEqual(paired.verdicts([one, other]), [paired.UNDECIDED] * 2)
        self.assertEqual(paired.verdicts([one, None]), [paired.UNDECIDED, paired.UNTESTED])
        self.assertEqual(paired.verdicts([one, None, sure]), [paired.UNDECIDED, paired.UNTESTED, paired.CONTRADICTED])

    def test_equal_losses_decide_nothing(self) -> None:
        test = paired.compare([[1.0, 2.0]] * 2, [[1.0, 2.0]] * 2)
        self.assertEqual((test.t, test.p, paired.verdicts([test])), (0.0, 1.0, [paired.UNDECIDED]))


class Report(unittest.TestCase):
    def test_a_threshold_saves_what_it_saves(self) -> None:
        sweep = [{"router": f"threshold:{t}", "perplexity": p, "experts_per_token": e, "expert_flops_per_token": 10.0 * e}
                 for t, p, e in (("0.1", 12.0, 1.0), ("0.5", 10.1, 2.0), ("0.9", 10.0, 6.0), ("1", 10.0, 8.0))]
        best, saved = report_routing.saving(sweep)
        self.assertEqual((best["router"], saved), ("threshold:0.5", 0.75))
        text = document({"xmoe-full": [result("xmoe-full", 1, [2.0, 3.0], sweep=sweep)]})
        self.assertIn("uses 8.00 experts here, threshold 0.5 saves 75% of", text)
        self.assertIn("| 0.5 | 10.1000 | 2.00 | 0.0 k | 25% |", text)
        sweep[1]["perplexity"] = 10.2
        self.assertIn("threshold 0.9 saves 25% of", document({"xmoe-full": [result("xmoe-full", 1, [2.0, 3.0], sweep=sweep)]}))

    def test_a_document_shows_what_was_run_and_names_the_rest(self) -> None:
        two = [result("smoe", seed, [1.0, 2.0]) for seed in (1, 2)]
        text = document({"dense": [result("dense", 1, [2.0, 3.0], experts=[])], "smoe": two})
        self.assertIn(f"2 of {len({n for n, _ in planned()})} rows are run: 1 row with 2 seeds, 1 row with 1 seed. "
                      "A run has 8 steps: 0.01 million tokens, or 256 pairs. Training took 3.0 hours, the times of all runs together, on the cpu. A note.", text)
        self.assertIn("1.0e-04 (f32)", text)
        self.assertIn("| dense | d 768, FFN of 2048, gated | 12.1825 | 12.1835 | 1 |  | 1 k | 2.0 k |  |", text)
        self.assertIn("| SMoE, top-1 | 8 experts of 2048, top-1 | 4.4817 | 4.4827 | 2 | 0.00 | 1 k | 2.0 k | 1.00 |", text)
        self.assertIn("Not run yet: fine-grained SMoE, top-2; Hash layers; BASE layers.", text)
        self.assertIn("- X-MoE: gates: 8 rows.", text)
        self.assertNotIn("## X-MoE: gates", text)
        self.assertIn("\nNot tested: eight experts, one per token, beat the dense layer; more and smaller", text)

    def test_claims_are_tested_over_the_seeds_of_both_rows(self) -> None:
        rng = random.Random(3)
        hard = [rng.gauss(2, 0.5) for _ in range(50)]
        made = {name: [result(name, seed, [h + shift + rng.gauss(0, 0.01) for h in hard]) for seed in seeds]
                for name, shift, seeds in (("dense", 0.1, (1, 2)), ("smoe", 0.0, (1, 2, 3)), ("hash", -0.1, (2, 3)))}
        judged = {c.words: (t, v) for c, (t, v) in report.judged(made).items()}
        test, verdict = judged["eight experts, one per token, beat the dense layer"]
        self.assertEqual((test.n_seeds, verdict), (2, paired.SEEN))
        self.assertEqual(judged["a learned router beats a fixed table"][1], paired.CONTRADICTED)
        self.assertEqual(judged["more and smaller experts beat few large ones"], (None, paired.UNTESTED))
        text = document(made)
        self.assertRegex(text, r"\| Eight experts, one per token, beat the dense layer \| seen \| \+1\d\.\d\d \| \+")
        self.assertRegex(text, r"\| A learned router beats a fixed table \| contradicted \| -9\.")

    def test_capacities_and_experts_by_step(self) -> None:
        gammas = [{"gamma": g, "window": 30.0 / g, "batch": 3.0} for g in (1.0, 2.0)]
        made = [result("xmoe-eighth", s, [1.0, 2.0], gammas=gammas, experts_curve=[4.0] * 10 + [2.0 + s] * 10) for s in (1, 2)]
        text = document({"xmoe-eighth": made, "smoe": [result("smoe", 1, [1.0, 2.0], experts_curve=[1.0] * 20)]})
        self.assertIn("| system | counted over | gamma 1 | gamma 2 |", text)
        self.assertIn("| XMoE, experts of 1/8, t = 0.9 | a window | 30.0000 | 15.0000 |", text)
        self.assertIn("| XMoE, experts of 1/8, t = 0.9 | a batch | 3.0000 | 3.0000 |", text)
        self.assertIn("| XMoE, experts of 1/8, t = 0.9 | 4.00 | 4.00 | 4.00 | 3.50 | 3.50 |", text)
        self.assertNotIn("| SMoE, top-1 | 1.00 |", text)

    def test_routing_is_summed_up(self) -> None:
        layers = [[{"layer": 0, "positive": 0.25}, {"layer": 1, "positive": 0.5, "load": load, "collapse": rc}]
                  for load, rc in (([10, 20, 30], 2.0), ([30, 10, 20], 4.0))]
        made = [result("smoe", i + 1, [1.0, 2.0], routing=r, fluctuation=[0.5, 0.1 * i]) for i, r in enumerate(layers)]
        text = document({"smoe": made})
        self.assertIn("| SMoE, top-1 | 2 | 3.0 | 5.0% | 1.000 | 1.50 | 50.0% | 25.0% |", text)
        self.assertAlmostEqual(report_routing.consistency([[1, 2, 3], [3, 1, 9]]), 0.9607689, 6)
        self.assertIsNone(report_routing.consistency([[1, 2, 3]]))
        self.assertIsNone(report_routing.consistency([[1, 1], [1, 2]]))
        self.assertNotIn("How the rows route", document({"dense": [result("dense", 1, [1.0, 2.0])]}))

    def test_encoders_are_compared_by_the_mean_of_their_tasks(self) -> None:
        one = result("encoder-smoe", 1, [0.25, 0.75], tasks={"classes": 0.25, "tags": 0.5, "spans": 0.75})
        self.assertIn("| 1.6487 | 1.6497 | 25.0 | 50.0 | 75.0 | 1 |  | 1 k | 2.0 k | 1.00 |", document({"encoder-smoe": [one]}))

    def test_translations_are_compared_by_their_words(self) -> None:
        made = {name: [result(name, s, [w + 0.01 * s, w], exact=0.5, words=1 - w) for s in (1, 2)]
                for name, w in (("translate-switch", 0.125), ("translate-dense", 0.5))}
        text = document(made)
        self.assertIn("| 50.0 | 87.5 | 2 | 0.35 |", text)
        self.assertIn("| Experts, one per token, beat the dense layer | seen | +37.50 |", text)

    def test_results_are_those_of_the_present_rows(self) -> None:
        plan, file = results.Plan(), Path(tempfile.mkdtemp()) / "results.jsonl"
        good = result("smoe@48", 1, [1.0, 2.0], key=results.key(rows.read("smoe@48"), plan))
        self.assertEqual(results.read(plan, file), {})
        results.write({"smoe@48": [good], "dense": [result("dense", 1, [1.0, 2.0])], "gone": [result("gone", 1, [1.0, 2.0])]}, file)
        self.assertEqual(results.read(plan, file), {"smoe@48": [good]})
        newer = good | {"moe": 1.0}
        self.assertEqual(results.grouped([good, newer]), {"smoe@48": [newer]})

    def test_the_shipped_document_is_printed_from_the_shipped_results(self) -> None:
        found = results.read(results.Plan())
        self.assertEqual(sum(map(len, found.values())), len(results.FILE.read_text().splitlines()), "rows have changed since")
        note = RESULTS.read_text().split(f"on the {found[next(iter(found))][0]['device']}.")[1].split("\n")[0].strip()
        folder = Path(tempfile.mkdtemp())
        drawn = figures.write(found, folder)
        words = report.plan_words(results.Plan.steps, results.Plan.batch)
        self.assertEqual(report.document(words, note, found, drawn), RESULTS.read_text())
        for name in drawn:
            self.assertEqual((folder / name).read_text(), (RESULTS.parent / name).read_text())

    def test_a_figure_shows_ratios(self) -> None:
        made = {name: [result(name, 1, [w, w])] for name, w in (("smoe@48", 2.0), ("mh-moe-2@48", 2.1), ("smoe", 1.0), ("mh-moe-2", 0.9))}
        curves = dict(figures.by_width(made))
        points = curves["MH-MoE, 2 heads"]
        self.assertEqual([w for w, _ in points], [48.0, 192.0])
        self.assertAlmostEqual(points[0][1], math.exp(0.1), 3)
        self.assertAlmostEqual(points[1][1], math.exp(-0.1), 3)
        folder = Path(tempfile.mkdtemp())
        self.assertEqual(figures.write(made, folder), ["results-width.svg", "results-steps-48.svg", "results-steps-192.svg"])
        self.assertIn("MH-MoE, 2 heads", (folder / "results-width.svg").read_text())
        self.assertEqual(figures.write({"smoe": made["smoe"]}, folder), [])
        made["smoe"][0]["curve"] = [4.0, 3.0, 2.0, 1.0]
        made["smoe"].append(made["smoe"][0] | {"seed": 2, "curve": [4.0, 3.0, 2.0, 3.0]})
        name, points = figures.by_step(made, 192)[0]
        self.assertEqual((name, [step for step, _ in points]), ("SMoE, top-1", [4.0, 6.0, 8.0]))
        self.assertAlmostEqual(points[-1][1], math.exp(2.0))


if __name__ == "__main__":
    unittest.main()
