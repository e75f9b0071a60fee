// SPDX-License-Identifier: MIT
//! Mixture-of-Experts language models with ternary, int8 or four-bit weights: a safe wrapper over
//! libmoe's C API. README.md is the introduction, `moe_c.h` the reference manual.
//!
//! - **Ownership.** [`Env`], [`Model`] and [`Tokenizer`] are clonable handles. Children reference
//!   their parent: objects may be dropped in any order.
//! - **Threads.** `Env`, `Model`, `Tokenizer` and [`Canceller`] are `Send + Sync`. [`Session`],
//!   [`Chat`] and [`Layer`] are `Send`, not `Sync`: one thread at a time, any thread.
//! - **Panics** in a callback stop the call and resume in its caller, once the library has returned.
//!   In a [`Log`] they end; in a [`Source`] of an open model they are a [`Status::Io`].
//! - **Many requests** at once: the module `service`, with the feature `serve`.
//! - **After `fork`** the child may only drop what the parent created.
#![warn(rust_2018_idioms, unsafe_op_in_unsafe_fn)]
#![allow(clippy::too_many_arguments)]

mod callback;
mod chat;
mod enums;
mod env;
mod error;
mod generate;
mod layer;
mod model;
mod replacement;
mod router;
mod routing;
#[cfg(feature = "serve")]
pub mod service;
mod session;
mod source;
mod sys;
mod text;
mod tokenizer;
mod tools;

pub use chat::{Chat, ChatOptions, ChatResult, Message};
pub use enums::{
    BeamStop, Finish, GrammarKind, Io, KvType, LogLevel, Normalize, Pooling, Status, Thinking,
    ToolChoice,
};
pub use env::{
    chat_template_names, isas, router_kinds, version, weight_formats, Env, EnvInfo, EnvOptions, Log,
};
pub use error::{Error, Result};
pub use generate::{
    GenerateOptions, GenerateResult, Grammar, LogitBias, Piece, Sample, Sampling, TokenLogprob,
};
pub use layer::{ExpertWeights, Layer, LayerOptions};
pub use model::{
    memory_info, LayerInfo, MemoryInfo, MemoryLine, MemoryPlan, Model, ModelInfo, ModelOptions,
    TensorInfo,
};
pub use routing::{ActivationStats, ExpertStats, MemoryStats, RoutingChoices, RoutingStats};
pub use session::{
    Canceller, EncodeOptions, Encoded, Perplexity, Session, SessionOptions, TranslateOptions,
    Translation,
};
pub use source::Source;
pub use tokenizer::{EncodeText, Tokenizer};
pub use tools::ToolCall;
