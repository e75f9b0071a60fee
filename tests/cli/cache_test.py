#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checkpoints that are given to a command in place of a model file, and moe cache.

Usage: see support.py
"""

import json
import os
import shutil
import subprocess
import unittest

from support import CHAT, MOE, MODEL, Cli, run


class Cache(Cli):
    def setUp(self):
        super().setUp()
        self.env = {**os.environ, "XDG_CACHE_HOME": self.path("cache")}
        self.source = self.path("a checkpoint")
        shutil.copytree(CHAT, self.source)

    def moe(self, *args, text=None):
        result = run(*args, text=text, env=self.env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def fails(self, *args, contains, **env):
        result = run(*args, env={**self.env, **env})
        self.assertEqual(result.returncode, 1, result.stderr)
        for text in contains:
            self.assertIn(text, result.stderr)

    def chat(self):
        return self.moe("chat", self.source, "--no-think", text="Hello?\n")

    def models(self):
        return json.loads(self.moe("cache", "--json").stdout)["models"]

    def test_a_checkpoint_is_converted_once(self):
        first, second = self.chat(), self.chat()
        self.assertEqual(first.stdout, "Yes.\n")
        self.assertEqual(second.stdout, first.stdout)
        self.assertIn("moe: converting " + self.source + ", once", first.stderr)
        self.assertNotIn("convert", second.stderr)

    def test_every_command_that_opens_a_model_takes_one(self):
        for args in (["generate", "-p", "a", "-n", "1"], ["inspect"], ["tokenize", "a"], ["bench", "-p", "1", "-n", "1", "-r", "1"]):
            self.moe(args[0], self.source, *args[1:])
        self.assertEqual(len(self.models()), 1)

    def test_the_result_is_that_of_convert(self):
        self.moe("convert", self.source, self.path("own.moe"))
        self.chat()
        with open(self.path("own.moe"), "rb") as own, open(self.models()[0]["file"], "rb") as kept:
            self.assertEqual(own.read(), kept.read())

    def test_the_content_decides(self):
        self.chat()
        moved = self.path("moved")
        os.rename(self.source, moved)
        self.source = moved
        self.assertNotIn("converting", self.chat().stderr)  # the same content at another place
        config = os.path.join(moved, "config.json")
        with open(config, "a", encoding="utf-8") as f:
            f.write("\n")
        self.assertIn("converting", self.chat().stderr)
        self.assertEqual(len(self.models()), 2)

    def test_two_at_once_convert_once(self):
        both = [subprocess.Popen([MOE, "generate", self.source, "-p", "a", "-n", "1"], env=self.env, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        said = [p.communicate()[1] for p in both]
        self.assertEqual([p.returncode for p in both], [0, 0], said)
        self.assertEqual(sum("moe: converting" in text for text in said), 1, said)

    def test_list_and_clear(self):
        self.assertIn("0 models, 0 B", self.moe("cache").stdout)
        self.chat()
        listed = self.moe("cache").stdout
        self.assertIn(self.source, listed)
        self.assertIn("1 model, ", listed)
        self.fails("cache", "elsewhere", "--clear", contains=["elsewhere", "no conversion"])
        self.assertEqual(len(self.models()), 1)
        self.assertIn("removed", self.moe("cache", self.source, "--clear").stdout)
        self.assertEqual(self.models(), [])
        self.assertIn("converting", self.chat().stderr)

    def test_a_source_is_found_however_it_is_spelled(self):
        self.moe("generate", self.source + "/", "-p", "a", "-n", "1")
        os.symlink(self.source, self.path("link"))
        for name in (self.source, self.source + "/", self.path("./link/../a checkpoint"), self.path("link")):
            self.assertIn("1 model", self.moe("cache", name).stdout)

    def test_an_edit_with_the_old_time_is_seen(self):
        self.chat()
        config = os.path.join(self.source, "config.json")
        before = os.stat(config)
        with open(config, "r+", encoding="utf-8") as f:
            text = f.read()
            f.seek(0)
            f.write(text.replace("\n", " ", 1))
        os.utime(config, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertIn("converting", self.chat().stderr)

    def test_links_to_blobs_have_names_of_their_own(self):
        """As the caches of Hugging Face have them: which file is which is in the links alone."""
        os.mkdir(self.path("blobs"))
        for name in os.listdir(self.source):
            os.rename(os.path.join(self.source, name), self.path("blobs/" + name[::-1]))
            os.symlink(self.path("blobs/" + name[::-1]), os.path.join(self.source, name))
        self.chat()
        self.assertNotIn("converting", self.chat().stderr)
        blob = self.path("blobs/" + "config.json"[::-1])
        os.rename(blob, self.path("blobs/other"))
        os.remove(os.path.join(self.source, "config.json"))
        os.symlink(self.path("blobs/other"), os.path.join(self.source, "config.json"))
        self.assertNotIn("converting", self.chat().stderr)  # the same names and content
        os.symlink(self.path("blobs/other"), os.path.join(self.source, "generation_config.json"))
        self.assertIn("converting", self.chat().stderr)

    def test_leftovers_of_killed_conversions(self):
        self.chat()
        key = next(n for n in os.listdir(self.path("cache/moe")) if n.endswith(".moe"))[:-4]
        other = key[::-1]
        left = [f".{other}.moe.moe-aB3xyz", f"{other}.json.new", f"{other}.json", f".{other}.moe.moe-lock"]
        own = ["notes.moe", "notes.json"]
        for clear in (("cache", "--clear"), ("generate", self.source, "-p", "a", "-n", "1")):
            for name in left + own:
                open(self.path("cache/moe/" + name), "wb").close()
            self.moe(*clear)
            found = os.listdir(self.path("cache/moe"))
            self.assertEqual([n for n in left if n in found], [])
            self.assertEqual([n for n in own if n in found], own)
        self.assertEqual(len(self.models()), 1)

    def test_a_part_that_is_missing(self):
        with open(self.path("m-00001-of-00002.gguf"), "wb") as f:
            f.write(b"GGUF")
        self.fails("generate", self.path("m-00001-of-00002.gguf"), "-p", "a", contains=["m-0000"])

    def test_a_file_in_place_of_the_folder(self):
        open(self.path("file"), "wb").close()
        self.fails("generate", self.source, "-p", "a", contains=["file: Not a directory", "XDG_CACHE_HOME"], XDG_CACHE_HOME=self.path("file"))

    def test_nothing_is_kept_of_a_conversion_that_fails(self):
        os.truncate(os.path.join(self.source, "model.safetensors"), 1000)
        self.fails("generate", self.source, "-p", "a", contains=["model.safetensors"])
        self.assertEqual(self.models(), [])
        self.assertEqual([f for f in os.listdir(self.path("cache/moe")) if f not in ("lock", "secret")], [])

    def test_folders_that_are_no_checkpoints(self):
        os.mkdir(self.path("empty"))
        self.fails("chat", self.path("empty"), contains=["empty", "config.json", "GGUF"])
        open(self.path("empty/model.gguf"), "wb").close()
        self.fails("chat", self.path("empty"), contains=["such as", "model.gguf"])

    def test_the_folder_of_the_cache(self):
        self.fails("generate", self.source, "-p", "a", contains=["XDG_CACHE_HOME", "absolute"], XDG_CACHE_HOME="here", HOME="")
        self.chat()
        self.assertEqual(os.stat(self.path("cache/moe")).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(self.path("cache/moe/secret")).st_mode & 0o777, 0o600)
        # A damaged description costs a reading of the checkpoint, not a conversion.
        for name in os.listdir(self.path("cache/moe")):
            if name.endswith(".json"):
                with open(self.path("cache/moe/" + name), "w", encoding="utf-8") as f:
                    f.write("{")
        self.assertNotIn("converting", self.chat().stderr)

    def test_a_model_file_needs_no_cache(self):
        self.moe("generate", MODEL, "-p", "Once", "-n", "1")
        self.assertFalse(os.path.exists(self.path("cache")))


if __name__ == "__main__":
    unittest.main(argv=[__file__])
