#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Continues a text from Python, through the C API with ctypes alone.

    python3 examples/generate.py build/release/lib/libmoe.so examples/models/stories.moe "Once upon a time"
"""

import ctypes as c
import sys


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("text", c.c_char * 400)]


class Sampling(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("temperature", c.c_float), ("top_k", c.c_int32),
                ("top_p", c.c_float), ("min_p", c.c_float), ("repetition_penalty", c.c_float),
                ("repetition_window", c.c_int32), ("n_bias", c.c_int32), ("seed", c.c_uint64),
                ("bias", c.c_void_p)]


class Piece(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("token", c.c_int32), ("logprob", c.c_float),
                ("flags", c.c_uint32), ("text", c.c_void_p), ("n_bytes", c.c_size_t),
                ("top", c.c_void_p), ("n_top", c.c_size_t)]


PieceFn = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(Piece))


class GenerateParams(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("max_tokens", c.c_int32),
                ("sampling", c.POINTER(Sampling)), ("stop", c.POINTER(c.c_char_p)),
                ("n_stop", c.c_int32), ("ignore_eos", c.c_int32), ("n_top", c.c_int32),
                ("max_draft", c.c_int32), ("piece", PieceFn), ("piece_user", c.c_void_p)]


class GenerateResult(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("finish", c.c_int), ("n_prompt", c.c_int32),
                ("n_generated", c.c_int32), ("prompt_seconds", c.c_double),
                ("generate_seconds", c.c_double)]


def check(status, error):
    if status != 0:
        sys.exit(f"moe: {error.text.decode()}")


def main(library, model_path, prompt):
    moe = c.CDLL(library)
    moe.moe_model_tokenizer.restype = c.c_void_p
    for name in ("moe_env_free", "moe_model_free", "moe_session_free"):
        getattr(moe, name).argtypes = [c.c_void_p]
        getattr(moe, name).restype = None
    error = Error()
    env, model, session = c.c_void_p(), c.c_void_p(), c.c_void_p()
    check(moe.moe_env_create(None, c.byref(env), c.byref(error)), error)
    check(moe.moe_model_open(env, model_path.encode(), None, c.byref(model), c.byref(error)), error)
    check(moe.moe_session_create(model, None, c.byref(session), c.byref(error)), error)

    text = prompt.encode()
    tokens = (c.c_int32 * (len(text) + 16))()
    n = c.c_size_t()
    tokenizer = c.c_void_p(moe.moe_model_tokenizer(model))
    check(moe.moe_tokenizer_encode(tokenizer, text, c.c_size_t(len(text)), c.c_uint32(0), tokens,
                                   c.c_size_t(len(tokens)), c.byref(n), c.byref(error)), error)

    def on_piece(_user, piece):
        data = c.string_at(piece.contents.text, piece.contents.n_bytes)
        sys.stdout.write(data.decode())
        sys.stdout.flush()
        return True

    callback = PieceFn(on_piece)
    sampling = Sampling(struct_size=c.sizeof(Sampling), temperature=0.7, seed=1)
    params = GenerateParams(struct_size=c.sizeof(GenerateParams), max_tokens=100,
                            sampling=c.pointer(sampling), piece=callback)
    result = GenerateResult(struct_size=c.sizeof(GenerateResult))
    sys.stdout.write(prompt)
    check(moe.moe_session_generate(session, tokens, n, c.byref(params), c.byref(result),
                                   c.byref(error)), error)
    sys.stdout.write("\n")
    print(f"{result.n_generated} tokens in {result.generate_seconds:.3f} s", file=sys.stderr)
    moe.moe_session_free(session)
    moe.moe_model_free(model)
    moe.moe_env_free(env)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: generate.py LIBMOE.SO MODEL TEXT")
    main(*sys.argv[1:])
