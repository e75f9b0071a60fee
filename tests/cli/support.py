# SPDX-License-Identifier: MIT
"""Shared by the tests of the command. Each test file is run as
NAME_test.py MOE_BINARY MODEL CHECKPOINT_FOLDER CHAT_CHECKPOINT_FOLDER, in a temporary folder.
"""

import codecs
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MOE, MODEL, CHECKPOINT, CHAT = sys.argv[1:5]


def run(*args, text=None, env=None):
    """Without a text stdin is empty, so that no command waits for what runs the tests."""
    return subprocess.run([MOE, *args], input=text or "", capture_output=True, text=True, timeout=300, env=env)


def sanitized():
    with open(MOE, "rb") as program:
        text = program.read()
    return b"__asan_init" in text or b"__tsan_init" in text


def machine_of(test, shim, available, total):
    """An environment that reports a machine with these bytes of memory. shim: the library fake_machine."""
    with open(test.path("meminfo"), "w") as f:
        f.write(f"MemTotal: {total >> 10} kB\nMemAvailable: {available >> 10} kB\n")
    return {**os.environ, "LD_PRELOAD": shim, "FAKE_MEMINFO": test.path("meminfo"), "TMPDIR": test.folder.name}


class Terminal:
    """The command, or another program, at a terminal of its own. Ends it with the test."""

    def __init__(self, test, *args, program=MOE, **env):
        self.test = test
        self.seen = ""  # and not waited for
        self.before = ""  # what was shown before
        self.all = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.environ.pop("NO_COLOR", None)
            os.environ.update(env)
            os.execvp(program, [program, *args])
        self.ended = False
        test.addCleanup(self.end)

    def end(self):
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.file)

    def type(self, text):
        os.write(self.file, text.encode())

    def read(self):
        """False if the other end is closed."""
        try:
            text = self.decoder.decode(os.read(self.file, 4096))
        except OSError:
            return False
        self.seen += text
        self.all += text
        return True

    def wait_for(self, text):
        """Waits for `text`, and returns what was shown before it."""
        while text not in self.seen:
            self.test.assertTrue(select.select([self.file], [], [], 60)[0], f"no {text!r} in {self.seen!r}")
            if not self.read():
                self.test.fail(f"no {text!r} in {self.seen!r}")
        before, self.seen = self.seen.split(text, 1)
        self.before += before
        return before

    def rest(self):
        """The rest of what was shown, which was not waited for."""
        while select.select([self.file], [], [], 0.2)[0]:
            if not self.read():
                break
        return self.seen

    def status(self):
        """The exit status of the command, which must end."""
        for _ in range(600):
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.ended = True
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.1)
        self.test.fail("the command did not end")


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.environ["XDG_CACHE_HOME"] = self.path("cache")  # of checkpoints that are run directly

    def path(self, name):
        return os.path.join(self.folder.name, name)

    @staticmethod
    def wait_for_its_handler(process):
        """Waits until the process catches SIGINT and SIGTERM, bits of the hexadecimal mask in /proc."""
        wanted = 1 << (signal.SIGINT - 1) | 1 << (signal.SIGTERM - 1)
        while process.poll() is None:
            with open(f"/proc/{process.pid}/status", encoding="utf-8") as status:
                caught = next(line for line in status if line.startswith("SigCgt"))
            if int(caught.split()[1], 16) & wanted == wanted:
                return
            time.sleep(0.01)

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
