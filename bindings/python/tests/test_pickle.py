# SPDX-License-Identifier: MIT
"""Models from file objects, and sessions that are pickled."""

import copy
import errno
import io
import mmap
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import PROMPT, STORIES

import moe


class Tricky(io.RawIOBase):
    """A file that returns a few bytes per read, and fails after `good` bytes."""

    def __init__(self, good=2**63):
        self.data, self.at, self.good = STORIES.read_bytes(), 0, good

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset if whence == io.SEEK_SET else len(self.data) + offset
        return self.at

    def read(self, n=-1):
        if self.at + n > self.good:
            raise RuntimeError("no more")
        part = self.data[self.at : self.at + min(n, 70000)]
        self.at += len(part)
        return part


class Faulty(Tricky):
    """A file whose read() applies `change` to the result."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def read(self, n=-1):
        return self.change(super().read(n))


class Silent(Tricky):
    """A file whose seek() returns None, as tempfile.SpooledTemporaryFile of Python 3.10."""

    def seek(self, offset, whence=io.SEEK_SET):
        super().seek(offset, whence)

    def tell(self):
        return self.at


@pytest.mark.parametrize("memory", [None, "3.2M"])
def test_file_objects(environment, model, memory):
    expected = model.session().generate(PROMPT, max_tokens=12).text()
    for file in (open(STORIES, "rb"), io.BytesIO(STORIES.read_bytes()), Tricky(), Silent()):
        with file, moe.Model(file, environment, memory=memory, context=64, chunk=32) as m:
            assert m.session(context=64, chunk=32).generate(PROMPT, max_tokens=12).text() == expected


class Stream:
    """A file without seek(), or with one that raises `error`."""

    def __init__(self, error=None):
        self.file = open(STORIES, "rb")
        self.read = self.file.read
        if error is not None:
            self.seek = lambda *_: (_ for _ in ()).throw(error)


@pytest.mark.parametrize("memory", [None, "6M"])
def test_streams_are_read_whole(environment, model, memory):
    expected = model.session().generate(PROMPT, max_tokens=12).text()
    sender = subprocess.Popen(["cat", STORIES], stdout=subprocess.PIPE)
    with sender:
        for stream in (Stream(), Stream(io.UnsupportedOperation("seek")), Stream(OSError(errno.ESPIPE, "seek")),
                       sender.stdout):
            with moe.Model(stream, environment, memory=memory, context=64, chunk=32) as m:
                assert m.session(context=64, chunk=32).generate(PROMPT, max_tokens=12).text() == expected


def test_a_path_with_read_is_a_path(environment):
    class Path(type(STORIES)):  # as those of py.path
        def read(self):
            raise AssertionError("opened as a file")

    with moe.Model(Path(STORIES), environment) as m:
        assert m.encode("x")


def test_other_errors_of_seek_come_out(environment):
    with pytest.raises(OSError, match="broken"):
        moe.Model(Stream(OSError(errno.EIO, "broken")), environment)
    text = Stream()
    text.read = lambda _n: "text"
    with pytest.raises(TypeError, match="expected bytes, found str"):
        moe.Model(text, environment)


def test_mapped_memory_is_a_buffer(environment):
    with open(STORIES, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with moe.Model(mapped, environment) as m:
        assert m.encode("x")
        with pytest.raises(BufferError):  # the model uses the memory
            mapped.close()


def test_a_file_that_fails(environment):
    with pytest.raises(RuntimeError, match="no more"):
        moe.Model(Tricky(good=1000), environment)
    with pytest.raises(ValueError, match="closed file"):
        file = open(STORIES, "rb")
        file.close()
        moe.Model(file, environment)
    with pytest.raises(ValueError, match=r"read\(\d+\) .* expected at most that many bytes, found"):
        moe.Model(Faulty(lambda data: data + bytes(70000)), environment)
    for change in (lambda data: data.decode("latin-1"), bytearray, lambda data: None):
        with pytest.raises(TypeError, match="expected bytes, found (str|bytearray|NoneType)"):
            moe.Model(Faulty(change), environment)
    with pytest.raises(moe.FormatError):
        moe.Model(io.BytesIO(b"x" * 5000), environment)


@pytest.fixture
def session():
    with moe.Model(STORIES, device="cpu", memory="64M") as m:
        session = m.session(context=128, kv=moe.KvType.INT8)
        session.set_router("topk:1")
        session.append(m.encode(PROMPT))
        yield session


def test_sessions_pickle(session):
    first, second = pickle.loads(pickle.dumps([session, session.fork()]))
    assert first.model is second.model
    assert pickle.loads(pickle.dumps(session)).model is first.model
    assert (first.position, first.context) == (session.position, 128)
    assert first.model.memory_bytes == 64 << 20
    logits = session.eval([5])
    np.testing.assert_array_equal(first.eval([5]), logits)
    np.testing.assert_array_equal(second.eval([5]), logits)


def test_another_process_goes_on(session):
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).generate(max_tokens=12).tokens())"
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(session), capture_output=True,
                          check=True)
    assert done.stdout.decode().strip() == str(session.generate(max_tokens=12).tokens())


def test_a_file_that_was_replaced_is_another_model(session, tmp_path):
    path = tmp_path / "m.moe"
    path.write_bytes(STORIES.read_bytes())
    pickled = pickle.dumps(moe.Model(path))
    first, second = pickle.loads(pickled), pickle.loads(pickled)
    assert first is second
    (tmp_path / "new").write_bytes(STORIES.read_bytes())
    (tmp_path / "new").replace(path)
    third = pickle.loads(pickled)
    assert third is not first
    first.close()
    assert second.closed and not third.closed


def test_what_cannot_be_opened_again_does_not_pickle(session, environment):
    for model in (moe.Model(STORIES, environment), moe.Model(STORIES.read_bytes())):
        for thing in (model, model.session()):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                pickle.dumps(thing)
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="fork"):
            copied(session)
    session.close()
    with pytest.raises(moe.StateError):
        pickle.dumps(session)
