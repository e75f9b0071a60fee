#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe convert with checkpoints whose files are not as published, and the commands that its errors offer."""

import json
import os
import shutil
import stat
import subprocess

from support import CHECKPOINT, MOE, Cli, main

# Names that a shell must not interpret.
NAMES = ["$(id>pwn).bin", "`id>pwn`.bin", "a';id>pwn;'.bin", 'a";id>pwn;".bin', "a b.bin", "-x.bin", "$HOME.bin",
         "x\nid>pwn\n.bin", "a;id>pwn;b.pt", "a&&id>pwn.pth", "é.bin", "x" * 90 + ".bin", "x" * 20 + ".bin", "');import os#.bin"]


class Incomplete(Cli):
    def copy(self):
        folder = self.path("model")
        shutil.copytree(CHECKPOINT, folder)
        return folder

    def test_pickles(self):
        """The offered command passes the file's name as one word, or a placeholder."""
        tools = self.path("tools")
        os.mkdir(tools)
        python = os.path.join(tools, "python")
        with open(python, "w") as f:
            f.write('#!/bin/sh\nfor last; do :; done\nprintf %s "$last" >"$SEEN"\n')
        os.chmod(python, os.stat(python).st_mode | stat.S_IXUSR)
        for i, name in enumerate(NAMES):
            folder = self.path(f"f{i}")
            os.mkdir(folder)
            with open(os.path.join(folder, "config.json"), "w") as f:
                f.write('{"model_type": "llama"}')
            open(os.path.join(folder, name), "w").close()
            text = self.fails(1, "convert", folder, self.path("o.moe")).stderr
            command = text.split("In its folder run: ", 1)[1]
            seen = self.path(f"seen{i}")
            env = {**os.environ, "PATH": tools + ":" + os.environ["PATH"], "SEEN": seen}
            subprocess.run(["sh", "-c", command], cwd=folder, env=env, check=False)
            self.assertEqual(sorted(os.listdir(folder)), sorted(["config.json", name]))
            with open(seen) as f:
                self.assertIn(f.read(), (name, "FILE", name.replace("\n", "?"), name.replace("é", "??")))

    def test_keys_in_commands(self):
        folder = self.copy()
        with open(os.path.join(folder, "config.json")) as f:
            config = json.load(f)
        config["$(id>pwn)"] = config["b"] = 1
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        text = self.fails(1, "convert", folder, self.path("o.moe")).stderr
        offered = text.split("moe convert ", 1)[1].split("; known", 1)[0].strip()
        self.assertEqual(offered, "--ignore-key '$(id>pwn),b'")
        command = f'"$0" convert "$1" "$2" {offered}'
        subprocess.run(["sh", "-c", command, MOE, folder, self.path("o.moe")], check=True, capture_output=True)
        self.assertNotIn("pwn", os.listdir(self.folder.name))

    def test_shards_without_their_index(self):
        folder = self.copy()
        shards = [os.path.join(folder, f"model-0000{i}-of-00002.safetensors") for i in (1, 2)]
        with open(os.path.join(folder, "model.safetensors"), "rb") as f:
            n = int.from_bytes(f.read(8), "little")
            header, data = json.loads(f.read(n)), f.read()
        self.ok("convert", folder, self.path("whole.moe"))
        os.remove(os.path.join(folder, "model.safetensors"))
        header.pop("__metadata__", None)
        names = sorted(header)
        for shard, part in zip(shards, (names[:5], names[5:])):
            head, body = {}, b""
            for name in part:
                begin, end = header[name]["data_offsets"]
                head["_orig_mod." + name] = {**header[name], "data_offsets": [len(body), len(body) + end - begin]}
                body += data[begin:end]
            text = json.dumps(head).encode()
            with open(shard, "wb") as f:
                f.write(len(text).to_bytes(8, "little") + text + body)
        done = self.ok("convert", folder, self.path("shards.moe"), "--json")
        warnings = json.loads(done.stdout)["total"]["warnings"]
        self.assertEqual(len(warnings), 2)
        self.assertIn("model-00001-of-00002.safetensors to model-00002-of-00002.safetensors (2 files)", warnings[0])
        self.assertIn("_orig_mod.", warnings[1])
        for text in warnings:
            self.assertIn(f"moe: warning: {text}\n", done.stderr)
        with open(self.path("whole.moe"), "rb") as a, open(self.path("shards.moe"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        os.remove(shards[1])
        self.fails(1, "convert", folder, self.path("o.moe"), contains=[
            "model-00002-of-00002.safetensors is missing (1 of 2 files that their names say); download it"])
        os.symlink("../../blobs/gone", shards[1])
        self.fails(1, "convert", folder, self.path("o.moe"), contains=["is a link to ../../blobs/gone, which is not there"])

    def test_links_to_models(self):
        os.symlink("blobs/gone", self.path("m.moe"))
        self.fails(1, "inspect", self.path("m.moe"), contains=["a link to blobs/gone, which is not there"])


main()
