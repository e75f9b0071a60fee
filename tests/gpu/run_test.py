#!/usr/bin/env python3
"""tests/gpu/run.sh with scripts in place of the programs that need a GPU."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.sh")

PARITY = r"""
for a; do case $a in
  --gtest_list_tests) printf 'Running main()\nGood.\n  A\nKinds/Good.\n  B/x  # GetParam() = x\nWrong.\n  C\nCrash.\n  D\n'; [ "$REFUSE" != nothing ] || printf 'Slow.\n  E\n'; exit ;;
  --gtest_filter=*) filter=${a#*=} ;;
  --gtest_output=json:*) to=${a#*:} ;;
esac; done
echo "$filter blocking=${CUDA_LAUNCH_BLOCKING:-}" >>"$LOG"
write() { [ -z "${to:-}" ] || echo "{\"tests\": 2, \"testsuites\": [{\"name\": \"S\", \"testsuite\": [{\"name\": \"T\"$1}]}]}" >"$to"; }
case $filter in
  Wrong.*) write ', "failures": [{"failure": "1 is not 2"}]'; exit 1 ;;
  Crash.*) kill -SEGV $$ ;;
  *) write ', "result": "SKIPPED"' ;;
esac
"""
MOE = r"""
echo "moe $*" >>"$LOG"
case "$*" in
  *"$REFUSE"*) echo "moe: refused" >&2; exit 1 ;;
  *--save*) : >"${@: -1}" ;;
  *--gpu-memory\ 1M*) echo "moe: cuda:0: 9 MB needed: weights without experts 100.5 + session 20.000 + one expert 2.000" >&2; exit 1 ;;
  *--json*) echo '{"tokens_per_s": 7}' ;;
esac
"""
STUBS = {
    "build/gpu_parity": PARITY,
    "build/moe": MOE,
    "build/gpu_bench": 'echo \'{"kernels": [1], "failures": [2]}\' >"$1"; exit 1',
    "path/nvidia-smi": r"""case "${1:-}" in
      -L) [ "$DRIVER" = none ] || echo "GPU 0: stub" ;;
      --query*) echo "stub, 575.00, 9.0, 80000 MiB" ;;
      *) echo "| NVIDIA-SMI 575.00   Driver Version: 575.00   CUDA Version: $DRIVER |" ;;
    esac""",
    "path/compute-sanitizer": 'tool=$2; shift 4; case "$tool $*" in racecheck*CudaPairs*) exit 9 ;; esac; exec "$@"',
    "path/timeout": 'case "$*" in *gtest_filter=Slow*) exit 124 ;; esac; exec "${@:4}"',  # timeout -k 10 SECONDS COMMAND
}


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        for name, text in STUBS.items():
            path = self.path(name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write("#!/bin/bash\n" + text)
            os.chmod(path, 0o755)
        with open(self.path("build/built"), "w", encoding="utf-8") as f:
            f.write("cuda 13.0\narchitectures sm_90a\ncommit abc\n")

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_it(self, driver="13.0", refuse="nothing"):
        """Relative paths are meant from the caller's folder."""
        env = dict(os.environ, PATH=self.path("path") + ":" + os.environ["PATH"], DRIVER=driver, REFUSE=refuse,
                   LOG=self.path("log"))
        return subprocess.run(["bash", RUN, "--build", "build", "--out", "new/gpu.json"], cwd=self.folder, env=env,
                              capture_output=True, text=True)

    def result(self):
        with open(self.path("new/gpu.json"), encoding="utf-8") as f:
            return json.load(f)

    def test_every_stage_runs_whatever_fails(self):
        done = self.run_it()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        r = self.result()
        suites = {name: s["result"] for name, s in r["parity"]["suites"].items()}
        self.assertEqual(suites, {"Good": "ok", "Kinds_Good": "ok", "Wrong": "failed (1)", "Crash": "failed (139)",
                                  "Slow": "timed out after 120 s"})
        self.assertEqual(r["parity"]["suites"]["Wrong"]["failed"], {"S.T": "1 is not 2"})
        self.assertEqual(r["parity"]["suites"]["Good"]["skipped"], ["S.T"])
        self.assertEqual((r["parity"]["tests"], r["parity"]["failures"], r["parity"]["suites_not_ok"]), (6, 1, 3))
        self.assertEqual(r["again"]["Wrong.blocking"], "failed (1)")
        self.assertEqual(r["again"]["Crash.memcheck"], "failed (139)")
        self.assertEqual({m["result"] for m in r["models"].values()}, {"ok"})
        self.assertEqual(r["models"]["maple"]["bench"], {"tokens_per_s": 7})
        self.assertEqual((r["kernels"]["result"], r["kernels"]["kernels"]), ("failed (1)", [1]))
        self.assertEqual(r["sanitizers"]["memcheck.GpuSteps._"], "ok")
        self.assertEqual(r["sanitizers"]["racecheck.CudaPairs._"], "failed (9)")
        self.assertEqual(r["sanitizers"]["synccheck.CudaPairs._"], "ok")
        self.assertEqual(r["build"]["commit"], "abc")
        self.assertIn("575.00", r["gpu"])
        with open(self.path("log"), encoding="utf-8") as f:
            log = f.read()
        self.assertIn("Kinds/Good.* blocking=\n", log)
        self.assertIn("Wrong.* blocking=1\n", log)
        self.assertIn(f"--gpu-memory {int(1e6 * (120.5 + 0.25 * 1024 * 2))}\n", log)
        self.assertEqual(log.count("--save"), 6)  # once for each model

    def test_a_model_that_cannot_be_made_or_has_no_sum(self):
        self.run_it(refuse="--gpu-memory 1M")
        models = self.result()["models"]
        self.assertEqual(models["olmoe-half-of-experts"]["result"], "no sum in the message for --gpu-memory 1M")
        self.assertEqual(models["bitnet"]["result"], "ok")
        self.run_it(refuse="maple")
        models = self.result()["models"]
        self.assertEqual(models["maple.made"]["result"], "failed (1)")
        self.assertNotIn("maple", models)
        self.assertEqual(models["bitnet"]["result"], "ok")

    def test_the_driver_is_too_old(self):
        done = self.run_it(driver="12.9")
        self.assertEqual(done.returncode, 1)
        self.assertIn("The driver runs programs for CUDA 12 and earlier; the build is for CUDA 13", done.stderr)
        self.assertFalse(os.path.exists(self.path("log")))  # nothing was tried

    def test_no_gpu(self):
        self.assertEqual(self.run_it(driver="none").returncode, 77)


if __name__ == "__main__":
    unittest.main()
