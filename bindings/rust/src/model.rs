// SPDX-License-Identifier: MIT
//! A model file: its contents and its memory.

use crate::enums::Io;
use crate::env::{made, Env, EnvHandle};
use crate::error::{call, Result};
use crate::generate::Sampling;
use crate::session::SessionOptions;
use crate::source::{Reader, Source};
use crate::sys;
use crate::text::{c_string, filled, owned, sized, slice};
use crate::tokenizer::Tokenizer;
use std::any::Any;
use std::os::raw::c_void;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Options for opening a [`Model`]. The default: everything is read on first use, no cap.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Map uncompressed weights instead of reading them. The file must not change while the
    /// model is open: a truncated mapped file kills the process.
    pub map_weights: bool,
    /// Do not verify checksums of weights (structure is always checked).
    pub skip_checksums: bool,
    /// Cap on weights, KV caches and scratch memory; 0: none.
    pub memory_bytes: u64,
    /// With a cap: the session that must fit.
    pub session: SessionOptions,
    pub io: Io,
    /// With a cap, read experts only when a token needs them; otherwise free room for experts is
    /// filled while nothing else is read.
    pub lazy_experts: bool,
}

#[derive(Clone, Debug)]
pub struct ModelInfo {
    pub vocab_size: i32,
    pub d_model: i32,
    pub n_layers: i32,
    pub n_moe_layers: i32,
    pub context_length: i32,
    /// -1: none.
    pub bos_token: i32,
    pub eos_tokens: Vec<i32>,
    pub name: String,
    pub n_parameters: u64,
    /// Upper bound for one token.
    pub n_active_parameters: u64,
    pub weight_bytes: u64,
    pub bytes_per_token: u64,
    pub file_bytes: u64,
    /// "tokens"; for an encoder also "classes", "tags", "span" or "none".
    pub head: String,
    pub n_outputs: i32,
    /// Only for [`crate::Session::encode`]; cannot generate.
    pub is_encoder: bool,
    /// -1: none.
    pub mask_token: i32,
    /// For [`crate::Session::translate`]; the next three are then set.
    pub is_encoder_decoder: bool,
    pub n_encoder_layers: i32,
    /// Maximum tokens of a source.
    pub source_length: i32,
    /// Begins each text of the decoder; -1: none.
    pub start_token: i32,
    /// How vectors of texts are pooled: "mean", "first" or "last"; "": the file says nothing of them.
    pub pooling: String,
    /// Vectors have the length 1.
    pub normalized: bool,
    /// Maximum tokens of a text that becomes a vector; 0: as many as the context holds.
    pub vector_tokens: i32,
    /// The index in [`Model::prompts`] of the one for texts of no other kind.
    pub default_prompt: Option<usize>,
    /// Tells model files apart.
    pub file_hash: u64,
    /// That runs it.
    pub device: String,
    /// 1: a layer beside the others guesses further tokens, which drafts use.
    pub n_predictions: i32,
}

/// One layer; the meaning of each number is in `moe_c.h`.
#[derive(Clone, Debug)]
pub struct LayerInfo {
    pub n_heads: i32,
    pub n_kv_heads: i32,
    pub head_dim: i32,
    pub window: i32,
    pub d_ff: i32,
    pub n_experts: i32,
    pub n_active: i32,
    pub n_subheads: i32,
    pub shared_d_ff: i32,
    /// As [`crate::Session::set_router`] takes it, "topk:2"; "" for a dense layer, like its kind.
    pub router: String,
    pub kind: String,
    pub activation: String,
    pub n_sublayers: i32,
    /// Experts per (sub-)token; 0: selected by threshold.
    pub k: i32,
    pub threshold: f32,
    pub tau: f32,
    pub gamma: f32,
    /// The rule of the selected experts' weights; "": no choice.
    pub weights: String,
    /// The gate of a cosine router.
    pub gate: String,
    pub has_head: bool,
    pub has_merge: bool,
    /// Heads of cross attention to an encoder's output.
    pub n_cross_heads: i32,
    /// Floats per position with [`crate::KvType::Latent`]; 0: not possible.
    pub kv_latent: i32,
    /// The mixer in place of attention or beside it, "short_conv"; "": none.
    pub mixer: String,
    /// The bytes of a mixer's state at one position of a session.
    pub state_bytes: u64,
}

/// One stored matrix or vector.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// -1: none.
    pub layer: i32,
    /// -1: none.
    pub expert: i32,
    pub rows: i32,
    pub cols: i32,
    pub part: String,
    pub role: String,
    pub format: String,
    pub scale: String,
    pub activations: String,
    pub codec: String,
    pub bytes: u64,
    pub file_offset: u64,
}

/// One line of the memory account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLine {
    pub what: String,
    pub bytes: u64,
}

/// The memory that sessions get under the model's cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    pub chunk: i32,
    pub cap_bytes: u64,
    pub needed_bytes: u64,
    /// The smallest cap under which all sessions can be created.
    pub least_bytes: u64,
    pub expert_bytes: u64,
    pub n_experts: u64,
    pub n_in_memory: u64,
    /// Memory of each session: further ones take it from the experts in memory.
    pub session_bytes: u64,
}

/// Memory of this machine, or of this process's memory cgroup if that is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    pub total_bytes: u64,
    pub available_bytes: u64,
    /// The largest automatic cap: 15/16 of `available_bytes`.
    pub budget_bytes: u64,
}

/// `Unsupported` if the system does not report it.
pub fn memory_info() -> Result<MemoryInfo> {
    let mut info = sized!(moe_memory_info);
    call(|e| unsafe { sys::moe_get_memory_info(&mut info, e) })?;
    Ok(MemoryInfo {
        total_bytes: info.total_bytes,
        available_bytes: info.available_bytes,
        budget_bytes: info.budget_bytes,
    })
}

pub(crate) struct ModelHandle {
    pub(crate) pointer: NonNull<sys::moe_model>,
    _keep: Option<Box<dyn Any + Send + Sync>>, // what the model reads from
    _env: Arc<EnvHandle>,
}

// SAFETY: the library lets any number of threads use a model.
unsafe impl Send for ModelHandle {}
unsafe impl Sync for ModelHandle {}

impl Drop for ModelHandle {
    fn drop(&mut self) {
        // SAFETY: sessions and tokenizers hold the handle, so that none is left.
        unsafe { sys::moe_model_free(self.pointer.as_ptr()) }
    }
}

/// An open model. Clones are the same model, which is freed with the last of them and of its
/// sessions and tokenizers. Any number of threads may use it.
#[derive(Clone)]
pub struct Model {
    pub(crate) handle: Arc<ModelHandle>,
}

type Opened<'a> = &'a mut *mut sys::moe_model;

fn params_of(options: &ModelOptions, session: &sys::moe_session_params) -> sys::moe_model_params {
    let mut params = sized!(moe_model_params);
    params.map_weights = i32::from(options.map_weights);
    params.skip_checksums = i32::from(options.skip_checksums);
    params.memory_bytes = options.memory_bytes;
    params.session = session;
    params.io = options.io.code();
    params.lazy_experts = i32::from(options.lazy_experts);
    params
}

impl Model {
    fn made(
        env: &Env,
        options: &ModelOptions,
        keep: Option<Box<dyn Any + Send + Sync>>,
        open: impl FnOnce(&sys::moe_model_params, Opened<'_>, *mut sys::moe_error) -> sys::moe_status,
    ) -> Result<Model> {
        let session = options.session.params();
        let params = params_of(options, &session);
        let mut model = ptr::null_mut();
        call(|e| open(&params, &mut model, e))?;
        let handle = Arc::new(ModelHandle {
            pointer: made(model)?,
            _keep: keep,
            _env: env.handle.clone(),
        });
        Ok(Model { handle })
    }

    pub fn open(env: &Env, path: impl AsRef<Path>, options: &ModelOptions) -> Result<Model> {
        let path = c_string(path.as_ref().as_os_str().as_bytes(), "path")?;
        let e = env.handle.pointer.as_ptr();
        Model::made(env, options, None, |params, out, error| unsafe {
            sys::moe_model_open(e, path.as_ptr(), params, out, error)
        })
    }

    /// A model file in memory, which the model owns.
    pub fn from_bytes(
        env: &Env,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        options: &ModelOptions,
    ) -> Result<Model> {
        let keep = Arc::new(bytes);
        let data = (*keep).as_ref();
        let (pointer, n) = (data.as_ptr() as *const c_void, data.len());
        let e = env.handle.pointer.as_ptr();
        Model::made(env, options, Some(Box::new(keep)), |params, out, error| unsafe {
            sys::moe_model_open_memory(e, pointer, n, params, out, error)
        })
    }

    /// A failure of the source before this returns gives the error's text, and a panic resumes. A
    /// later failure is a `Status::Io` of the call that needed the bytes.
    pub fn from_source(
        env: &Env,
        source: impl Source + 'static,
        options: &ModelOptions,
    ) -> Result<Model> {
        let source = Arc::new(Reader::new(source));
        let (kept, reader) = (source.clone(), source.reader());
        let e = env.handle.pointer.as_ptr();
        let model = Model::made(env, options, Some(Box::new(kept)), |params, out, error| unsafe {
            sys::moe_model_open_reader(e, &reader, params, out, error)
        });
        source.outcome(model)
    }

    fn pointer(&self) -> *mut sys::moe_model {
        self.handle.pointer.as_ptr()
    }

    pub fn info(&self) -> Result<ModelInfo> {
        let mut info = sized!(moe_model_info);
        call(|e| unsafe { sys::moe_model_get_info(self.pointer(), &mut info, e) })?;
        // SAFETY: texts and arrays of the model, copied while it lives.
        Ok(unsafe {
            ModelInfo {
                vocab_size: info.vocab_size,
                d_model: info.d_model,
                n_layers: info.n_layers,
                n_moe_layers: info.n_moe_layers,
                context_length: info.context_length,
                bos_token: info.bos_token,
                eos_tokens: slice(info.eos_tokens, info.n_eos_tokens as usize).to_vec(),
                name: owned(info.name),
                n_parameters: info.n_parameters,
                n_active_parameters: info.n_active_parameters,
                weight_bytes: info.weight_bytes,
                bytes_per_token: info.bytes_per_token,
                file_bytes: info.file_bytes,
                head: owned(info.head),
                n_outputs: info.n_outputs,
                is_encoder: info.is_encoder != 0,
                mask_token: info.mask_token,
                is_encoder_decoder: info.is_encoder_decoder != 0,
                n_encoder_layers: info.n_encoder_layers,
                source_length: info.source_length,
                start_token: info.start_token,
                pooling: owned(info.pooling),
                normalized: info.normalized != 0,
                vector_tokens: info.vector_tokens,
                default_prompt: usize::try_from(info.default_prompt).ok(),
                file_hash: info.file_hash,
                device: owned(info.device),
                n_predictions: info.n_predictions,
            }
        })
    }

    /// Texts to put before those that become vectors, each with its name.
    pub fn prompts(&self) -> Result<Vec<(String, String)>> {
        let mut info = sized!(moe_model_info);
        call(|e| unsafe { sys::moe_model_get_info(self.pointer(), &mut info, e) })?;
        (0..info.n_prompts)
            .map(|i| {
                let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
                call(|e| unsafe {
                    sys::moe_model_get_prompt(self.pointer(), i, &mut name, &mut text, e)
                })?;
                // SAFETY: as info().
                Ok(unsafe { (owned(name), owned(text)) })
            })
            .collect()
    }

    pub fn layer_info(&self, layer: i32) -> Result<LayerInfo> {
        let mut info = sized!(moe_model_layer_info);
        call(|e| unsafe { sys::moe_model_get_layer_info(self.pointer(), layer, &mut info, e) })?;
        let (mut router, mut text) = (sized!(moe_router), String::new());
        if info.n_experts > 0 {
            call(|e| unsafe { sys::moe_model_get_router(self.pointer(), layer, &mut router, e) })?;
            text = crate::router::text(&router)?;
        }
        // SAFETY: as info().
        Ok(unsafe {
            LayerInfo {
                n_heads: info.n_heads,
                n_kv_heads: info.n_kv_heads,
                head_dim: info.head_dim,
                window: info.window,
                d_ff: info.d_ff,
                n_experts: info.n_experts,
                n_active: info.n_active,
                n_subheads: info.n_subheads,
                shared_d_ff: info.shared_d_ff,
                router: text,
                kind: owned(router.kind),
                activation: owned(info.activation),
                n_sublayers: info.n_sublayers,
                k: router.k,
                threshold: router.threshold,
                tau: router.tau,
                gamma: router.gamma,
                weights: owned(router.weights),
                gate: owned(router.gate),
                has_head: info.has_head != 0,
                has_merge: info.has_merge != 0,
                n_cross_heads: info.n_cross_heads,
                kv_latent: info.kv_latent,
                mixer: owned(info.mixer),
                state_bytes: info.state_bytes,
            }
        })
    }

    /// All stored matrices and vectors.
    pub fn tensors(&self) -> Result<Vec<TensorInfo>> {
        let n = unsafe { sys::moe_model_tensor_count(self.pointer()) };
        (0..n).map(|i| self.tensor(i)).collect()
    }

    fn tensor(&self, index: usize) -> Result<TensorInfo> {
        let mut info = sized!(moe_tensor_info);
        call(|e| unsafe { sys::moe_model_get_tensor_info(self.pointer(), index, &mut info, e) })?;
        // SAFETY: as info().
        Ok(unsafe {
            TensorInfo {
                layer: info.layer,
                expert: info.expert,
                rows: info.rows,
                cols: info.cols,
                part: owned(info.part),
                role: owned(info.role),
                format: owned(info.format),
                scale: owned(info.scale),
                activations: owned(info.activations),
                codec: owned(info.codec),
                bytes: info.bytes,
                file_offset: info.file_offset,
            }
        })
    }

    /// The account of this model with one such session, whether allocated yet or not.
    pub fn memory(&self, session: &SessionOptions) -> Result<Vec<MemoryLine>> {
        let (params, model) = (session.params(), self.pointer());
        let lines = filled(0, 0, |lines: *mut Line, capacity, n, e| unsafe {
            sys::moe_model_get_memory(
                model,
                &params,
                1,
                lines as *mut sys::moe_memory_line,
                capacity,
                n,
                e,
            )
        })?;
        let line = |l: &Line| MemoryLine {
            what: unsafe { owned(l.0.what) },
            bytes: l.0.bytes,
        };
        Ok(lines.iter().map(line).collect())
    }

    /// The plan for so many sessions (1 or more) with these options.
    pub fn memory_plan(&self, session: &SessionOptions, n_sessions: i32) -> Result<MemoryPlan> {
        let (params, mut plan) = (session.params(), sized!(moe_memory_plan));
        call(|e| unsafe {
            sys::moe_model_get_memory_plan(self.pointer(), &params, n_sessions, &mut plan, e)
        })?;
        Ok(MemoryPlan {
            chunk: plan.chunk,
            cap_bytes: plan.cap_bytes,
            needed_bytes: plan.needed_bytes,
            least_bytes: plan.least_bytes,
            expert_bytes: plan.expert_bytes,
            n_experts: plan.n_experts,
            n_in_memory: plan.n_in_memory,
            session_bytes: plan.session_bytes,
        })
    }

    /// The `memory_bytes` to open this model with for so many sessions (1 or more): 0 if everything fits.
    pub fn suggest_memory(&self, session: &SessionOptions, n_sessions: i32) -> Result<u64> {
        let (params, mut bytes) = (session.params(), 0);
        call(|e| unsafe {
            sys::moe_model_suggest_memory(self.pointer(), &params, n_sessions, &mut bytes, e)
        })?;
        Ok(bytes)
    }

    /// Reads every weight once and verifies checksums, codes and scales.
    pub fn verify(&self) -> Result<()> {
        call(|e| unsafe { sys::moe_model_verify(self.pointer(), e) })
    }

    /// `None` for a model of token ids only.
    pub fn tokenizer(&self) -> Option<Tokenizer> {
        let found = unsafe { sys::moe_model_tokenizer(self.pointer()) };
        NonNull::new(found as *mut _).map(|pointer| Tokenizer {
            pointer,
            _model: self.handle.clone(),
        })
    }

    /// How to sample a conversation where the user says nothing, and whether the model file says so:
    /// it stores what the checkpoint's authors recommend. Nothing uses these settings by itself.
    pub fn sampling(&self) -> Result<(Sampling, bool)> {
        let (mut s, mut in_file) = (sized!(moe_sampling), false);
        let model = self.pointer();
        call(|e| unsafe { sys::moe_model_get_sampling(model, &mut s, &mut in_file, e) })?;
        Ok((Sampling::from_params(&s), in_file))
    }

    /// The model file's Jinja template.
    pub fn chat_template(&self) -> Option<String> {
        let text = unsafe { sys::moe_model_chat_template(self.pointer()) };
        if text.is_null() {
            return None;
        }
        Some(unsafe { owned(text) })
    }
}

#[repr(transparent)]
#[derive(Clone, Copy)]
struct Line(sys::moe_memory_line);

impl Default for Line {
    fn default() -> Line {
        Line(sys::moe_memory_line {
            what: ptr::null(),
            bytes: 0,
        })
    }
}
