# SPDX-License-Identifier: MIT
"""Tests of the rows that need no PyTorch: `python3 rows_test.py`, or together with the others with pytest."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import parity
import recipes
import report
import rows
import texts
from texts import tasks, translation
from claims import CORE, TABLES
from stories.engine import Rng

FREE = {"xmoe-full"}  # its cost is not matched to the other rows


def folder_with(**files: dict[str, Any]) -> Path:
    folder = Path(tempfile.mkdtemp())
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


class Rows(unittest.TestCase):
    def test_every_row_is_read_and_stands_in_a_table(self) -> None:
        shown = {name for table in TABLES for name in table.rows}
        self.assertEqual(shown, set(rows.names()))
        self.assertLessEqual(set(CORE), shown)
        for table in TABLES:
            self.assertEqual({rows.read(name).task for name in table.rows}, {table.task})
            for claim in table.claims:
                self.assertLessEqual({claim.better, claim.worse}, set(table.rows), claim.words)

    def test_rows_of_a_table_cost_the_same(self) -> None:
        for table in TABLES:
            costs = {name: parity.cost(rows.read(name)) for name in table.rows if name not in FREE}
            self.assertEqual(len({c.flops for c in costs.values()}), 1, (table.title, costs))
            sparse = [c.ffn_params for n, c in costs.items() if "dense" not in n]
            self.assertLessEqual(max(sparse) / min(sparse), 1.06, (table.title, costs))

    def test_the_parity_of_the_paper(self) -> None:
        self.assertEqual(parity.solve("switch", 2, 2, 2)[0], rows.read("mh-moe-2").config["layers"][0]["ffn"]["d_ff"])
        self.assertEqual(parity.solve("switch", 3, 3, 2), (32.0, 93.0))  # the paper uses 96
        self.assertEqual(parity.solve("switch", 2, 2, 1), (56.0, 36.0))
        with self.assertRaisesRegex(rows.BadRow, "plain experts"):
            parity.solve("mh-moe-2", 2, 2, 2)
        with self.assertRaisesRegex(rows.BadRow, "divisor of 48, found 5"):
            parity.solve("switch", 5, 2, 2)

    def test_measured_experts_count(self) -> None:
        row = rows.read("xmoe-quarter")
        bound, measured = parity.cost(row), parity.cost(row, [1.0, 2.0])
        self.assertEqual(bound.ffn_flops - measured.ffn_flops, (3 + 2) * 4 * 48 * 48)
        self.assertEqual(bound.params, measured.params)

    def test_a_router_replaces_the_base_s(self) -> None:
        router = rows.read("x-moe-no-norm").config["layers"][0]["ffn"]["moe"]["router"]
        self.assertEqual(router, {"kind": "softmax", "k": 1, "weights": "raw", "rank": 16})

    def test_a_share_of_the_run_becomes_a_step(self) -> None:
        self.assertEqual(rows.read("x-moe-frozen").settings(300).freeze_routing, 150)
        self.assertIsNone(rows.read("x-moe").settings(300).freeze_routing)
        self.assertEqual(rows.read("x-moe-alpha-1e-1").settings(300, alpha=0.5).alpha, 0.1)

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
        moe = {"kind": "moe", "moe": {"n_experts": 2, "router": {"kind": "softmax", "k": 2}}}
        cases = {
            "unknown colour": {"colour": 1},
            "unknown temperature": {"layer": {"moe": {"router": {"kind": "softmax", "temperature": 1}}}},
            "expected a kind": {"layer": {"moe": {"router": {"kind": "sorting"}}}},
            "k in 1..2, found 3": {"layer": {**moe, "moe": {**moe["moe"], "router": {"kind": "softmax", "k": 3}}}},
            "divide 48, found 5": {"layer": {**moe, "moe": {**moe["moe"], "n_subheads": 5}}},
            "t in 0..1, found 2": {"layer": {**moe, "moe": {**moe["moe"], "router": {"kind": "threshold", "t": 2}}}},
            "back to itself": {"base": "bad"},
            "no row nowhere": {"base": "nowhere"},
        }
        for words, change in cases.items():
            with self.subTest(words), self.assertRaisesRegex(rows.BadRow, words):
                rows.read("bad", folder_with(dense=dense, bad=good | change))
        with self.assertRaisesRegex(ValueError, "unknown speed"):
            rows.read("bad", folder_with(dense=dense, bad=good | {"train": {"speed": 1}}))


class Recipes(unittest.TestCase):
    def test_own_settings_win(self) -> None:
        s = recipes.settings("xmoe", alpha=0.5)
        self.assertEqual((s.betas, s.weight_decay, s.capacity_factor, s.alpha), ((0.9, 0.95), 0.1, 8.0, 0.5))
        self.assertEqual(recipes.settings("x-moe").betas, (0.9, 0.98))
        self.assertEqual(recipes.settings("mh-moe").clip, 2.0)

    def test_bad_settings(self) -> None:
        cases = {"recipe": {"recipe": "switch"}, "dropout": {"dropout": 1.0}, "alpha": {"alpha": -1},
                 "schedule": {"schedule": "square"}, "floor": {"floor": 2}, "unknown lrr": {"lrr": 1}}
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


class Report(unittest.TestCase):
    def test_verdicts(self) -> None:
        low, high = [10.0, 10.1, 10.2], [11.0, 11.1, 11.2]
        cases = (
            (low, high, 0.2, "seen"),
            (high, low, 0.2, "not seen: the other way round"),
            (low, high, 1.2, "not decided: within the spread over seeds"),  # the spread of another row
            (low, [10.1, 10.2, 10.3], 0.2, "not decided: within the spread over seeds"),
            (low, [11.0], 0.2, "not decided: one seed"),
            ([10.0], [11.0], None, "not decided: one seed"),
            ([], [11.0], 1.0, "not trained"),
        )
        for better, worse, spread, words in cases:
            self.assertEqual(report.verdict(better, worse, spread), words)

    def test_a_threshold_saves_what_it_saves(self) -> None:
        sweep = [{"router": f"threshold:{t}", "perplexity": p, "experts_per_token": e, "expert_flops_per_token": 10.0 * e}
                 for t, p, e in (("0.1", 12.0, 1.0), ("0.5", 10.1, 2.0), ("0.9", 10.0, 6.0), ("1", 10.0, 8.0))]
        best, saved = report.saving(sweep)
        self.assertEqual((best["router"], saved), ("threshold:0.5", 0.75))
        one = {"pytorch": 1, "moe": 1, "difference": 0, "experts": [8.0], "params": 1, "ffn_flops": 1, "seconds": 1}
        text = report.document("quick", "", 8, {"xmoe-full": [one]}, {"xmoe-full": sweep})
        self.assertIn("uses 8.00 experts here, threshold 0.5 saves 75% of", text)
        sweep[1]["perplexity"] = 10.2
        text = report.document("quick", "", 8, {"xmoe-full": [one]}, {"xmoe-full": sweep})
        self.assertIn("uses 8.00 experts here, threshold 0.9 saves 25% of", text)

    def test_a_document_names_every_row(self) -> None:
        one = {"pytorch": 10.0, "moe": 10.001, "difference": 1e-4, "experts": [1.0], "params": 1000,
               "ffn_flops": 2000.0, "seconds": 60.0}
        text = report.document("quick", "A note.", 8, {"dense": [one | {"experts": []}], "switch": [one, one]}, {})
        self.assertIn(f"A quick run of 2 of {len(rows.names())} rows: ", text)
        self.assertIn("1 row with 2 seeds, 1 row with 1 seed", text)
        self.assertIn("1.0e-04 (f32)", text)
        self.assertIn("| dense | d 768, FFN of 2048, gated | 10.0000 | 10.0010 |  | 1 k | 2.0 k |  |", text)
        for table in TABLES:
            self.assertIn(f"## {table.title}", text)
            for name in table.rows:
                self.assertIn(f"| {rows.read(name).system} |", text)

    def test_encoders_are_compared_by_the_mean_of_their_tasks(self) -> None:
        one = {"pytorch": 10.0, "moe": 10.001, "difference": 1e-4, "experts": [1.0], "params": 1000, "ffn_flops": 2000.0,
               "seconds": 60.0, "tasks": {"classes": 0.25, "tags": 0.5, "spans": 0.75}}
        text = report.document("quick", "", 8, {"encoder-smoe": [one]}, {})
        self.assertIn("| 10.0000 | 10.0010 | 25.0 | 50.0 | 75.0 |  | 1 k | 2.0 k | 1.00 |", text)
        self.assertEqual(report.values({"encoder-smoe": [one]}, "encoder-smoe"), [50.0])

    def test_translations_are_compared_by_their_words(self) -> None:
        one = {"pytorch": 10.0, "moe": 10.001, "difference": 1e-4, "experts": [], "params": 1000, "ffn_flops": 2000.0,
               "seconds": 60.0, "exact": 0.5, "words": 0.5}
        better = [one | {"words": words} for words in (0.875, 0.75)]
        text = report.document("quick", "", 8, {"translate-switch": better, "translate-dense": [one, one]}, {})
        self.assertIn("| 8 experts of 3072, top-1 | 10.0000 | 10.0010 | 50.0 | 81.2 | 12.500 |", text)
        self.assertIn("any row of the same task, 12.500 (% of wrong words).", text)
        self.assertIn("Experts, one per token, beat the dense layer: seen (18.750 against 50.000).", text)


if __name__ == "__main__":
    unittest.main()
