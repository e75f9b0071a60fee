#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe convert: its results, and the files that an interrupted conversion leaves."""

import json
import math
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import time

from support import CHAT, CHECKPOINT, MOE, Cli, main, run

OLD = b"\x8fMOE\r\n\x1a\nold"  # begins as a model file, which may be replaced


class Convert(Cli):
    def test_convert(self):
        j = json.loads(self.ok("convert", CHECKPOINT, self.path("a.moe"), "--weights", "f32", "--verify", "--json").stdout)
        self.assertGreater(len(j["matrices"]), 0)
        self.assertEqual(os.listdir(self.folder.name), ["a.moe"])
        self.ok("convert", CHECKPOINT, self.path("b.moe"), "--weights", "int8", "--compress", "zstd")
        a = json.loads(self.ok("eval", self.path("a.moe"), "--tokens", "1,2,3", "--json").stdout)
        b = json.loads(self.ok("eval", self.path("b.moe"), "--tokens", "1,2,3", "--json").stdout)
        self.assertNotEqual(a["top"], b["top"])
        self.fails(2, "convert", CHECKPOINT, self.path("c.moe"), "--weights", "int3", contains=["int3"])
        for wish in (("--weights", "iq2_xs"), ("--set", "*=iq2_xs")):
            self.fails(2, "convert", CHECKPOINT, self.path("c.moe"), *wish, contains=["tcq2 or tcq3, found 'iq2_xs'"])
        self.fails(1, "convert", CHECKPOINT, os.path.join(self.folder.name, "no", "c.moe"))
        self.fails(2, "convert", CHECKPOINT, "-", contains=["DST: this file cannot be stdout"])
        self.fails(1, "convert", self.path("a.moe"), self.path("c.moe"), contains=["converted already"])
        self.fails(1, "convert", self.path("none"), self.path("c.moe"), contains=["none: no such file or folder"])
        with open(self.path("notes"), "w") as f:
            f.write("notes")
        for args in ((self.path("notes"),), (self.path("c.moe"), "--calibrate", MOE, "--save-statistics", self.path("notes"))):
            self.fails(1, "convert", CHECKPOINT, *args, "--weights", "int4", contains=["notes: this file exists and is not"])
        with open(self.path("notes")) as f:
            self.assertEqual(f.read(), "notes")
        os.remove(self.path("notes"))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["a.moe", "b.moe"])

    def test_a_download_that_was_cut_off(self):
        shutil.copytree(CHECKPOINT, self.path("cut"))
        path = self.path("cut/model.safetensors")
        with open(path, "r+b") as f:
            size = os.path.getsize(path)
            f.truncate(size // 2)
            f.truncate(size)
        self.fails(1, "convert", self.path("cut"), self.path("a.moe"),
                   contains=["model.safetensors: only zeros from byte", "tensors, first ", "--allow-zeros"])
        self.assertEqual(os.listdir(self.folder.name), ["cut"])
        self.ok("convert", self.path("cut"), self.path("a.moe"), "--allow-zeros")

    def test_codes_that_are_rounded_again(self):
        families = os.path.join(CHECKPOINT, "../../families")
        awq = self.ok("convert", os.path.join(families, "awq"), self.path("a.moe"), "--weights", "int4").stderr
        self.assertIn("moe: note: 6 matrices become int4, smaller (", awq)
        self.assertIn("moe: warning: 8 matrices become int8_group, larger (", awq)
        self.assertIn("kept as int4_min without --weights or --set", awq)
        done = self.ok("convert", os.path.join(families, "bitnet_packed"), self.path("b.moe"), "--set", "*ffn*=int8")
        self.assertIn("6 matrices become int8, larger (", done.stderr)
        self.assertIn("(ternary codes), which are kept as ternary2", done.stderr)
        self.assertIn("larger than the checkpoint (", done.stdout)
        self.assertIn("6 matrices of ternary codes as int8 (", done.stdout)
        plain = self.ok("convert", os.path.join(families, "awq"), self.path("a.moe"))
        self.assertNotIn("become", plain.stderr)

    def test_layers_with_one_block(self):
        self.ok("convert", os.path.join(CHECKPOINT, "../blocks_alone"), self.path("m.moe"), "--weights", "f32")
        shown = self.ok("inspect", self.path("m.moe")).stdout
        self.assertIn("layer 0: 2 heads / 1 KV of 12; no FFN\n", shown)
        self.assertIn("layer 2: no attention; silu FFN of 36\n", shown)

    def start_long_conversion(self, **how):
        """Starts converting a checkpoint whose embedding is a sparse file of 4 GB; returns once it writes the new file."""
        source = self.path("source")
        os.makedirs(source, exist_ok=True)
        rows, d = 1 << 24, 64
        config = {"model_type": "moe_research", "layout_version": 1, "vocab_size": rows, "d_model": d,
                  "n_layers": 1, "context_length": 8, "norm": {"kind": "rms"}, "positions": "none",
                  "tie_embeddings": True, "layer_defaults": {
                      "attention": {"n_heads": 1}, "ffn": {"kind": "dense", "d_ff": 1, "act": "relu"}}}
        with open(os.path.join(source, "config.json"), "w") as f:
            json.dump(config, f)
        shapes = {"embedding.weight": [rows, d], "final_norm.weight": [d]}
        for name in ("attention_norm", "ffn_norm"):
            shapes[f"layers.0.{name}.weight"] = [d]
        for name in "qkvo":
            shapes[f"layers.0.attention.{name}.weight"] = [d, d]
        shapes["layers.0.ffn.up.weight"], shapes["layers.0.ffn.down.weight"] = [1, d], [d, 1]
        header, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        with open(os.path.join(source, "model.safetensors"), "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            f.truncate(8 + len(text) + end)
        os.makedirs(self.path("out"), exist_ok=True)
        with open(self.path("out/m.moe"), "wb") as f:
            f.write(OLD)
        p = subprocess.Popen([MOE, "convert", source, self.path("out/m.moe"), "--allow-zeros"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        while p.poll() is None and not self.is_writing():
            time.sleep(0.01)
        return p

    def is_writing(self):
        folder = self.path("out")
        return any(re.fullmatch(r"\.m\.moe\.moe-\w{6}", name) and os.path.getsize(os.path.join(folder, name)) > 0
                   for name in os.listdir(folder))

    def old_file(self):
        with open(self.path("out/m.moe"), "rb") as f:
            return f.read()

    def test_interrupted_conversion_leaves_the_old_file(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                p = self.start_long_conversion()
                p.send_signal(number)
                if number == signal.SIGHUP:  # an exiting shell may send it twice
                    p.send_signal(number)
                out, err = p.communicate(timeout=60)
                self.assertEqual(p.returncode, 130, err)
                self.assertEqual(out, "")
                self.assertEqual(os.listdir(self.path("out")), ["m.moe"])
                self.assertEqual(self.old_file(), OLD)

    def test_conversion_under_nohup_does_not_mind_that_the_terminal_goes(self):
        p = self.start_long_conversion(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        p.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        self.assertIsNone(p.poll())

    def test_conversion_into_a_file_that_may_not_grow(self):
        os.mkdir(self.path("out"))
        r = subprocess.run([MOE, "convert", CHECKPOINT, self.path("out/m.moe")], capture_output=True, text=True,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)), timeout=60)
        self.assertEqual(r.returncode, 1)
        self.assertIn("File too large", r.stderr)
        self.assertEqual(os.listdir(self.path("out")), [])

    def test_conversion_whose_reader_is_gone(self):
        os.mkdir(self.path("out"))
        reader, writer = os.pipe()
        os.close(reader)
        r = subprocess.run([MOE, "convert", CHECKPOINT, self.path("out/m.moe"), "--list"], stdout=writer,
                           stderr=subprocess.PIPE, text=True, timeout=60)
        os.close(writer)
        self.assertEqual(r.returncode, 1)
        self.assertIn("stdout", r.stderr)
        self.assertEqual(os.listdir(self.path("out")), ["m.moe"])

    def test_conversion_onto_its_source(self):
        source = self.path("source")
        shutil.copytree(CHECKPOINT, source)
        shard = os.path.join(source, "model.safetensors")
        size = os.path.getsize(shard)
        r = self.fails(1, "convert", source, shard, contains=["of the checkpoint"])
        self.assertEqual(r.stdout, "")
        self.assertEqual(os.path.getsize(shard), size)

    def source(self, **config):
        """A copy of the checkpoint with other keys in its config.json."""
        source = self.path("source")
        shutil.copytree(CHECKPOINT, source)
        path = os.path.join(source, "config.json")
        with open(path) as f:
            config = {**json.load(f), **config}
        with open(path, "w") as f:
            json.dump(config, f)
        return source

    def test_what_a_model_rounds_itself_is_no_loss(self):
        source = os.path.join(CHECKPOINT, "../../families/bitnet_embedding_qwen3")
        done = self.ok("convert", source, self.path("m.moe"), "--json")
        self.assertNotIn("imprecise", done.stderr)
        rounded = [m["format"] for m in json.loads(done.stdout)["matrices"] if "own_rounding" in m]
        self.assertEqual(rounded, ["ternary2"] * 14)
        self.assertIn("imprecise", self.ok("convert", source, self.path("m.moe"), "--weights", "int2_k").stderr)

    def test_what_a_conversion_loses_is_said(self):
        r = self.ok("convert", CHECKPOINT, self.path("a.moe"), "--weights", "ternary2")
        self.assertIn("warning: ternary2 is imprecise here", r.stderr)
        self.assertIn("--weights int8", r.stderr)
        r = self.ok("convert", CHECKPOINT, self.path("a.moe"), "--weights", "int8", "--json")
        self.assertNotIn("loses", r.stderr)
        self.assertIn("no tokenizer was found in " + CHECKPOINT, r.stderr)
        self.assertFalse(json.loads(r.stdout)["total"]["tokenizer"])
        self.assertNotIn("tokenizer", self.ok("convert", CHAT, self.path("b.moe")).stderr)

    def test_calibration(self):
        with open(self.path("t.txt"), "w") as f:
            f.write("The quick brown fox jumps over the lazy dog. " * 3)
        r = self.ok("convert", CHAT, self.path("a.moe"), "--weights", "int4", "--calibrate", self.path("t.txt"))
        self.assertRegex(r.stdout, r"calibrated on \d+ tokens \(perplexity of the source [\d.e+]+\): \d+ matrices")
        j = json.loads(self.ok("convert", CHAT, self.path("b.moe"), "--weights", "int4", "--calibrate", "-", "--json",
                               "--verify", text="a dog").stdout)
        c = j["total"]["calibration"]
        self.assertEqual(c["weighted_matrices"], sum("weighted_error" in m for m in j["matrices"]))
        self.assertGreater(c["weighted_matrices"], 0)
        self.assertEqual(c["compensated_matrices"], sum(m.get("compensated", False) for m in j["matrices"]))
        self.assertEqual((c["compensated_matrices"], c["passes"]), (c["weighted_matrices"], 1))
        for m in j["matrices"]:
            if "weighted_error" in m:
                self.assertGreater(m["calibration_tokens"], 0)
        files = []
        for name, *options in (("plain.moe",), ("a.moe", "--calibrate", self.path("t.txt"))):
            self.ok("convert", CHAT, self.path(name), "--weights", "int8", *options)
            with open(self.path(name), "rb") as f:
                files.append(f.read())
        self.assertNotEqual(*files)
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["a.moe", "b.moe", "plain.moe", "t.txt"])

    def test_a_size_to_meet(self):
        def convert(*options, name="m.moe"):
            return self.ok("convert", CHECKPOINT, self.path(name), *options)

        j = json.loads(convert("--bits", "12", "--json").stdout)
        bits = 8 * sum(m["bytes"] for m in j["matrices"]) / j["total"]["weights"]
        self.assertLessEqual(bits, 12)
        self.assertAlmostEqual(j["total"]["size"]["bits"], bits)
        self.assertEqual(j["total"]["size"]["most_bits"], 12)
        size = j["total"]["file_bytes"]
        for text, most in (("1M", 1 << 20), (str(size + 20000), size + 20000)):
            done = convert("--size", text, "--list", "--set", "layers.0.*=int8", name="s.moe")
            self.assertLessEqual(os.path.getsize(self.path("s.moe")), most)
            self.assertRegex(done.stdout, r"\n  [0-9.]+ bits per weight; expected divergence [0-9.e-]+ nats\n")
            self.assertRegex(done.stdout, r"layers\.1\..* bits, error expected [0-9.e-]+, sensitivity [0-9.e-]+\n")
            self.assertNotRegex(done.stdout, r"layers\.0\..*sensitivity")

            compressed = self.ok("convert", CHECKPOINT, self.path("s.moe"), "--size", text, "--compress", "zstd", "--json").stdout
            self.assertLessEqual(os.path.getsize(self.path("s.moe")), most)
            self.assertEqual(json.loads(compressed)["total"]["file_bytes"], os.path.getsize(self.path("s.moe")))

    def test_errors_that_a_size_demands_are_no_warning(self):
        source = self.dense(d_ff=256)
        least = re.search("at least ([0-9.]+) per", self.fails(1, "convert", source, self.path("m.moe"), "--bits", "1").stderr)
        done = self.ok("convert", source, self.path("m.moe"), "--bits", least[1], "--list")
        self.assertRegex(done.stdout, r"layers\.0\.ffn\.down +16 x 256 +tcq2 .* relative error 0\.[2-9]")
        self.assertNotIn("imprecise", done.stderr)
        fixed = self.ok("convert", source, self.path("m.moe"), "--bits", "9", "--set", "*down=int2_k")
        self.assertIn("int2_k is imprecise here", fixed.stderr)

    def test_a_size_with_a_text(self):
        with open(self.path("t.txt"), "w") as f:
            f.write("How vexingly quick daft zebras jump. " * 8)
        to = ("convert", self.dense(d_ff=256), self.path("m.moe"), "--bits", "9", "--json")
        total = json.loads(self.ok(*to, "--calibrate", self.path("t.txt"), "--save-statistics", self.path("t.stats")).stdout)["total"]
        self.assertGreater(total["calibration"]["weighted_matrices"], 0)
        again = json.loads(self.ok(*to, "--statistics", self.path("t.stats")).stdout)["total"]
        self.assertEqual(again["size"], total["size"])

    def test_sizes_that_cannot_be_met(self):
        def fails(code, *options, contains):
            self.fails(code, "convert", CHECKPOINT, self.path("m.moe"), *options, contains=contains)

        fails(1, "--size", "1K", contains=["size: the smallest possible file of this model has", "1024 are asked for"])
        fails(1, "--bits", "0.5", contains=["bits: this model needs at least", "0.5 are asked for"])
        families = os.path.join(CHECKPOINT, "../../families")
        for name in sorted(os.listdir(families)):
            source = os.path.join(families, name)
            if not os.path.exists(os.path.join(source, "config.json")):
                continue
            for option, words in (("--size", "this model has ([0-9]+) bytes"), ("--bits", "at least ([0-9.]+) per")):
                with self.subTest(name, option=option):
                    refused = run("convert", source, self.path("m.moe"), option, "1").stderr
                    named = re.search(words, refused)
                    self.assertIsNotNone(named, refused)
                    self.ok("convert", source, self.path("m.moe"), option, named[1])
                    os.remove(self.path("m.moe"))
        for text in ("0", "-3", "nan", "65", "two", ""):
            fails(2, "--bits", text, contains=["--bits"])
        for text in ("0", "-1G", "2Q", "1.5", "nan", "", "99999999T"):
            fails(2, "--size", text, contains=["--size"])
        for options in (("--size", "1M", "--bits", "3"), ("--size", "1M", "--weights", "int4"), ("--bits", "3", "--weights", "int4")):
            fails(2, *options, contains=["cannot be combined"])
        fails(1, "--bits", "4", "--set", "nothing=int4", contains=["no tensor of this model matches"])
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_texts_that_cannot_calibrate(self):
        os.mkdir(self.path("out"))
        to = ("convert", CHAT, self.path("out/m.moe"), "--weights")
        self.fails(1, *to, "int4", "--calibrate", os.devnull, contains=["no text"])
        self.fails(1, *to, "int4", "--calibrate", "/dev/zero", contains=["more than 256 MiB"])
        self.fails(1, *to, "int4", "--calibrate", self.path("none"), contains=["No such file"])
        self.fails(1, *to, "f32", "--calibrate", "-", text="a dog", contains=["changes nothing"])
        self.fails(1, "convert", CHECKPOINT, self.path("out/m.moe"), "--weights", "int4", "--calibrate", "-",
                   text="a dog", contains=["no tokenizer"])
        self.assertEqual(os.listdir(self.path("out")), [])
        with open(self.path("binary"), "wb") as f:
            f.write(bytes(range(256)) * 4)
        self.ok(*to, "int4", "--calibrate", self.path("binary"))

    def dense(self, d_ff=24):
        """A dense checkpoint in the research layout with one token per byte."""
        config = {
            "model_type": "moe_research", "layout_version": 1, "vocab_size": 256, "d_model": 16, "n_layers": 1,
            "context_length": 64, "norm": {"kind": "rms", "eps": 1e-5}, "positions": "rope", "tie_embeddings": True,
            "add_bos": False, "tokenizer": "bytes",
            "layer_defaults": {"attention": {"n_heads": 2, "n_kv_heads": 2, "head_dim": 8},
                               "ffn": {"kind": "dense", "d_ff": d_ff, "gated": True, "act": "silu"}}}
        shapes = {"embedding": (256, 16), "final_norm": (16,), "layers.0.attention_norm": (16,), "layers.0.ffn_norm": (16,),
                  "layers.0.attention.q": (16, 16), "layers.0.attention.k": (16, 16), "layers.0.attention.v": (16, 16),
                  "layers.0.attention.o": (16, 16), "layers.0.ffn.gate": (d_ff, 16), "layers.0.ffn.up": (d_ff, 16),
                  "layers.0.ffn.down": (16, d_ff)}
        header, data, state = {}, b"", 1
        for name, shape in shapes.items():
            values = []
            for _ in range(math.prod(shape)):
                state = state * 48271 % 2147483647
                values.append(state / 2147483647 - 0.5)
            begin, data = len(data), data + struct.pack(f"<{len(values)}f", *values)
            header[name + ".weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
        folder = self.path("dense")
        os.mkdir(folder)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        text = json.dumps(header).encode()
        with open(os.path.join(folder, "model.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)
        return folder

    def test_split_ffn(self):
        source, text = self.dense(), self.path("t.txt")
        with open(text, "w") as f:
            f.write("How vexingly quick daft zebras jump. " * 8)
        self.ok("convert", source, self.path("dense.moe"), "--weights", "f32")
        r = self.ok("convert", source, self.path("split.moe"), "--weights", "f32", "--split-ffn", "6", "--calibrate", text)
        self.assertRegex(r.stdout, r"1 FFN split into 6 experts \(clusters\); on 296 tokens the routers explain \d")
        perplexity = {}
        for name in ("dense", "split"):
            r = self.ok("perplexity", self.path(name + ".moe"), "-f", text, "--json")
            perplexity[name] = json.loads(r.stdout)["perplexity"]
        self.assertAlmostEqual(perplexity["split"] / perplexity["dense"], 1, places=5)
        r = self.ok("perplexity", self.path("split.moe"), "-f", text, "--router", "topk:1", "--json")
        self.assertNotAlmostEqual(json.loads(r.stdout)["perplexity"] / perplexity["dense"], 1, places=4)
        j = json.loads(self.ok("convert", source, self.path("order.moe"), "--weights", "int8", "--split-ffn", "6",
                               "--split-by", "in-order", "--calibrate", text, "--json", "--verify").stdout)["total"]
        self.assertEqual((j["split"]["experts"], j["split"]["by"], j["split"]["layers"]), (6, "in-order", 1))
        self.assertGreater(j["calibration"]["compensated_matrices"] + j["calibration"]["weighted_matrices"], 0)

    def test_what_cannot_be_split(self):
        os.mkdir(self.path("out"))
        source, to = self.dense(), self.path("out/m.moe")
        self.fails(2, "convert", source, to, "--split-ffn", "6", contains=["--calibrate FILE is missing"])
        self.fails(2, "convert", source, to, "--split-ffn", "1", "--calibrate", "-", text="a dog", contains=["--split-ffn"])
        self.fails(2, "convert", source, to, "--split-by", "in-order", contains=["--split-ffn"])
        self.fails(1, "convert", source, to, "--split-ffn", "6", "--calibrate", os.devnull, contains=["no text"])
        self.fails(1, "convert", source, to, "--split-ffn", "7", "--calibrate", "-", text="a dog",
                   contains=["7 experts do not divide the 24 inner neurons of layer 0"])
        self.assertEqual(os.listdir(self.path("out")), [])

    def test_float_weights_have_float_activations(self):
        to = ("convert", CHECKPOINT, self.path("a.moe"), "--set")
        for name in ("f32", "f16", "bf16"):
            self.ok(*to, f"*={name}:f32")
            self.fails(1, *to, f"*={name}:a8", contains=[f'override "*={name}:a8": expected activations f32'])

    def test_ignored_keys(self):
        source = self.source(frobnicate=3)
        self.fails(1, "convert", source, self.path("a.moe"), contains=["frobnicate", "--ignore-key"])
        r = self.ok("convert", source, self.path("a.moe"), "--ignore-key", "frobnicate", "--json")
        self.assertEqual(json.loads(r.stdout)["total"]["ignored_keys"], ["frobnicate"])
        self.assertIn("ignored key frobnicate", r.stderr)
        self.fails(1, "convert", source, self.path("a.moe"), "--ignore-key", "frob", contains=["no key", "frob"])

    def test_tokens_left_out_are_named(self):
        shutil.copytree(CHAT, self.path("source"))
        with open(self.path("source/config.json")) as f:
            vocabulary = json.load(f)["vocab_size"]
        with open(self.path("source/tokenizer.json")) as f:
            tokenizer = json.load(f)
        n = len(tokenizer["model"]["vocab"].keys() | {t["content"] for t in tokenizer["added_tokens"]})
        flags = {key: False for key in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        for i in range(n, vocabulary + 9):
            tokenizer["added_tokens"].append({"id": i, "content": f"<{i}>", **flags})
        with open(self.path("source/tokenizer.json"), "w") as f:
            json.dump(tokenizer, f)
        r = self.ok("convert", self.path("source"), self.path("m.moe"))
        names = ", ".join(f"<{i}>" for i in range(vocabulary, vocabulary + 8))
        self.assertEqual(r.stderr, "moe: warning: left out of the tokenizer, because the model has no embedding for "
                                   f"{names} and 1 more\n")

    def test_keys_of_a_tokenizer_that_are_not_obeyed_are_named(self):
        shutil.copytree(CHAT, self.path("source"))
        path = self.path("source/tokenizer_config.json")
        with open(path) as f:
            config = json.load(f)
        with open(path, "w") as f:
            json.dump({**config, "some_key": 1, "split_special_tokens": True, "padding_side": "left"}, f)
        r = self.ok("convert", self.path("source"), self.path("m.moe"))
        lines = r.stderr.splitlines()
        self.assertEqual(len(lines), 2, r.stderr)
        self.assertIn("moe: warning: tokenizer_config.json: split_special_tokens is not obeyed", lines[0])
        self.assertEqual(lines[1], "moe: warning: tokenizer_config.json: unknown keys are not obeyed: some_key")
        r = self.ok("convert", self.path("source"), self.path("n.moe"), "--json")
        self.assertEqual(len(json.loads(r.stdout)["total"]["warnings"]), 2)

    def test_a_fault_in_a_tokenizer_names_its_file(self):
        shutil.copytree(CHAT, self.path("source"))
        with open(self.path("source/tokenizer.json")) as f:
            tokenizer = json.load(f)
        tokenizer["model"]["type"] = "Wrong"
        with open(self.path("source/tokenizer.json"), "w") as f:
            json.dump(tokenizer, f)
        self.fails(1, "convert", self.path("source"), self.path("m.moe"), contains=["source/tokenizer.json: model", "Wrong"])

    def test_a_checkpoint_where_a_model_file_is_expected(self):
        self.assertIn("once", self.ok("inspect", CHECKPOINT).stderr)  # it is converted
        self.fails(1, "inspect", os.path.join(CHECKPOINT, "model.safetensors"), contains=["safetensors", "moe convert"])
        with open(self.path("m.gguf"), "wb") as f:
            f.write(b"GGUF" + bytes(100))
        self.fails(1, "inspect", self.path("m.gguf"), contains=["m.gguf", "GGUF"])

    def test_pointers_of_git_lfs(self):
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
        source = self.source()
        for name in ("model.safetensors", "m.gguf", "m.moe"):
            with open(os.path.join(source, name), "w") as f:
                f.write(pointer)
        for command in (("convert", source), ("convert", os.path.join(source, "m.gguf"))):
            self.fails(1, *command, self.path("a.moe"), contains=["Git LFS", "git lfs pull"])
        self.fails(1, "inspect", os.path.join(source, "m.moe"), contains=["Git LFS", "git lfs pull"])

    def test_the_bar_is_gone_before_the_result(self):
        seen = []

        def read(terminal):
            data = os.read(terminal, 4096)
            seen.append(data)
            return data

        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(MOE, [MOE, "convert", CHECKPOINT, self.path("a.moe"), "--weights", "int8"])
        self.addCleanup(os.close, terminal)
        try:
            while read(terminal):
                pass
        except OSError:  # the other end is closed
            pass
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        text = b"".join(seen).decode()
        self.assertIn("ETA", text)
        bar = text.rindex("ETA")
        self.assertLess(text.index("\r\x1b[K", bar), text.index("a.moe", bar))

    def test_killed_conversion_leaves_the_old_file_and_can_be_repeated(self):
        p = self.start_long_conversion()
        r = self.fails(1, "convert", CHECKPOINT, self.path("out/m.moe"), contains=["another program"])
        p.kill()
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, -signal.SIGKILL, r.stderr)
        self.assertEqual(self.old_file(), OLD)
        self.ok("convert", CHECKPOINT, self.path("out/m.moe"), "--verify")
        self.assertEqual(os.listdir(self.path("out")), ["m.moe"])
        self.ok("inspect", self.path("out/m.moe"), "--verify")


if __name__ == "__main__":
    main()
