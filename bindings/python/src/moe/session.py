"""One text being evaluated: a KV cache and a position."""

from __future__ import annotations

import contextlib
import ctypes as c
import io
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from . import _structs as s
from ._arrays import FloatArray, Tokens, address, int32, token_array
from ._handle import Closable, Native, Raised, optional_bytes, path_bytes
from ._library import call, lib
from ._long_call import LongCall, is_short
from ._making import LogitsProcessor, Request
from ._structs import KvType
from .errors import ArgumentError, UnsupportedError
from .generation import Generation, stop_texts
from .info import (ActivationStats, MemoryStats, Perplexity, RoutingStats, memory_stats, plain,
                   routing_stats)
from .routing import Watcher, routing_choices
from .sampling import Sample, Sampling, TokenLogprob, n_candidates, sampling_struct, top_of

if TYPE_CHECKING:
    from .model import Model

Progress = Callable[[int, int], Any]


_STOPS = {"count": s.BeamStop.COUNT, "bound": s.BeamStop.BOUND, "step": s.BeamStop.STEP}
_POOLING = {"mean": s.Pooling.MEAN, "first": s.Pooling.FIRST, "last": s.Pooling.LAST}


class Encoded(NamedTuple):
    """Results of Session.encode(); None if not requested."""

    hidden: FloatArray | None
    pooled: FloatArray | None
    outputs: FloatArray | None


class Translation(NamedTuple):
    """One result of Session.translate()."""

    text: str | None  # without special tokens; None: the model has no tokenizer
    score: float  # sum of log-probabilities / len(tokens) ** length_penalty
    tokens: list[int]  # with the end-of-text token


class Session(Closable):
    """Made by Model.session(). For one thread at a time: a second one gets StateError; cancel() and
    close() alone may be called from anywhere at any time. The interpreter is free to run other
    threads during a call. Ctrl-C ends a long one within one layer's time: the session then stands
    at the last chunk that was finished."""

    _what = "session"

    def __init__(self, model: Model, *, context: int = 0, chunk: int = 0,
                 kv: KvType | str = KvType.DEFAULT, max_beam: int = 0) -> None:
        self.model = model
        info = model.info
        self._vocab_size = info.vocab_size
        self._n_active = info.n_active_parameters
        self._generations: weakref.WeakSet[Generation] = weakref.WeakSet()  # that have begun
        self._made_with: dict[str, Any] = {"context": context, "chunk": chunk, "kv": kv,
                                           "max_beam": max_beam}
        self._router: str | None = None
        self._watcher: Any = None
        self._raised = Raised()  # by the watcher
        params = s.SessionParams(context=context, chunk=chunk, kv=s.KvType(kv),
                                 max_beam=int32(max_beam, "max_beam"))
        session = c.c_void_p()
        with model._pointer() as m:
            call(lib.moe_session_create, m, c.byref(params), c.byref(session))
            assert session.value is not None
            self._native = Native(session.value, lib.moe_session_free, model._open())

    def close(self) -> None:
        """Ends a generation in progress; see Closable.close."""
        if self._native is not None:
            for generation in list(self._generations):
                generation.close()
        super().close()

    def _begun(self, generation: Generation) -> None:
        self._generations.add(generation)

    @contextlib.contextmanager
    def _pointer(self) -> Iterator[int]:
        """For one call, out of which an exception of the watcher comes: the call that it was raised
        in, not one that another thread makes meanwhile."""
        with super()._pointer() as pointer:
            try:
                yield pointer
            finally:
                if self._raised.thread == threading.get_ident():
                    self._raise_watched()

    def _raise_watched(self) -> None:
        self._raised.call(lambda: None)

    def _describe(self) -> str:
        return f"{self.position} of {self.context} tokens"

    @property
    def position(self) -> int:
        """Tokens evaluated so far."""
        with self._pointer() as session:
            return int(lib.moe_session_position(session))

    @property
    def context(self) -> int:
        """The maximum number of tokens in the session."""
        with self._pointer() as session:
            return int(lib.moe_session_context(session))

    def append(self, tokens: Tokens) -> None:
        """Appends tokens to the text without asking for logits. TooLongError before anything
        changed when the context cannot hold them. After CancelledError the session stands at the
        last chunk that was finished (see position)."""
        self._eval(tokens, None, 0)

    def eval(self, tokens: Tokens) -> FloatArray:
        """append(), and the logits of the next token: (vocab_size,)."""
        logits = np.empty(self._vocab_size, np.float32)
        self._eval(tokens, logits, 1)
        return logits

    def eval_all(self, tokens: Tokens) -> FloatArray:
        """append(), and the logits after each of these tokens: (len(tokens), vocab_size)."""
        ids = token_array(tokens)
        logits = np.empty((len(ids), self._vocab_size), np.float32)
        self._eval(ids, logits, len(ids))
        return logits

    def _eval(self, tokens: Tokens, logits: FloatArray | None, n_rows: int) -> None:
        ids = token_array(tokens)

        def evaluate() -> None:
            with self._pointer() as session:
                call(lib.moe_session_eval, session, address(ids), len(ids), address(logits),
                     n_rows)

        if is_short(len(ids), self._n_active):
            evaluate()
        else:
            with self._long_call() as long:
                long.run(evaluate)

    @contextlib.contextmanager
    def _long_call(self) -> Iterator[LongCall]:
        """A call of this session that a signal can end."""
        with self._pointer() as session:
            yield LongCall(lambda: lib.moe_session_cancel(session))

    def encode(self, tokens: Tokens, *, hidden: bool = True, pooling: str | None = None,
               outputs: bool = False, rows: Tokens | None = None) -> Encoded:
        """Runs the model over a text without changing the session. A token of an encoder
        sees the whole text, one of a decoder what is in front of it: the text's own tokens and what
        the session holds. Do not pad: pass one text at a time.

        hidden:  return the hidden states after the final norm, (len(tokens), d_model).
        pooling: "mean", "first" or "last": return one vector of the text, (d_model,).
        outputs: return the outputs of an encoder's head, (len(tokens), n_outputs); "classes":
                 (1, n_outputs).
        rows:    ascending numbers of the tokens whose outputs to return; None: of all.
        """
        if pooling is not None and pooling not in _POOLING:
            raise ArgumentError(f"pooling: expected 'mean', 'first' or 'last', found {pooling!r}")
        info, ids = self.model.info, token_array(tokens)
        wanted = None if rows is None else token_array(rows)
        n = 1 if info.head == "classes" else len(ids)
        n = n if wanted is None else len(wanted)
        states = np.empty((len(ids), info.d_model), np.float32) if hidden else None
        pooled = np.empty(info.d_model, np.float32) if pooling is not None else None
        out = np.empty((n, info.n_outputs), np.float32) if outputs else None
        params = s.EncodeParams(pooling=_POOLING[pooling or "mean"], hidden=address(states),
                                pooled=address(pooled), outputs=address(out),
                                rows=address(wanted), n_rows=n)

        def run() -> None:
            with self._pointer() as session:
                call(lib.moe_session_encode, session, address(ids), len(ids), c.byref(params))

        with self._long_call() as long:
            long.run(run)
        return Encoded(states, pooled, out)

    def embed(self, texts: str | Sequence[str], pooling: str = "mean") -> FloatArray:
        """One vector of a text, (d_model,), or one for each of several, (n, d_model). ArgumentError
        for an empty text."""
        if isinstance(texts, str):
            return self._embed(texts, "texts", pooling)
        rows = [self._embed(text, f"texts[{i}]", pooling) for i, text in enumerate(texts)]
        return np.stack(rows) if rows else np.empty((0, self.model.info.d_model), np.float32)

    def _embed(self, text: str, name: str, pooling: str) -> FloatArray:
        if text == "":
            raise ArgumentError(f"{name}: expected a text, found an empty one")
        pooled = self.encode(self.model.encode(text), hidden=False, pooling=pooling).pooled
        assert pooled is not None
        return pooled

    def fill(self, text: str, top: int = 5) -> list[list[TokenLogprob]]:
        """For each mask of the text (the tokenizer's own, such as "<mask>"), the `top` most likely
        tokens, best first. UnsupportedError for a model that finds no tokens."""
        if top < 1:
            raise ArgumentError(f"top: expected at least 1, found {top}")
        info = self.model.info
        if not info.is_encoder or info.head != "tokens" or info.mask_token < 0:
            raise UnsupportedError("fill needs an encoder with a token head and a mask token")
        ids = self.model.tokenizer.encode(text, parse_special=True)
        rows = [i for i, token in enumerate(ids) if token == info.mask_token]
        if not rows:
            raise ArgumentError("the text has no mask: write "
                                f"{self.model.tokenizer.piece(info.mask_token)}")
        logits = self.encode(ids, hidden=False, outputs=True, rows=rows).outputs
        assert logits is not None
        z = logits.astype(np.float64)
        logprobs = z - np.logaddexp.reduce(z, axis=-1, keepdims=True)
        return [[TokenLogprob(int(i), float(row[i]))
                 for i in np.argsort(-row, kind="stable")[:top]] for row in logprobs]

    def translate(self, source: str | Tokens, *, beam: int = 0, n_best: int = 1,
                  min_tokens: int = 1, max_tokens: int = 0, length_penalty: float = 1.0,
                  stop: str = "count", prefix: str | Tokens = (),
                  progress: Progress | None = None) -> list[Translation]:
        """The `n_best` best texts that an encoder-decoder makes of a source, best first, by beam
        search. The session has then read the source, and is empty.

        beam:   0: 5, or the session's max_beam where that is less; 1 is greedy.
        max_tokens: 0: 256, or what the context leaves.
        stop:   "count": once `beam` texts have ended; "step": the same at the end of the step, and
                the best are kept (early_stopping=True of transformers 5); "bound": once no text can
                become better than those that ended (early_stopping=False).
        prefix: what every text begins with, such as the token of a language; a str may spell
                special tokens. Empty: what the model file says.
        progress(done, total) is called before each token; when it returns False, CancelledError is
        raised, and an exception in it comes out here.
        """
        if stop not in _STOPS:
            raise ArgumentError(f"stop: expected 'count', 'bound' or 'step', found {stop!r}")
        ids = token_array(self.model.encode(source) if isinstance(source, str) else source)
        begin = token_array(self.model.encode(prefix, special=False, parse_special=True)
                            if isinstance(prefix, str) else prefix)
        result = s.TranslateResult()
        with self._long_call() as long:
            params = s.TranslateParams(
                beam=int32(beam, "beam"), n_best=int32(n_best, "n_best"),
                min_tokens=int32(min_tokens, "min_tokens") or -1,
                max_tokens=int32(max_tokens, "max_tokens"), length_penalty=length_penalty,
                no_length_penalty=int(length_penalty == 0), stop=_STOPS[stop],
                prefix=address(begin), n_prefix=len(begin),
                progress=progress_callback(long, progress))

            def run() -> None:
                with self._pointer() as session:
                    call(lib.moe_session_translate, session, address(ids), len(ids),
                         c.byref(params), c.byref(result))

            long.run(run)
            return [self._translation(result.texts[i]) for i in range(result.n_texts)]

    def _translation(self, found: s.Translation) -> Translation:
        tokens = found.tokens[:found.n_tokens]
        with contextlib.suppress(UnsupportedError):
            return Translation(self.model.tokenizer.decode(tokens, skip_special=True), found.score, tokens)
        return Translation(None, found.score, tokens)

    def read_source(self, source: str | Tokens) -> FloatArray:
        """Makes an encoder-decoder's session one of a decoder, whose text sees the source: empty,
        to be given model.info.start_token first. score() then gives the probability of a
        translation, generate() draws one. Returns the encoder's output, (len(tokens), d_model)."""
        ids = token_array(self.model.encode(source) if isinstance(source, str) else source)
        hidden = np.empty((len(ids), self.model.info.d_model), np.float32)

        def run() -> None:
            with self._pointer() as session:
                call(lib.moe_session_read_source, session, address(ids), len(ids), address(hidden))

        with self._long_call() as long:
            long.run(run)
        return hidden

    def score(self, text: str | Tokens) -> FloatArray:
        """append(), and the log-probability that each token had after the text in front of it, in
        nats. The first token of an empty session has nothing in front and none: (n - 1,), else (n,).
        Special tokens go around a str only where the session is empty. No rows of logits: memory
        does not grow with the text."""
        empty = self.position == 0
        ids = token_array(self.model.encode(text, special=empty) if isinstance(text, str) else text)
        logprobs = np.empty(max(len(ids) - empty, 0), np.float32)

        def run() -> None:
            with self._pointer() as session:
                call(lib.moe_session_score, session, address(ids), len(ids), address(logprobs),
                     len(logprobs))

        with self._long_call() as long:
            long.run(run)
        return logprobs

    def rewind(self, position: int) -> None:
        """Drops everything from `position` on, for example to reuse a common prefix."""
        with self._pointer() as session:
            call(lib.moe_session_rewind, session, int32(position, "position"))

    def save(self, path: str | os.PathLike[str] | None = None) -> bytes | None:
        """The text with its keys and values, to go on later: as bytes, or in a file, which is
        replaced when it is complete."""
        if path is not None:
            partial = path_bytes(path, "path") + b".partial"
            try:
                with open(partial, "wb") as file:
                    self._save(file)
                os.replace(partial, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(partial)
                raise
            return None
        buffer = io.BytesIO()
        self._save(buffer)
        return buffer.getvalue()

    def _save(self, file: Any) -> None:
        raised = Raised()

        def write(_user: Any, data: Any, n: int) -> int:
            file.write(c.string_at(data, n))
            return 0

        writer = s.Writer(write=s.WriteFn(raised.guard(write, 1)))
        with self._pointer() as session:
            raised.call(call, lib.moe_session_save, session, c.byref(writer))

    def load(self, source: str | os.PathLike[str] | bytes) -> None:
        """Replaces the text by one of save(), given as bytes or as the path of a file. ArgumentError
        for one of another model or type of keys and values, TooLongError when the context is too
        small, FormatError, VersionError or CorruptError when it is damaged."""
        if isinstance(source, (str, os.PathLike)):
            with open(path_bytes(source, "source"), "rb") as file:
                self._load(file)
        else:
            self._load(io.BytesIO(source))

    def _load(self, file: Any) -> None:
        raised = Raised()

        def read(_user: Any, offset: int, to: Any, n: int) -> int:
            file.seek(offset)
            return 0 if file.readinto((c.c_char * n).from_address(to)) == n else 1

        size = file.seek(0, os.SEEK_END)
        reader = s.Reader(size=size, read=s.ReadFn(raised.guard(read, 1)))
        with self._pointer() as session:
            raised.call(call, lib.moe_session_load, session, c.byref(reader))

    def fork(self) -> Session:
        """A copy with the same text and router; the two continue independently."""
        other = Session.__new__(Session)
        other.model, other._vocab_size, other._n_active = self.model, self._vocab_size, self._n_active
        other._generations = weakref.WeakSet()
        other._made_with, other._router = self._made_with, self._router
        other._watcher, other._raised = None, Raised()
        made = c.c_void_p()
        parent = self._open()._parent  # also of a model that is closed meanwhile
        with self._pointer() as session:
            call(lib.moe_session_fork, session, c.byref(made))
            assert made.value is not None
            other._native = Native(made.value, lib.moe_session_free, parent)
        return other

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """A pickle holds what save() gives, the router, and how to open the model again."""
        return _unpickled, (self.model, self._made_with, self._router, self.save())

    def __copy__(self) -> Session:
        raise TypeError("a session cannot be copied; fork() makes a second one")

    def __deepcopy__(self, _memo: Any) -> Session:
        return self.__copy__()

    def cancel(self) -> None:
        """Makes the call in progress on this session raise CancelledError within one layer's time.
        Any thread; without a call in progress it does nothing."""
        with super()._pointer() as session:
            lib.moe_session_cancel(session)

    def perplexity(self, text: str | Tokens,
                   progress: Progress | None = None) -> Perplexity:
        """Of a text, in windows of the session's context that do not overlap. The session must be
        empty and is empty afterwards. progress(done, total) is called after each window; when it
        returns False, CancelledError is raised, and an exception in it comes out here."""
        ids = token_array(self.model.encode(text, special=False) if isinstance(text, str) else text)
        result = s.Perplexity()
        with self._long_call() as long:
            callback = progress_callback(long, progress)

            def measure() -> None:
                with self._pointer() as session:
                    call(lib.moe_session_perplexity, session, address(ids), len(ids), callback,
                         None, c.byref(result))

            long.run(measure)
        return plain(Perplexity, result)

    def set_router(self, router: str | None) -> None:
        """Overrides the routing of every MoE layer: "threshold:0.9" takes experts in
        order of probability until their sum reaches 0.9, "topk:4" the 4 most probable; then any of
        ",gamma=1.25" ",min_capacity=4", and for a threshold ",min_k=1" ",max_k=8". None: as in
        the file."""
        with self._pointer() as session:
            call(lib.moe_session_set_router, session, optional_bytes(router))
        self._router = router

    def count_routing(self, on: bool = True) -> None:
        """Starts counting from zero, or stops."""
        with self._pointer() as session:
            call(lib.moe_session_count_routing, session, on)

    def routing(self, layer: int) -> RoutingStats:
        """What was counted in a layer. UnsupportedError for a dense one, StateError when nothing
        is being counted."""
        stats = s.RoutingStats()
        with self._pointer() as session:
            call(lib.moe_session_get_routing, session, int32(layer, "layer"), c.byref(stats))
            return routing_stats(stats)

    def activations(self, layer: int) -> ActivationStats:
        """What count_routing() counted inside a layer, dense ones included. StateError when nothing
        is being counted."""
        stats = s.ActivationStats()
        with self._pointer() as session:
            call(lib.moe_session_get_activations, session, int32(layer, "layer"), c.byref(stats))
        return plain(ActivationStats, stats)

    def watch_routing(self, watcher: Watcher | None) -> None:
        """Has watcher(choices) called with the RoutingChoices of each MoE layer, before they are
        used, in whatever thread computes; None: no longer. It must not use the session. What it
        raises ends the call, and comes out of it. UnsupportedError on a GPU."""
        raised = Raised()
        callback = s.RoutingFn(0) if watcher is None else self._routing_callback(watcher, raised)
        with super()._pointer() as session:
            call(lib.moe_session_watch_routing, session, callback, None)
        self._watcher, self._raised = callback, raised

    def _routing_callback(self, watcher: Watcher, raised: Raised) -> Any:
        pointer = self._open().pointer  # not the session: it holds the callback

        def watch(_user: Any, choices: Any) -> None:
            raised.guard(watcher)(routing_choices(choices.contents))
            if raised.exception is not None:
                lib.moe_session_cancel(pointer)

        return s.RoutingFn(watch)

    @property
    def memory_stats(self) -> MemoryStats:
        """Experts found in memory and read, and memory use."""
        stats = s.MemoryStats()
        with self._pointer() as session:
            call(lib.moe_session_get_memory_stats, session, c.byref(stats))
        return memory_stats(stats)

    def sample(self, sampling: Sampling = Sampling(), *, logprobs: int = 0) -> Sample:
        """Samples the next token; the session does not advance, and sampling again gives the same
        token. logprobs: number of candidates in Sample.top, at most 64."""
        out = s.TokenLogprob()
        n = n_candidates(logprobs)
        top = (s.TokenLogprob * n)()
        with self._pointer() as session:
            call(lib.moe_session_sample, session, c.byref(sampling_struct(sampling)), c.byref(out),
                 top, n)
        return Sample(out.token, out.logprob, top_of(top, n))

    def generate(self, prompt: str | Tokens | None = None, *, max_tokens: int = 0,
                 temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
                 repetition_penalty: float = 1.0, repetition_window: int = 64, seed: int = 0,
                 bias: Mapping[int, float] | None = None,
                 stop: str | Sequence[str] = (), ignore_eos: bool = False,
                 logprobs: int = 0,
                 logits_processor: LogitsProcessor | None = None) -> Generation:
        """Appends the prompt, then generates, piece by piece as the result is iterated.

        prompt:     text (special tokens go around it only where the session is empty), token ids,
                    or None to go on from where the session is.
        max_tokens: 0: until the context is full.
        stop:       strings that end the text; no part of them is reported.
        ignore_eos: continue after end-of-text tokens.
        logprobs:   number of candidates in each Piece.top, at most 64.
        logits_processor: called as f(tokens, logits) before each token is sampled, in a thread that
                    is not the caller's: the text so far, and the logits of what comes next, which
                    it changes in place or returns anew; -inf bans a token. False ends the text in
                    front of that token, with Finish.CALLBACK. Piece.logprob and .top are of what it
                    left. It must not use the session, except for close(). What it raises comes out
                    here.
        The others are the fields of Sampling.
        """
        if isinstance(prompt, str):
            prompt = self.model.encode(prompt, special=self.position == 0)
        sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty,
                            repetition_window, seed, bias)
        request = Request(token_array(() if prompt is None else prompt), sampling, max_tokens,
                          stop_texts(stop), ignore_eos, logprobs)
        return Generation(self, request, logits_processor)


def _unpickled(model: Model, made_with: dict[str, Any], router: str | None, saved: bytes) -> Session:
    session = Session(model, **made_with)
    session.set_router(router)
    session.load(saved)
    return session


def step(sessions: Sequence[Session], tokens: Tokens) -> FloatArray:
    """Appends one token to each of several different sessions of one model in a single pass, and
    returns their logits: (n, vocab_size). Each gets exactly what eval() alone would give it. On
    failure none has moved."""
    ids = token_array(tokens)
    if len(ids) != len(sessions):
        raise ArgumentError(f"tokens: expected one for each of {len(sessions)} sessions, "
                            f"found {len(ids)}")
    logits = _rows(sessions)
    _together(sessions, ids, None, logits)
    return logits


def append_each(sessions: Sequence[Session], tokens: Tokens) -> None:
    """step() without the logits, which Session.sample() does not need."""
    _together(sessions, token_array(tokens), None, None)


def eval_each(sessions: Sequence[Session], pieces: Sequence[Tokens]) -> FloatArray:
    """step() with several tokens for some sessions, at most the first one's chunk for each: slices
    of long texts beside texts that are continued token by token. Returns the logits after the last
    token of each piece."""
    ids = [token_array(piece) for piece in pieces]
    if len(ids) != len(sessions):
        raise ArgumentError(f"pieces: expected one for each of {len(sessions)} sessions, "
                            f"found {len(ids)}")
    logits = _rows(sessions)
    _together(sessions, np.concatenate(ids or [token_array([])]), [len(i) for i in ids], logits)
    return logits


def _rows(sessions: Sequence[Session]) -> FloatArray:
    return np.empty((len(sessions), sessions[0]._vocab_size if sessions else 0), np.float32)


def _together(sessions: Sequence[Session], ids: Any, n_tokens: list[int] | None,
              logits: FloatArray | None) -> None:
    def advance() -> None:
        with contextlib.ExitStack() as stack:
            pointers = [stack.enter_context(session._pointer()) for session in sessions]
            array = (c.c_void_p * len(pointers))(*pointers)
            n, out = len(pointers), address(logits)
            if n_tokens is None:
                call(lib.moe_sessions_step, array, address(ids), n, out)
            else:
                counts = (c.c_size_t * n)(*n_tokens)
                call(lib.moe_sessions_eval, array, address(ids), counts, n, out)

    if not sessions or is_short(len(ids), sessions[0]._n_active):
        advance()
    else:
        with sessions[0]._long_call() as long:
            long.run(advance)


def progress_callback(long: LongCall, progress: Progress | None) -> Any:
    """A moe_progress_fn; whatever `progress` returns but False means to go on."""
    if progress is None:
        return s.ProgressFn(lambda _user, _done, _total, _what: long.going_on())
    function = progress
    return s.ProgressFn(long.guard(
        lambda _user, done, total, _what: function(done, total) is not False, False))
