# SPDX-License-Identifier: MIT
"""Environment and Model: what they tell, how they are opened, and what they refuse."""

import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import PROMPT, STORIES

import moe


def test_environment(environment):
    assert environment.info.threads == 2
    assert environment.info.device == "cpu"
    assert environment.info.isa in moe.isas()
    assert "scalar" in moe.isas()
    assert {"ternary2", "int8", "f32"} <= set(moe.weight_formats())
    assert {"topk", "threshold", "cosine"} <= set(moe.router_kinds())
    assert moe.version() == "0.1.0"


def test_environment_refuses():
    with pytest.raises(moe.UnsupportedError, match="no-such-isa"):
        moe.Environment(isa="no-such-isa")
    with pytest.raises(moe.RangeError):
        moe.Environment(threads=-1)
    with pytest.raises(ValueError, match="threads"):
        moe.Environment(threads=2**32)  # must not wrap around to 0


def test_info(model):
    info = model.info
    assert (info.name, info.vocab_size, info.d_model) == ("stories-mh-moe", 1536, 192)
    assert info.eos_tokens == (1,) and info.bos_token == 0
    assert info.file_bytes == STORIES.stat().st_size
    layers = model.layers
    assert len(layers) == info.n_layers == 4
    assert (layers[3].n_experts, layers[3].router, layers[3].n_subheads) == (16, "topk:2", 2)
    experts = [t for t in model.tensors if t.part == "experts"]
    assert {t.format for t in experts if t.role == "up"} == {"ternary2"}
    assert {(t.layer, t.expert) for t in experts} == {(i, e) for i in range(4) for e in range(16)}


def test_memory(model):
    account = model.memory()
    assert account["KV cache"] == 2 * model.memory(context=256)["KV cache"]
    assert model.memory(kv=moe.KvType.INT8)["KV cache"] < account["KV cache"]


def test_budget(environment):
    with pytest.raises(moe.BudgetError, match="KV cache") as e:
        moe.Model(STORIES, environment, memory_bytes=1000)
    assert isinstance(e.value, MemoryError)


def test_memory_of_the_machine(environment, model):
    machine = moe.memory_info()
    assert 0 < machine.available_bytes <= machine.total_bytes
    assert model.memory_bytes == 0  # no cap: the model fits
    with moe.Model(STORIES, environment, memory_bytes=2**30) as capped:
        assert capped.memory_bytes == 2**30
    with pytest.raises(ValueError, match="memory_bytes"):
        moe.Model(STORIES, environment, memory_bytes=-1)


def test_memory_stats(model):
    session = model.session()
    session.append(model.encode(PROMPT))
    stats = session.memory_stats
    assert stats.cap_bytes == 0 and stats.session == stats.model == moe.ExpertStats(0, 0, 0, 0.0)


def test_from_memory(environment, model):
    data = bytearray(STORIES.read_bytes())
    with moe.Model(data, environment) as copy:
        with pytest.raises(BufferError):
            data.append(0)  # the model uses the memory in place
        copy.verify()
        ids = model.encode(PROMPT)
        np.testing.assert_array_equal(copy.session().eval(ids), model.session().eval(ids))
    data[len(data) // 2] ^= 1
    with moe.Model(bytes(data), environment) as damaged, pytest.raises(moe.CorruptError):
        damaged.verify()


def test_mapped(environment):
    with moe.Model(str(STORIES), environment, map_weights=True) as mapped:
        mapped.verify()


@pytest.mark.parametrize("io", ["auto", "direct", "buffered"])
def test_io(environment, model, io):
    try:
        opened = moe.Model(STORIES, environment, io=io)
    except moe.UnsupportedError:
        assert io == "direct"
        pytest.skip("the file system has no direct reads")
    with opened:
        opened.verify()
        ids = model.encode(PROMPT)
        np.testing.assert_array_equal(opened.session().eval(ids), model.session().eval(ids))


def test_io_refuses(environment):
    with pytest.raises(ValueError, match="io: expected one of auto, direct, buffered, found 'fast'"):
        moe.Model(STORIES, environment, io="fast")
    with pytest.raises(moe.ArgumentError, match="direct"):
        moe.Model(STORIES.read_bytes(), environment, io="direct")
    with pytest.raises(moe.ArgumentError, match="direct"):
        moe.Model(STORIES, environment, io="direct", map_weights=True)


@pytest.mark.parametrize("content, error", [(b"", moe.FormatError), (b"no model" * 99,
                                                                      moe.FormatError)])
def test_bad_file(environment, tmp_path, content, error):
    path = tmp_path / "bad.moe"
    path.write_bytes(content)
    with pytest.raises(error) as e:
        moe.Model(path, environment)
    assert e.value.name == f"MOE_{e.value.status.name}"
    assert str(e.value) == f"{e.value.name}: {e.value.text}"


def test_missing_file(environment):
    with pytest.raises(moe.NotFoundError, match="no-such-file"):
        moe.Model("no-such-file.moe", environment)


@pytest.mark.parametrize("path, error, base", [("no-such-file.moe", moe.NotFoundError, FileNotFoundError),
                                               ("/", moe.FileError, OSError)])
def test_file_errors_are_those_of_python(environment, path, error, base):
    with pytest.raises(base) as e:
        moe.Model(path, environment)
    assert type(e.value) is error
    assert path in e.value.text and str(e.value) == f"{e.value.name}: {e.value.text}"
    copied = pickle.loads(pickle.dumps(e.value))
    assert type(copied) is error and str(copied) == str(e.value)


def test_tokenizer(model):
    text = "The fox found a key."
    ids = model.encode(text, special=False)
    assert ids == [301, 716, 89, 657, 260, 363, 1174, 15]
    assert model.encode(text) == [model.info.bos_token, *ids]  # the file sets add_bos
    assert model.decode(ids) == text
    assert model.decode(np.array(ids, np.uint8 if max(ids) < 256 else np.int64)) == text
    assert model.tokenizer.piece(301) is not None
    assert model.tokenizer.piece(-1) is None
    assert model.encode("", special=False) == [] and model.decode([]) == ""


def test_tokenizer_odd_text(model):
    for text in ("\0", "a\0b", "\N{GRINNING FACE}" * 100, "\N{COMBINING ACUTE ACCENT}"):
        assert model.decode(model.encode(text, special=False)) == text
    assert model.decode(model.encode(b"\xff", special=False)) == "\N{REPLACEMENT CHARACTER}"
    with pytest.raises(moe.RangeError):
        model.decode([10**6])


def test_tokenizer_outlives_the_model_object(environment):
    tokenizer = moe.Model(STORIES, environment).tokenizer
    assert tokenizer.decode(tokenizer.encode("abc", special=False)) == "abc"


def test_log_reaches_python():
    seen = []
    with moe.Environment(threads=1, log=lambda level, text: seen.append((level, text))) as env:
        with moe.Model(STORIES, env) as m:
            m.session().eval([1])
    assert all(isinstance(level, moe.LogLevel) and text for level, text in seen)


def test_version():
    assert moe.__version__ == moe.version()
    assert re.fullmatch(r"\d+\.\d+\.\d+", moe.__version__)


def test_device_and_memory_of_a_model():
    with moe.Model(STORIES, device="cpu", memory="64M") as model:
        assert model.memory_bytes == 64 << 20
        assert model.environment.info.device == "cpu"
    with pytest.raises(moe.DeviceError):
        moe.Model(STORIES, device="cuda:99")
    with pytest.raises(moe.BudgetError):
        moe.Model(STORIES, memory="100K")
    for bad in ("", "G", "2X", "-1G", "0", "1e3", "99999999999T"):
        with pytest.raises(ValueError, match="memory"):
            moe.Model(STORIES, memory=bad)
    for size, cap in ((64 << 20, 64 << 20), (0, 0)):
        with moe.Model(STORIES, device="cpu", memory=size) as model:
            assert model.memory_bytes == cap
    with pytest.raises(ValueError, match="memory_bytes"):
        moe.Model(STORIES, memory=-1)
    for wrong, name in ((2.5, "float"), (True, "bool"), (b"2G", "bytes")):
        with pytest.raises(TypeError, match=f"memory: expected a size such as '2G'.* found {name}"):
            moe.Model(STORIES, memory=wrong)
    with pytest.raises(ValueError, match="memory_bytes"):
        moe.Model(STORIES, memory="2G", memory_bytes=5)
    with moe.Environment(threads=1) as env, pytest.raises(ValueError, match="device"):
        moe.Model(STORIES, env, device="cpu")


def test_repr(environment):
    assert "2 threads" in repr(environment)
    model = moe.Model(STORIES, environment)
    session = model.session(context=40)
    session.append([1, 2, 3])
    assert repr(session) == "<moe.Session 3 of 40 tokens>"
    for word in ("stories-mh-moe", "decoder", "4 layers", "vocabulary 1536"):
        assert word in repr(model)
    assert repr(model.tokenizer) == f"<moe.Tokenizer of {model!r}>"
    chat = moe.Chat(session, template="plain")
    chat.add("user", "Once")
    assert repr(chat) == f"<moe.Chat 1 message in {session!r}>"
    generation = model.session().generate(PROMPT, max_tokens=3)
    assert repr(generation) == "<moe.Generation not begun>"
    next(generation)
    assert repr(generation) == "<moe.Generation in progress>"
    generation.text()
    assert repr(generation) == "<moe.Generation 3 tokens, finish LENGTH>"
    closed = model.session().generate(PROMPT)
    closed.close()
    assert repr(closed) == "<moe.Generation ended without a result>"
    expert = moe.Expert(up=np.ones((8, 4), np.float32), down=np.ones((4, 8), np.float32))
    layer = moe.MoeLayer([expert] * 2, np.ones((2, 4), np.float32), environment=environment)
    assert repr(layer) == "<moe.MoeLayer d_model 4, 2 experts, router topk:1, weights f32>"
    session.close()
    model.close()
    assert repr(session) == "<moe.Session closed>" and repr(model) == "<moe.Model closed>"


def run_module(*arguments):
    return subprocess.run([sys.executable, "-m", "moe", *map(str, arguments)], capture_output=True,
                          text=True, timeout=100)


def test_python_m_moe(model, tmp_path):
    assert run_module("--version").stdout == f"moe {moe.__version__}\n"
    shown = run_module(STORIES).stdout
    assert "stories-mh-moe" in shown and "\n  vocab_size 1536\n" in shown
    made = run_module(STORIES, "-p", PROMPT, "-n", 6)
    assert made.stdout == PROMPT + model.session().generate(PROMPT, max_tokens=6).text() + "\n"
    missing = run_module(tmp_path / "none.moe")
    assert missing.returncode == 1 and "none.moe" in missing.stderr
    assert "Traceback" not in missing.stderr
    assert run_module(STORIES, "--memory", "2X").returncode == 1
    assert run_module().returncode == 2
