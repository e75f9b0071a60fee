#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files that commands replace, pipes that they write to, sizes that files declare, and signals meanwhile."""

import json
import os
import resource
import signal
import subprocess
import time
import unittest

from support import CHECKPOINT, MODEL, MOE, Cli, main, sanitized

PLAIN = ("--template", "plain", "-n", "2")
BIG_TRACE = """# n_layer=32768 n_expert=65536 n_expert_used=8
phase,step,layer,slot,expert,weight
0,0,0,0,0,0.5
1,1,0,0,3,0.5
1,2,0,0,4,0.5
"""


def limit_files(n_bytes):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


class Files(Cli):
    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w") as f:
            f.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def content(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def mode(self, name):
        return os.stat(self.path(name)).st_mode & 0o777

    def names(self):
        return sorted(os.listdir(self.folder.name))

    def wait_until(self, what):
        for _ in range(6000):
            if what():
                return
            time.sleep(0.01)
        self.fail("it did not come")

    def start(self, *args, **how):
        p = subprocess.Popen([MOE, *args], **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                                              "stderr": subprocess.PIPE, "text": True, **how})
        for file in (p.stdin, p.stdout, p.stderr):
            if file is not None:
                self.addCleanup(file.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p

    def ends(self, p, code, *words):
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, code, err)
        for word in words:
            self.assertIn(word, err)
        return out

    def is_locked(self, name):
        """Whether a program holds the lock, and has not only created its file."""
        if name not in self.names():
            return False
        inode = f":{os.stat(self.path(name)).st_ino} "
        with open("/proc/locks", encoding="utf-8") as file:
            return any("FLOCK" in line and inode in line for line in file)

    def chat(self, name, text="hi\n", **how):
        return subprocess.run([MOE, "chat", MODEL, *PLAIN, "--session", self.path(name)], input=text, timeout=60,
                              capture_output=True, text=True, **how)

    def messages(self, name):
        head = json.loads(self.content(name).split(b"\n", 1)[0])
        return [m["content"] for m in head["messages"] if m["role"] == "user"]


class Conversations(Files):
    def test_two_chats_on_one_file(self):
        first = self.start("chat", MODEL, *PLAIN, "--session", self.path("s"), stdin=subprocess.PIPE)
        self.wait_until(lambda: self.is_locked(".s.moe-lock"))
        r = self.chat("s", "second\n")
        self.assertEqual((r.returncode, r.stdout), (1, ""))
        self.assertIn(f"{self.path('s')}: another program is writing it", r.stderr)
        first.stdin.write("first\n")
        first.stdin.flush()
        self.ends(first, 0)
        self.assertEqual(self.chat("s", "third\n").returncode, 0)
        self.assertEqual(self.messages("s"), ["first", "third"])
        self.assertEqual(self.names(), ["s"])

    def test_the_mode_is_kept(self):
        self.assertEqual(self.chat("s").returncode, 0)
        os.chmod(self.path("s"), 0o600)
        self.assertEqual(self.chat("s").returncode, 0)
        self.assertEqual(self.mode("s"), 0o600)

    def test_links_and_files_of_others(self):
        self.write("victim", "precious")
        self.write("notes", "mine")
        os.symlink("victim", self.path("s.partial"))
        os.rename(self.path("notes"), self.path("t.partial"))
        os.symlink("t", self.path("link"))
        for name in ("s", "link", "t"):
            self.assertEqual(self.chat(name).returncode, 0)
        self.assertEqual((self.content("victim"), self.content("t.partial")), (b"precious", b"mine"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(self.messages("t"), ["hi", "hi"])

    def test_places_that_hold_no_conversation(self):
        os.mkfifo(self.path("pipe"))
        for place, word in ((self.path("pipe"), "a named pipe"), ("/dev/null", "no regular file"),
                            (self.folder.name, "a folder")):
            self.fails(1, "chat", MODEL, *PLAIN, "--session", place, text="hi\n", contains=[place, word])

    def test_a_disk_with_room_for_the_messages_alone(self):
        self.assertEqual(self.chat("s").returncode, 0)
        r = self.chat("s", "the second\n", preexec_fn=limit_files(2048))
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("will contain only the messages", r.stderr)
        self.assertIn("File too large", r.stderr)
        self.assertEqual(self.messages("s"), ["hi", "the second"])
        before = self.content("s")
        r = self.chat("s", "no room for it\n", preexec_fn=limit_files(64))
        self.assertEqual(r.returncode, 1)
        self.assertEqual(self.content("s"), before)
        self.assertEqual(self.names(), ["s"])
        self.assertEqual(self.chat("s", "again\n").returncode, 0)
        self.assertEqual(self.messages("s"), ["hi", "the second", "again"])

    def test_a_reader_that_has_gone(self):
        self.assertEqual(self.chat("s").returncode, 0)
        reader, writer = os.pipe()
        p = self.start("chat", MODEL, *PLAIN, "--session", self.path("s"), stdin=subprocess.PIPE, stdout=writer)
        os.close(writer)
        os.close(reader)
        p.stdin.write("unread\n")
        p.stdin.flush()
        self.ends(p, 1, "stdout")
        self.assertEqual(self.messages("s"), ["hi", "unread"])
        self.assertEqual(self.names(), ["s"])

    def test_a_killed_chat_leaves_the_file_and_nothing_that_matters(self):
        self.assertEqual(self.chat("s").returncode, 0)
        p = self.start("chat", MODEL, *PLAIN, "--session", self.path("s"), stdin=subprocess.PIPE)
        self.wait_until(lambda: self.is_locked(".s.moe-lock"))
        p.kill()
        p.wait()
        self.assertEqual(self.messages("s"), ["hi"])
        self.assertEqual(self.chat("s").returncode, 0)
        self.assertEqual(self.names(), ["s"])


class Results(Files):
    def test_results_replace_a_file(self):
        trace = self.write("trace", "old", 0o600)
        os.symlink("trace", self.path("link"))
        self.write("trace.partial", "mine")
        self.ok("trace", MODEL, "-p", "Once upon", "-n", "2", "-o", self.path("link"))
        self.assertTrue(self.content("trace").startswith(b"# n_layer=4 "))
        self.assertEqual(self.mode("trace"), 0o600)
        self.assertTrue(os.path.islink(self.path("link")))
        self.write("curves", "old", 0o640)
        self.ok("trace", trace, "--curves", self.path("curves"))
        self.assertIn(b'"experts_per_token"', self.content("curves"))
        self.assertEqual(self.mode("curves"), 0o640)
        self.assertEqual(self.names(), ["curves", "link", "trace", "trace.partial"])

    def test_a_failure_leaves_the_old_results(self):
        self.write("trace", "old")
        r = subprocess.run([MOE, "trace", MODEL, "-p", "Once upon", "-n", "9", "-o", self.path("trace")], timeout=60,
                           capture_output=True, text=True, preexec_fn=limit_files(64))
        self.assertEqual(r.returncode, 1)
        self.assertIn("trace: cannot be written: File too large", r.stderr)
        self.assertEqual((self.names(), self.content("trace")), (["trace"], b"old"))

    def test_a_link_with_the_name_of_an_older_temporary_file(self):
        self.write("victim", "precious")
        os.symlink("victim", self.path("o.moe.partial"))
        self.ok("convert", CHECKPOINT, self.path("o.moe"))
        self.assertEqual(self.content("victim"), b"precious")
        self.assertEqual(self.names(), ["o.moe", "o.moe.partial", "victim"])

    def test_devices_and_pipes(self):
        self.ok("trace", MODEL, "-p", "Once upon", "-n", "2", "-o", "/dev/null")
        self.fails(1, "trace", MODEL, "-p", "Once upon", "-n", "2", "-o", "/dev/full", contains=["No space left"])
        os.mkfifo(self.path("pipe"))
        p = self.start("trace", MODEL, "-p", "Once upon", "-n", "2", "-o", self.path("pipe"))
        self.assertIn("waiting for a reader", p.stderr.readline())
        self.assertTrue(self.content("pipe").startswith(b"# n_layer=4 "))
        self.ends(p, 0)
        p = self.start("trace", MODEL, "-p", "Once upon", "-n", "2", "-o", self.path("pipe"))
        self.assertIn("waiting for a reader", p.stderr.readline())
        p.terminate()
        self.ends(p, 130)

    def test_a_trace_takes_memory_by_what_is_in_it(self):
        trace = self.write("trace", BIG_TRACE)
        for args in (("--budgets", "--json"), ("--curves", self.path("curves"))):
            p = self.start("trace", trace, *args)
            out = p.stdout.read()
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(p.returncode, 0)
            self.assertLess(usage.ru_maxrss << 10, 400 << 20)
            if args[0] == "--budgets":
                found = json.loads(out)
        self.assertEqual((found["n_layers"], found["n_experts"], found["uses"]), (32768, 65536, 2))
        self.assertEqual(found["budgets"][-1]["experts"], 32768 * 65536)

    def test_a_context_that_no_session_needs(self):
        head = {"moe_chat": 1, "system": "", "context": 2**31 - 1, "messages": []}
        self.write("s", json.dumps(head) + "\n")
        self.assertEqual(self.chat("s").returncode, 0)
        self.assertEqual(json.loads(self.content("s").split(b"\n", 1)[0])["context"], 512)


class Batches(Files):
    def requests(self, name, n, prompt="Once", size=300):
        lines = (json.dumps({"prompt": prompt, "id": f"{i}".rjust(size)}) + "\n" for i in range(n))
        return self.write(name, "".join(lines))

    def test_a_pipe_as_output(self):
        os.mkfifo(self.path("out"))
        p = self.start("batch", MODEL, self.requests("in", 40), self.path("out"), "-n", "2")
        self.assertIn("out: waiting for a reader of this pipe", p.stderr.readline())
        lines = self.content("out").splitlines()
        self.ends(p, 0, "40 lines done")
        self.assertEqual([json.loads(line)["line"] for line in lines], list(range(1, 41)))

    def test_a_pipe_whose_reader_goes_away(self):
        os.mkfifo(self.path("out"))
        p = self.start("batch", MODEL, self.requests("in", 400), self.path("out"), "-n", "2")
        with open(self.path("out"), "rb") as out:
            out.read(10)
        self.ends(p, 1, "out: Broken pipe")

    def test_signals_while_the_output_is_not_read(self):
        source = self.requests("in", 400)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number):
                p = self.start("batch", MODEL, source, "-", "-n", "2", stderr=subprocess.DEVNULL)
                before = -1
                while before != (before := self.written(p)) or before == 0:  # until the pipe is full
                    time.sleep(0.2)
                p.send_signal(number)
                self.assertEqual(p.wait(timeout=20), 130)

    def test_a_signal_while_json_is_not_read(self):
        for args in (("inspect", MODEL, "--tensors", "--json"), ("eval", MODEL, "-p", "Once", "--top", "1000", "--json")):
            with self.subTest(args):
                p = self.start(*args, stderr=subprocess.DEVNULL)
                before = -1
                while before != (before := self.written(p)) or before < 4096:
                    time.sleep(0.2)
                p.send_signal(signal.SIGTERM)
                self.assertEqual(p.wait(timeout=20), 130)

    @staticmethod
    def written(p):
        with open(f"/proc/{p.pid}/io", encoding="utf-8") as f:
            return int(next(line for line in f if line.startswith("wchar")).split()[1])

    def test_a_refused_output_is_unchanged(self):
        a = self.write("a", '{"prompt":"Once","id":"a"}\n{"prompt":"Once upon","id":"b"}\n')
        b = self.write("b", '{"prompt":"X","id":"z"}\n{"prompt":"Y","id":"y"}\n')
        out = self.path("out")
        self.ok("batch", MODEL, a, out, "-n", "4")
        whole = self.content("out")
        for cut in (1, 5, len(whole.splitlines()[1]) + 1):
            with open(out, "wb") as f:
                f.write(whole[:-cut])
            self.fails(1, "batch", MODEL, b, out, "-n", "4", contains=["results of another file?"])
            self.assertEqual(self.content("out"), whole[:-cut])
        self.ok("batch", MODEL, a, out, "-n", "4")
        self.assertEqual(self.content("out"), whole)


class Signals(Files):
    def test_a_termination_that_comes_twice(self):
        """timeout(1) sends it to the process and to its group."""
        commands = {"bench": ("--synthetic", "tiny", "-p", "0", "-n", "20000", "-r", "20"),
                    "generate": (MODEL, "-p", "Once", "-n", "0", "--ignore-eos"),
                    "chat": (MODEL, *PLAIN, "--session", self.path("s"))}
        for name, args in commands.items():
            with self.subTest(name):
                p = self.start(name, *args, stdin=subprocess.PIPE)
                self.wait_for_its_handler(p)
                p.terminate()
                p.terminate()
                self.ends(p, 130)
        self.assertEqual(self.names(), ["s"])

    def test_verifying_ends_at_once(self):
        p = self.start("inspect", MODEL, "--verify")
        self.wait_for_its_handler(p)
        p.terminate()
        p.communicate(timeout=60)
        self.assertIn(p.returncode, (0, 130))


class Bench(Files):
    @unittest.skipIf(sanitized(), "LeakSanitizer has a process of its own at the end")
    def test_the_meter_is_gone_under_a_cap(self):
        """Its buffer takes no more than the cap, and nothing beside the model."""
        p = self.start("bench", MODEL, "-p", "0", "-n", "200", "-r", "3", "--memory", "24M", "--json", stdout=subprocess.DEVNULL)
        children = []
        ended, status, usage = 0, 0, None
        while not ended:
            try:
                with open(f"/proc/{p.pid}/task/{p.pid}/children", encoding="utf-8") as f:
                    children.append(len(f.read().split()))
            except OSError:
                pass
            time.sleep(0.001)
            ended, status, usage = os.wait4(p.pid, os.WNOHANG)
        p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(p.returncode, 0)
        self.assertIn(1, children)
        self.assertEqual(set(children[-20:]), {0})
        self.assertLess(usage.ru_maxrss << 10, 200 << 20)  # of the larger process


if __name__ == "__main__":
    main()
