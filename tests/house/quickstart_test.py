#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The progress that examples/quickstart.sh shows, with a script instead of cmake. Usage: quickstart_test.py ROOT"""

import os
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(sys.argv[1], "examples/quickstart.sh")
CMAKE = """#!/bin/bash
[ "$1" = --build ] || exit 0
echo "[1/2] Building one"
echo "a warning" >&2
echo "[2/2] Building two"
exit $FAKE_CMAKE_EXIT
"""


class Quickstart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.program("fake/cmake", CMAKE)
        self.program("scripts/install-deps.sh", "#!/bin/bash\n")
        self.program("build/release/bin/moe", "#!/bin/bash\necho a story\n")
        os.mkdir(os.path.join(self.root, "examples"))
        shutil.copy(SCRIPT, os.path.join(self.root, "examples"))

    def program(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)

    def start(self, status, stderr=subprocess.PIPE):
        environment = {**os.environ, "PATH": f"{self.root}/fake:{os.environ['PATH']}",
                       "FAKE_CMAKE_EXIT": str(status)}
        return subprocess.run(["bash", os.path.join(self.root, "examples/quickstart.sh")], text=True,
                              stdout=subprocess.PIPE, stderr=stderr, env=environment)

    def log(self):
        with open(os.path.join(self.root, "build/quickstart.log"), encoding="utf-8") as f:
            return f.read()

    @staticmethod
    def all_of(terminal):
        """Everything that was written to a terminal whose other end is closed."""
        shown = b""
        try:
            while piece := os.read(terminal, 65536):
                shown += piece
        except OSError:  # on Linux, the other end is closed
            pass
        os.close(terminal)
        return shown.decode()

    def test_terminal_sees_the_counter(self):
        ours, theirs = pty.openpty()
        run = self.start(0, stderr=theirs)
        os.close(theirs)
        shown = self.all_of(ours)
        self.assertEqual((run.returncode, run.stdout), (0, "a story\n"))
        self.assertIn("1 of 2", shown)
        self.assertIn("2 of 2", shown)
        self.assertNotIn("a warning", shown)

    def test_without_a_terminal_there_is_no_counter(self):
        run = self.start(0)
        self.assertEqual((run.returncode, run.stdout), (0, "a story\n"))
        self.assertIn("Building moe in build/release", run.stderr)
        self.assertNotIn("1 of 2", run.stderr)
        self.assertEqual(self.log(), "[1/2] Building one\na warning\n[2/2] Building two\n")

    def test_failure_shows_the_log(self):
        run = self.start(3)
        self.assertEqual((run.returncode, run.stdout), (1, ""))
        self.assertIn("a warning", run.stderr)
        self.assertIn("quickstart.log", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
