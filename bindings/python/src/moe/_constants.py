# Generated from include/moe_c.h by bindings/generate.py; do not edit.
# SPDX-License-Identifier: MIT

"""The constants of moe_c.h, without MOE_."""

from __future__ import annotations

from ._enum import Enum

ERROR_TEXT_BYTES = 400
VERSION_MAJOR = 0
VERSION_MINOR = 1
VERSION_PATCH = 0
# add nothing before or after the text
ENCODE_NO_SPECIAL = 1
# convert special tokens spelled out in the text to their ids; otherwise text can never produce
# them
ENCODE_PARSE_SPECIAL = 2
# special tokens give no text
DECODE_SKIP_SPECIAL = 1
# in a chat: not part of the answer
PIECE_THINKING = 1
# In a chat with tools: `text` is a whole call of one, {"id": "...", "name": "...", "arguments":
# {...}} in this order, which is valid JSON, and not part of the answer.
PIECE_TOOL_CALL = 2


class Status(Enum):
    """moe_status. Result of every fallible call. Numbers never change; new codes are appended to
    a group.
    """

    OK = 0
    # null pointer, bad struct_size, unknown option, unknown field set
    ERR_ARGUMENT = 1
    # a number outside its stated range
    ERR_RANGE = 2
    # shapes that do not match
    ERR_SHAPE = 3
    # NaN or infinity where a finite number is required
    ERR_NON_FINITE = 4
    # the call is not allowed now (session in use, poisoned, empty)
    ERR_STATE = 5
    # more tokens than the context holds, or a buffer that is too small
    ERR_TOO_LONG = 6
    # valid, but this build, machine or model cannot do it
    ERR_UNSUPPORTED = 7
    # a file operation (the text gives errno) or the caller's own failed
    ERR_IO = 20
    # no such file, tensor, token or template
    ERR_NOT_FOUND = 21
    # not a file of this kind, or its structure is damaged
    ERR_FORMAT = 22
    # written in a newer format version
    ERR_VERSION = 23
    # a checksum or the content contradicts the metadata
    ERR_CORRUPT = 24
    # text that cannot be encoded or decoded
    ERR_TEXT = 25
    # an allocation failed
    ERR_MEMORY = 40
    # the memory cap or GPU limit is too small; the text itemises it
    ERR_BUDGET = 41
    # device missing, lost or failed
    ERR_DEVICE = 42
    ERR_CANCELLED = 43
    # 60..: bugs in this library; please report
    ERR_INTERNAL = 60


class LogLevel(Enum):
    """moe_log_level. How important a message is."""

    ERROR = 1
    WARNING = 2
    INFO = 3
    DEBUG = 4


class Io(Enum):
    """moe_io. How a file is read."""

    # direct if the file is larger than the available memory
    AUTO = 0
    # bypasses the page cache (O_DIRECT), so weights are in memory only once. MOE_ERR_UNSUPPORTED
    # if the file system does not support it
    DIRECT = 1
    # through the page cache, which may still hold data that is read again
    BUFFERED = 2


class KvType(Enum):
    """moe_kv_type. How keys and values are stored."""

    # f16
    DEFAULT = 0
    F16 = 1
    # one scale per head and position; half the memory. Encoders always use f32
    INT8 = 2
    # CPU only: twice the memory, no rounding
    F32 = 3
    # CPU only, for models with multi-head latent attention (DeepSeek, Kimi-K2): stores the latent
    # (kv_lora_rank) that keys and values are computed from, as f16. Uses a fraction of the
    # memory; long prompts take longer. MOE_ERR_UNSUPPORTED for other models. The first such
    # session creates f16 matrices that remain allocated with the model.
    LATENT = 4


class Rows(Enum):
    """moe_rows. The rows of logits that a call writes, of vocab_size floats each."""

    # none; `logits` must be NULL
    NONE = 0
    # one: of the last token
    LAST = 1
    # of every token, in order
    ALL = 2


class Pooling(Enum):
    """moe_pooling. Pooling to one vector per text."""

    # as the model file says, the mean if it says nothing; for texts of at most
    # moe_model_info.vector_tokens tokens
    DEFAULT = 0
    # the mean over all tokens, including special ones
    MEAN = 1
    # the first token's vector
    FIRST = 2
    # the last token's
    LAST = 3


class Normalize(Enum):
    """moe_normalize. Length of a pooled vector."""

    # as the model file says, off if it says nothing
    DEFAULT = 0
    # as it is
    OFF = 1
    # 1, so that the dot product of two vectors is their cosine
    ON = 2


class BeamStop(Enum):
    """moe_beam_stop. When a beam search ends, and which finished texts it returns."""

    # when `beam` texts have finished; later ones of the same step are rejected (fairseq)
    COUNT = 0
    # when no text can still beat the worst of the `beam` best finished ones (transformers,
    # early_stopping=False)
    BOUND = 1
    # after the step in which `beam` texts have finished; returns the best of them (transformers
    # 5, early_stopping=True)
    STEP = 2


class BeamScore(Enum):
    """moe_beam_score. The score of a finished text."""

    # its sum of log-probabilities / tokens^length_penalty
    POWER = 0
    # the plain sum; length_penalty must be 0
    SUM = 1


class GrammarKind(Enum):
    """moe_grammar_kind. The language of a grammar's text."""

    # JSON Schema 2020-12 or draft 7; docs/structured.md says how much
    JSON_SCHEMA = 1
    # GBNF, as llama.cpp's grammar files; begins with the rule "root"
    GBNF = 2
    # a regular expression for the whole text
    REGEX = 3


class Finish(Enum):
    """moe_finish. Why a generation ended."""

    # max_tokens were generated
    LENGTH = 1
    # an end-of-text token, not reported; or a grammar allows no more text
    EOS = 2
    # a stop string, no part of which is reported
    STOP = 3
    # the context is full
    CONTEXT = 4
    # a callback stopped the call
    CALLBACK = 5


class Thinking(Enum):
    """moe_thinking. If a model thinks before it answers."""

    # the template's own default
    DEFAULT = 0
    ON = 1
    OFF = 2


class ToolChoice(Enum):
    """moe_tool_choice. Whether a reply must call a tool."""

    # the model decides
    AUTO = 0
    # the reply is calls and no text, behind the model's thinking
    REQUIRED = 1
    # the same, and one call alone
    ONE = 2


class Endpoint(Enum):
    """moe_endpoint. The purpose of a request."""

    # /v1/chat/completions
    CHAT = 1
    # /v1/completions
    COMPLETIONS = 2
    # /tokenize: answered before moe_service_submit returns
    TOKENIZE = 3
    # /v1/messages, in the shapes of Anthropic's API
    MESSAGES = 4
    # /v1/messages/count_tokens: also answered at once
    COUNT_TOKENS = 5
    # /v1/responses
    RESPONSES = 6
    # /v1/embeddings: vectors of texts
    EMBEDDINGS = 7
    # /statistics: counts, settings, and how often each expert was used; the body has no meaning.
    # Answered at once
    STATISTICS = 8
    # /v1/rerank: how well documents answer a query
    RERANK = 9
