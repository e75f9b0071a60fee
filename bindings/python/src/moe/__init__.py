# SPDX-License-Identifier: MIT
"""Mixture-of-Experts language models with ternary, int8 or four-bit weights, through libmoe.

    import moe

    with moe.Model("stories.moe") as model:
        session = model.session()
        for piece in session.generate("Once upon a time", max_tokens=100, temperature=0.7, seed=1):
            print(piece.text, end="", flush=True)

    chat = model.chat()
    print(chat.reply("What is a fox?").text())

Environment, Model and Tokenizer may be used from any number of threads, a Session and a MoeLayer
from one at a time. What the library refuses or fails at is a MoeError, an argument of a wrong type a
TypeError; what callbacks, file objects and open() raise comes out as it is. Children keep their parent in memory, so objects may
be closed in any order.
"""

from ._constants import Endpoint, Finish, KvType, LogLevel, Status
from .batch import BatchResult
from .chat import Chat, Message, Reply, chat_template_names
from .completion import CompletionStream
from .converter import convert, save_synthetic, synthetic_shapes
from .encoding import Encoded, Ranked
from .environment import (
    Environment,
    EnvironmentInfo,
    isas,
    router_kinds,
    version,
    weight_formats,
)
from .errors import (
    ArgumentError,
    BudgetError,
    CancelledError,
    CorruptError,
    DeviceError,
    FileError,
    FormatError,
    InternalError,
    MoeError,
    NonFiniteError,
    NotFoundError,
    OutOfMemoryError,
    RangeError,
    ShapeError,
    StateError,
    TextError,
    TooLongError,
    UnsupportedError,
    VersionError,
)
from .generation import Generation
from .grammar import Grammar
from .info import (
    ActivationStats,
    ChatResult,
    ExpertStats,
    GenerateResult,
    LayerInfo,
    MemoryInfo,
    MemoryPlan,
    MemoryStats,
    ModelInfo,
    Perplexity,
    RoutingStats,
    TensorInfo,
    memory_info,
)
from .layer import Expert, MoeLayer
from .model import Model
from .routing import RoutingChoices
from .sampling import ModelSampling, Piece, Sample, Sampling, SamplingArguments, TokenLogprob
from .service import Answer, Event, RequestError, Service, ServiceStats
from .session import Session
from .together import eval_each, step
from .tokenizer import Tokenizer, TokenPair
from .translation import Translation

__version__ = version()

__all__ = [
    "ActivationStats", "Answer", "ArgumentError", "BatchResult", "BudgetError", "CancelledError", "Chat", "ChatResult",
    "CompletionStream",
    "CorruptError", "DeviceError", "Encoded", "Endpoint", "Environment", "EnvironmentInfo", "Event", "Expert",
    "ExpertStats", "FileError", "Finish", "FormatError", "GenerateResult", "Generation", "Grammar",
    "InternalError", "KvType", "LayerInfo", "LogLevel", "MemoryInfo", "MemoryPlan", "MemoryStats",
    "Message", "Model", "ModelInfo", "ModelSampling", "MoeError", "MoeLayer", "NonFiniteError",
    "NotFoundError", "OutOfMemoryError", "Perplexity", "Piece", "RangeError", "Ranked", "Reply",
    "RequestError", "RoutingChoices", "RoutingStats", "Sample", "Sampling", "SamplingArguments", "Service",
    "ServiceStats", "Session", "ShapeError", "StateError", "Status", "TensorInfo", "TextError", "TokenLogprob",
    "TokenPair", "Tokenizer", "TooLongError",
    "Translation",
    "UnsupportedError", "VersionError", "__version__", "chat_template_names", "convert", "isas",
    "eval_each", "memory_info", "router_kinds", "save_synthetic", "step", "synthetic_shapes", "version",
    "weight_formats",
]
