#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe bench: its results, its method, arguments it refuses, Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import time
import unittest

from support import MODEL, MOE, Cli, main, sanitized

LARGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"


def flags_of_largest_mapping(pid):
    """(bytes, VmFlags) of the largest private mapping of a process's children."""
    found = (0, "")
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        children = f.read().split()
    for child in children:
        size = 0
        with open(f"/proc/{child}/smaps") as f:
            for line in f:
                key, _, value = line.partition(":")
                if key == "Size":
                    size = int(value.split()[0]) << 10
                elif key == "VmFlags" and size > found[0]:
                    found = (size, value.split())
    return found


class Bench(Cli):
    def test_bench_synthetic(self):
        j = json.loads(self.ok("bench", "--synthetic", "tiny", "-p", "16", "-n", "4", "-r", "1", "--json").stdout)
        for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "bytes_per_token", "peak_rss_bytes",
                    "read_bandwidth_bytes_per_s", "share_of_bandwidth"):
            self.assertGreater(j[key], 0)
        self.ok("bench", "--synthetic", "tiny", "--weights", "int8", "--save", self.path("tiny.moe"))
        self.ok("inspect", self.path("tiny.moe"), "--verify")
        self.fails(2, "bench", "--synthetic", "no-such-shape", contains=["no-such-shape", "tiny"])

    def measured_pages(self, *args):
        """The VmFlags of the buffer of the child process that measures memory bandwidth."""
        p = subprocess.Popen([MOE, "bench", MODEL, "-p", "0", "-n", "1", "-r", "1000", *args], stdout=subprocess.DEVNULL)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        while p.poll() is None:
            try:
                size, flags = flags_of_largest_mapping(p.pid)
            except OSError:  # the child ended
                continue
            if size >= 16 << 20 and ("hg" in flags or "nh" in flags or "rd" in flags and size >= 60 << 20):
                return flags
            time.sleep(0.01)
        self.fail("nothing was measured")

    @unittest.skipUnless(os.path.exists(LARGE_PAGES), "this system has no large pages")
    @unittest.skipIf(sanitized(), "a sanitizer maps more than the command does")
    def test_memory_is_measured_with_the_pages_that_weights_have(self):
        self.assertIn("hg", self.measured_pages())
        self.assertIn("nh", self.measured_pages("--map"))

    def test_experts_that_were_used_are_counted(self):
        def bench(*args):
            return json.loads(self.ok("bench", MODEL, "-p", "0", "-n", "40", "-r", "1", "--json", *args).stdout)

        one, two, most = bench("--router", "topk:1"), bench(), bench("--router", "topk:16")
        # Sub-tokens of one token may choose the same expert.
        self.assertTrue(1 <= one["experts_per_token"] <= 2, one)
        self.assertTrue(2 <= two["experts_per_token"] < 4, two)
        self.assertEqual(most["experts_per_token"], 16)
        self.assertLess(two["used_bytes_per_token"], two["bytes_per_token"])
        expert = (most["used_bytes_per_token"] - two["used_bytes_per_token"]) / (16 - two["experts_per_token"])
        self.assertAlmostEqual(two["used_bytes_per_token"] - one["used_bytes_per_token"],
                               expert * (two["experts_per_token"] - one["experts_per_token"]), delta=2)
        self.assertAlmostEqual(two["decode_bytes_per_s"] / two["decode_tokens_per_s"],
                               two["used_bytes_per_token"] + two["kv_bytes_per_token"], delta=2)
        together = bench("--sessions", "4")  # sessions share the weights that they read
        self.assertLess(together["used_bytes_per_token"], two["used_bytes_per_token"])
        self.assertIn("experts per token on average", self.ok("bench", MODEL, "-p", "0", "-n", "40", "-r", "1").stdout)

    def test_runs_of_hours_are_refused(self):
        self.fails(1, "bench", "--synthetic", "tiny", "-n", "500000", "-r", "1000", contains=["hours", "-n", "-r"])
        # Attention dominates the estimate; the matrix products alone would take minutes.
        self.fails(1, "bench", "--synthetic", "tiny", "-p", "4000000", "-n", "0", "-r", "1", contains=["hours"])
        self.fails(1, "bench", "--synthetic", "tiny", "-p", "0", "-n", "2000000", "-r", "1", contains=["hours"])

    def test_more_tokens_than_the_context(self):
        self.fails(2, "bench", MODEL, "-n", "600", contains=["-p, -d and -n need 600", "512"])
        self.fails(2, "bench", MODEL, "-n", "4", "--context", "600", contains=["--context 600", "1..512"])
        self.fails(2, "bench", MODEL, "-p", "x", contains=["--prompt-tokens: expected a whole number in 0..16777216, found 'x'"])

    def test_progress_is_for_terminals(self):
        self.assertEqual(self.ok("bench", "--synthetic", "tiny", "-p", "8", "-n", "4", "-r", "1").stderr, "")
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(MOE, [MOE, "bench", "--synthetic", "tiny", "-p", "8", "-n", "4", "-r", "2"])
        shown = b""
        while True:
            try:
                got = os.read(fd, 4096)
            except OSError:
                break
            if not got:
                break
            shown += got
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        for stage in (b"weights", b"measuring memory (1 of 2)", b"prompt of 8 tokens (2 of 2)", b"decoding (2 of 2)"):
            self.assertIn(stage, shown)

    def test_making_weights_can_be_interrupted(self):
        path = self.path("big.moe")
        p = subprocess.Popen([MOE, "bench", "--synthetic", "bitnet-2b-4t", "--save", path], stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        while p.poll() is None and len(os.listdir(self.folder.name)) < 2:  # a lock and the new file
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 130, err)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_interrupted_generation_stops_cleanly(self):
        p = subprocess.Popen([MOE, "bench", "--synthetic", "tiny", "-p", "0", "-n", "20000", "-r", "20"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.wait_for_its_handler(p)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=30)
        self.assertEqual(p.returncode, 130, err)
        self.assertEqual(out, "")
        self.assertIn("interrupted", err)


if __name__ == "__main__":
    main()
