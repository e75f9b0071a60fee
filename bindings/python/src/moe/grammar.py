# SPDX-License-Identifier: MIT
"""Grammars that a generated text must satisfy: a JSON schema, a GBNF grammar or a regular expression."""

from __future__ import annotations

import ctypes as c
import json
from typing import Any, Union
from collections.abc import Mapping

from ._constants import GrammarKind
from ._handle import Closable, Native, text_bytes
from ._library import call, lib
from .errors import ArgumentError

Schema = Union[str, bool, Mapping[str, Any]]


class Grammar(Closable):
    """A set of texts, compiled for a model, which it keeps open. Any number of generations may use it
    at once, in any threads.

    Give one of json_schema (a dict, or JSON text), gbnf and regex, which matches the whole text.
    FormatError and UnsupportedError name what is wrong, by its place; RangeError: no text satisfies it.
    """

    _what = "grammar"

    def __init__(self, model: Any, *, json_schema: Schema | None = None, gbnf: str | None = None,
                 regex: str | None = None) -> None:
        given = [(kind, text) for kind, text in ((GrammarKind.JSON_SCHEMA, json_schema), (GrammarKind.GBNF, gbnf),
                                                 (GrammarKind.REGEX, regex)) if text is not None]
        if len(given) != 1:
            raise ArgumentError("a grammar is one of json_schema, gbnf and regex")
        kind, text = given[0]
        data = text_bytes(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False))
        grammar = c.c_void_p()
        with model._pointer() as m:
            call(lib.moe_grammar_create, m, kind, data, len(data), c.byref(grammar))
            assert grammar.value is not None
            self._native = Native(grammar.value, lib.moe_grammar_free, model._open())

    def _describe(self) -> str:
        return ""


def grammar_of(model: Any, grammar: Grammar | None, json_schema: Schema | None, regex: str | None) -> Grammar | None:
    """The grammar that the arguments of a generation ask for."""
    if grammar is None and json_schema is None and regex is None:
        return None
    if grammar is None:
        return Grammar(model, json_schema=json_schema, regex=regex)
    if json_schema is not None or regex is not None:
        raise ArgumentError("one of grammar, json_schema and regex")
    return grammar
