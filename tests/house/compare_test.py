#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/bench/peers/compare.py: which rounds it repeats and keeps, and what it prints; made-up rates take the place of programs."""

import contextlib
import io
import pathlib
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench/peers"))
import compare  # noqa: E402
import measures  # noqa: E402


class Compare(unittest.TestCase):
    def rounds(self, speeds, n=1, ik=False):
        """The row of n rounds, in which the meter shows these speeds one after the other; moe's k-th process shows k tokens/s."""
        o = types.SimpleNamespace(rounds=n, drift=0.1, ik=ik, ik_bench="")
        speeds, self.n_measured = iter(speeds), 0

        def ours(*_):
            self.n_measured += 1
            return {"decode": self.n_measured, "decode, 8 sessions": 8 * self.n_measured}, {}

        with mock.patch.object(compare, "speed_of_machine", lambda _: [next(speeds), 50.0]), \
             mock.patch.object(compare, "model_options", lambda *_: []), \
             mock.patch.object(compare, "gguf_file", lambda *_, **__: ""), \
             mock.patch.object(compare, "measure_ours", ours), \
             mock.patch.object(compare, "measure_theirs", lambda *_: ({"decode": 2.0, "decode, 8 sessions": 4.0}, {})), \
             mock.patch.object(compare.ik_llama, "measure", lambda *_: ({"decode": 4.0}, {})), \
             contextlib.redirect_stderr(io.StringIO()):
            row = compare.compare(o, "shape", "int4", "Q4_0")
        self.assertIsNone(next(speeds, None))
        return row

    def kept(self, row):
        return [rates["decode"] for rates in row["rates"]["moe"]]

    def test_a_steady_machine_is_measured_once(self):
        row = self.rounds([100, 109, 100, 91], n=2)
        self.assertEqual((self.kept(row), row["repeated"]), ([1, 2], 0))
        self.assertAlmostEqual(max(row["drift"]), 100 / 91 - 1)

    def test_a_round_with_drift_is_repeated(self):
        row = self.rounds([100, 80, 100, 105])
        self.assertEqual((self.kept(row), row["repeated"]), ([2], 1))
        self.assertAlmostEqual(row["drift"][0], 0.05)

    def test_of_rounds_that_all_drift_the_steadiest_counts(self):
        row = self.rounds([100, 50, 100, 80, 100, 60])
        self.assertEqual((self.kept(row), row["repeated"]), ([2], 2))
        self.assertAlmostEqual(row["drift"][0], 0.25)

    def test_the_better_peer_is_that_of_each_measure(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            compare.print_row(self.rounds([100, 100], ik=True))
        self.assertEqual(printed.getvalue().splitlines(),
                         ["| `shape` | int4 / Q4_0 | decode | 1.0 | 2.0 | 4.0 | 0.25 | 0.25 to 0.25 |",
                          "| `shape` | int4 / Q4_0 | decode, 8 sessions | 8.0 | 4.0 |  | 2.00 | 2.00 to 2.00 |"])

    def test_every_measure_has_a_name(self):
        self.assertEqual([what.name for what in measures.measures([32, 512], [2048], 8)],
                         ["decode", "prefill 32", "prefill 512", "decode at 2048", "decode, 8 sessions"])
        self.assertEqual(len(measures.measures([32])), 2)


if __name__ == "__main__":
    unittest.main()
