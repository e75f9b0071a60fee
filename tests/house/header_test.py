#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The conventions of include/moe_c.h: every function, type and field has a comment, structs that may
grow begin with their size, callbacks and their pointers have one form, and MOE_API is right on each
system. Usage: header_test.py ROOT C_COMPILER"""

import pathlib
import re
import subprocess
import sys
import unittest

HEADER = pathlib.Path(sys.argv[1]) / "include/moe_c.h"
COMPILER = sys.argv[2]
# Fixed for all time: the caller's error, elements of arrays, and what stands inside another struct.
NEVER_GROWS = {"moe_error", "moe_token_logprob", "moe_logit_bias", "moe_memory_line", "moe_expert_stats"}
PLAIN = {"struct_size", "reserved"}  # fields that the conventions explain
GIVES = {"moe_clock_fn": "uint64_t"}  # callbacks that return a number; the others return bool or void
CALLBACK_STRUCTS = {"moe_allocator", "moe_reader", "moe_writer"}  # one `user` for all


def structs(text):
    """(name, line number, lines of the body) of each."""
    for m in re.finditer(r"struct (moe_\w+) \{\n(.*?)\n\}", text, re.S):
        yield m[1], text[:m.start()].count("\n"), m[2].split("\n")


def is_commented(lines, i):
    """True if a comment ends in the line before line `i`."""
    return i > 0 and lines[i - 1].rstrip().endswith("*/")


def field_faults(name, body):
    """The fields without a comment: neither in their line nor, alone or with neighbours, above."""
    faults, inside = [], False
    for i, line in enumerate(body):
        inside = inside or line.strip().startswith("/*")
        if inside:
            inside = not line.rstrip().endswith("*/")
            continue
        field = re.search(r"(\w+)(?:\[\w+\])?;", line) or re.search(r"\(\*(\w+)\)\(", line)
        if field and field[1] not in PLAIN and "/*" not in line and not is_commented(body, i):
            faults.append(f"{name}.{field[1]}: no comment")
        inside = "/*" in line and not line.rstrip().endswith("*/")
    return faults


def comment_faults(text):
    lines = text.split("\n")
    faults = []
    for i, line in enumerate(lines):
        found = re.match(r"MOE_API .*?\b(moe_\w+)\(", line) or \
            re.match(r"typedef (?:struct|enum) (moe_\w+) \{", line) or \
            re.match(r"typedef .*\(\*(\w+)\)\(", line) or re.match(r"struct (moe_\w+) \{", line)
        if found and not is_commented(lines, i):
            faults.append(f"line {i + 1}: {found[1]}: no comment in front")
    for name, _, body in structs(text):
        faults += field_faults(name, body)
    return faults


def size_faults(text):
    found = {name: body[0].strip().startswith("uint32_t struct_size;") for name, _, body in structs(text)}
    return [f"{name}: does not begin with uint32_t struct_size" for name in found
            if not found[name] and name not in NEVER_GROWS] + \
        [f"{name}: is said never to grow" for name in found if found[name] and name in NEVER_GROWS] + \
        [f"{name}: unknown" for name in sorted(NEVER_GROWS - set(found))]


def callback_faults(text):
    bare = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    faults = [f"{name}: expected bool or void, and void* user first" for result, name, first in
              re.findall(r"typedef (\w+) \(\*(moe_\w+)\)\(([^,)]*)", bare)
              if result not in (GIVES.get(name), "bool", "void") or first.strip() != "void* user"]
    for name, _, body in structs(bare):
        fields = [line.strip() for line in body if line.strip()]
        for i, line in enumerate(fields):
            field = re.match(r"moe_\w+_fn (\w+);", line)
            if field and (i + 1 == len(fields) or fields[i + 1] != f"void* {field[1]}_user;"):
                faults.append(f"{name}.{field[1]}: expected void* {field[1]}_user behind it")
            if "(*" in line and name not in CALLBACK_STRUCTS:
                faults.append(f"{name}: a callback without a type of its own")
            if "(*" in line and not re.match(r"(bool|void|void\*) \(\*\w+\)\(void\* user, ", line):
                faults.append(f"{name}: {line}: expected bool or void, and void* user first")
    return faults


class Header(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = HEADER.read_text(encoding="utf-8")

    def changed(self, old, new):
        self.assertIn(old, self.text)
        return self.text.replace(old, new, 1)

    def test_everything_has_a_comment(self):
        self.assertEqual(comment_faults(self.text), [])
        for name in ("moe_env_create", "moe_session_eval", "moe_chat_message_count"):
            text = re.sub(rf"(MOE_API [^\n]*\b{name}\()", r"\n\1", self.text)
            self.assertEqual(len(comment_faults(text)), 1, name)
        self.assertEqual(comment_faults(self.changed("float temperature;", "float heat;\n  float temperature;")),
                         ["moe_sampling.heat: no comment"])

    def test_structs_carry_their_size(self):
        self.assertEqual(size_faults(self.text), [])
        self.assertEqual(len(size_faults(self.changed("typedef struct moe_reader {\n  uint32_t struct_size;",
                                                      "typedef struct moe_reader {"))), 1)

    def test_callbacks_have_one_form(self):
        self.assertEqual(callback_faults(self.text), [])
        for old, new in (("typedef bool (*moe_piece_fn)(void* user, ", "typedef int (*moe_piece_fn)(void* user, "),
                         ("void* logits_user;", "void* user;"), ("bool (*read)(void* user, ", "bool (*read)(")):
            self.assertEqual(len(callback_faults(self.changed(old, new))), 1, new)

    def test_functions_are_exported_on_each_system(self):
        for macros, expected in (([], "visibility"), (["_WIN32"], "dllimport"), (["_WIN32", "MOE_STATIC"], "visibility"),
                                 (["_WIN32", "MOE_BUILDING"], "dllexport")):
            done = subprocess.run([COMPILER, "-E", "-P", "-x", "c", *(f"-D{m}" for m in macros), HEADER],
                                  capture_output=True, text=True, check=True)
            line = next(line for line in done.stdout.split("\n") if "moe_version(" in line)
            self.assertIn(expected, line, macros)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
