#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory budgets: --memory, the memory of the machine, files read past the page cache.

Usage: budget_test.py MOE MODEL CHECKPOINT CHAT LIBFAKE_MACHINE
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from support import CHECKPOINT, Cli, MODEL, MOE, machine_of, main, run

SHIM = sys.argv[5]
FAMILIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/families")
RUN = {"generate": ("-p", "Once upon a time", "-n", "20"), "perplexity": ("-p", "Once upon a time, there was"),
       "eval": ("-p", "Once"), "bench": ("-p", "8", "-n", "2", "-r", "1"), "chat": ("--template", "plain", "-n", "4", "--temp", "0")}


class Budget(Cli):
    def machine(self, available, total=10**9):
        return machine_of(self, SHIM, available, total)

    def test_malformed_sizes_are_refused(self):
        for command in RUN:
            for value in ("0", "-1", "2X", "nan", "1.5", "lots"):
                self.fails(2, command, MODEL, *RUN[command], "--memory", value,
                           contains=["--memory", f"'{value}' is not a size", "above 0"])
            self.fails(2, command, MODEL, *RUN[command], "--memory", "", contains=["--memory"])
            self.fails(2, command, MODEL, *RUN[command], "--memory", "1e99", contains=["--memory: '1e99' is too large"])
        self.fails(2, "inspect", MODEL, "--gpu-memory", "lots", contains=["--gpu-memory: 'lots' is not a size"])

    def test_more_than_the_machine_has(self):
        env = self.machine(10**8, total=3 * 10**8)
        for command in RUN:
            self.fails(1, command, MODEL, *RUN[command], "--memory", "1G", env=env,
                       contains=["--memory 1G is 1.1 GB", "has 300 MB"])
            self.assertEqual(run(command, MODEL, *RUN[command], "--memory", "200M", env=env, text="Hi\n").returncode, 0)

    def test_inspect_plans_for_another_machine(self):
        env = self.machine(10**8, total=3 * 10**8)
        self.assertIn("under the cap of 1.1 GB", self.ok("inspect", MODEL, "--memory", "1G", env=env).stdout)

    def test_no_message_when_the_model_fits(self):
        env = self.machine(10**8)
        for command in RUN:
            self.assertNotIn("budget", self.ok(command, MODEL, *RUN[command], env=env, text="Hi\n").stderr)

    def test_auto_reads_past_the_page_cache_what_memory_cannot_hold(self):
        with open(MODEL, "rb") as f:
            size = len(f.read())
        for available, direct in ((size + 4096, False), (size - 4096, True)):
            r = self.ok("inspect", MODEL, "--verify", "--verbose", env=self.machine(available))
            self.assertEqual("bypassing the page cache" in r.stderr, direct, r.stderr)
            self.assertNotIn("bypassing the page cache",
                             self.ok("inspect", MODEL, "--verbose", "--io", "buffered", env=self.machine(available)).stderr)

    def test_bench_writes_a_file_that_is_gone(self):
        env = self.machine(10**8)
        args = ("bench", "--synthetic", "tiny", "-p", "8", "-n", "2", "-r", "1")
        for more in (("--memory", "50M"), ("--io", "buffered")):
            r = self.ok(*args, *more, env=env)
            self.assertRegex(r.stderr, r"^moe: writing a file of \d+ kB in " + self.folder.name)
            self.assertEqual(sorted(os.listdir(self.folder.name)), ["meminfo"])
        self.ok(*args, "--memory", "50M", "--save", self.path("tiny.moe"), env=env)
        self.ok("inspect", self.path("tiny.moe"), "--verify")
        self.fails(1, *args, "--memory", "50M", env={**env, "TMPDIR": "/no/such"}, contains=["/no/such", "temporary folder"])
        self.fails(2, *args, "--memory", "2X", env=env, contains=["2X"])
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["meminfo", "tiny.moe"])

    def test_bench_needs_room_on_the_disk(self):
        env = {**self.machine(10**8), "FAKE_FREE_BYTES": str(10**9)}
        for more in (("--save", self.path("m.moe")), ()):
            r = self.fails(1, "bench", "--synthetic", "maple-20b-a1b", "--memory", "90M", *more, env=env,
                           contains=[self.folder.name, "room for 992 MB", "maple-20b-a1b takes 5.7 GB", "TMPDIR", "--save"])
            self.assertNotIn("writing", r.stderr)
        self.assertEqual(os.listdir(self.folder.name), ["meminfo"])

    def test_bench_writes_nothing_that_would_be_refused(self):
        env = self.machine(10**8)
        args = ("bench", "--synthetic", "bitnet-2b-4t", "-p", "8", "-n", "2", "-r", "1", "--context", "64")
        with open(self.path("old.moe"), "wb") as f:
            f.write(b"\x8fMOE\r\n\x1a\nold")  # begins as a model file, which may be replaced
        for place in ((), ("--save", self.path("old.moe"))):
            for more, words in ((("--memory", "90M"), ["bitnet-2b-4t: the cap of 94.372 MB is too small: ", "bytes at least"]),
                                (("--io", "buffered"), ["bitnet-2b-4t: the cap of 93.", "bytes at least"]),
                                (("--memory", "950M", "--sessions", "256"), ["bitnet-2b-4t: 256 sessions (--sessions): the cap of 996.147 MB"]),
                                (("--memory", "950M", "--kv", "latent"), ["bitnet-2b-4t: ", "kv latent"])):
                r = self.fails(1, *args, *more, *place, env=env, contains=words)
                self.assertNotIn("writing", r.stderr)
        self.fails(2, *args, "--memory", "950M", "-d", "70", env=env,
                   contains=["--context 64: expected at least 72, which -p, -d and -n need"])
        least = re.search(r"(\d+) bytes at least", self.fails(1, "bench", "--synthetic", "tiny", "--memory", "1K").stderr)[1]
        self.ok("bench", "--synthetic", "tiny", "--memory", least)
        self.fails(1, "bench", "--synthetic", "tiny", "--memory", str(int(least) - 1), contains=[f"{least} bytes at least"])
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["meminfo", "old.moe"])
        self.assertEqual(os.path.getsize(self.path("old.moe")), 11)

    def test_bench_makes_a_file_of_what_memory_cannot_hold(self):
        r = self.fails(1, "bench", "--synthetic", "maple-20b-a1b",
                       env={**self.machine(10**9), "FAKE_FREE_BYTES": str(10**9)}, contains=["room for 992 MB"])
        self.assertEqual(os.listdir(self.folder.name), ["meminfo"], r.stderr)

    def test_bench_leaves_nothing_when_it_is_stopped(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            p = subprocess.Popen([MOE, "bench", "--synthetic", "bitnet-2b-4t", "--memory", "950M"], env=self.machine(10**9),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(p.wait)
            self.addCleanup(p.kill)
            while p.poll() is None and not any(n.startswith("moe-") for n in os.listdir(self.folder.name)):
                time.sleep(0.01)
            p.send_signal(number)
            _, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, 130, err)
            self.assertEqual(os.listdir(self.folder.name), ["meminfo"])

    def plan(self, *args):
        return json.loads(self.ok("inspect", MODEL, "--json", *args).stdout)["plan"]

    def test_inspect_says_what_a_cap_comes_to(self):
        whole = self.plan("--memory", "100T")  # larger than the memory of any machine
        self.assertEqual((whole["n_experts"], whole["n_experts_in_memory"], whole["n_experts_per_token"]), (64, 64, 16))
        least = self.plan("--memory", str(whole["least_cap_bytes"]))
        self.assertEqual(least["least_cap_bytes"], whole["least_cap_bytes"])
        self.assertEqual(least["needed_bytes"], least["cap_bytes"])
        self.assertLess(least["n_experts_in_memory"], 64)
        self.fails(1, "inspect", MODEL, "--memory", str(whole["least_cap_bytes"] - 1), contains=["bytes at least", "KV cache"])
        text = self.ok("inspect", MODEL, "--memory", str(whole["least_cap_bytes"])).stdout
        self.assertIn(f"the smallest possible cap is {whole['least_cap_bytes'] / 1e6:.1f} MB ({whole['least_cap_bytes']} bytes)", text)
        self.assertIn(f"{least['n_experts_in_memory']} of 64 experts in memory", text)
        self.assertNotIn("smallest possible cap", self.ok("inspect", MODEL).stdout)

    def generate(self, *args, **more):
        return self.ok("generate", MODEL, *RUN["generate"], "--context", "64", "--stats", *args, **more)

    def test_statistics(self):
        cap = self.plan("--memory", "1G", "--context", "64")["least_cap_bytes"] + 500000
        j = json.loads(self.generate("--memory", str(cap), "--json").stdout)
        memory, experts = j["memory"], j["memory"]["experts"]
        self.assertEqual(memory["cap_bytes"], cap)
        self.assertLessEqual(memory["peak_bytes"], cap)
        self.assertLessEqual(memory["cached_expert_bytes"], memory["expert_cache_bytes"])
        self.assertEqual(memory["account"]["expert cache"], memory["expert_cache_bytes"])
        self.assertTrue(0 < experts["found_in_memory"] < experts["uses"], experts)
        # All experts of this file have the same size.
        tensors = json.loads(self.ok("inspect", MODEL, "--tensors", "--json").stdout)["tensors"]
        one = experts["read_bytes"] / (experts["uses"] - experts["found_in_memory"])
        self.assertAlmostEqual(one, sum(t["bytes"] for t in tensors if t["name"].startswith("layers.0.experts.0.")), delta=4096)
        self.assertEqual(j["text"], json.loads(self.generate("--json").stdout)["text"])
        text = self.generate("--memory", str(cap)).stderr
        self.assertRegex(text, r"experts: hit rate \d+\.\d % of \d+ uses, .* read \(.* per token\), "
                               r"waited [\d.]+ m?s of [\d.]+ m?s \([\d.]+ m?s per token\)\n")
        self.assertRegex(text, r"memory: at most .* of the cap of .*; .*KV cache .*expert cache")
        self.assertNotIn("cap", self.generate().stderr)
        cap = self.plan("--memory", "1G", "--context", "64")["least_cap_bytes"] + 200000
        j = json.loads(self.ok("bench", MODEL, "-p", "24", "-n", "40", "-r", "1", "--memory", str(cap), "--json").stdout)
        self.assertLessEqual(j["memory_peak_bytes"], j["memory_cap_bytes"])
        self.assertTrue(0 <= j["found_in_memory"] < 1 and j["decode_read_bytes_per_token"] > 0 and j["prefill_read_bytes"] > 0, j)
        self.assertIn("of experts per token; hit rate ",
                      self.ok("bench", MODEL, "-p", "24", "-n", "40", "-r", "1", "--memory", str(cap)).stdout)

    def test_bench_holds_decode_against_what_the_file_gives(self):
        cap = self.plan("--memory", "1G", "--context", "64")["least_cap_bytes"] + 200000
        args = ("bench", MODEL, "-p", "24", "-n", "40", "-r", "1", "--memory", str(cap))
        j = json.loads(self.ok(*args, "--io", "buffered", "--json").stdout)
        reading = j["decode_read_bytes_per_token"] / j["disk_bytes_per_s"]
        computing = (1 - j["decode_wait_share"]) / j["decode_tokens_per_s"]
        self.assertGreater(reading, 0)
        self.assertAlmostEqual(j["decode_bound_tokens_per_s"] * max(reading, computing), 1, 2)
        self.assertAlmostEqual(j["share_of_bound"] * j["decode_bound_tokens_per_s"] / j["decode_tokens_per_s"], 1, 2)
        self.assertIn("random reads of experts reach", self.ok(*args, "--io", "buffered").stdout)
        self.assertIsNone(json.loads(self.ok(*args, "--json").stdout)["share_of_bound"])

    def test_experts_that_add_little_are_skipped(self):
        args = ("-p", "Once upon a time, there was a little fox. He lived in a hollow tree.", "--context", "64", "--chunk", "1")
        least = self.plan("--memory", "1G", *args[2:])["least_cap_bytes"]
        cap = ("--memory", str(least + 300000))
        perplexity = json.loads(self.ok("perplexity", MODEL, *args, "--json").stdout)["perplexity"]
        for router, skips in (("resident=0", False), ("threshold:0.9,resident=0.2", True), ("resident=0.2", True)):
            r = self.ok("perplexity", MODEL, *args, *cap, "--router", router, "--json")
            skipped = json.loads(r.stdout)["skipped"]
            self.assertEqual(skipped["uses"] > 0, skips, router)
            self.assertEqual(0 < skipped["probability"] < 0.2, skips, router)
            self.assertEqual(json.loads(r.stdout)["perplexity"] == perplexity, not skips)
            r = self.ok("perplexity", MODEL, *args, *cap, "--router", router)
            self.assertRegex(r.stderr, rf"skipped {'[1-9]' if skips else '0'}\d* uses of experts that were not in memory, \d+\.\d\d %")
            self.assertEqual(json.loads(self.ok("perplexity", MODEL, *args, "--router", router, "--json").stdout)["skipped"],
                             {"uses": 0, "probability": 0})
        text = ("-p", "Once upon a time", "-n", "20", "--context", "64", "--chunk", "1")
        r = self.ok("generate", MODEL, *text, *cap, "--router", "resident=0.2", "--stats")
        self.assertRegex(r.stderr, r"skipped [1-9]\d* uses of experts that were not in memory, \d+\.\d\d % of the probability\n")
        j = json.loads(self.ok("generate", MODEL, *text, *cap, "--router", "resident=0.2", "--stats", "--json").stdout)
        self.assertEqual(sum(layer["n_skipped"] for layer in j["routing"]), j["skipped"]["uses"])
        self.assertNotIn("skipped", self.ok("generate", MODEL, *text, *cap, "--stats").stderr)
        small = ("--context", "64", "--chunk", "1")
        for command in (("eval", "-p", "Once upon a time", *small), ("bench", "-p", "8", "-n", "20", "-r", "1", *small),
                        ("trace", "-p", "Once upon a time", "-n", "20", "-o", self.path("t.csv"), *small),
                        ("chat", "--template", "plain", "-n", "8", "--temp", "0", *small)):
            r = self.ok(command[0], MODEL, *command[1:], *cap, "--router", "resident=0.2", text="hello\n")
            self.assertRegex(r.stderr, r"skipped [1-9]\d* uses of experts")
        for value, code in (("1.5", "expected 0..1, found 1.5"), ("nan", "cannot read"), ("", "cannot read")):
            self.fails(2, "generate", MODEL, *text, *cap, "--router", f"resident={value}", contains=["resident", code])

    def test_without_a_cap_a_budget_is_taken_from_what_is_available(self):
        least = self.plan("--memory", "1G", "--context", "64")["least_cap_bytes"]
        env = self.machine((least + 500000) * 16 // 15 + 32)
        r = self.generate(env=env)
        self.assertRegex(r.stderr, r"moe: .* needed, more than is available; the cap is .*MB \(--memory sets another\)\n")
        self.assertRegex(r.stderr, r"of the cap of")
        self.assertEqual(r.stdout, self.generate().stdout)
        self.fails(1, "generate", MODEL, *RUN["generate"], env=self.machine(10**6), contains=["the cap of", "KV cache"])

    def test_several_sessions_count(self):
        args = ("bench", MODEL, "-p", "8", "-n", "2", "-r", "1", "--context", "40", "--json")
        j = json.loads(self.ok("inspect", MODEL, "--json", "--context", "40").stdout)
        session = self.plan("--memory", "100T", "--context", "40", "--chunk", "40")["session_bytes"]
        needed = sum(j["memory"].values()) + 2 * session
        env = self.machine((needed - 200000) * 16 // 15 + 32)
        self.assertEqual(json.loads(self.ok(*args, env=env).stdout)["memory_cap_bytes"], 0)
        r = self.ok(*args, "--sessions", "3", env=env)
        j = json.loads(r.stdout)
        self.assertIn("needed, more than is available; the cap is", r.stderr)
        self.assertTrue(0 < j["memory_peak_bytes"] <= j["memory_cap_bytes"] < needed, j)

    def test_what_just_fits_is_not_refused_for_the_share_that_a_cap_leaves(self):
        session = ("--context", "40")
        j = json.loads(self.ok("inspect", MODEL, "--json", *session).stdout)
        needed = sum(j["memory"].values()) + 79 * self.plan("--memory", "100T", *session, "--chunk", "40")["session_bytes"]
        args = ("bench", MODEL, "-p", "2", "-n", "1", "-r", "1", *session, "--chunk", "40", "--sessions", "80", "--json")
        r = self.ok(*args, env=self.machine(needed + 4096))
        self.assertEqual(json.loads(r.stdout)["memory_cap_bytes"], 0)
        self.assertEqual(r.stderr, "")
        self.fails(1, *args, env=self.machine(needed - 4096), contains=["80 sessions (--sessions): the cap of", "bytes at least"])

    def test_what_fits_is_never_refused_for_the_cap_that_is_chosen(self):
        """Memory from just all that is needed to where no cap is: no cap, then one, then none again; all run."""
        session = ("--context", "40")
        j = json.loads(self.ok("inspect", MODEL, "--json", *session).stdout)
        each = self.plan("--memory", "100T", *session, "--chunk", "40")["session_bytes"]
        needed = sum(j["memory"].values()) + 39 * each
        args = ("bench", MODEL, "-p", "2", "-n", "1", "-r", "1", *session, "--chunk", "40", "--sessions", "40", "--json")
        capped = []
        for part in range(17):
            j = json.loads(self.ok(*args, env=self.machine(needed * (240 + part) // 240 + 4096)).stdout)
            self.assertTrue(j["memory_peak_bytes"] <= j["memory_cap_bytes"] < needed, j)
            capped.append(j["memory_cap_bytes"] > 0)
        self.assertEqual((capped[0], True in capped, capped[-1]), (False, True, False))

    def test_the_cap_that_a_refusal_names_is_accepted(self):
        for router in ((), ("--router", "gamma=1"), ("--router", "threshold:0.9,gamma=1.5")):
            for args in (("bench", "-p", "8", "-n", "2", "-r", "1", "--context", "300", "--sessions", "4"),
                         ("bench", "-p", "8", "-n", "2", "-r", "1", "--context", "300", "--sessions", "4", "--chunk", "16"),
                         ("generate", *RUN["generate"], "--context", "300"), ("perplexity", *RUN["perplexity"], "--context", "300"),
                         ("perplexity", *RUN["perplexity"], "--context", "300", "--sweep", "gamma=1:2:1")):
                if "--sweep" in args and router:
                    continue
                with self.subTest(args=args, router=router):
                    self.the_named_cap_is_accepted(args[0], MODEL, *args[1:], *router)

    def the_named_cap_is_accepted(self, *args):
        """Runs under the cap that the refusal names: for one session, then for all of them."""
        cap = 10**6
        for _ in range(2 if "--sessions" in args else 1):
            refused = self.fails(1, *args, "--memory", str(cap), contains=["bytes at least"]).stderr
            cap = int(re.search(r"(\d+) bytes at least", refused)[1])
        self.ok(*args, "--memory", str(cap))
        self.fails(1, *args, "--memory", str(cap - 1), contains=[f"{cap} bytes at least"])

    def test_sessions_share_a_cap(self):
        session = ("--context", "40")
        plan = self.plan("--memory", "1G", *session)
        least = plan["least_cap_bytes"] + 7 * plan["session_bytes"]
        args = ("bench", MODEL, "-p", "8", "-n", "2", "-r", "1", *session, "--sessions", "8", "--memory")
        self.fails(1, *args, str(least - 1), contains=["8 sessions (--sessions): the cap of ",
                                                       f"too small: {least} bytes at least, {least / 1e6:.3f} MB, of which each session takes {plan['session_bytes'] / 1e6:.3f} MB"])
        j = json.loads(self.ok(*args, str(least), "--json").stdout)
        self.assertLessEqual(j["memory_peak_bytes"], least)

    def test_what_the_plan_names_is_granted(self):
        """In 200 random cases of 1 to 16 sessions; `inspect` names the cap, four of them for each kind of session."""
        cases = random.Random(1)
        kinds = [("--context", str(cases.randrange(8, 200)), "--kv", cases.choice(["f16", "int8", "f32"]),
                  *cases.choice([(), ("--chunk", str(cases.randrange(1, 100)))])) for _ in range(50)]
        drawn = [(kind, cases.sample(range(1, 17), 4), cases.choice([0, cases.randrange(10**6)])) for kind in kinds]

        def run_cases(kind, numbers, more):
            plan = self.plan("--memory", "100T", *kind)
            for n in numbers:
                cap = plan["least_cap_bytes"] + (n - 1) * plan["session_bytes"] + more
                args = ("bench", MODEL, "-p", "2", "-n", "1", "-r", "1", "--threads", "1", *kind, "--sessions", str(n))
                j = json.loads(self.ok(*args, "--memory", str(cap), "--json").stdout)
                self.assertLessEqual(j["memory_peak_bytes"], cap, args)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(run_cases, *case) for case in drawn]:
                done.result()

    def test_a_plan_without_experts_speaks_of_none(self):
        self.ok("convert", os.path.join(FAMILIES, "llama"), self.path("dense.moe"), "--weights", "f32")
        text = self.ok("inspect", self.path("dense.moe"), "--memory", "1G").stdout
        self.assertRegex(text, r"under the cap of 1.1 GB: .* with one session, chunks of \d+\n  the smallest possible cap is")

    def test_chat_says_what_each_reply_used(self):
        cap = self.plan("--memory", "1G", "--context", "64")["least_cap_bytes"] + 200000
        r = self.ok("chat", MODEL, *RUN["chat"], "--context", "64", "--memory", str(cap), "--stats", text="Hello\nYes\n")
        uses = [int(n) for n in re.findall(r"% of (\d+) uses, .* per token\), waited .* per token\)", r.stderr)]
        tokens = [int(prompt) - int(reused) + int(reply) for prompt, reused, reply in
                  re.findall(r"conversation (\d+) tokens, (\d+) of them reused; reply (\d+) tokens", r.stderr)]
        self.assertEqual(len(uses), 2)
        for n, most in zip(uses, tokens, strict=True):
            self.assertTrue(0 < n <= 16 * most, (uses, tokens))

    def test_a_refusal_ends_with_the_whole_sum(self):
        folder = self.path("f" * 200)
        os.mkdir(folder)
        path = os.path.join(folder, "m" * 100 + ".moe")
        shutil.copy(MODEL, path)
        r = self.fails(1, "generate", path, *RUN["generate"], "--memory", "1M", contains=["bytes at least"])
        parts = re.search(r"the cap of 1.049 MB is too small: \d+ bytes at least, ([\d.]+) MB: (.*)\n", r.stderr)
        self.assertAlmostEqual(sum(float(p.split()[-1]) for p in parts[2].split(" + ")), float(parts[1]), delta=0.004)

    def test_of_a_mapped_file_what_is_compressed_counts_twice(self):
        path = self.path("zstd.moe")
        self.ok("convert", CHECKPOINT, path, "--compress", "zstd")
        name = "compressed weights in the file"
        lines = json.loads(self.ok("inspect", path, "--json", "--memory", "100M", "--map").stdout)["memory"]
        self.assertTrue(0 < lines[name] <= os.path.getsize(path), lines)
        self.assertNotIn(name, json.loads(self.ok("inspect", path, "--json", "--memory", "100M").stdout)["memory"])
        self.assertNotIn(name, json.loads(self.ok("inspect", MODEL, "--json", "--memory", "100M", "--map").stdout)["memory"])

    def test_unknown_io_modes_are_refused(self):
        self.fails(2, "generate", MODEL, *RUN["generate"], "--io", "fast",
                   contains=["--io: expected auto, direct or buffered, found 'fast'"])


if __name__ == "__main__":
    main()
