# SPDX-License-Identifier: MIT
"""One text being evaluated: a KV cache and a position."""

from __future__ import annotations

import ctypes as c
import weakref
from typing import TYPE_CHECKING, Any
from collections.abc import Sequence

import numpy as np

from . import _structs as s
from ._arrays import FloatArray, Tokens, address, int32, token_array
from ._constants import KvType, Rows
from ._counting import Counting
from ._handle import Native, optional_bytes
from ._library import call, lib
from ._long_call import Progress, is_short, progress_callback
from ._making import LogitsProcessor, Request
from ._router import parse_router
from ._saving import Saving
from ._session_calls import SessionCalls
from .encoding import Encoded, Encoding
from .generation import Generation, stop_texts
from .grammar import Grammar, Schema, grammar_of
from .info import Perplexity, plain
from .sampling import Sample, Sampling, SamplingArguments, n_candidates, sampling_struct, top_of
from .together import eval_each, step
from .translation import Translating, Translation

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .model import Model

# All but Session are defined in modules of their own, and can be imported from both.
__all__ = ["Encoded", "Session", "Translation", "eval_each", "step"]


class Session(Encoding, Translating, Saving, Counting):
    """Made by Model.session(). For one thread at a time: a second one gets StateError; cancel() and
    close() alone may be called from anywhere at any time. The interpreter is free to run other
    threads during a call. Ctrl-C ends a long one within one layer's time: the session then stands
    at the last chunk that was finished."""

    def __init__(self, model: Model, *, context: int = 0, chunk: int = 0,
                 kv: KvType | str = KvType.DEFAULT, max_beam: int = 0) -> None:
        super().__init__(model)
        info = model.info
        self._vocab_size = info.vocab_size
        self._n_active = info.n_active_parameters
        self._generations: weakref.WeakSet[Generation] = weakref.WeakSet()  # that have begun
        self._made_with: dict[str, Any] = {"context": context, "chunk": chunk, "kv": kv,
                                           "max_beam": max_beam}
        self._router: str | None = None
        params = s.SessionParams(context=context, chunk=chunk, kv=KvType.of(kv, "kv"),
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

    def _describe(self) -> str:
        return f"{self.position} of {self.context} tokens"

    @property
    def position(self) -> int:
        """Tokens evaluated so far."""
        with self._pointer() as session:
            return int(lib.moe_session_position(session))

    @property
    def context(self) -> int:
        """The maximum number of tokens in the session; of an encoder, in one text: its chunk limits them
        as well."""
        with self._pointer() as session:
            return int(lib.moe_session_context(session))

    def append(self, tokens: Tokens) -> None:
        """Appends tokens to the text without asking for logits. TooLongError before anything
        changed when the context cannot hold them. After CancelledError the session stands at the
        last chunk that was finished (see position)."""
        self._eval(tokens, None, Rows.NONE)

    def eval(self, tokens: Tokens) -> FloatArray:
        """append(), and the logits of the next token: (vocab_size,)."""
        logits = np.empty(self._vocab_size, np.float32)
        self._eval(tokens, logits, Rows.LAST)
        return logits

    def eval_all(self, tokens: Tokens) -> FloatArray:
        """append(), and the logits after each of these tokens: (len(tokens), vocab_size)."""
        ids = token_array(tokens)
        logits = np.empty((len(ids), self._vocab_size), np.float32)
        self._eval(ids, logits, Rows.ALL)
        return logits

    def _eval(self, tokens: Tokens, logits: FloatArray | None, rows: Rows) -> None:
        ids = token_array(tokens)

        def evaluate() -> None:
            with self._pointer() as session:
                call(lib.moe_session_eval, session, address(ids), len(ids), rows,
                     address(logits))

        if is_short(len(ids), self._n_active):
            evaluate()
        else:
            with self._long_call() as long:
                long.run(evaluate)

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

    def fork(self) -> Session:
        """A copy with the same text and router; the two continue independently."""
        other = Session.__new__(Session)
        SessionCalls.__init__(other, self.model)
        other._vocab_size, other._n_active = self._vocab_size, self._n_active
        other._generations = weakref.WeakSet()
        other._made_with, other._router = self._made_with, self._router
        made = c.c_void_p()
        parent = self._open()._parent  # also of a model that is closed meanwhile
        with self._pointer() as session:
            call(lib.moe_session_fork, session, c.byref(made))
            assert made.value is not None
            other._native = Native(made.value, lib.moe_session_free, parent)
        return other

    def copy(self, source: Session, n_positions: int | None = None) -> None:
        """Replaces the text by the first `n_positions` tokens of another session of the model, or
        all, without evaluating them again. The router is unchanged."""
        with source._pointer() as other, self._pointer() as session:
            n = lib.moe_session_position(other) if n_positions is None else int32(n_positions, "n_positions")
            call(lib.moe_session_copy, other, n, session)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """A pickle holds what save() gives, the router, and how to open the model again."""
        return _unpickled, (self.model, self._made_with, self._router, self.save())

    def __copy__(self) -> Session:
        raise TypeError("a session cannot be copied; fork() makes a second one")

    def __deepcopy__(self, _memo: Any) -> Session:
        return self.__copy__()

    def perplexity(self, text: str | Tokens,
                   progress: Progress | None = None) -> Perplexity:
        """The perplexity of a text, in windows of the session's context that do not overlap. The session must be
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
        struct = None if router is None else c.pointer(parse_router(router))
        with self._pointer() as session:
            call(lib.moe_session_set_router, session, struct)
        self._router = router

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
                 stop: str | Sequence[str] = (), ignore_eos: bool = False,
                 logprobs: int = 0, max_draft: int = 0,
                 logits_processor: LogitsProcessor | None = None, grammar: Grammar | None = None,
                 json_schema: Schema | None = None, regex: str | None = None,
                 **sampling: Unpack[SamplingArguments]) -> Generation:
        """Appends the prompt, then generates, piece by piece as the result is iterated.

        prompt:     text (special tokens go around it only where the session is empty), token ids,
                    or None to go on from where the session is.
        max_tokens: 0: until the context is full.
        stop:       strings that end the text; no part of them is reported.
        ignore_eos: continue after end-of-text tokens.
        logprobs:   number of candidates in each Piece.top, at most 64.
        max_draft:  0 to 16: up to this many tokens at once are drafted from earlier text and checked
                    together. The result is the same; text that repeats is generated faster. Not with
                    a logits_processor, an expert capacity or a router with `resident`.
        logits_processor: called as f(tokens, logits) before each token is sampled, in a thread that
                    is not the caller's: the text so far, and the logits of what comes next, which
                    it changes in place or returns anew; -inf bans a token. False ends the text in
                    front of that token, with Finish.CALLBACK. Piece.logprob and .top are of what it
                    left. It must not use the session, except for close(). What it raises comes out
                    here.
        grammar, json_schema, regex: at most one of them, which the text satisfies. With Finish.EOS it
                    is complete; after another end, such as max_tokens, it may not be. A Grammar is
                    compiled once for several texts; a schema is a dict or JSON text.
        sampling:   temperature and the other fields of Sampling, by name.
        """
        how = Sampling(**sampling)
        if isinstance(prompt, str):
            prompt = self.model.encode(prompt, special=self.position == 0)
        request = Request(token_array(() if prompt is None else prompt), how, max_tokens,
                          stop_texts(stop), ignore_eos, logprobs, max_draft,
                          grammar=grammar_of(self.model, grammar, json_schema, regex))
        return Generation(self, request, logits_processor)


def _unpickled(model: Model, made_with: dict[str, Any], router: str | None, saved: bytes) -> Session:
    session = Session(model, **made_with)
    session.set_router(router)
    session.load(saved)
    return session
