// SPDX-License-Identifier: MIT
//! One text being evaluated: a KV cache and a position.

use crate::callback::Guarded;
use crate::enums::{BeamScore, BeamStop, Finish, KvType, Normalize, Pooling, Rows, Status};
use crate::env::made;
use crate::error::{call, Error, Result};
use crate::generate::{
    with_params, GenerateOptions, GenerateResult, Piece, Sample, Sampling, TokenLogprob, NO_LOGITS,
};
use crate::model::{Model, ModelHandle};
use crate::replacement::Replacement;
use crate::router;
use crate::routing::{
    on_routing, ActivationStats, MemoryStats, RoutingChoices, RoutingStats, Watch,
};
use crate::source::{Reader, Source};
use crate::sys;
use crate::text::{sized, slice, zeros};
use crate::tokenizer::EncodeText;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Options of a [`Session`]; zero values are the library's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    pub context: i32,
    pub chunk: i32,
    pub kv: KvType,
    /// Encoder-decoder: the largest beam of its searches.
    pub max_beam: i32,
}

impl SessionOptions {
    pub(crate) fn params(&self) -> sys::moe_session_params {
        let mut params = sized!(moe_session_params);
        params.context = self.context;
        params.chunk = self.chunk;
        params.kv = self.kv.code();
        params.max_beam = self.max_beam;
        params
    }
}

/// Options of [`Session::translate`]; zero values are the library's defaults, except for
/// `min_tokens` and `length_penalty`, where zero means zero.
#[derive(Clone, Copy, Debug)]
pub struct TranslateOptions<'a> {
    pub beam: i32,
    pub n_best: i32,
    pub min_tokens: i32,
    pub max_tokens: i32,
    /// A score is the sum of log-probabilities / tokens ^ this.
    pub length_penalty: f32,
    pub stop: BeamStop,
    /// Forced beginning of every text; empty: as in the model file.
    pub prefix: &'a [i32],
}

impl Default for TranslateOptions<'_> {
    fn default() -> Self {
        TranslateOptions {
            beam: 0,
            n_best: 0,
            min_tokens: 1,
            max_tokens: 0,
            length_penalty: 1.0,
            stop: BeamStop::Count,
            prefix: &[],
        }
    }
}

impl TranslateOptions<'_> {
    fn params(&self) -> sys::moe_translate_params {
        let mut params = sized!(moe_translate_params);
        params.beam = self.beam;
        params.n_best = self.n_best;
        params.min_tokens = if self.min_tokens == 0 { -1 } else { self.min_tokens };
        params.max_tokens = self.max_tokens;
        params.length_penalty = self.length_penalty;
        let score = if self.length_penalty == 0.0 { BeamScore::Sum } else { BeamScore::Power };
        params.score = score.code();
        params.stop = self.stop.code();
        params.prefix = self.prefix.as_ptr();
        params.n_prefix = self.prefix.len();
        params
    }
}

/// One result of [`Session::translate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// Including the end-of-text token.
    pub tokens: Vec<i32>,
    pub score: f32,
}

/// Requested results of [`Session::encode`].
#[derive(Clone, Copy, Debug, Default)]
pub struct EncodeOptions<'a> {
    /// Hidden states after the final norm.
    pub hidden: bool,
    pub pooling: Option<Pooling>,
    /// Gives the pooled vector the length 1.
    pub normalize: Normalize,
    /// Outputs of the head.
    pub outputs: bool,
    /// Ascending token indices to return outputs for; `None`: all.
    pub rows: Option<&'a [i32]>,
}

/// Results of [`Session::encode`]; empty if not requested.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoded {
    /// (n_tokens, d_model)
    pub hidden: Vec<f32>,
    /// (d_model)
    pub pooled: Vec<f32>,
    /// (n_rows, n_outputs)
    pub outputs: Vec<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    pub n_scored: u64,
    /// Nats per token.
    pub mean_nll: f64,
    pub perplexity: f64,
}

pub(crate) struct SessionHandle {
    pub(crate) pointer: NonNull<sys::moe_session>,
    _model: Arc<ModelHandle>,
}

// SAFETY: shared are cancelling and freeing alone, which any thread may do.
unsafe impl Send for SessionHandle {}
unsafe impl Sync for SessionHandle {}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        // SAFETY: the session, its chat and its cancellers hold the handle, so that none is left.
        unsafe { sys::moe_session_free(self.pointer.as_ptr()) }
    }
}

/// Cancels calls of a session from any thread. It keeps the session's memory allocated.
#[derive(Clone)]
pub struct Canceller {
    handle: Arc<SessionHandle>,
}

impl Canceller {
    /// Makes the current call fail with `Cancelled` within one layer's time. Without one it does
    /// nothing: to cancel a call that is about to begin, repeat it.
    pub fn cancel(&self) {
        unsafe { sys::moe_session_cancel(self.handle.pointer.as_ptr()) }
    }
}

/// Made by [`Model::session`].
pub struct Session {
    watch: Option<Watch>,
    pub(crate) handle: Arc<SessionHandle>,
    model: Model,
    vocab_size: usize,
    // The shared part of the handle is Sync; this is not.
    _one_thread: std::marker::PhantomData<std::cell::Cell<()>>,
}

/// Pointers and length of an array that may be empty.
fn room(data: &mut Vec<f32>) -> *mut f32 {
    if data.is_empty() {
        return ptr::null_mut();
    }
    data.as_mut_ptr()
}

impl Model {
    pub fn session(&self, options: &SessionOptions) -> Result<Session> {
        let (params, mut session) = (options.params(), ptr::null_mut());
        let model = self.handle.pointer.as_ptr();
        let vocab_size = self.info()?.vocab_size as usize;
        call(|e| unsafe { sys::moe_session_create(model, &params, &mut session, e) })?;
        Session::made(self, session, vocab_size)
    }
}

unsafe extern "C" fn on_progress<F>(
    user: *mut c_void,
    done: u64,
    total: u64,
    _what: *const c_char,
) -> bool
where
    F: FnMut(u64, u64) -> ControlFlow<()>,
{
    // SAFETY: the Guarded of the call in progress.
    let guarded = unsafe { &mut *(user as *mut Guarded<F>) };
    guarded.run(false, |f| f(done, total).is_continue())
}

struct Writer<W> {
    writer: W,
    error: Option<std::io::Error>,
}

unsafe extern "C" fn on_write<W: Write>(user: *mut c_void, bytes: *const c_void, n: usize) -> bool {
    // SAFETY: the Guarded of the call in progress, and the library's bytes.
    let (guarded, bytes) =
        unsafe { (&mut *(user as *mut Guarded<Writer<W>>), slice(bytes as *const u8, n)) };
    guarded.run(false, |w| match w.writer.write_all(bytes) {
        Ok(()) => true,
        Err(error) => {
            w.error = Some(error);
            false
        }
    })
}

impl Session {
    fn made(model: &Model, session: *mut sys::moe_session, vocab_size: usize) -> Result<Session> {
        let handle = SessionHandle {
            pointer: made(session)?,
            _model: model.handle.clone(),
        };
        Ok(Session {
            watch: None,
            handle: Arc::new(handle),
            model: model.clone(),
            vocab_size,
            _one_thread: std::marker::PhantomData,
        })
    }

    pub(crate) fn pointer(&self) -> *mut sys::moe_session {
        self.handle.pointer.as_ptr()
    }

    /// After a call that evaluates: resumes a panic of the routing callback.
    pub(crate) fn go_on(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.go_on();
        }
    }

    fn run(
        &mut self,
        f: impl FnOnce(*mut sys::moe_session, *mut sys::moe_error) -> i32,
    ) -> Result<()> {
        let session = self.pointer();
        let result = call(|e| f(session, e));
        self.go_on();
        result
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens evaluated so far.
    pub fn position(&self) -> i32 {
        unsafe { sys::moe_session_position(self.pointer()) }
    }

    /// Maximum number of tokens in the session.
    pub fn context(&self) -> i32 {
        unsafe { sys::moe_session_context(self.pointer()) }
    }

    pub fn canceller(&self) -> Canceller {
        Canceller {
            handle: self.handle.clone(),
        }
    }

    /// `n`, the number of tokens of a call, or 0 if the context is shorter: the library refuses such a
    /// call, and there may be no memory for its results.
    fn fitting(&self, n: usize) -> usize {
        if n > self.context() as usize {
            return 0;
        }
        n
    }

    fn evaluate(&mut self, tokens: &[i32], rows: Rows) -> Result<Vec<f32>> {
        let n_rows = match rows {
            Rows::None => 0,
            Rows::Last => 1,
            Rows::All => self.fitting(tokens.len()),
        };
        let rows = if n_rows == 0 { Rows::None } else { rows }.code();
        let mut logits = zeros(n_rows * self.vocab_size)?;
        let out = room(&mut logits);
        self.run(|s, e| unsafe {
            sys::moe_session_eval(s, tokens.as_ptr(), tokens.len(), rows, out, e)
        })?;
        Ok(logits)
    }

    /// Appends tokens to the text.
    pub fn append(&mut self, tokens: &[i32]) -> Result<()> {
        self.evaluate(tokens, Rows::None).map(|_| ())
    }

    /// Appends tokens and returns the logits of the next token: (vocab_size).
    pub fn eval(&mut self, tokens: &[i32]) -> Result<Vec<f32>> {
        self.evaluate(tokens, Rows::Last)
    }

    /// Appends tokens and returns the logits after each: (tokens.len(), vocab_size).
    pub fn eval_all(&mut self, tokens: &[i32]) -> Result<Vec<f32>> {
        self.evaluate(tokens, Rows::All)
    }

    /// Appends tokens and returns the log-probability of each given the preceding text. In an empty
    /// session the first token has no predecessor, hence no value: (tokens.len() - 1).
    pub fn score(&mut self, tokens: &[i32]) -> Result<Vec<f32>> {
        let n = if self.position() == 0 { tokens.len().saturating_sub(1) } else { tokens.len() };
        let mut logprobs = zeros(n)?;
        let out = room(&mut logprobs);
        self.run(|s, e| unsafe {
            sys::moe_session_score(s, tokens.as_ptr(), tokens.len(), out, n, e)
        })?;
        Ok(logprobs)
    }

    /// Appends one token to each of several sessions of one model in a single pass; the logits are
    /// (sessions.len(), vocab_size). On failure none has advanced.
    pub fn step(sessions: &mut [&mut Session], tokens: &[i32]) -> Result<Vec<f32>> {
        if tokens.len() != sessions.len() {
            let text = format!("tokens: expected {}, found {}", sessions.len(), tokens.len());
            return Err(Error::new(Status::Argument, text));
        }
        let vocab_size = sessions.first().map_or(0, |s| s.vocab_size);
        let mut logits = zeros(tokens.len() * vocab_size)?;
        let pointers: Vec<_> = sessions.iter().map(|s| s.pointer()).collect();
        let (p, out) = (pointers.as_ptr(), room(&mut logits));
        let (t, n) = (tokens.as_ptr(), tokens.len());
        let result = call(|e| unsafe { sys::moe_sessions_eval(p, t, ptr::null(), n, out, e) });
        sessions.iter_mut().for_each(|s| s.go_on());
        result.map(|_| logits)
    }

    /// `step` with several tokens for some of the sessions: parts of prompts together with single
    /// decode steps. A pass has at most as many tokens as the first session's chunk; more take
    /// several. The logits are those after the last token of each piece.
    pub fn eval_each(sessions: &mut [&mut Session], pieces: &[&[i32]]) -> Result<Vec<f32>> {
        if pieces.len() != sessions.len() {
            let text = format!("pieces: expected {}, found {}", sessions.len(), pieces.len());
            return Err(Error::new(Status::Argument, text));
        }
        let vocab_size = sessions.first().map_or(0, |s| s.vocab_size);
        let mut logits = zeros(pieces.len() * vocab_size)?;
        let pointers: Vec<_> = sessions.iter().map(|s| s.pointer()).collect();
        let tokens = pieces.concat();
        let n_tokens: Vec<_> = pieces.iter().map(|p| p.len()).collect();
        let (p, n, out) = (pointers.as_ptr(), n_tokens.as_ptr(), room(&mut logits));
        let result = call(|e| unsafe {
            sys::moe_sessions_eval(p, tokens.as_ptr(), n, n_tokens.len(), out, e)
        });
        sessions.iter_mut().for_each(|s| s.go_on());
        result.map(|_| logits)
    }

    /// Runs the model over a text without changing the session. In an encoder every token sees every
    /// other; in a decoder, which has no outputs here, the tokens before it.
    pub fn encode(&mut self, tokens: &[i32], options: &EncodeOptions<'_>) -> Result<Encoded> {
        let info = self.model.info()?;
        let d_model = info.d_model as usize;
        let n = self.fitting(tokens.len());
        let n_rows = match options.rows {
            Some(rows) => rows.len(),
            None if info.head == "classes" => 1,
            None => n,
        };
        let zeros_if = |wanted: bool, n: usize| zeros(if wanted { n } else { 0 });
        let mut encoded = Encoded {
            hidden: zeros_if(options.hidden, n * d_model)?,
            pooled: zeros_if(options.pooling.is_some(), d_model)?,
            outputs: zeros_if(options.outputs, n_rows * info.n_outputs as usize)?,
        };
        let mut params = sized!(moe_encode_params);
        params.pooling = options.pooling.unwrap_or_default().code();
        params.normalize = options.normalize.code();
        params.hidden = room(&mut encoded.hidden);
        params.pooled = room(&mut encoded.pooled);
        params.outputs = room(&mut encoded.outputs);
        if options.outputs {
            params.rows = options.rows.map_or(ptr::null(), |r| r.as_ptr());
            params.n_rows = n_rows;
        }
        self.run(|s, e| unsafe {
            sys::moe_session_encode(s, tokens.as_ptr(), tokens.len(), &params, e)
        })?;
        Ok(encoded)
    }

    /// An encoder-decoder's best texts for a source's tokens, best first. Afterwards the session has
    /// read the source and is empty. `progress(tokens, most)` is called before each token.
    pub fn translate<F>(
        &mut self,
        source: &[i32],
        options: &TranslateOptions<'_>,
        progress: F,
    ) -> Result<Vec<Translation>>
    where
        F: FnMut(u64, u64) -> ControlFlow<()>,
    {
        let (mut params, mut guarded) = (options.params(), Guarded::new(progress));
        params.progress = Some(on_progress::<F>);
        params.progress_user = guarded.user();
        let mut n_texts = 0;
        let result = self.run(|s, e| unsafe {
            sys::moe_session_translate(s, source.as_ptr(), source.len(), &params, &mut n_texts, e)
        });
        guarded.go_on();
        result?;
        (0..n_texts).map(|i| self.translation(i)).collect()
    }

    fn translation(&self, index: usize) -> Result<Translation> {
        let mut text = sized!(moe_translation);
        call(|e| unsafe { sys::moe_session_get_translation(self.pointer(), index, &mut text, e) })?;
        Ok(Translation {
            // SAFETY: the session's memory, copied before it translates again.
            tokens: unsafe { slice(text.tokens, text.n_tokens) }.to_vec(),
            score: text.score,
        })
    }

    /// Reads a source and empties the session, which then works like a decoder's whose text attends to
    /// the source and begins with `ModelInfo::start_token`. Returns the encoder's output,
    /// (n_tokens, d_model).
    pub fn read_source(&mut self, source: &[i32]) -> Result<Vec<f32>> {
        let info = self.model.info()?;
        // The library refuses more tokens.
        let n = if source.len() > info.source_length as usize { 0 } else { source.len() };
        let mut hidden = zeros(n * info.d_model as usize)?;
        let out = room(&mut hidden);
        self.run(|s, e| unsafe {
            sys::moe_session_read_source(s, source.as_ptr(), source.len(), out, e)
        })?;
        Ok(hidden)
    }

    fn tokens_of(&self, text: &str, how: EncodeText) -> Result<Vec<i32>> {
        let none = || Error::new(Status::Unsupported, "the model has no tokenizer");
        self.model.tokenizer().ok_or_else(none)?.encode_with(text, how)
    }

    /// One vector per text: (d_model); with `Pooling::Default` as the model file says, its length
    /// included. The caller puts a prompt of the model (`Model::prompts`) before the text. An empty
    /// text is an error.
    pub fn embed(&mut self, text: &str, pooling: Pooling) -> Result<Vec<f32>> {
        if text.is_empty() {
            let why = "text: expected a text, found an empty one";
            return Err(Error::new(Status::Argument, why));
        }
        let tokens = self.tokens_of(text, EncodeText::default())?;
        let options = EncodeOptions {
            pooling: Some(pooling),
            normalize: match pooling {
                Pooling::Default => Normalize::Default,
                _ => Normalize::Off,
            },
            ..EncodeOptions::default()
        };
        self.encode(&tokens, &options).map(|e| e.pooled)
    }

    /// Writes the text with its keys and values, to be resumed later or elsewhere, and flushes the writer.
    pub fn save<W: Write>(&mut self, writer: W) -> Result<()> {
        let mut guarded = Guarded::new(Writer {
            writer,
            error: None,
        });
        let mut target = sized!(moe_writer);
        target.write = Some(on_write::<W>);
        target.user = guarded.user();
        let result = self.run(|s, e| unsafe { sys::moe_session_save(s, &target, e) });
        guarded.go_on();
        let Writer { mut writer, error } = guarded.into_inner();
        // A BufWriter that is dropped loses the error of its last bytes.
        let error = if result.is_ok() { writer.flush().err() } else { error };
        match error {
            Some(error) => Err(Error::new(Status::Io, error.to_string())),
            None => result,
        }
    }

    /// The same to a file, which is replaced when the new one is complete and keeps its mode and
    /// owner. `Status::Io` if it cannot be written, or while another program that uses the library
    /// writes it; the old file is then unchanged.
    pub fn save_file(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let file = Replacement::open(path.as_ref())?;
        self.save(BufWriter::with_capacity(1 << 20, &*file.begin()?))?;
        file.commit()
    }

    /// Replaces the text by a saved one, which may be untrusted.
    pub fn load(&mut self, source: &dyn Source) -> Result<()> {
        let source = Reader::new(source);
        let reader = source.reader();
        source.outcome(self.run(|s, e| unsafe { sys::moe_session_load(s, &reader, e) }))
    }

    /// A copy with the same text, parameters and router. The two continue independently.
    pub fn fork(&mut self) -> Result<Session> {
        let mut session = ptr::null_mut();
        self.run(|s, e| unsafe { sys::moe_session_fork(s, &mut session, e) })?;
        Session::made(&self.model, session, self.vocab_size)
    }

    /// Replaces the text by the first `n` tokens of another session of the model, without evaluating them
    /// again. The router is unchanged.
    pub fn copy(&mut self, source: &mut Session, n: i32) -> Result<()> {
        let target = self.pointer();
        source.run(|s, e| unsafe { sys::moe_session_copy(s, n, target, e) })
    }

    /// Drops everything from `position` on.
    pub fn rewind(&mut self, position: i32) -> Result<()> {
        self.run(|s, e| unsafe { sys::moe_session_rewind(s, position, e) })
    }

    /// Perplexity of a text's tokens (`EncodeText::no_special`) in windows of the context. The session must be
    /// empty, and is empty afterwards. `progress(done, total)` is called after each window.
    pub fn perplexity<F>(&mut self, tokens: &[i32], progress: F) -> Result<Perplexity>
    where
        F: FnMut(u64, u64) -> ControlFlow<()>,
    {
        let (mut out, mut guarded) = (sized!(moe_perplexity), Guarded::new(progress));
        let (n, user) = (tokens.len(), guarded.user());
        let result = self.run(|s, e| unsafe {
            sys::moe_session_perplexity(
                s,
                tokens.as_ptr(),
                n,
                Some(on_progress::<F>),
                user,
                &mut out,
                e,
            )
        });
        guarded.go_on();
        result?;
        Ok(Perplexity {
            n_scored: out.n_scored,
            mean_nll: out.mean_nll,
            perplexity: out.perplexity,
        })
    }

    /// Overrides the router of every MoE layer ("topk:4", "threshold:0.9"); `None`: as in the file.
    pub fn set_router(&mut self, router: Option<&str>) -> Result<()> {
        let parsed = router::parse(router)?;
        self.run(|s, e| unsafe { sys::moe_session_set_router(s, router::pointer(&parsed), e) })
    }

    /// Starts counting from zero, or stops.
    pub fn count_routing(&mut self, on: bool) -> Result<()> {
        self.run(|s, e| unsafe { sys::moe_session_count_routing(s, on, e) })
    }

    /// The counts of a layer.
    pub fn routing(&self, layer: i32) -> Result<RoutingStats> {
        let mut stats = sized!(moe_routing_stats);
        call(|e| unsafe { sys::moe_session_get_routing(self.pointer(), layer, &mut stats, e) })?;
        // SAFETY: the session does not count meanwhile.
        Ok(unsafe { RoutingStats::of(&stats) })
    }

    /// The activations counted in a layer, which may be dense.
    pub fn activations(&self, layer: i32) -> Result<ActivationStats> {
        let mut stats = sized!(moe_activation_stats);
        call(|e| unsafe {
            sys::moe_session_get_activations(self.pointer(), layer, &mut stats, e)
        })?;
        Ok(ActivationStats::of(&stats))
    }

    /// Calls `watcher` with the choices of each MoE layer, before they are used.
    pub fn watch_routing(
        &mut self,
        watcher: impl FnMut(&mut RoutingChoices<'_>) + Send + 'static,
    ) -> Result<()> {
        let watch = Watch::new(Box::new(watcher));
        let user = watch.user();
        self.run(|s, e| unsafe { sys::moe_session_watch_routing(s, Some(on_routing), user, e) })?;
        self.watch = Some(watch);
        Ok(())
    }

    /// Removes the routing callback.
    pub fn unwatch_routing(&mut self) -> Result<()> {
        self.run(|s, e| unsafe { sys::moe_session_watch_routing(s, None, ptr::null_mut(), e) })?;
        self.watch = None;
        Ok(())
    }

    pub fn memory_stats(&self) -> Result<MemoryStats> {
        let mut stats = sized!(moe_memory_stats);
        call(|e| unsafe { sys::moe_session_get_memory_stats(self.pointer(), &mut stats, e) })?;
        Ok(MemoryStats::of(&stats))
    }

    /// Samples the next token; the session does not advance. `n_top`: at most 64 candidates.
    pub fn sample(&mut self, sampling: &Sampling, n_top: usize) -> Result<Sample> {
        let none = TokenLogprob {
            token: -1,
            logprob: 0.0,
        };
        let (params, mut out, mut top) = (sampling.params()?, none, vec![none; n_top]);
        let candidates = if n_top > 0 { top.as_mut_ptr() } else { ptr::null_mut() };
        self.run(|s, e| unsafe {
            sys::moe_session_sample(s, &params, &mut out, candidates, n_top, e)
        })?;
        Ok(Sample {
            token: out.token,
            logprob: out.logprob,
            top,
        })
    }

    /// Appends the prompt, then generates; `callback` receives each piece and can stop it.
    pub fn generate<F>(
        &mut self,
        prompt: &[i32],
        options: &GenerateOptions<'_>,
        callback: F,
    ) -> Result<GenerateResult>
    where
        F: FnMut(&Piece<'_>) -> ControlFlow<()>,
    {
        self.generate_by(prompt, options, NO_LOGITS, callback)
    }

    /// [`Session::generate`] with a logits callback: `logits(text, logits)` receives the tokens so far
    /// and may change the logits of the next one; negative infinity bans a token.
    pub fn generate_with_logits<L, F>(
        &mut self,
        prompt: &[i32],
        options: &GenerateOptions<'_>,
        logits: L,
        callback: F,
    ) -> Result<GenerateResult>
    where
        L: FnMut(&[i32], &mut [f32]) -> ControlFlow<()>,
        F: FnMut(&Piece<'_>) -> ControlFlow<()>,
    {
        self.generate_by(prompt, options, Some(logits), callback)
    }

    fn generate_by<L, F>(
        &mut self,
        prompt: &[i32],
        options: &GenerateOptions<'_>,
        logits: Option<L>,
        callback: F,
    ) -> Result<GenerateResult>
    where
        L: FnMut(&[i32], &mut [f32]) -> ControlFlow<()>,
        F: FnMut(&Piece<'_>) -> ControlFlow<()>,
    {
        let mut out = sized!(moe_generate_result);
        let (session, n) = (self.pointer(), prompt.len());
        let result = with_params(options, logits, callback, |params| {
            call(|e| unsafe {
                sys::moe_session_generate(session, prompt.as_ptr(), n, params, &mut out, e)
            })
        });
        self.go_on();
        result?;
        Ok(GenerateResult {
            finish: Finish::of(out.finish),
            n_prompt: out.n_prompt,
            n_generated: out.n_generated,
            prompt_seconds: out.prompt_seconds,
            generate_seconds: out.generate_seconds,
            n_drafted: out.n_drafted,
            n_accepted: out.n_accepted,
        })
    }

    /// The continuation of a text. Special tokens that begin a sequence are added only if the session
    /// is empty.
    pub fn complete(&mut self, prompt: &str, options: &GenerateOptions<'_>) -> Result<String> {
        let how = EncodeText {
            no_special: self.position() > 0,
            parse_special: false,
        };
        let (tokens, mut text) = (self.tokens_of(prompt, how)?, String::new());
        self.generate(&tokens, options, |piece| {
            text.push_str(&piece.text);
            ControlFlow::Continue(())
        })?;
        Ok(text)
    }
}
