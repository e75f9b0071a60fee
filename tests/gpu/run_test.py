#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/gpu/run.sh with scripts in place of the programs that need a GPU."""

import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.sh")

PARITY = r"""
for a; do case $a in
  --gtest_list_tests) printf 'Running main()\nGood.\n  A\nKinds/Good.\n  B/x  # GetParam() = x\nWrong.\n  C\nCrash.\n  D\n'; [ "$REFUSE" != nothing ] || printf 'Slow.\n  E\n'; exit ;;
  --gtest_filter=*) filter=${a#*=} ;;
  --gtest_output=json:*) to=${a#*:} ;;
  --gtest_repeat=*) echo "repeat ${a#*=}" >>"$LOG" ;;
esac; done
echo "$filter blocking=${CUDA_LAUNCH_BLOCKING:-}" >>"$LOG"
write() { [ -z "${to:-}" ] || echo "{\"tests\": 2, \"testsuites\": [{\"name\": \"S\", \"testsuite\": [{\"name\": \"T\"$1}]}]}" >"$to"; }
case $filter in
  Wrong.*) write ', "failures": [{"failure": "1 is not 2"}]'; exit 1 ;;
  Crash.*) kill -SEGV $$ ;;
  *) write ', "result": "SKIPPED", "relative_error": "0.0004", "tolerance": "0.002"' ;;
esac
"""
MOE = r"""
echo "moe $*" >>"$LOG"
case "$*" in
  *device*"$HANG"*) echo hanging >>"$LOG"; exec sleep 40 ;;
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
    "build/gpu_decode_step": 'echo "step $*" >>"$LOG"',
    "path/nvidia-smi": r"""case "${1:-}" in
      -L) [ "$DRIVER" = none ] || echo "GPU 0: stub" ;;
      --query*) echo "stub, 575.00, 9.0, 80000 MiB" ;;
      *) echo "| NVIDIA-SMI 575.00   Driver Version: 575.00   CUDA Version: $DRIVER |" ;;
    esac""",
    "path/compute-sanitizer": 'tool=$2; shift 4; case "$tool $*" in racecheck*CudaPairs*) exit 9 ;; esac; exec "$@"',
    # timeout -k 3 SECONDS COMMAND, or timeout SECONDS COMMAND
    "path/timeout": 'case "$*" in *gtest_filter=Slow*) exit 124 ;; esac; [ "$1" != -k ] || shift 2; exec "${@:2}"',
    "path/ldconfig": "",
    "path/ncu": r"""echo "ncu $*" >>"$LOG"; echo "==PROF== Connected"
      case "$*" in *"$NCU_LACKS"*) echo "==ERROR== no such metric"; exit 1 ;; esac
      while [ "${1##*/}" != gpu_decode_step ]; do shift; done; "$@"
      printf '"ID","Kernel Name"\n"",""\n"0","prepare"\n"1","route"\n'""",
}


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        for name, text in STUBS.items():
            self.stub(name, text)
        with open(self.path("build/built"), "w", encoding="utf-8") as f:
            f.write("cuda 13.0\narchitectures sm_90a\ncommit abc\n")
        self.package("cu13", "13")

    def path(self, name):
        return os.path.join(self.folder, name)

    def stub(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/bash\n" + text)
        os.chmod(path, 0o755)

    def package(self, name, version):
        """A Python package with cuBLASLt."""
        library = self.path(f"python/nvidia/{name}/lib/libcublasLt.so.{version}")
        os.makedirs(os.path.dirname(library))
        with open(library, "w", encoding="utf-8"):
            pass

    def command(self, driver="13.0", refuse="nothing", hang="nothing", seconds=None, ncu_lacks="--nothing"):
        """Relative paths are meant from the caller's folder."""
        env = dict(os.environ, PATH=self.path("path") + ":" + os.environ["PATH"], DRIVER=driver, REFUSE=refuse, HANG=hang,
                   LOG=self.path("log"), PYTHONPATH=self.path("python"), CUDA_PATH=self.path("cuda"), NCU_LACKS=ncu_lacks,
                   TMPDIR=self.path("tmp"))
        os.makedirs(self.path("tmp"), exist_ok=True)
        more = [] if seconds is None else ["--seconds", str(seconds)]
        return ["bash", RUN, "--build", "build", "--out", "new/gpu.json", *more], {"cwd": self.folder, "env": env}

    def run_it(self, **how):
        command, options = self.command(**how)
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    def archived(self):
        """The files of the archive."""
        with tarfile.open(self.path("new/gpu.tar.gz")) as archive:
            return {m.name: archive.extractfile(m).read().decode() for m in archive.getmembers() if m.isfile()}

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
        self.assertEqual(r["repeated"], {"GpuExperts": "ok"})
        self.assertEqual(r["profiles"]["maple"], {"result": "ok", "kernels": 2})
        self.assertTrue(r["cublas_lt"].endswith("nvidia/cu13/lib/libcublasLt.so.13"))
        self.assertEqual(r["parity"]["suites"]["Good"]["relative_error"], 0.0004)
        self.assertIn("Good: largest relative error 0.0004, tolerance 0.002", done.stdout)
        with open(self.path("log"), encoding="utf-8") as f:
            log = f.read()
        self.assertIn("Kinds/Good.* blocking=\n", log)
        self.assertIn("Wrong.* blocking=1\n", log)
        self.assertIn("repeat 20\nGpuExperts.* blocking=\n", log)
        self.assertIn(f"--gpu-memory {int(1e6 * (120.5 + 0.25 * 1024 * 2))}\n", log)
        self.assertEqual(log.count("--save"), 6)  # once for each model
        self.assertEqual(len(os.listdir(self.path("new"))), 2)  # the results and the archive
        files = self.archived()
        self.assertEqual(json.loads(files["logs/results.json"]), r)
        self.assertEqual(len(files["logs/profile.olmoe-ternary2.csv"].splitlines()), 4)
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_cublas_lt_of_an_older_package_and_none(self):
        shutil.rmtree(self.path("python"))
        self.package("cublas", "12")
        self.run_it()
        self.assertTrue(self.result()["cublas_lt"].endswith("nvidia/cublas/lib/libcublasLt.so.12"))
        shutil.rmtree(self.path("python"))
        done = self.run_it(refuse="one suite")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.result()["cublas_lt"], "not found")
        self.assertIn("pip install nvidia-cublas", done.stdout)

    def test_ncu_without_a_metric(self):
        self.run_it(ncu_lacks="--metrics")
        profiles = self.result()["profiles"]
        self.assertEqual(profiles["maple"]["result"], "failed (1)")
        self.assertEqual(profiles["maple.basic"], {"result": "ok", "kernels": 2})

    def test_there_is_no_time(self):
        done = self.run_it(seconds=2)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        r = self.result()
        self.assertEqual({s["result"] for s in r["parity"]["suites"].values()}, {"not run: no time left"})
        self.assertEqual(r["kernels"]["result"], "not run: no time left")
        self.assertEqual(set(r["sanitizers"].values()), {"not run: no time left"})
        self.assertIn("logs/results.json", self.archived())
        self.assertEqual(self.run_it(seconds="1e3").returncode, 2)

    def test_a_sanitizer_cut_off_by_the_end_is_no_failure(self):
        self.stub("build/gpu_parity", PARITY.replace("Wrong.\\n  C\\nCrash.\\n  D\\n", "").replace("Slow", "Good"))
        self.stub("build/gpu_bench", 'echo \'{"kernels": [1]}\' >"$1"')
        for code in (124, 137):
            self.stub("path/timeout", f'case "$*" in *synccheck*CudaPairs*) exit {code} ;; esac; [ "$1" != -k ] || shift 2; exec "${{@:2}}"')
            self.stub("path/compute-sanitizer", 'shift 4; exec "$@"')
            done = self.run_it(seconds=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            ends = self.result()["sanitizers"]
            self.assertEqual(ends["synccheck.CudaPairs._"], "not run: no time left")
            self.assertEqual(ends["memcheck.CudaPairs._"], "ok")
            self.assertIn(f"{len(ends) - 1} of {len(ends)} ran, 0 found something, 0 timed out", done.stdout)
        # The same end with time left is one.
        done = self.run_it()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(self.result()["sanitizers"]["synccheck.CudaPairs._"], "killed, after 60 s or for its memory")
        self.assertIn("0 found something, 1 timed out", done.stdout)
        self.stub("path/compute-sanitizer", STUBS["path/compute-sanitizer"])
        self.assertIn("1 found something, 1 timed out", self.run_it().stdout)

    def test_what_ends_it_loses_only_the_running_stage(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            command, options = self.command(hang="maple.moe")
            if os.path.exists(self.path("log")):
                os.remove(self.path("log"))
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options) as run:
                until = time.monotonic() + 60
                while time.monotonic() < until:
                    time.sleep(0.1)
                    if os.path.exists(self.path("log")):
                        with open(self.path("log"), encoding="utf-8") as f:
                            if "hanging" in f.read():
                                break
                run.send_signal(number)
                self.assertEqual(run.wait(timeout=30), code)
            result = json.loads(self.archived()["logs/results.json"])
            self.assertEqual(result["parity"]["suites"]["Good"]["result"], "ok")
            self.assertEqual(result["repeated"], {"GpuExperts": "ok"})
            self.assertNotIn("maple", result["models"])
            if number == signal.SIGTERM:
                self.assertEqual(os.listdir(self.path("tmp")), [])

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
