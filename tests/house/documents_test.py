#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests that documents.py and lint_links.py report what they must, and accept the rest. Usage: documents_test.py"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import documents  # noqa: E402
import lint_links  # noqa: E402


class Documents(unittest.TestCase):
    def failures(self, text, update=False):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a.md")
            path.write_text(text)
            with documents.Shell(pathlib.Path(folder)) as shell:
                document = documents.Document(path, shell, "")
                document.fail = lambda *_: setattr(document, "failed", document.failed + 1)
                document.run()
            if update:
                document.update()
                return path.read_text()
            return document.failed

    def test_output_must_agree(self):
        self.assertEqual(self.failures("```console\n$ echo 1; echo 2\n1\n2\n```\n"), 0)
        self.assertEqual(self.failures("```console\n$ echo 1; echo 2\n1\n```\n"), 1)
        self.assertEqual(self.failures("```console\n$ echo 1\n1\n2\n```\n"), 1)
        self.assertEqual(self.failures("```console\n$ echo 1\n2\n$ echo 2\n1\n```\n"), 2)

    def test_what_may_differ(self):
        self.assertEqual(self.failures("```console\n$ echo a b c\na ... c\n```\n"), 0)
        self.assertEqual(self.failures("```console\n$ seq 9\n1\n...\n9\n```\n"), 0)
        self.assertEqual(self.failures("```console\n$ seq 9\n1\n...\n8\n```\n"), 1)
        self.assertEqual(self.failures("```console\n$ echo 12.5 tokens/s in 3 s\n7 tokens/s in 1.0 s\n```\n"), 0)
        self.assertEqual(self.failures("```console\n$ echo 12.5 MB\n7.1 MB\n```\n"), 1)

    def test_status(self):
        self.assertEqual(self.failures("```console\n$ false\n```\n"), 1)
        self.assertEqual(self.failures("<!-- exits with 1 -->\n```console\n$ false\n```\n"), 0)
        self.assertEqual(self.failures("<!-- exits with 1 -->\n```console\n$ true\n```\n"), 1)
        self.assertEqual(self.failures("<!-- not run: why -->\n```console\n$ false\n```\n"), 0)
        self.assertEqual(self.failures("```sh\nfalse\ntrue\n```\n"), 1)

    def test_what_is_exported_stays(self):
        self.assertEqual(
            self.failures("```sh\nexport WORD=kept\n```\n```console\n$ echo $WORD\nkept\n```\n"), 0)

    def test_programs(self):
        self.assertEqual(self.failures("```python\nprint(6 * 7)\n```\n\n```text\n42\n```\n"), 0)
        self.assertEqual(self.failures("```python\nprint(6 * 7)\n```\n\n```text\n41\n```\n"), 1)
        self.assertEqual(self.failures("```python\nraise ValueError\n```\n"), 1)

    def test_update(self):
        self.assertEqual(self.failures("```console\n$ echo new\nold\n```\n", update=True),
                         "```console\n$ echo new\nnew\n```\n")


class Links(unittest.TestCase):
    PATHS = ("README.md", "docs/a.md", "docs/b.png", "tests/README.md")

    def targets(self, text, path="docs/a.md"):
        """Those of the links that are reported."""
        documents = {"README.md": "# Top\n", "tests/README.md": "## A `b_c`: d, [e](..)-g\n## Twice\n## Twice\n"}
        found = lint_links.faults({**documents, path: text}, set(self.PATHS))
        return [fault.split(": ")[1] for fault in found]

    def test_files(self):
        self.assertEqual(self.targets("[a](../README.md) ![b](b.png) [c](../tests) [d](..) <img src=\"b.png\">\n"), [])
        self.assertEqual(self.targets("[a](b.md) ![b](a.png) [c](../../README.md)\n<img src=\"c.png\">\n\n[d]: e.md\n"),
                         ["b.md", "a.png", "../../README.md", "c.png", "e.md"])
        self.assertEqual(self.targets("[a `b`\nc](d.md)\n"), ["d.md"])

    def test_headings(self):
        self.assertEqual(self.targets("# A\n[a](#a) [b](../README.md#top) [c](../tests#a-b_c-d-e-g)\n"), [])
        self.assertEqual(self.targets("[a](../tests/README.md#twice) [b](../tests#twice-1)\n"), [])
        self.assertEqual(self.targets("# A\n[a](#b) [b](../README.md#Top) [c](../tests#twice-2) [d](b.png#a)\n"),
                         ["#b", "../README.md#Top", "../tests#twice-2", "b.png#a"])
        self.assertEqual(self.targets("```sh\n# A\n```\n[a](#a)\n"), ["#a"])

    def test_what_is_no_link(self):
        self.assertEqual(self.targets("`f[i](x)` ``[a](`b`)``\n\n```\n[a](b)\n```\n\n[a](https://b.c/d#e)\n"), [])


if __name__ == "__main__":
    unittest.main()
