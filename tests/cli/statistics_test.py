#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe convert --save-statistics and --statistics."""

import json
import os
import shutil

from support import CHAT, CHECKPOINT, Cli, main


class Statistics(Cli):
    def content(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def test_saved_statistics(self):
        self.write("t.txt", "The quick brown fox jumps over the lazy dog. " * 3)
        statistics = self.path("t.statistics")
        self.ok("convert", CHAT, self.path("a.moe"), "--weights", "int8", "--calibrate", self.path("t.txt"),
                "--save-statistics", statistics)
        files, reports = [], []
        for name, *options in (("text.moe", "--calibrate", self.path("t.txt")), ("saved.moe", "--statistics", statistics)):
            r = self.ok("convert", CHAT, self.path(name), "--weights", "int4_k", "--json", *options)
            reports.append(json.loads(r.stdout)["total"]["calibration"])
            files.append(self.content(name))
        self.assertEqual(*files)
        self.assertEqual([r.pop("passes") for r in reports], [1, 0])
        self.assertEqual(*reports)
        r = self.ok("convert", CHAT, self.path("b.moe"), "--weights", "int4", "--statistics", statistics)
        self.assertRegex(r.stdout, r"calibrated on \d+ tokens \(perplexity of the source [\d.e+]+\), read earlier: \d+ matrices")

    def test_statistics_that_do_not_fit(self):
        os.mkdir(self.path("out"))
        to, statistics = (self.path("out/m.moe"), "--weights", "int4"), self.path("t.statistics")
        self.ok("convert", CHAT, self.path("a.moe"), *to[1:], "--calibrate", "-", "--save-statistics", statistics,
                text="a dog")
        self.fails(1, "convert", CHECKPOINT, *to, "--statistics", statistics, contains=[statistics, "another checkpoint"])
        self.fails(1, "convert", CHAT, *to, "--statistics", self.path("a.moe"), contains=["not a safetensors file"])
        self.fails(1, "convert", CHAT, *to, "--calibrate", statistics, contains=["found a safetensors file"])
        self.fails(1, "convert", CHAT, *to, "--calibrate", "-", "--save-statistics", to[0], text="a dog",
                   contains=["different files"])
        self.fails(1, "convert", CHAT, *to, "--calibrate", "-", "--save-statistics", self.path("none/s"), text="a dog",
                   contains=["no folder"])
        self.fails(2, "convert", CHAT, *to, "--save-statistics", statistics, contains=["--calibrate"])
        self.fails(2, "convert", CHAT, *to, "--statistics", statistics, "--calibrate", "-", contains=["--statistics"])
        self.fails(2, "convert", CHAT, *to, "--statistics", statistics, "--split-ffn", "2",
                   contains=["--statistics and --split-ffn cannot be combined"])
        self.fails(2, "convert", CHAT, *to, "--calibrate", "-", "--save-statistics", statistics, "--split-ffn", "2",
                   text="a dog", contains=["--save-statistics and --split-ffn cannot be combined"])
        for empty in (("--statistics", ""), ("--calibrate", ""), ("--calibrate", "-", "--save-statistics", "")):
            self.fails(2, "convert", CHAT, *to, *empty, text="a dog", contains=[empty[-2]])
        self.assertEqual(os.listdir(self.path("out")), [])

    def test_scales_of_packed_weights_are_part_of_the_checkpoint(self):
        letters = "abcdefghijklmnopqrstuvwxyz"
        tokenizer = {"version": "1.0", "added_tokens": [], "decoder": {"type": "ByteLevel"},
                     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                     "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}}
        for name, scales in (("gpt_oss_mxfp4", "_scales"), ("bitnet_packed", "weight_scale")):
            source = self.path(name)
            shutil.copytree(os.path.join(os.path.dirname(CHAT), "../families", name), source)
            with open(os.path.join(source, "tokenizer.json"), "w") as f:
                json.dump(tokenizer, f)
            args = ("convert", source, self.path("m.moe"), "--weights", "int4")
            self.ok(*args, "--calibrate", "-", "--save-statistics", self.path("s"), text="afoxandadog")
            self.ok(*args, "--statistics", self.path("s"))
            with open(os.path.join(source, "model.safetensors"), "r+b") as f:
                n = int.from_bytes(f.read(8), "little")
                header = json.loads(f.read(n))
                at = next(h["data_offsets"][0] for key, h in header.items() if key.endswith(scales))
                f.seek(8 + n + at)
                byte = f.read(1)[0]
                f.seek(8 + n + at)
                f.write(bytes([byte ^ 1]))
            self.fails(1, *args, "--statistics", self.path("s"), contains=["another checkpoint"])

    def test_the_text_is_never_replaced(self):
        text = self.write("t.txt", "a dog")
        self.write("u.partial", "a dog")
        os.link(text, self.path("link"))
        before = sorted(os.listdir(self.folder.name))
        m, save = self.path("m.moe"), "--save-statistics"
        for to, *options in ((m, "--calibrate", text, save, text), (text, "--calibrate", text),
                             (m, "--calibrate", text, save, self.path("link"))):
            self.fails(2, "convert", CHAT, to, "--weights", "int4", *options, contains=["the text of --calibrate"])
        self.assertEqual(sorted(os.listdir(self.folder.name)), before)
        self.ok("convert", CHAT, self.path("u"), "--weights", "int4", "--calibrate", self.path("u.partial"))
        self.assertEqual((self.content("t.txt"), self.content("u.partial")), (b"a dog", b"a dog"))

    def test_a_perplexity_that_is_not_finite(self):
        source = self.path("source")
        shutil.copytree(CHAT, source)
        config = os.path.join(source, "config.json")
        with open(config) as f:
            changed = {**json.load(f), "logit_multiplier": 1e30}
        with open(config, "w") as f:
            json.dump(changed, f)
        statistics = self.path("s")
        for options in (("--calibrate", "-", "--save-statistics", statistics), ("--statistics", statistics)):
            r = self.ok("convert", source, self.path("m.moe"), "--weights", "int4", *options, text="a dog and a fox")
            self.assertIn("(perplexity of the source: not finite)", r.stdout)


if __name__ == "__main__":
    main()
