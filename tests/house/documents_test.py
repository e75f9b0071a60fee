#!/usr/bin/env python3
"""Differences that documents.py must report, and those that it must accept. Usage: documents_test.py"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import documents  # noqa: E402


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


if __name__ == "__main__":
    unittest.main()
