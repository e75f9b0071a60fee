#!/usr/bin/env python3
"""The converter as a command: results, and what an interrupt leaves behind."""

import json
import os
import signal
import subprocess
import time

from support import CHECKPOINT, MOE, Cli, main


class Convert(Cli):
    def test_convert(self):
        j = json.loads(self.ok("convert", CHECKPOINT, self.path("a.moe"), "--weights", "f32", "--verify", "--json").stdout)
        self.assertGreater(len(j["matrices"]), 0)
        self.assertEqual(os.listdir(self.folder.name), ["a.moe"])
        self.ok("convert", CHECKPOINT, self.path("b.moe"), "--weights", "int8", "--compress", "zstd")
        a = json.loads(self.ok("eval", self.path("a.moe"), "--tokens", "1,2,3", "--json").stdout)
        b = json.loads(self.ok("eval", self.path("b.moe"), "--tokens", "1,2,3", "--json").stdout)
        self.assertNotEqual(a["top"], b["top"])
        self.fails(1, "convert", CHECKPOINT, self.path("c.moe"), "--weights", "int3", contains=["int3"])
        self.fails(1, "convert", CHECKPOINT, os.path.join(self.folder.name, "no", "c.moe"))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["a.moe", "b.moe"])

    def start_long_conversion(self):
        """Converts a checkpoint whose embedding is a hole of 4 GB; returns once there is a partial file."""
        source = self.path("source")
        os.mkdir(source)
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
        os.mkdir(self.path("out"))
        with open(self.path("out/m.moe"), "w") as f:
            f.write("old")
        p = subprocess.Popen([MOE, "convert", source, self.path("out/m.moe")],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        while p.poll() is None and not os.path.exists(self.path("out/m.moe.partial")):
            time.sleep(0.01)
        return p

    def old_file(self):
        with open(self.path("out/m.moe")) as f:
            return f.read()

    def test_interrupted_conversion_leaves_the_old_file(self):
        p = self.start_long_conversion()
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 130, err)
        self.assertEqual(out, "")
        self.assertEqual(os.listdir(self.path("out")), ["m.moe"])
        self.assertEqual(self.old_file(), "old")

    def test_killed_conversion_leaves_the_old_file_and_can_be_repeated(self):
        p = self.start_long_conversion()
        r = self.fails(1, "convert", CHECKPOINT, self.path("out/m.moe"), contains=["another program"])
        p.kill()
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, -signal.SIGKILL, r.stderr)
        self.assertEqual(self.old_file(), "old")
        self.ok("convert", CHECKPOINT, self.path("out/m.moe"), "--verify")
        self.assertEqual(os.listdir(self.path("out")), ["m.moe"])
        self.ok("inspect", self.path("out/m.moe"), "--verify")


if __name__ == "__main__":
    main()
