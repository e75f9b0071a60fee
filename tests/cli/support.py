"""Shared by the tests of the command. Each test file is run as
NAME_test.py MOE_BINARY MODEL CHECKPOINT_FOLDER CHAT_CHECKPOINT_FOLDER, in a temporary folder.
"""

import os
import subprocess
import sys
import tempfile
import unittest

MOE, MODEL, CHECKPOINT, CHAT = sys.argv[1:5]


def run(*args, text=None, env=None):
    return subprocess.run([MOE, *args], input=text, capture_output=True, text=True, timeout=300, env=env)


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def ok(self, *args, **kwargs):
        r = run(*args, **kwargs)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r

    def fails(self, code, *args, contains=(), **kwargs):
        r = run(*args, **kwargs)
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        self.assertEqual(r.stdout, "")
        for word in contains:
            self.assertIn(word, r.stderr)
        return r


def main():
    unittest.main(argv=sys.argv[:1])
