# SPDX-License-Identifier: MIT
"""Generations that signals, callbacks, forks and errors end or interrupt. Each runs in a process of its
own, so that one that does not end fails."""

import subprocess
import sys

import pytest
from conftest import STORIES

BEGIN = """
import gc, os, queue, signal, sys, threading, weakref
import moe

model = moe.Model(sys.argv[1], moe.Environment(threads=1))
session = model.session()
PROMPT = "Once upon a time"

def expected(n):
    return model.session().generate(PROMPT, max_tokens=n).tokens()

class Interrupt(Exception):
    pass
"""


def run(program):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BEGIN + program, str(STORIES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_an_exception_behind_the_wait_loses_no_piece():
    """As of a signal that arrives when the queue has just given what it had."""
    run("""
n_raised = 0
class Queue(queue.SimpleQueue):
    def get(self, *arguments, **named):
        item = super().get(*arguments, **named)
        global n_raised
        if threading.current_thread() is threading.main_thread():
            n_raised += 1
            if n_raised % 2:
                raise Interrupt
        return item

queue.SimpleQueue = Queue
generation = session.generate(PROMPT, max_tokens=10)
found = []
while generation.result is None:
    try:
        for piece in generation:
            found.append(piece.token)
    except Interrupt:
        pass
queue.SimpleQueue = Queue.__mro__[1]
assert n_raised > 10 and found == expected(10), (n_raised, found)
""")


def test_exceptions_at_each_line_of_next():
    """The nth line of the iterator that is run raises, for each n until none does."""
    run("""
source = moe.generation.__file__
left = 0

def trace(frame, event, _argument):
    global left
    if frame.f_code.co_filename != source or frame.f_code.co_name == "close":
        return None
    if event == "line" and frame.f_locals.get("item") is None:
        left -= 1
        if left == 0:
            raise Interrupt
    return trace

wanted = expected(3)
for n in range(1, 1000):
    left = n
    session.rewind(0)
    generation = session.generate(PROMPT, max_tokens=3)
    found = []
    while generation.result is None:
        try:
            sys.settrace(trace)
            for piece in generation:
                found.append(piece.token)
        except Interrupt:
            pass
        finally:
            sys.settrace(None)
    assert found == wanted, (n, found)
    if left > 0:
        break
assert 20 < n < 999, n
""")


@pytest.mark.parametrize("what", ["generation", "session"])
def test_closed_by_a_signal_handler(what):
    run(f"""
def handler(*_arguments):
    {what}.close()

def process(_tokens, _logits):
    if len(found) == 2:
        os.kill(os.getpid(), signal.SIGALRM)

signal.signal(signal.SIGALRM, handler)
generation = session.generate(PROMPT, logits_processor=process)
found = []
try:
    for piece in generation:
        found.append(piece.token)
except moe.CancelledError:
    pass
assert found[:2] == expected(2) and len(found) <= 3, found
assert list(generation) == []
assert {what} is generation or session.closed
""")


@pytest.mark.parametrize("what", ["generation", "session"])
@pytest.mark.parametrize("callback", ["processor", "watcher"])
def test_closed_by_a_callback(what, callback):
    run(f"""
def processor(*_arguments):
    {what}.close()

def watcher(_choices):
    {what}.close()

if "{callback}" == "watcher":
    session.watch_routing(watcher)
    processor = None
generation = session.generate(PROMPT, logits_processor=processor)
try:
    assert list(generation) == []
except moe.CancelledError:
    pass
assert list(generation) == []
if {what} is generation:
    session.watch_routing(None)
    session.rewind(0)
    session.eval([5])
else:
    assert session.closed
""")


def test_a_piece_asked_for_in_a_callback_is_refused():
    run("""
generation = session.generate(PROMPT, logits_processor=lambda _t, _l: next(generation))
try:
    generation.text()
except moe.StateError:
    session.eval([5])
else:
    sys.exit("no error")
""")


def test_a_thread_that_cannot_start():
    run("""
start = threading.Thread.start
def fail(_thread):
    raise RuntimeError("can't start new thread")

generations = [session.generate(PROMPT, max_tokens=3) for _ in range(3)]
threading.Thread.start = fail
for generation in generations:
    try:
        next(generation)
    except RuntimeError:
        pass
    else:
        sys.exit("no error")
threading.Thread.start = start
generations[0].close()
assert generations[1].tokens() == expected(3)
session.rewind(0)
session.close()  # and the third at exit
""")


@pytest.mark.parametrize("end", ["sys.exit(3)", "del generation; os._exit(3)", "session.close(); os._exit(3)",
                                 "generation.close(); sys.exit(3)",
                                 """
    try:
        next(generation)
    except moe.StateError:
        sys.exit(3)"""])
def test_a_forked_process_ends(end):
    run(f"""
generation = session.generate(PROMPT, max_tokens=10)
found = [next(generation).token]
child = os.fork()
if child == 0:
    {end}
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert found + generation.tokens() == expected(10)
""")


def test_what_a_watcher_raises_while_it_is_closed_comes_out():
    run("""
interrupted = threading.Event()
def watch(_choices):
    os.kill(os.getpid(), signal.SIGALRM)
    assert interrupted.wait(30)
    raise ValueError("of the watcher")

def handler(*_arguments):
    raise Interrupt

signal.signal(signal.SIGALRM, handler)
session.watch_routing(watch)
generation = session.generate(PROMPT)
try:
    next(generation)
except Interrupt:
    interrupted.set()
try:
    generation.close()
except ValueError as e:
    assert str(e) == "of the watcher"
else:
    sys.exit("no error")
session.watch_routing(None)
session.rewind(0)
session.eval([5])
""")


def test_a_second_generation_does_not_hide_the_first():
    run("""
first = session.generate(PROMPT)
next(first)
second = session.generate(PROMPT)
try:
    next(second)
except moe.StateError:
    pass
third = session.generate(PROMPT)
session.close()
assert first.result.finish == moe.Finish.CALLBACK and list(first) == []
chat = model.chat(template="plain")
reply = chat.reply("Hello")
next(reply)
other = chat.reply("Hello again")
chat.close()
assert reply.result.finish == moe.Finish.CALLBACK
assert chat.session.eval([5]) is not None
""")


def test_a_generation_that_its_processor_refers_to_is_dropped():
    run("""
class Owner:
    def __init__(self):
        self.generation = session.generate(PROMPT, logits_processor=self.process)

    def process(self, _tokens, _logits):
        pass

next(Owner().generation)
gc.collect()
session.rewind(0)
session.eval([5])
""")


def test_an_error_does_not_keep_the_session():
    run("""
def fail(_tokens, _logits):
    raise KeyError("mine")

gc.disable()
generation = session.generate(PROMPT, logits_processor=fail)
try:
    next(generation)
except KeyError as e:
    assert e.args == ("mine",)
else:
    sys.exit("no error")
kept = weakref.ref(session)
del session
assert kept() is None and list(generation) == []
""")


def test_a_processor_that_ends_the_text():
    run("""
n = len(model.encode(PROMPT))
generation = session.generate(
    PROMPT, logits_processor=lambda tokens, _logits: None if len(tokens) < n + 4 else False)
assert generation.tokens() == expected(4) and generation.result.finish == moe.Finish.CALLBACK
""")
