#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Control characters are escaped on a terminal; pipes and files get the bytes unchanged."""

import json
import os
import pty
import shutil
import subprocess

from support import CHECKPOINT, Cli, MODEL, MOE, main

HOSTILE = "a\x1b[31m\x07\x7f\u009b2J\u202eb\r\u00e9\U0001F642"
SHOWN = "a\\x1b[31m\\x07\\x7f\\x9b2J\\u202eb\\x0d\u00e9\U0001F642"


class Terminal(Cli):
    def at_terminal(self, *args):
        """The command's stdout and stderr as a terminal shows them, with line ends turned back into LF."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(MOE, [MOE, *args])
        out = b""
        try:
            while part := os.read(terminal, 1 << 16):
                out += part
        except OSError:  # the other end is closed
            pass
        os.close(terminal)
        os.waitpid(pid, 0)
        return out.replace(b"\r\n", b"\n").decode()

    def hostile_model(self):
        folder = self.path("source")
        shutil.copytree(CHECKPOINT, folder)
        with open(os.path.join(folder, "config.json")) as f:
            config = json.load(f)
        config["name"] = HOSTILE + "\n1"
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        self.ok("convert", folder, self.path("m.moe"))
        return self.path("m.moe")

    def test_a_prompt(self):
        args = ("generate", MODEL, "-p", HOSTILE + "\n\tc", "-n", "1")
        self.assertIn(SHOWN + "\n\tc", self.at_terminal(*args))
        self.assertTrue(subprocess.run([MOE, *args], capture_output=True).stdout.decode().startswith(HOSTILE + "\n\tc"))

    def test_a_models_name(self):
        model = self.hostile_model()
        self.assertTrue(self.at_terminal("inspect", model).startswith(SHOWN + "\\x0a1\n"))
        self.assertTrue(subprocess.run([MOE, "inspect", model], capture_output=True).stdout.startswith(HOSTILE.encode()))

    def test_generated_and_decoded_text(self):
        ids = self.ok("tokenize", MODEL, "--no-bos", "-p", HOSTILE).stdout.strip()
        self.assertEqual(self.at_terminal("tokenize", MODEL, "--decode", "-p", ids), SHOWN + "\n")
        self.assertNotIn("\x1b", self.at_terminal("tokenize", MODEL, "-p", HOSTILE, "--pieces"))

    def test_messages(self):
        out = self.at_terminal("generate", self.path(HOSTILE), "-p", "x")
        self.assertNotRegex(out, "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
        out = self.at_terminal("generate", MODEL, "-p", "x", "--" + HOSTILE)
        self.assertIn("unknown option '--" + SHOWN, out)

    def test_bytes_that_are_no_text(self):
        with open(self.path("t.txt"), "wb") as f:
            f.write(b"a\xffb\xe2\x82c\xed\xa0\x80d\xc0\x80e\xf4\x90\x80\x80")
        out = self.at_terminal("generate", MODEL, "-f", self.path("t.txt"), "-n", "1")
        self.assertRegex(out, "^a\ufffdb\ufffdc\ufffd+d\ufffd+e\ufffd+")


if __name__ == "__main__":
    main()
