#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/bench/peers/memory_limit.py: its cleanup, what it refuses, and what it prints; scratch folders take the place of /sys."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

PEERS = pathlib.Path(__file__).resolve().parents[1] / "bench/peers"
sys.path.insert(0, str(PEERS))
import memory_limit  # noqa: E402

# A cgroup can be removed although it contains files; here the limit's file is outside the folder.
WAITS = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
import memory_limit
memory_limit.exit_on_signals()
limit = memory_limit.Limit(1000, sys.argv[2])
limit.file = "../limit"
with limit:
    print("made", flush=True)
    memory_limit.run([sys.executable, "-c", "import time; time.sleep(60)"])
"""


class MemoryLimit(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def test_the_cgroup_is_removed(self):
        limit = memory_limit.Limit(1000, self.folder)
        limit.file = "../limit"
        with limit as path:
            self.assertTrue(os.path.isdir(path))
        self.assertEqual(os.listdir(self.folder), ["limit"])

    def test_the_cgroup_is_removed_if_setting_the_limit_fails(self):
        limit = memory_limit.Limit(1000, self.folder)
        limit.file = "absent/limit"
        with self.assertRaises(FileNotFoundError):
            limit.__enter__()
        self.assertEqual(os.listdir(self.folder), [])

    def end_by(self, name):
        command = [sys.executable, "-B", "-c", WAITS, PEERS, self.folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            self.assertEqual(process.stdout.readline(), "made\n")
            process.send_signal(name)
            return process.wait(30)

    def test_the_cgroup_is_removed_on_a_signal(self):
        for name in (signal.SIGTERM, signal.SIGHUP):
            self.assertEqual(self.end_by(name), 128 + name)
            self.assertEqual(os.listdir(self.folder), ["limit"])

    def test_swap_is_refused(self):
        header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        memory_limit.refuse_swap(self.write("swaps", header))
        with self.assertRaisesRegex(SystemExit, "swap is on .*/dev/vda2"):
            memory_limit.refuse_swap(self.write("swaps", header + "/dev/vda2 partition\t8388604\t0\t-2\n"))

    def test_read_ahead_is_that_of_the_disk(self):
        number = os.stat(self.folder).st_dev
        device = f"{os.major(number)}:{os.minor(number)}"
        self.assertEqual(memory_limit.read_ahead(self.folder, self.folder), ("unknown", device))
        self.write("disk/queue/read_ahead_kb", "128\n")
        (self.folder / "disk/partition").mkdir()
        (self.folder / "dev/block").mkdir(parents=True)
        (self.folder / "dev/block" / device).symlink_to("../../disk/partition")
        self.assertEqual(memory_limit.read_ahead(self.folder, self.folder), ("128", device))
        self.write(f"class/bdi/{device}/read_ahead_kb", "256\n")
        self.assertEqual(memory_limit.read_ahead(self.folder, self.folder), ("256", device))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
