# SPDX-License-Identifier: MIT
"""The calls of libmoe that the parity tests need, through ctypes."""

import ctypes as c

import numpy as np


class MoeError(Exception):
    pass


class _Error(c.Structure):
    _fields_ = [("code", c.c_int), ("text", c.c_char * 400)]


class _SessionParams(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("context", c.c_int32), ("chunk", c.c_int32), ("kv", c.c_int)]


ROWS_LAST, ROWS_ALL = 1, 2
KV_DEFAULT, KV_F32, KV_LATENT = 0, 3, 4


class Model:
    """An open model file. Every call of eval() and greedy() starts a new text."""

    def __init__(self, library, path, vocab_size, context=0):
        self._moe = c.CDLL(library)
        self._error = _Error()
        self.vocab_size, self.context = vocab_size, context
        self._env, self._model = c.c_void_p(), c.c_void_p()
        for name in ("moe_env_free", "moe_model_free", "moe_session_free", "moe_model_tokenizer"):
            getattr(self._moe, name).argtypes = [c.c_void_p]
            getattr(self._moe, name).restype = None
        self._moe.moe_model_tokenizer.restype = c.c_void_p
        self._check(self._moe.moe_env_create(None, c.byref(self._env), c.byref(self._error)))
        self._check(self._moe.moe_model_open(self._env, path.encode(), None, c.byref(self._model),
                                             c.byref(self._error)))

    def close(self):
        self._moe.moe_model_free(self._model)
        self._moe.moe_env_free(self._env)

    def _check(self, status):
        if status != 0:
            raise MoeError(self._error.text.decode())

    def _session(self, kv=KV_DEFAULT):
        session, params = c.c_void_p(), _SessionParams(c.sizeof(_SessionParams), context=self.context, kv=kv)
        self._check(self._moe.moe_session_create(self._model, c.byref(params), c.byref(session),
                                                 c.byref(self._error)))
        return session

    def _eval(self, session, tokens, n_rows):
        tokens = np.asarray(tokens, np.int32)
        logits = np.empty((n_rows, self.vocab_size), np.float32)
        self._check(self._moe.moe_session_eval(
            session, tokens.ctypes.data_as(c.c_void_p), c.c_size_t(len(tokens)),
            c.c_int(ROWS_LAST if n_rows == 1 else ROWS_ALL), logits.ctypes.data_as(c.c_void_p), c.byref(self._error)))
        return logits

    def eval(self, tokens, kv=KV_DEFAULT):
        """Logits after every token: (len(tokens), vocab_size)."""
        session = self._session(kv)
        try:
            return self._eval(session, tokens, len(tokens))
        finally:
            self._moe.moe_session_free(session)

    def greedy(self, prompt, n):
        """The n most likely tokens after `prompt`, one at a time."""
        session, out, tokens = self._session(), [], list(prompt)
        try:
            for _ in range(n):
                tokens = [int(self._eval(session, tokens, 1)[0].argmax())]
                out += tokens
        finally:
            self._moe.moe_session_free(session)
        return out

    def encode(self, text):
        """Token ids of a text, with special tokens recognised and with the tokenizer's prefix and suffix."""
        text = text if isinstance(text, bytes) else text.encode()
        tokenizer = c.c_void_p(self._moe.moe_model_tokenizer(self._model))
        if not tokenizer.value:
            raise MoeError("the model file has no tokenizer")
        tokens = (c.c_int32 * (len(text) + 16))()
        n = c.c_size_t()
        self._check(self._moe.moe_tokenizer_encode(tokenizer, text, c.c_size_t(len(text)), c.c_uint32(2),
                                                   tokens, c.c_size_t(len(tokens)), c.byref(n),
                                                   c.byref(self._error)))
        return list(tokens[:n.value])
