# SPDX-License-Identifier: MIT
"""A model: its contents, its memory, its tokenizer."""

from __future__ import annotations

import ctypes as c
import datetime
import errno
import mmap
import operator
import os
import re
import threading
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from io import UnsupportedOperation
from typing import IO, TYPE_CHECKING, Any, TypeGuard, Union, cast

import numpy as np

from . import _structs as s
from ._arrays import Tokens, address, int32, token_array
from ._constants import Io, KvType
from ._handle import Closable, Native, path_bytes
from ._library import call, lib, text_of
from ._making import Request
from ._stream import check_stops
from .batch import Batch, BatchResult, Prompt
from .chat import Chat, Variable
from .environment import Environment
from .completion import complete
from .embedding import create_embedding
from .errors import ArgumentError, MoeError, RangeError, UnsupportedError
from .generation import Generation, stop_texts
from .info import LayerInfo, MemoryPlan, ModelInfo, TensorInfo, layer_info, model_info, plain
from .sampling import ModelSampling, Sampling, SamplingArguments, model_sampling
from .session import Session
from .text_completion import complete_text
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

Buffer = Union[bytes, bytearray, memoryview, "np.ndarray[Any, Any]"]
Source = Union[str, "os.PathLike[str]", Buffer, IO[bytes]]




_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:i?B)?", re.IGNORECASE)


def parse_bytes(text: str | int) -> int:
    """ "2G", "512M", "1.5GiB", "4096", or an int, which is bytes """
    if not isinstance(text, str):
        if isinstance(text, bool) or not hasattr(text, "__index__"):
            raise TypeError("memory: expected a size such as '2G', or bytes as an int, found "
                            f"{type(text).__name__}")
        return operator.index(text)
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ")) if match else 0
    if not 1 <= size < 2**63:
        raise RangeError(f"memory: expected a size such as '2G', found {text!r}")
    return size


def _read(file: IO[bytes], n: int) -> bytes:
    data = file.read(n)
    if not isinstance(data, bytes):
        raise TypeError("read() of the file: expected bytes, found "
                        f"{type(data).__name__}; open it in binary mode")
    return data


def _is_file(source: Any) -> TypeGuard[IO[bytes]]:
    """Paths of some libraries have a read() too, and so has a map."""
    return hasattr(source, "read") and not isinstance(source, (str, os.PathLike, mmap.mmap))


def _can_seek(file: IO[bytes]) -> bool:
    try:
        file.seek(0, os.SEEK_END)
    except AttributeError:
        return False
    except OSError as e:
        if isinstance(e, UnsupportedOperation) or e.errno == errno.ESPIPE:
            return False
        raise
    return True


def _whole_if_stream(source: Source) -> Source:
    """The content of a file that can only be read from its beginning to its end."""
    if not _is_file(source) or _can_seek(source):
        return source
    content = bytearray()
    while data := _read(source, 1 << 20):
        content += data
    return content


class _FileReader:
    """A file object as a moe_reader, which the library may call from several threads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._raised: BaseException | None = None
        size = file.seek(0, os.SEEK_END)
        if size is None:  # SpooledTemporaryFile of Python 3.10
            size = file.tell()
        self.reader = s.Reader(size=size, read=s.ReadFn(self._read))

    def _read(self, _user: Any, offset: int, to: int, n: int) -> bool:
        try:
            with self._lock:
                self._file.seek(offset)
                self._fill(to, n)
            return True
        except BaseException as e:  # cannot pass through C
            self._raised = e
            return False

    def _fill(self, to: int, n: int) -> None:
        while n > 0:
            data = _read(self._file, n)
            if not data:
                raise EOFError(f"the file ended {n} bytes early")
            if len(data) > n:
                raise ValueError(f"read({n}) of the file: expected at most that many bytes, "
                                 f"found {len(data)}")
            c.memmove(to, data, len(data))
            to, n = to + len(data), n - len(data)

    def open(self, environment: int, params: Any, model: Any) -> None:
        """An exception of read() comes out here; after the model is open it is a FileError."""
        try:
            call(lib.moe_model_open_reader, environment, c.byref(self.reader), params, model)
        except MoeError as e:
            if self._raised is None:
                raise
            raise self._raised from e


class Model(Closable):
    """An open model; immutable, for any number of threads at the same time.

    source:         the path of a model file; or the file's content as bytes or any other buffer,
                    which must not change while the model is open. Content that begins at a
                    multiple of 64 bytes is used in place; or a binary file object with read(),
                    which belongs to the model while that is open, and is not closed. It must not use
                    the library, which may hold a lock meanwhile. One that cannot seek() is read whole
                    into memory, not counted under the cap.
    environment:    None: one of its own, with all threads, on `device`.
    device:         of an environment of its own: see Environment.
    map_weights:    map uncompressed weights instead of reading them. The file must then not
                    change while the model is open: a truncated mapped file kills the process.
    skip_checksums: do not verify checksums of weights. The structure is always checked.
    memory_bytes:   cap on weights, KV caches and scratch memory of this model and all its sessions;
                    experts that do not fit are read on demand. BudgetError if one
                    session with `context`, `chunk` and `kv` (see session()) would not fit. 0: none.
                    None: none if that session fits into the memory that is available, else a cap of
                    15/16 of that; the attribute memory_bytes tells.
    memory:         the same cap as text, such as "2G" or "512M": K, M, G and T are powers of 1024.
                    An int is the same as memory_bytes.
    io:             how a file is read: "buffered" through the system's page cache, "direct" past
                    it (UnsupportedError where the file system cannot), "auto": direct when the
                    file is larger than the memory that is available.
    lazy_experts:   with a cap, read experts only when a token needs them; otherwise the room that is
                    left for experts is filled while nothing else is read.

    Sessions keep the model in memory, also after close(); its tokenizer ends with close().

    A model of a path without an `environment` can be pickled: the pickle holds these arguments, and
    the models of several pickles of one file that were opened alike are one: close() of it ends it
    for all of them.
    """

    _what = "model"

    def __init__(self, source: Source, environment: Environment | None = None, *,
                 device: str | None = None, map_weights: bool = False,
                 skip_checksums: bool = False, memory_bytes: int | None = None,
                 memory: str | int | None = None,
                 io: str = "auto", lazy_experts: bool = False, context: int = 0, chunk: int = 0,
                 kv: KvType | str = KvType.DEFAULT) -> None:
        how = Io.of(io, "io")
        if memory is not None:
            if memory_bytes is not None:
                raise ArgumentError("memory and memory_bytes are the same cap; give one of them")
            memory_bytes = parse_bytes(memory)
        if environment is not None and device is not None:
            raise ArgumentError("device: the environment that was given has one already")
        self._reopened = None
        if environment is None and isinstance(source, (str, os.PathLike)):
            self._reopened = (os.path.abspath(os.fspath(source)), device, map_weights, skip_checksums,
                              memory_bytes, io, lazy_experts, context, chunk, KvType.of(kv, "kv"))
        source = _whole_if_stream(source)
        env = Environment(device=device) if environment is None else environment
        session = s.SessionParams(context=context, chunk=chunk, kv=KvType.of(kv, "kv"))
        params = s.ModelParams(map_weights=int(map_weights), skip_checksums=int(skip_checksums),
                               memory_bytes=memory_bytes or 0, session=c.pointer(session),
                               io=how, lazy_experts=int(lazy_experts))
        with env._pointer() as e:
            self._native = self._opened(e, source, params, env)
            if memory_bytes is None:
                cap = c.c_uint64()
                with self._pointer() as model:
                    call(lib.moe_model_suggest_memory, model, c.byref(session), 1, c.byref(cap))
                if cap.value != 0:
                    self.close()
                    params.memory_bytes = cap.value
                    self._native = self._opened(e, source, params, env)
        self.memory_bytes = int(params.memory_bytes)
        self.environment = env
        self._own_environment = environment is None

    @staticmethod
    def _opened(e: int, source: Source, params: s.ModelParams, env: Environment) -> Native:
        model = c.c_void_p()
        data: Any = None
        if isinstance(source, (str, os.PathLike)):
            call(lib.moe_model_open, e, path_bytes(source, "source"), c.byref(params), c.byref(model))
        elif _is_file(source):
            data = _FileReader(source)
            data.open(e, c.byref(params), c.byref(model))
        else:
            data = np.frombuffer(cast(Buffer, source), np.uint8)  # keeps a buffer from being resized
            call(lib.moe_model_open_memory, e, address(data), data.size, c.byref(params),
                 c.byref(model))
        assert model.value is not None
        return Native(model.value, lib.moe_model_free, env._open(), keep=data)

    def close(self) -> None:
        super().close()
        if getattr(self, "_own_environment", False):
            self.environment.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._reopened is None:
            return super().__reduce_ex__(protocol)
        self._open()
        return _unpickled, self._reopened

    def __copy__(self) -> Model:
        raise TypeError("a model cannot be copied; any number of threads may use this one")

    def __deepcopy__(self, _memo: Any) -> Model:
        return self.__copy__()

    def _describe(self) -> str:
        info = self.info
        kind = ("encoder-decoder" if info.is_encoder_decoder
                else "encoder" if info.is_encoder else "decoder")
        cap = f", cap {self.memory_bytes} bytes" if self.memory_bytes else ""
        return (f"{info.name!r} {kind}, {info.n_parameters} parameters, {info.n_layers} layers "
                f"({info.n_moe_layers} MoE), vocabulary {info.vocab_size}, "
                f"context {info.context_length}{cap}")

    @property
    def info(self) -> ModelInfo:
        info = s.ModelInfo()
        with self._pointer() as model:
            call(lib.moe_model_get_info, model, c.byref(info))
            return model_info(info)

    @property
    def prompts(self) -> dict[str, str]:
        """Texts to put before those that Session.embed() makes vectors of, by name."""
        found: dict[str, str] = {}
        with self._pointer() as model:
            for i in range(self.info.n_prompts):
                name, text = c.c_char_p(), c.c_char_p()
                call(lib.moe_model_get_prompt, model, i, c.byref(name), c.byref(text))
                found[text_of(name.value or b"")] = text_of(text.value or b"")
        return found

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        return tuple(self._layer(i) for i in range(self.info.n_layers))

    def _layer(self, index: int) -> LayerInfo:
        info = s.ModelLayerInfo()
        with self._pointer() as model:
            call(lib.moe_model_get_layer_info, model, index, c.byref(info))
            router = s.Router()
            if info.n_experts:
                call(lib.moe_model_get_router, model, index, c.byref(router))
            return layer_info(info, router)

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Every stored matrix and vector, in the order of the file."""
        with self._pointer() as model:
            found = []
            for i in range(lib.moe_model_tensor_count(model)):
                info = s.TensorInfo()
                call(lib.moe_model_get_tensor_info, model, i, c.byref(info))
                found.append(plain(TensorInfo, info))
            return tuple(found)

    def memory(self, *, sessions: int = 1, context: int = 0, chunk: int = 0,
               kv: KvType | str = KvType.DEFAULT) -> dict[str, int]:
        """Bytes by purpose for this model with so many such sessions, allocated or not."""
        n_sessions = int32(sessions, "sessions")
        params = s.SessionParams(context=context, chunk=chunk, kv=KvType.of(kv, "kv"))
        n = c.c_size_t()
        with self._pointer() as model:
            call(lib.moe_model_get_memory, model, c.byref(params), n_sessions, None, 0, c.byref(n))
            lines = (s.MemoryLine * n.value)()
            call(lib.moe_model_get_memory, model, c.byref(params), n_sessions, lines,
                 n.value, c.byref(n))
            return {text_of(line.what): int(line.bytes) for line in lines}

    def memory_plan(self, *, sessions: int = 1, context: int = 0, chunk: int = 0,
                    kv: KvType | str = KvType.DEFAULT) -> MemoryPlan:
        """The memory that the cap leaves for experts beside so many such sessions, and the smallest cap under
        which all of them can be made."""
        params = s.SessionParams(context=context, chunk=chunk, kv=KvType.of(kv, "kv"))
        plan = s.MemoryPlan()
        with self._pointer() as model:
            call(lib.moe_model_get_memory_plan, model, c.byref(params), int32(sessions, "sessions"),
                 c.byref(plan))
        return plain(MemoryPlan, plan)

    def verify(self) -> None:
        """Reads every weight once and verifies checksums, codes and scales."""
        with self._pointer() as model:
            call(lib.moe_model_verify, model)

    @property
    def tokenizer(self) -> Tokenizer:
        """UnsupportedError if the model has none (token ids only)."""
        with self._pointer() as model:
            pointer = lib.moe_model_tokenizer(model)
        if pointer is None:
            raise UnsupportedError("the model has no tokenizer: only token ids can be used")
        return Tokenizer(self, pointer)

    def encode(self, text: str | bytes, *, special: bool = True,
               parse_special: bool = False) -> list[int]:
        """See Tokenizer.encode."""
        return self.tokenizer.encode(text, special=special, parse_special=parse_special)

    def decode(self, tokens: Tokens, *, skip_special: bool = False) -> str:
        """See Tokenizer.decode."""
        return self.tokenizer.decode(tokens, skip_special=skip_special)

    @property
    def sampling(self) -> ModelSampling:
        """How `moe chat` samples with this model. Nothing in this package uses it by itself: the
        default is temperature 0, so that a program gives the same result each time. To sample:
        chat.reply("Hello", seed=1, **model.sampling.arguments)."""
        struct, in_file = s.Sampling(), c.c_bool()
        with self._pointer() as model:
            call(lib.moe_model_get_sampling, model, c.byref(struct), c.byref(in_file))
        return model_sampling(struct, in_file.value)

    @property
    def chat_template(self) -> str | None:
        """The model file's Jinja template."""
        with self._pointer() as model:
            text = lib.moe_model_chat_template(model)
            return None if text is None else text_of(text)

    def chat(self, *, template: str | None = None, system: str | None = None,
             thinking: bool | None = None, variables: Mapping[str, Variable] | None = None,
             date: str | datetime.date | None = None, context: int = 0, chunk: int = 0,
             kv: KvType | str = KvType.DEFAULT) -> Chat:
        """A new conversation in a session of its own. The first arguments are Chat's, the last
        ones those of session()."""
        session = self.session(context=context, chunk=chunk, kv=kv)
        return Chat(session, template=template, system=system, thinking=thinking,
                    variables=variables, date=date)

    def batch(self, prompts: Iterable[Prompt], *, sessions: int | None = None, max_tokens: int = 0,
              stop: str | Sequence[str] = (), ignore_eos: bool = False, context: int = 0, chunk: int = 0,
              kv: KvType | str = KvType.DEFAULT,
              **sampling: Unpack[SamplingArguments]) -> Generator[BatchResult, None, None]:
        """Continues each prompt, a text or token ids, and yields the results in the order of the
        prompts. Each is what Session.generate() makes of that prompt in an empty session, sampled
        with the same seed.

        sessions: texts that are decoded together, in one pass per token. BudgetError, with the
                  smallest cap that would do, if a memory cap has no room for so many. None: 8, or
                  fewer where a memory cap has no room for more.

        The other arguments are those of Session.generate() and session(). A prompt is taken as soon
        as a session is free; one that cannot be used has an `error` in its result, and the others go
        on. Closing the iterator, or dropping it, ends the batch and frees its sessions.
        """
        if isinstance(prompts, (str, bytes)):
            raise ArgumentError("prompts: expected several, found one text")
        if sessions is not None and operator.index(sessions) < 1:
            raise ArgumentError(f"sessions: expected at least 1, found {sessions}")
        if int32(max_tokens, "max_tokens") < 0:
            raise RangeError(f"max_tokens: expected at least 0, found {max_tokens}")
        texts = stop_texts(stop)
        check_stops(texts)
        request = Request(token_array(()), Sampling(**sampling), max_tokens, texts, ignore_eos, 0)
        made_with = {"context": context, "chunk": chunk, "kv": kv}
        return Batch(self, request, sessions, made_with).results(prompts)

    def generate(self, prompt: str | Tokens, *, context: int = 0, chunk: int = 0,
                 kv: KvType | str = KvType.DEFAULT, **sampling: Any) -> Generation:
        """Session.generate() in a session of its own, with the context, chunk and kv of session() and
        the arguments of that. It frees the session at its end, or when it is closed or dropped."""
        session = self.session(context=context, chunk=chunk, kv=kv)
        try:
            return session.generate(prompt, **sampling)
        except BaseException:
            session.close()
            raise

    def create_completion(self, prompt: str | Sequence[Any], *, stream: bool = False, echo: bool = False,
                          logprobs: int | None = None, model: str | None = None, context: int | None = None,
                          **sampling: Any) -> Any:
        """The continuation of a text in the shape of OpenAI's API: a dictionary "text_completion", or
        with stream=True an iterator of such, for `for` and `async for`.

        prompt:   a text, a list of token ids, or several of them, of which each gets one of the choices.
        echo:     begin with the prompt.
        logprobs: add the log-probabilities of the tokens, each with so many candidates, at most 64.
        model:    the name that the answer bears; None: the model's own.
        context:  as of session().
        sampling: max_tokens (16, as there), temperature (0), top_p, seed, stop, logit_bias and the others
                  of Session.generate(). n and best_of can only be 1. The API's user, metadata and store
                  are ignored, and its penalties can only be 0.

        None stands for what is not given. ArgumentError names an argument that is not known. Any number
        of threads may call.
        """
        return complete_text(self, prompt, stream, echo, logprobs, model, context or 0, sampling)

    def create_embedding(self, input: str | Sequence[Any], *, model: str | None = None,
                         encoding_format: str = "float", dimensions: int | None = None,
                         pooling: str = "default") -> dict[str, Any]:
        """The vectors of texts in the shape of OpenAI's API, of length 1 as there. TooLongError for a
        text of more tokens than ModelInfo.vector_tokens.

        input:           a text, a list of token ids, or several of them. The model's default prompt
                         is put before a text, as Session.embed() does, and not before ids.
        model:           the name that the answer bears; None: the model's own.
        encoding_format: "float", lists of numbers, or "base64" of float32 in little-endian order.
        dimensions:      None, or d_model.
        pooling:         as of Session.embed(); by default as the model file says.
        """
        return create_embedding(self, input, model, encoding_format, dimensions, pooling)

    def create_chat_completion(self, messages: Iterable[Mapping[str, Any]], *, stream: bool = False,
                               logprobs: bool = False, top_logprobs: int | None = None,
                               logit_bias: Mapping[Any, float] | None = None,
                               model: str | None = None, template: str | None = None,
                               thinking: bool | None = None, context: int | None = None,
                               **sampling: Any) -> Any:
        """The reply to a conversation in the shape of OpenAI's API: a dictionary "chat.completion", or
        with stream=True an iterator, for `for` and `async for`, of "chat.completion.chunk". Thinking
        is "reasoning_content".

        messages: mappings with "role" and "content", a str or parts of the type "text".
        logprobs, top_logprobs, logit_bias: as there; logit_bias has ids of tokens as keys.
        model:    the name that the answer bears; None: the model's own.
        template, thinking, context: as of chat().
        sampling: max_tokens or max_completion_tokens, temperature, top_p, seed, stop and the others of
                  Chat.reply(), with the defaults of that: temperature 0 (Model.sampling has others).
                  n can only be 1. The API's user, metadata and store are ignored, its penalties can
                  only be 0; a response_format holds the answer to a JSON schema.

        None stands for what is not given. ArgumentError names an argument, or a key of a message,
        that is not known.

        Each call has a session of its own, so any number of threads may call. Chat's method of the
        same name keeps one, and evaluates only what is new.
        """
        chat = self.chat(template=template, thinking=thinking, context=context or 0)

        def close() -> None:
            chat.close()
            chat.session.close()

        return complete(chat, messages, stream, logprobs, top_logprobs, logit_bias, close, model, sampling)

    def session(self, *, context: int = 0, chunk: int = 0,
                kv: KvType | str = KvType.DEFAULT, max_beam: int = 0) -> Session:
        """A new text. context: positions it can hold, 0: the model's context length (at most
        4096); chunk: rows evaluated at once during prefill, 0: 256 (on a GPU with room 1024), under a memory
        cap 32 to 4096; max_beam: of an encoder-decoder, the largest beam of its searches, 0: 5."""
        return Session(self, context=context, chunk=chunk, kv=kv, max_beam=max_beam)


_models: weakref.WeakValueDictionary[tuple[Any, ...], Model] = weakref.WeakValueDictionary()
_models_lock = threading.Lock()


def _identity(path: str) -> tuple[int, ...]:
    """Tells the file from another one that takes its place."""
    try:
        found = os.stat(path)
    except OSError:  # opening it says what is wrong
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _unpickled(path: str, device: str | None, map_weights: bool, skip_checksums: bool,
               memory_bytes: int | None, io: str, lazy_experts: bool, context: int, chunk: int,
               kv: KvType | str) -> Model:
    key = (path, _identity(path), device, map_weights, skip_checksums, memory_bytes, io, lazy_experts,
           context, chunk, kv)
    with _models_lock:
        model = _models.get(key)
        if model is None or model.closed:
            model = Model(path, device=device, map_weights=map_weights, skip_checksums=skip_checksums,
                          memory_bytes=memory_bytes, io=io, lazy_experts=lazy_experts,
                          context=context, chunk=chunk, kv=kv)
            _models[key] = model
        return model
