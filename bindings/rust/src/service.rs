// SPDX-License-Identifier: MIT
//! Many requests to a model at the same time, in the JSON of OpenAI's and Anthropic's APIs, over
//! `moe_service_*`. `docs/serving.md` describes requests and answers. With the feature `serve`, which
//! links libmoe_serve.
//!
//! A [`Request`] keeps its [`Service`], and a service its model, so that they may be dropped in any
//! order. What the service's thread calls only stores: a slow reader holds nobody up.

pub use crate::enums::Endpoint;
use crate::enums::Status;
use crate::env::made;
use crate::error::{call, Error, Result};
use crate::model::{Model, ModelHandle};
use crate::router;
use crate::session::SessionOptions;
use crate::sys;
use crate::text::{owned, sized, slice, Optional};
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

/// Gets the receipt of every answer just before its last event, on the service's thread. It holds up
/// all requests, and must not call the service. A panic in it ends there.
pub type Receipt = Box<dyn Fn(&str) + Send + Sync>;

/// The settings of a [`Service`]; zero and `None` are the library's defaults.
#[derive(Default)]
pub struct ServiceParams {
    n_slots: i32,
    session: SessionOptions,
    router: Option<String>,
    name: Option<String>,
    chat_template: Option<String>,
    max_waiting: i32,
    max_prompt: i32,
    slice: i32,
    max_seconds: i32,
    draft: i32,
    no_reuse: bool,
    cache: Option<String>,
    cache_bytes: u64,
    receipt: Option<Receipt>,
}

impl ServiceParams {
    pub fn new() -> ServiceParams {
        ServiceParams::default()
    }
    /// Texts evaluated at the same time, each in a session.
    pub fn n_slots(mut self, n: i32) -> Self {
        self.n_slots = n;
        self
    }
    /// Options of each session.
    pub fn session(mut self, options: SessionOptions) -> Self {
        self.session = options;
        self
    }
    /// In place of the model's: "topk:2".
    pub fn router(mut self, text: impl Into<String>) -> Self {
        self.router = Some(text.into());
        self
    }
    /// The model's name in requests and answers, in place of the model file's.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
    /// A name of [`crate::chat_template_names`] or Jinja text, in place of the model's.
    pub fn chat_template(mut self, template: impl Into<String>) -> Self {
        self.chat_template = Some(template.into());
        self
    }
    /// Texts that wait for a slot; further requests get the status 429.
    pub fn max_waiting(mut self, n: i32) -> Self {
        self.max_waiting = n;
        self
    }
    /// Tokens of a prompt.
    pub fn max_prompt(mut self, n: i32) -> Self {
        self.max_prompt = n;
        self
    }
    /// Prompt tokens evaluated in a step while texts are being generated.
    pub fn slice(mut self, n: i32) -> Self {
        self.slice = n;
        self
    }
    /// The time of a request, from its submission on.
    pub fn max_seconds(mut self, n: i32) -> Self {
        self.max_seconds = n;
        self
    }
    /// Tokens drafted at once for a text that is alone, where its request does not say; at most 16.
    pub fn draft(mut self, n: i32) -> Self {
        self.draft = n;
        self
    }
    /// Evaluates every prompt whole.
    pub fn no_reuse(mut self, on: bool) -> Self {
        self.no_reuse = on;
        self
    }
    /// A folder that keeps evaluated texts in files of at most so many bytes, also for a later
    /// service; 0: the library's default.
    pub fn cache(mut self, folder: impl Into<String>, bytes: u64) -> Self {
        self.cache = Some(folder.into());
        self.cache_bytes = bytes;
        self
    }
    pub fn receipt(mut self, f: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.receipt = Some(Box::new(f));
        self
    }
}

/// A part of an answer, or the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEvent {
    /// As HTTP counts them: 200, or that of the error in `json`.
    pub status: i32,
    /// An object in one line.
    pub json: String,
    /// No further event follows.
    pub last: bool,
    /// After which the request may be tried again; zero: not said.
    pub retry_after: Duration,
    /// The event's name in a stream that has names; "": none.
    pub name: String,
}

/// Counts of a service since it was created, and its state; `moe_c.h` explains each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ServiceStats {
    pub n_slots: i32,
    pub context: i32,
    pub n_running: i32,
    pub n_waiting: i32,
    pub draining: bool,
    pub kv_positions: u64,
    pub n_requests: u64,
    pub n_refused: u64,
    pub n_answered: u64,
    pub n_cancelled: u64,
    pub n_failed: u64,
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    pub n_steps: u64,
    pub n_first_tokens: u64,
    pub first_token_seconds: f64,
    pub step_seconds: f64,
    pub cap_bytes: u64,
    pub counted_bytes: u64,
    pub peak_bytes: u64,
    pub expert_uses: u64,
    pub expert_hits: u64,
    pub expert_read_bytes: u64,
    pub reused_tokens: u64,
    pub cache_bytes: u64,
    pub cache_errors: u64,
}

struct Pointer(NonNull<sys::moe_service>);

// SAFETY: the library lets any number of threads use a service; only freeing it needs to be alone.
unsafe impl Send for Pointer {}
unsafe impl Sync for Pointer {}

struct Inner {
    pointer: RwLock<Option<Pointer>>, // None: closed. Written by close() alone
    _receipt: Option<Arc<Receipt>>,   // freed after the service, which calls it
    _model: Arc<ModelHandle>,
}

impl Inner {
    /// Makes a call while the service is open.
    fn ask(
        &self,
        f: impl FnOnce(*mut sys::moe_service, *mut sys::moe_error) -> sys::moe_status,
    ) -> Result<()> {
        let open = self.pointer.read().unwrap_or_else(|e| e.into_inner());
        match &*open {
            Some(pointer) => call(|e| f(pointer.0.as_ptr(), e)),
            None => Err(Error::new(Status::State, "the service is closed")),
        }
    }

    fn cancel(&self, id: u64) {
        if id == 0 {
            return;
        }
        let _ = self.ask(|service, _| {
            unsafe { sys::moe_service_cancel(service, id) };
            sys::MOE_OK
        }); // a closed service has ended it
    }

    fn close(&self) {
        let mut open = self.pointer.write().unwrap_or_else(|e| e.into_inner());
        if let Some(pointer) = open.take() {
            // SAFETY: no other call is in progress, and none can begin.
            unsafe { sys::moe_service_free(pointer.0.as_ptr()) }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// Evaluates a model for many requests, in threads of its own. Clones are the same service, which is
/// freed with the last of them, of its requests and of their cancellers. Any number of threads may use it.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

unsafe extern "C" fn on_receipt(user: *mut c_void, json: *const c_char, n: usize) {
    // SAFETY: the service keeps the function; there are n bytes.
    let (receipt, bytes) = unsafe { (&*(user as *const Receipt), slice(json as *const u8, n)) };
    let _ = catch_unwind(AssertUnwindSafe(|| receipt(&String::from_utf8_lossy(bytes))));
}

/// Owns `user` until the last event.
unsafe extern "C" fn on_event(user: *mut c_void, event: *const sys::moe_service_event) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the event lives during the call; submit() has boxed the sender.
        let (event, sender) = unsafe { (&*event, &*(user as *const Sender<ServiceEvent>)) };
        let bytes = unsafe { slice(event.json as *const u8, event.n_bytes) };
        let _ = sender.send(ServiceEvent {
            status: event.status,
            json: String::from_utf8_lossy(bytes).into_owned(),
            last: event.last != 0,
            retry_after: Duration::from_secs(event.retry_after.max(0) as u64),
            name: unsafe { owned(event.name) },
        }); // nobody may be there to read it
        if event.last != 0 {
            // SAFETY: the library does not use it again.
            drop(unsafe { Box::from_raw(user as *mut Sender<ServiceEvent>) });
        }
    }));
}

impl Service {
    /// Creates a service, which keeps the model.
    pub fn new(model: &Model, settings: ServiceParams) -> Result<Service> {
        let router = router::parse(settings.router.as_deref())?;
        let session = settings.session.params();
        let name = Optional::new(settings.name.as_deref(), "name")?;
        let template = Optional::new(settings.chat_template.as_deref(), "chat_template")?;
        let folder = Optional::new(settings.cache.as_deref(), "cache")?;
        let receipt = settings.receipt.map(Arc::new);
        let mut params = sized!(moe_service_params);
        params.n_slots = settings.n_slots;
        params.session = &session;
        params.router = router::pointer(&router);
        params.name = name.pointer();
        params.chat_template = template.pointer();
        params.max_waiting = settings.max_waiting;
        params.max_prompt = settings.max_prompt;
        params.slice = settings.slice;
        params.max_seconds = settings.max_seconds;
        params.max_draft = settings.draft;
        params.no_reuse = i32::from(settings.no_reuse);
        params.cache_folder = folder.pointer();
        params.cache_bytes = settings.cache_bytes;
        if let Some(receipt) = &receipt {
            params.receipt = Some(on_receipt);
            params.receipt_user = Arc::as_ptr(receipt) as *mut c_void;
        }
        let mut service = ptr::null_mut();
        let model = model.handle.clone();
        let pointer = model.pointer.as_ptr();
        call(|e| unsafe { sys::moe_service_create(pointer, &params, &mut service, e) })?;
        let inner = Arc::new(Inner {
            pointer: RwLock::new(Some(Pointer(made(service)?))),
            _receipt: receipt,
            _model: model,
        });
        Ok(Service { inner })
    }

    /// Takes a request, a JSON object. A refused one too has an event, with the API's error.
    pub fn submit(&self, endpoint: Endpoint, body: impl AsRef<[u8]>) -> Result<Request> {
        let (sender, events) = channel::<ServiceEvent>();
        let user = Box::into_raw(Box::new(sender));
        let mut ticket = sized!(moe_service_ticket);
        let body = body.as_ref();
        let outcome = self.inner.ask(|service, e| unsafe {
            let (text, n) = (body.as_ptr() as *const c_char, body.len());
            let user = user as *mut c_void;
            let code = endpoint.code();
            sys::moe_service_submit(service, code, text, n, Some(on_event), user, &mut ticket, e)
        });
        if let Err(error) = outcome {
            // SAFETY: there are no events after a failure.
            drop(unsafe { Box::from_raw(user) });
            return Err(error);
        }
        Ok(Request {
            canceller: RequestCanceller {
                service: self.inner.clone(),
                id: ticket.id,
            },
            stream: ticket.stream != 0,
            ended: false,
            events,
        })
    }

    pub fn stats(&self) -> Result<ServiceStats> {
        let mut c = sized!(moe_service_stats);
        self.inner.ask(|service, e| unsafe { sys::moe_service_get_stats(service, &mut c, e) })?;
        Ok(ServiceStats {
            n_slots: c.n_slots,
            context: c.context,
            n_running: c.n_running,
            n_waiting: c.n_waiting,
            draining: c.draining != 0,
            kv_positions: c.kv_positions,
            n_requests: c.n_requests,
            n_refused: c.n_refused,
            n_answered: c.n_answered,
            n_cancelled: c.n_cancelled,
            n_failed: c.n_failed,
            prompt_tokens: c.prompt_tokens,
            generated_tokens: c.generated_tokens,
            n_steps: c.n_steps,
            n_first_tokens: c.n_first_tokens,
            first_token_seconds: c.first_token_seconds,
            step_seconds: c.step_seconds,
            cap_bytes: c.cap_bytes,
            counted_bytes: c.counted_bytes,
            peak_bytes: c.peak_bytes,
            expert_uses: c.expert_uses,
            expert_hits: c.expert_hits,
            expert_read_bytes: c.expert_read_bytes,
            reused_tokens: c.reused_tokens,
            cache_bytes: c.cache_bytes,
            cache_errors: c.cache_errors,
        })
    }

    /// Refuses requests from now on, with the status 503, and waits until those taken have ended and
    /// the cache folder has their texts, at most `limit` (`None`: any time); whether it is so.
    pub fn drain(&self, limit: Option<Duration>) -> Result<bool> {
        const SLICE: Duration = Duration::from_millis(20); // so that close() need not wait
        let begin = Instant::now();
        loop {
            let rest = limit.map_or(SLICE, |l| l.saturating_sub(begin.elapsed()).min(SLICE));
            let mut empty = false;
            self.inner.ask(|service, e| unsafe {
                sys::moe_service_drain(service, rest.as_secs_f64(), &mut empty, e)
            })?;
            if empty || rest.is_zero() {
                return Ok(empty);
            }
        }
    }

    /// Ends all requests, with the status 503 for their last events, and frees the service. Later
    /// calls get `Status::State`.
    pub fn close(&self) {
        self.inner.close();
    }
}

/// Cancels its request, from any thread.
#[derive(Clone)]
pub struct RequestCanceller {
    service: Arc<Inner>,
    id: u64, // 0: it was answered at once
}

impl RequestCanceller {
    /// Ends the request within a step: its last event has the status 499. Does nothing for one that
    /// has ended.
    pub fn cancel(&self) {
        self.service.cancel(self.id);
    }
}

/// A submitted request: an iterator that waits for its events. Dropping it cancels the request.
pub struct Request {
    canceller: RequestCanceller,
    stream: bool,
    ended: bool,
    events: Receiver<ServiceEvent>,
}

impl Request {
    /// It asks for a stream, and was not refused.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    pub fn cancel(&self) {
        self.canceller.cancel();
    }

    pub fn canceller(&self) -> RequestCanceller {
        self.canceller.clone()
    }

    /// The next event, if it comes within `limit`; `None` also after the last one.
    pub fn next_within(&mut self, limit: Duration) -> Option<ServiceEvent> {
        let event = self.events.recv_timeout(limit).ok()?;
        self.ended = event.last;
        Some(event)
    }

    /// Waits for the last event: the whole answer of a request that asks for no stream, or why there
    /// is none. `None`: it has been read.
    pub fn answer(mut self) -> Option<ServiceEvent> {
        self.by_ref().last()
    }
}

impl Iterator for Request {
    type Item = ServiceEvent;

    fn next(&mut self) -> Option<ServiceEvent> {
        let event = self.events.recv().ok()?; // the sender is dropped after the last event
        self.ended = event.last;
        Some(event)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.ended {
            self.cancel();
        }
    }
}
