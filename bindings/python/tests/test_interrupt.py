# SPDX-License-Identifier: MIT
"""Ctrl-C and exceptions during long calls. Each case runs in its own process and is interrupted
inside a call that would take minutes."""

import json
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import STORIES

import moe

BEGIN = """
import os, pathlib, signal, sys, threading, time
import moe

def interrupt_when(ready):
    def wait():
        while not ready():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=wait, daemon=True).start()

def inside():  # the position advances with each chunk
    return session.position > 0

def interrupt(*_arguments):
    os.kill(os.getpid(), signal.SIGINT)
"""


def run(program, *arguments):
    end = "else:\n    sys.exit('the call was not interrupted')\n"
    done = subprocess.run([sys.executable, "-c", BEGIN + program + end, *map(str, arguments)],
                          capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def long_model(tmp_path_factory):
    """A small model with a context so long that a full prefill takes minutes."""
    path = tmp_path_factory.mktemp("long") / "long.moe"
    moe.save_synthetic("tiny", path, context=1 << 17)
    return path


@pytest.mark.parametrize("call", [
    "session.eval(text)", "session.append(text)", "session.perplexity(text)",
    "session.perplexity(text, lambda done, total: None)",
    "with session.generate(text) as g: g.tokens()"])
def test_a_session_is_interrupted(long_model, call):
    assert run(f"""
session = moe.Model(sys.argv[1]).session(context=1 << 17)
text = [5] * ((1 << 17) - 1)
interrupt_when(inside)
try:
    {call}
except KeyboardInterrupt:
    session.rewind(0)
    session.eval([5])
    print(session.position)
""", long_model) == "1\n"


def test_a_step_is_interrupted(long_model):
    run("""
model = moe.Model(sys.argv[1])
moe._long_call._SHORT = 0  # as if the model were large
session, other = model.session(), model.session()
start, started = moe._long_call._thread.start_new_thread, []
moe._long_call._thread.start_new_thread = lambda *a: (started.append(a), start(*a))[1]
interrupt_when(inside)
try:
    while True:
        moe.step([session, other], [5, 5])
        session.rewind(0)
        other.rewind(0)
except KeyboardInterrupt:
    assert started  # in another thread, so that the main thread handles signals
    session.eval([5])
""", long_model)


@pytest.mark.parametrize("callback", ["interrupt", "lambda *_: interrupt() or True"])
def test_interrupted_in_a_callback(callback):
    run(f"""
session = moe.Model(sys.argv[1]).session()
try:
    session.perplexity([5] * 5000, {callback})
except KeyboardInterrupt:
    print(session.perplexity([5] * 50).n_scored)
""", STORIES)


@pytest.fixture(scope="module")
def big_checkpoint(tmp_path_factory):
    """A sparse file of 28 GB of zeros."""
    folder = tmp_path_factory.mktemp("big")
    n_layers, d_model, d_ff = 8, 4096, 1 << 16
    shapes = {"embedding.weight": (8, d_model), "final_norm.weight": (d_model,)}
    for i in range(n_layers):
        shapes |= {f"layers.{i}.{norm}.weight": (d_model,) for norm in ("attention_norm", "ffn_norm")}
        shapes |= {f"layers.{i}.attention.{m}.weight": (d_model, d_model) for m in "qkvo"}
        shapes |= {f"layers.{i}.ffn.up.weight": (d_ff, d_model)}
        shapes |= {f"layers.{i}.ffn.down.weight": (d_model, d_ff)}
        shapes |= {f"layers.{i}.ffn.gate.weight": (d_ff, d_model)}
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + end)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "moe_research", "layout_version": 1, "name": "big", "vocab_size": 8,
        "d_model": d_model, "n_layers": n_layers, "context_length": 8, "norm": {"kind": "rms"},
        "positions": "rope", "tie_embeddings": True,
        "layer_defaults": {"attention": {"n_heads": 32, "rope": {"kind": "half", "dims": 128}},
                           "ffn": {"kind": "dense", "d_ff": d_ff, "gated": True, "act": "silu"}}}))
    return folder


@pytest.mark.parametrize("options", ["", ", progress=lambda *_: None", ", progress=interrupt",
                                     ", on_matrix=interrupt"])
def test_a_conversion_is_interrupted(big_checkpoint, tmp_path, options):
    run(f"""
folder = pathlib.Path(sys.argv[2]).parent
if "interrupt" not in {options!r}:
    interrupt_when(lambda: any(folder.glob(".big.moe.moe-??????")))
try:
    moe.convert(sys.argv[1], sys.argv[2], weights="int8", allow_zeros=True{options})
except KeyboardInterrupt:
    pass
""", big_checkpoint, tmp_path / "big.moe")
    assert list(tmp_path.iterdir()) == []


def test_the_command_ends_after_sigterm():
    """With the status of Ctrl-C, from the moment when it is able to."""
    command = [sys.executable, "-m", "moe", str(STORIES), "-p", "Once", "-n", "480"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        status = pathlib.Path(f"/proc/{process.pid}/status")
        while not int(status.read_text().split("SigCgt:")[1].split()[0], 16) & 1 << (signal.SIGTERM - 1):
            time.sleep(0.001)
        process.terminate()
        assert process.wait(60) == 130


def test_a_handler_that_goes_on_changes_nothing(long_model):
    """A signal whose handler returns stops nothing; SystemExit in a handler stops the call."""
    program = """
session = moe.Model(sys.argv[1]).session(context=64)
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(threading.current_thread()))
def progress(done, total):
    assert threading.current_thread() is threading.main_thread()
    if done < 200:
        interrupt()
result = session.perplexity([5] * 640, progress)
assert result.n_scored == 630 and len(seen) == 3, (result, seen)
assert set(seen) == {threading.main_thread()}
signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
session.close()
session = moe.Model(sys.argv[1]).session(context=1 << 17)
interrupt_when(inside)
try:
    session.append([5] * ((1 << 17) - 1))
except SystemExit as e:
    assert e.code == 7
"""
    run(program, long_model)


def test_from_another_thread(session):
    """A callback of a call in another thread than the main one runs in the calling thread."""
    seen = []

    def work():
        session.perplexity([5] * 2000, lambda done, total: seen.append(threading.get_ident()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    assert set(seen) == {thread.ident}


def test_a_closed_session_in_a_callback_is_let_go(model):
    with pytest.raises(KeyError):
        with model.session() as session:
            session.perplexity([5] * 5000, lambda *_: session.close() or {}["mine"])
    assert session.closed
