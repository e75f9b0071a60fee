#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/kubernetes/worker.sh: files that cannot be processed are set aside, the others are processed."""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import time

from support import MODEL, MOE, Cli, main

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples/kubernetes/worker.sh"
PROMPTS = '{"prompt": "The fox"}\n{"prompt": "A dog"}\n'


class Worker(Cli):
    def setUp(self):
        super().setUp()
        self.queue = pathlib.Path(self.path("queue"))
        for name in ("in", "out"):
            (self.queue / name).mkdir(parents=True)

    def put(self, name, text=PROMPTS, result=None):
        (self.queue / "in" / name).write_text(text)
        if result is not None:
            (self.queue / "out" / name).write_text(result)

    def names(self, folder):
        return sorted(file.name for file in (self.queue / folder).iterdir())

    def stand_in(self, name, script):
        """Puts a script of this name in front of the real command in PATH."""
        path = pathlib.Path(self.path("bin")) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def start(self, *options, model=MODEL):
        environment = {**os.environ, "STATE": self.path("state"), "WAIT": "0.05",
                       "PATH": f"{self.path('bin')}:{os.path.dirname(MOE)}:{os.environ['PATH']}"}
        process = subprocess.Popen(["sh", SCRIPT, model, self.queue, "-n4", "--threads=1", *options], env=environment,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(self.stop, process)
        return process

    def stop(self, process):
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what it started too, if it has ended itself
        except ProcessLookupError:
            pass
        process.communicate()

    def wait_for(self, condition):
        end = time.monotonic() + 120
        while not condition():
            self.assertLess(time.monotonic(), end, "nothing happened for two minutes")
            time.sleep(0.01)

    def test_a_file_that_is_refused_is_set_aside(self):
        self.put("a.jsonl")
        self.put("b.jsonl", result="my notes\n")
        (self.queue / "in/c.jsonl").mkdir()
        self.put("d.jsonl")
        self.put("e.jsonl", "no JSON\n")  # a bad line has a result too
        self.start()
        self.wait_for(lambda: (self.queue / "done").exists() and len(self.names("done")) == 3)
        self.assertEqual(self.names("in"), [])
        self.assertEqual(self.names("refused"), ["b.jsonl", "b.jsonl.txt", "c.jsonl", "c.jsonl.txt"])
        self.assertIn("out/b.jsonl: line 1 is not a result", (self.queue / "refused/b.jsonl.txt").read_text())
        self.assertIn("in/c.jsonl: ", (self.queue / "refused/c.jsonl.txt").read_text())
        self.assertEqual((self.queue / "out/b.jsonl").read_text(), "my notes\n")
        for name in ("a.jsonl", "d.jsonl"):
            results = [json.loads(line) for line in (self.queue / "out" / name).read_text().splitlines()]
            self.assertEqual([r["n_generated"] for r in results], [4, 4])
        (self.queue / "out/b.jsonl").unlink()  # corrected, and put back
        os.rename(self.queue / "refused/b.jsonl", self.queue / "in/b.jsonl")
        self.wait_for(lambda: "b.jsonl" in self.names("done"))

    def test_a_file_of_another_worker_stays(self):
        self.put("a.jsonl")
        with open(self.queue / "out/a.jsonl", "w") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            worker = self.start()
            self.assertIn("another process", worker.stderr.readline())
            self.assertIn("another process", worker.stderr.readline())  # it tries again
            self.assertEqual((self.names("in"), self.names("refused")), (["a.jsonl"], []))
        self.wait_for(lambda: self.names("done") == ["a.jsonl"])

    def test_a_worker_that_cannot_work_ends(self):
        for options, model, status, word in (((), "no/model.moe", 1, "no/model.moe"), (("--memory", "1K"), MODEL, 1, "the cap of 0.001 MB is too small"),
                                             (("--no-such",), MODEL, 2, "--no-such")):
            self.put("a.jsonl")
            worker = self.start(*options, model=model)
            _, errors = worker.communicate(timeout=120)
            self.assertEqual(worker.returncode, status, errors)
            self.assertIn(word, errors)
            self.assertEqual((self.names("in"), self.names("refused")), (["a.jsonl"], []))

    def test_several_workers_share_a_state(self):
        """Each worker has its own log of errors: a locked file stays, whatever the other workers log."""
        self.put("a.jsonl")
        for i in range(8):
            self.put(f"b{i}.jsonl", result="my notes\n")
        with open(self.queue / "out/a.jsonl", "w") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            for _ in range(3):
                self.start()
            self.wait_for(lambda: (self.queue / "refused").exists()
                          and len([n for n in self.names("refused") if n.startswith("b")]) == 16)
            self.assertEqual(self.names("in"), ["a.jsonl"])
            for i in range(8):
                self.assertIn("is not a result", (self.queue / f"refused/b{i}.jsonl.txt").read_text())
        self.wait_for(lambda: self.names("done") == ["a.jsonl"])

    def test_a_second_file_of_a_name_is_refused(self):
        (self.queue / "done").mkdir()
        (self.queue / "done/a.jsonl").write_text(PROMPTS)
        self.put("a.jsonl", '{"prompt": "A bird"}\n', result="the first one's\n")
        self.start()
        self.wait_for(lambda: (self.queue / "refused/a.jsonl.txt").exists())
        self.assertIn("finished already", (self.queue / "refused/a.jsonl.txt").read_text())
        self.assertEqual((self.queue / "done/a.jsonl").read_text(), PROMPTS)
        self.assertEqual((self.queue / "out/a.jsonl").read_text(), "the first one's\n")
        self.put("a.jsonl", "third\n")  # a file that was set aside is not overwritten either
        self.wait_for(lambda: (self.queue / "refused/a.2.jsonl.txt").exists())
        self.assertIn("A bird", (self.queue / "refused/a.jsonl").read_text())

    def test_a_file_that_kills_is_set_aside(self):
        self.stand_in("moe", f'case "$*" in *in/a.jsonl*) echo >>{self.path("count")}; kill -9 $$ ;; esac; exec {MOE} "$@"')
        self.put("a.jsonl")
        self.put("b.jsonl")
        self.start()
        self.wait_for(lambda: (self.queue / "refused/a.jsonl.txt").exists() and self.names("done") == ["b.jsonl"])
        self.assertIn("signal 9 in 3 attempts", (self.queue / "refused/a.jsonl.txt").read_text())
        self.assertEqual(pathlib.Path(self.path("count")).read_text(), "\n" * 3)

    def test_a_worker_without_the_command_or_room_ends(self):
        full = 'echo "$4: No space left on device" >&2; exit 1'
        for name, script, status, word in (("moe", "exit 126", 126, "cannot be run"), ("moe", "exit 127", 127, "cannot be run"),
                                           ("moe", full, 1, "cannot write in")):
            self.stand_in(name, script)
            self.stand_in("dd", "exit 1")
            self.put("a.jsonl")
            worker = self.start()
            _, errors = worker.communicate(timeout=120)
            self.assertEqual(worker.returncode, status, errors)
            self.assertIn(word, errors)
            self.assertEqual((self.names("in"), self.names("refused"), self.names("out")), (["a.jsonl"], [], []))

    def test_a_signal_during_a_start_ends_the_command_too(self):
        self.stand_in("moe", "kill -TERM $PPID; exec sleep 600")
        self.put("a.jsonl")
        for _ in range(20):
            worker = self.start()
            worker.communicate(timeout=60)  # the command has the pipe too
            self.assertEqual(worker.returncode, 143)

    def test_messages_are_shown_as_they_come(self):
        self.stand_in("moe", 'echo progress >&2; exec sleep 600')
        self.put("a.jsonl")
        worker = self.start()
        self.assertEqual(worker.stderr.readline(), "progress\n")
        worker.terminate()
        self.assertEqual(worker.wait(timeout=60), 143)
        self.assertEqual([n for n in os.listdir(self.folder.name) if n.startswith("state.")], [])


main()
