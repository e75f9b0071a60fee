#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe score: lines of a text, token ids, and input it refuses."""

import json
import math

from support import Cli, MODEL, main

LINES = ["The fox was very proud.", "", "Once upon a time"]


class Score(Cli):
    def rows(self, *args, **kwargs):
        return [json.loads(line) for line in self.ok("score", MODEL, "--json", *args, **kwargs).stdout.splitlines()]

    def test_each_line_has_the_likelihood_that_eval_finds(self):
        rows = self.rows("-p", LINES[0])
        self.assertEqual(len(rows), 1)
        tokens = rows[0]["tokens"]
        self.assertIsNone(tokens[0]["logprob"])
        ids = [t["id"] for t in tokens]
        for n in (1, 3, len(ids) - 1):
            top = json.loads(self.ok("eval", MODEL, "--json", "--top", "1536",
                                     "--tokens", ",".join(map(str, ids[:n]))).stdout)["top"]
            found = {t["id"]: t["logprob"] for t in top}
            self.assertAlmostEqual(found[ids[n]], tokens[n]["logprob"], places=4)
        self.assertAlmostEqual(sum(t["logprob"] for t in tokens[1:]), rows[0]["logprob"], places=4)

    def test_lines_come_one_by_one(self):
        text = "\r\n".join(LINES) + "\n"
        rows = self.rows("-f", "-", text=text)
        self.assertEqual([r["text"] for r in rows], LINES)
        self.assertEqual([r["n_scored"] for r in rows], [len(r["tokens"]) - 1 for r in rows])
        self.assertEqual((rows[1]["n_scored"], rows[1]["logprob"]), (0, 0))
        for line, row in zip(LINES, rows, strict=True):
            if line:
                self.assertEqual(self.rows("-p", line), [row])
        r = self.ok("score", MODEL, "-f", "-", text=text)
        shown = [line.split(None, 2) for line in r.stdout.splitlines()]
        self.assertEqual([(float(s[0]), int(s[1])) for s in shown],
                         [(round(row["logprob"], 4), row["n_scored"]) for row in rows])
        total = sum(row["logprob"] for row in rows)
        n = sum(row["n_scored"] for row in rows)
        self.assertIn(f"3 lines, {n} tokens scored", r.stderr)
        self.assertIn(f"perplexity {math.exp(-total / n):.4f}", r.stderr)

    def test_ids_are_scored_as_they_are(self):
        ids = [t["id"] for t in self.rows("-p", LINES[0])[0]["tokens"]]
        row = self.rows("--tokens", ",".join(map(str, ids)))[0]
        self.assertEqual(row, {k: v for k, v in self.rows("-p", LINES[0])[0].items() if k != "text"})
        self.assertEqual(self.rows("--tokens", "7")[0]["n_scored"], 0)

    def test_no_bos_leaves_the_first_token_unscored(self):
        plain, bos = self.rows("-p", LINES[0], "--no-bos")[0], self.rows("-p", LINES[0])[0]
        self.assertEqual([t["id"] for t in plain["tokens"]], [t["id"] for t in bos["tokens"]][1:])
        self.assertEqual(plain["n_scored"], bos["n_scored"] - 1)

    def test_what_cannot_be_scored_is_named(self):
        self.fails(2, "score", MODEL, contains=["-p TEXT", "--tokens"])
        self.fails(2, "score", MODEL, "-p", "", contains=["empty"])
        self.fails(2, "score", MODEL, "-p", "a", "--tokens", "1", contains=["--tokens"])
        self.fails(2, "score", MODEL, "--tokens", "1,1536", contains=["0..1535", "1536"])
        self.fails(2, "score", MODEL, "--tokens", "1,-1", contains=["-1"])
        self.fails(1, "score", MODEL, "-p", "ok\n" + "fox " * 600, contains=["line 2", "512"])
        self.fails(1, "score", MODEL, "-p", "ok\n" + "fox " * 40, "--context", "16", contains=["line 2", "16"])


main()
