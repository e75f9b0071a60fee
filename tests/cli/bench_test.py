#!/usr/bin/env python3
"""moe bench: results and Ctrl-C."""

import json
import signal
import subprocess
import time

from support import MOE, Cli, main


class Bench(Cli):
    def test_bench_synthetic(self):
        j = json.loads(self.ok("bench", "--synthetic", "tiny", "-p", "16", "-n", "4", "-r", "1", "--json").stdout)
        for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "bytes_per_token", "peak_rss_bytes",
                    "read_bandwidth_bytes_per_s", "share_of_bandwidth"):
            self.assertGreater(j[key], 0)
        self.ok("bench", "--synthetic", "tiny", "--weights", "int8", "--save", self.path("tiny.moe"))
        self.ok("inspect", self.path("tiny.moe"), "--verify")
        self.fails(1, "bench", "--synthetic", "no-such-shape", contains=["no-such-shape", "tiny"])

    def test_interrupted_generation_stops_cleanly(self):
        p = subprocess.Popen([MOE, "bench", "--synthetic", "tiny", "-p", "0", "-n", "20000", "-r", "1000"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        time.sleep(1.0)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=30)
        self.assertEqual(p.returncode, 130, err)
        self.assertEqual(out, "")
        self.assertIn("interrupted", err)


if __name__ == "__main__":
    main()
