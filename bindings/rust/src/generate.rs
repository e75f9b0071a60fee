// SPDX-License-Identifier: MIT
//! Sampling, and parameters and results of generation.

use crate::callback::Guarded;
use crate::enums::{Finish, GrammarKind};
use crate::env::made;
use crate::error::{call, Result};
use crate::model::Model;
use crate::sys;
use crate::text::{int, sized, slice, Texts};
use crate::tools::ToolCall;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::os::raw::{c_char, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Added to a token's logit before anything else; negative infinity bans the token.
pub use crate::sys::moe_logit_bias as LogitBias;
/// A token and the natural logarithm of its probability, before sampling filters.
pub use crate::sys::moe_token_logprob as TokenLogprob;

/// How a token is sampled. The default is greedy; zero switches each filter off.
#[derive(Clone, Debug, Default)]
pub struct Sampling {
    pub temperature: f32,
    pub top_k: i32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    /// Number of last tokens that are penalised; 0: 64.
    pub repetition_window: i32,
    /// The same seed gives the same text.
    pub seed: u64,
    pub bias: Vec<LogitBias>,
}

impl Sampling {
    /// All settings but the seed and the bias.
    pub(crate) fn from_params(s: &sys::moe_sampling) -> Self {
        Sampling {
            temperature: s.temperature,
            top_k: s.top_k,
            top_p: s.top_p,
            min_p: s.min_p,
            repetition_penalty: s.repetition_penalty,
            repetition_window: s.repetition_window,
            ..Sampling::default()
        }
    }

    /// Valid while `self` is.
    pub(crate) fn params(&self) -> Result<sys::moe_sampling> {
        let mut params = sized!(moe_sampling);
        params.temperature = self.temperature;
        params.top_k = self.top_k;
        params.top_p = self.top_p;
        params.min_p = self.min_p;
        params.repetition_penalty = self.repetition_penalty;
        params.repetition_window = self.repetition_window;
        params.seed = self.seed;
        params.n_bias = int(self.bias.len(), "bias")?;
        params.bias = if self.bias.is_empty() { ptr::null() } else { self.bias.as_ptr() };
        Ok(params)
    }
}

/// Result of [`crate::Session::sample`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub token: i32,
    pub logprob: f32,
    /// Candidates, best first.
    pub top: Vec<TokenLogprob>,
}

/// Options of a generation. The default: greedy, until the text ends or the context is full.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions<'a> {
    /// 0: until the context is full.
    pub max_tokens: i32,
    pub sampling: Sampling,
    /// Strings that end the text; no part of them is reported.
    pub stop: &'a [&'a str],
    /// Continue after end-of-text tokens.
    pub ignore_eos: bool,
    /// Candidates reported per piece, at most 64.
    pub n_top: i32,
    /// 0 to 16: up to this many tokens at once are drafted from earlier text and checked together.
    /// The result is the same; text that repeats is generated faster. Not with a logits callback, an
    /// expert capacity or a router with `resident`.
    pub max_draft: i32,
    /// The text satisfies it. With `Finish::Eos` it is complete; after another end it may not be.
    pub grammar: Option<&'a Grammar>,
}

struct GrammarHandle(NonNull<sys::moe_grammar>);

impl Drop for GrammarHandle {
    fn drop(&mut self) {
        unsafe { sys::moe_grammar_free(self.0.as_ptr()) }
    }
}

/// A set of texts, such as those that a JSON schema describes, compiled for a model. Any number of
/// threads may use it.
#[derive(Clone)]
pub struct Grammar {
    handle: Arc<GrammarHandle>,
}

// SAFETY: a grammar does not change once it is made.
unsafe impl Send for Grammar {}
unsafe impl Sync for Grammar {}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Grammar")
    }
}

impl Grammar {
    /// Errors name the place in `text` that is wrong.
    pub fn new(model: &Model, kind: GrammarKind, text: &str) -> Result<Grammar> {
        let mut grammar = ptr::null_mut();
        call(|e| unsafe {
            let data = text.as_ptr() as *const c_char;
            sys::moe_grammar_create(model.handle.pointer.as_ptr(), kind.code(), data, text.len(), &mut grammar, e)
        })?;
        Ok(Grammar {
            handle: Arc::new(GrammarHandle(made(grammar)?)),
        })
    }
}

/// A piece of generated text, for the time of the callback.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// `None`: text that was withheld, without a new token.
    pub token: Option<i32>,
    pub logprob: f32,
    /// Whole characters; may be empty while one is incomplete.
    pub text: Cow<'a, str>,
    pub top: &'a [TokenLogprob],
    /// In a chat: not part of the answer.
    pub thinking: bool,
    /// In a chat with tools: a whole call of one; `text` is empty then.
    pub tool_call: Option<ToolCall>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GenerateResult {
    pub finish: Finish,
    pub n_prompt: i32,
    pub n_generated: i32,
    pub prompt_seconds: f64,
    pub generate_seconds: f64,
    /// Tokens drafted (`max_draft`).
    pub n_drafted: i32,
    /// Drafted tokens that were generated.
    pub n_accepted: i32,
}

unsafe extern "C" fn on_piece<F>(user: *mut c_void, piece: *const sys::moe_piece) -> bool
where
    F: FnMut(&Piece<'_>) -> ControlFlow<()>,
{
    // SAFETY: `user` is the Guarded of the call in progress; the piece is valid during it.
    let (guarded, piece) = unsafe { (&mut *(user as *mut Guarded<F>), &*piece) };
    let bytes = unsafe { slice(piece.text as *const u8, piece.n_bytes) };
    let text = String::from_utf8_lossy(bytes);
    let is_call = piece.flags & sys::MOE_PIECE_TOOL_CALL != 0;
    let mut piece = Piece {
        token: Some(piece.token).filter(|t| *t >= 0),
        logprob: piece.logprob,
        text,
        top: unsafe { slice(piece.top, piece.n_top) },
        thinking: piece.flags & sys::MOE_PIECE_THINKING != 0,
        tool_call: None,
    };
    guarded.run(false, |f| {
        if is_call {
            let call = ToolCall::parse(&piece.text);
            piece.tool_call = Some(call.expect("the library gives calls in this form"));
            piece.text = Cow::Borrowed("");
        }
        f(&piece).is_continue()
    })
}

unsafe extern "C" fn on_logits<L>(
    user: *mut c_void,
    tokens: *const i32,
    n_tokens: usize,
    logits: *mut f32,
    n_logits: usize,
) -> bool
where
    L: FnMut(&[i32], &mut [f32]) -> ControlFlow<()>,
{
    // SAFETY: as on_piece(); the arrays are valid during this call.
    let (guarded, tokens, logits) = unsafe {
        let logits = std::slice::from_raw_parts_mut(logits, n_logits);
        (&mut *(user as *mut Guarded<L>), slice(tokens, n_tokens), logits)
    };
    guarded.run(false, |f| f(tokens, logits).is_continue())
}

type Logits = fn(&[i32], &mut [f32]) -> ControlFlow<()>;
pub(crate) const NO_LOGITS: Option<Logits> = None;

/// Makes `call` with the parameters as a C struct.
pub(crate) fn with_params<L, F>(
    options: &GenerateOptions<'_>,
    logits: Option<L>,
    callback: F,
    call: impl FnOnce(&sys::moe_generate_params) -> Result<()>,
) -> Result<()>
where
    L: FnMut(&[i32], &mut [f32]) -> ControlFlow<()>,
    F: FnMut(&Piece<'_>) -> ControlFlow<()>,
{
    let (sampling, stop) = (options.sampling.params()?, Texts::new(options.stop, "stop")?);
    let (mut guarded, mut logits) = (Guarded::new(callback), logits.map(Guarded::new));
    let mut params = sized!(moe_generate_params);
    params.max_tokens = options.max_tokens;
    params.sampling = &sampling;
    params.stop = stop.pointer();
    params.n_stop = int(options.stop.len(), "stop")?;
    params.ignore_eos = i32::from(options.ignore_eos);
    params.n_top = options.n_top;
    params.max_draft = options.max_draft;
    params.grammar = options.grammar.map_or(ptr::null_mut(), |g| g.handle.0.as_ptr());
    params.piece = Some(on_piece::<F>);
    params.piece_user = guarded.user();
    if let Some(logits) = &mut logits {
        params.logits = Some(on_logits::<L>);
        params.logits_user = logits.user();
    }
    let result = call(&params);
    if let Some(logits) = &mut logits {
        logits.go_on();
    }
    guarded.go_on();
    result
}
