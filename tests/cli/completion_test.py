#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Completion in bash, zsh and fish, and the manual page: they name what --help names, and nothing else."""

import os
import pty
import re
import select
import shutil
import subprocess
import time
import unittest

from support import Cli, MOE, main

BASH = """source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _moe; printf '%s\\n' "${COMPREPLY[@]}" """


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class Help(Cli):
    def commands(self):
        listed = self.ok("--help").stdout.split("Commands:\n")[1].split("\n\n")[0]
        return re.findall(r"^  (\w+) ", listed, re.M)

    def options(self, command):
        return re.findall(r"^  (?:-\w, )?(--[\w-]+)", self.ok(command, "--help").stdout, re.M)

    def shell(self, *command):
        r = subprocess.run(command, capture_output=True, text=True, cwd=self.folder.name, timeout=60,
                           env={**os.environ, "HOME": self.folder.name, "LC_ALL": "C.UTF-8"})
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        return r.stdout


class Completion(Help):
    def setUp(self):
        super().setUp()
        for shell in ("bash", "zsh", "fish"):
            with open(self.path(shell), "w", encoding="utf-8") as f:
                f.write(self.ok("completion", shell).stdout)
        for name in ("a text.txt", "model.moe"):
            open(self.path(name), "w").close()

    def bash(self, *words):
        return self.shell("bash", "--norc", "-c", BASH, "bash", self.path("bash"), "moe", *words).split("\n")[:-1]

    def fish(self, line):
        out = self.shell("fish", "--no-config", "-c", f"source {self.path('fish')}; complete -C '{line}'")
        return [entry.split("\t")[0] for entry in out.splitlines()]

    def test_bash_knows_commands_and_options(self):
        self.assertEqual(self.bash("gen"), ["generate"])
        self.assertEqual(self.bash("")[:-2], self.commands())
        self.assertEqual(self.bash("--v"), ["--version"])
        for command in self.commands():
            self.assertEqual([w for w in self.bash(command, "-") if w.startswith("--")], self.options(command))

    def test_bash_knows_values(self):
        self.assertEqual(self.bash("generate", "--kv", ""), ["f16", "int8", "f32", "latent"])
        self.assertEqual(self.bash("generate", "--kv", "="), ["f16", "int8", "f32", "latent"])
        self.assertEqual(self.bash("generate", "--kv", "=", "i"), ["int8"])
        self.assertIn("ternary2", self.bash("convert", "--weights", ""))
        self.assertEqual(self.bash("completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.bash("chat", "--template", "m"), ["mistral", "model.moe"])

    def test_bash_knows_files(self):
        self.assertEqual(self.bash("inspect", "mod"), ["model.moe"])
        self.assertEqual(self.bash("generate", "-f", "a"), ["a text.txt"])
        self.assertEqual(self.bash("generate", "model.moe", "-p", ""), [""])
        self.assertEqual(self.bash("man", ""), [""])
        for typed in (["--set"], ["--set", "="]):
            self.assertEqual(self.bash("convert", *typed, "experts", "=", "mod"), [""])
        self.assertEqual(self.bash("convert", "--set", "experts", "="), [""])

    @needs("fish")
    def test_fish(self):
        self.assertEqual(self.fish("moe gen"), ["generate"])
        self.assertEqual(sorted(self.fish("moe ")), sorted(self.commands()))
        for command in self.commands():
            self.assertEqual({w for w in self.fish(f"moe {command} --")}, set(self.options(command)))
        self.assertEqual(self.fish("moe generate --kv "), ["f16", "f32", "int8", "latent"])
        self.assertEqual(self.fish("moe inspect mod"), ["model.moe"])
        self.assertEqual(sorted(self.fish("moe completion ")), ["bash", "fish", "zsh"])

    @needs("zsh")
    def test_zsh_knows_what_help_knows(self):
        self.shell("zsh", "-n", self.path("zsh"))
        with open(self.path("zsh"), encoding="utf-8") as f:
            script = f.read()
        for command in self.commands():
            part = script.split(f"\n    {command}) _arguments")[1].split(" ;;")[0]
            self.assertEqual(re.findall(r"[)*](--[\w-]+)", part), self.options(command))

    @needs("zsh")
    def test_zsh_completes(self):
        for typed, completed in [("moe gen", "moe generate"), ("moe generate --kv i", "--kv int8"),
                                 ("moe generate --ignore", "--ignore-eos"), ("moe inspect mod", "inspect model.moe"),
                                 ("moe completion f", "completion fish"),
                                 ("moe perplexity --sweep=", "NAME=FROM:TO:STEP")]:
            self.assertIn(completed, self.zsh(typed, completed))

    def zsh(self, typed, awaited):
        """The text that an interactive zsh shows after Tab."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.folder.name)
            os.environ.update(HOME=self.folder.name, TERM="dumb", PS1="> ")
            os.execvp("zsh", ["zsh", "-f", "-i"])
        try:
            os.write(terminal, b"autoload -U compinit; compinit -u -D; source ./zsh; "
                     b"zstyle ':completion:*' format %d; print READ''Y\n")
            self.read_until(terminal, "READY")
            os.write(terminal, typed.encode() + b"\t")
            return self.read_until(terminal, awaited)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
            os.close(terminal)

    def read_until(self, terminal, awaited):
        seen, end = "", time.monotonic() + 30
        while awaited not in seen and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 4096).decode(errors="replace")
        return seen


class Manual(Help):
    def manual(self):
        return re.sub(r"\\(.)", lambda m: {"e": "\\", "&": ""}.get(m[1], m[1]), self.ok("man").stdout)

    def test_names_every_command_of_help(self):
        text = self.manual()
        version = self.ok("--version").stdout.splitlines()[0]
        self.assertIn(f'.TH MOE 1 "" "{version}"', text)
        for command in self.commands():
            part = text.split(f'.SS "moe {command} ')[1].split(".SS")[0]
            for option in self.options(command):
                if option != "--help":
                    self.assertIn(option, part)
        for line in re.findall(r"^  (-.+?)(?:  +\S.*)?$", self.ok("generate", "--help").stdout, re.M):
            self.assertIn(f".B {line}\n", text)

    @needs("groff")
    def test_is_valid(self):
        with open(self.path("moe.1"), "w", encoding="utf-8") as f:
            f.write(self.ok("man").stdout)
        shown = self.shell("groff", "-man", "-Tascii", "-ww", "-P-cbou", self.path("moe.1"))
        self.assertIn("COMMON OPTIONS", shown)


main()
