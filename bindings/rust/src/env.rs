// SPDX-License-Identifier: MIT
//! The environment: threads, device and log that models share.

use crate::enums::{LogLevel, Status};
use crate::error::{call, Error, Result};
use crate::sys;
use crate::text::{borrowed, owned, sized, Optional};
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Gets each message, possibly from several threads. It must not call this crate: the model may be
/// locked. A panic in it ends there.
pub type Log = Box<dyn Fn(LogLevel, &str) + Send + Sync>;

/// Options of an [`Env`]. The default: all that the machine has.
#[derive(Default)]
pub struct EnvOptions<'a> {
    /// Compute threads, including the caller's; 0: as many as this process may use.
    pub threads: i32,
    /// An instruction set of [`isas`]; `None`: the best one. Results are bit-identical.
    pub isa: Option<&'a str>,
    /// `None`, "auto" or "cpu": the CPU, also beside a GPU; "cuda" or "cuda:N".
    pub device: Option<&'a str>,
    /// Limit on GPU memory in bytes; 0, or above: 15/16 of the free memory.
    pub gpu_memory_bytes: u64,
    pub log: Option<Log>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvInfo {
    pub threads: i32,
    pub device: String,
    pub isa: String,
}

pub(crate) struct EnvHandle {
    pub(crate) pointer: NonNull<sys::moe_env>,
    _log: Option<Arc<Log>>, // freed after the environment, which calls it
}

// SAFETY: the library lets any number of threads use an environment.
unsafe impl Send for EnvHandle {}
unsafe impl Sync for EnvHandle {}

impl Drop for EnvHandle {
    fn drop(&mut self) {
        // SAFETY: models and layers hold the handle, so that none is left.
        unsafe { sys::moe_env_free(self.pointer.as_ptr()) }
    }
}

/// Owns the compute threads. Clones are the same environment, which is freed with the last of them
/// and of the models and layers created from it.
#[derive(Clone)]
pub struct Env {
    pub(crate) handle: Arc<EnvHandle>,
}

unsafe extern "C" fn on_log(user: *mut c_void, level: sys::moe_log_level, text: *const c_char) {
    // SAFETY: the environment keeps the log; the text is terminated.
    let (log, text) = unsafe { (&*(user as *const Log), owned(text)) };
    let _ = catch_unwind(AssertUnwindSafe(|| log(LogLevel::of(level), &text)));
}

/// The declarations of this crate are those of one version; while the major one is 0, a minor one
/// may change them.
fn check_version() -> Result<()> {
    let found = unsafe { sys::moe_version() };
    let ours = sys::MOE_VERSION_MAJOR * 1000 + sys::MOE_VERSION_MINOR;
    if found / 1000 == ours {
        return Ok(());
    }
    let text = format!(
        "libmoe: expected version {}.{}, found {}",
        sys::MOE_VERSION_MAJOR,
        sys::MOE_VERSION_MINOR,
        version()
    );
    Err(Error::new(Status::Unsupported, text))
}

impl Env {
    pub fn new(options: EnvOptions<'_>) -> Result<Env> {
        check_version()?;
        let (isa, device) =
            (Optional::new(options.isa, "isa")?, Optional::new(options.device, "device")?);
        let log = options.log.map(Arc::new);
        let mut params = sized!(moe_env_params);
        params.threads = options.threads;
        params.isa = isa.pointer();
        params.device = device.pointer();
        params.gpu_memory_bytes = options.gpu_memory_bytes;
        if let Some(log) = &log {
            params.log = Some(on_log);
            params.log_user = Arc::as_ptr(log) as *mut c_void;
        }
        let mut env = ptr::null_mut();
        call(|e| unsafe { sys::moe_env_create(&params, &mut env, e) })?;
        let handle = Arc::new(EnvHandle {
            pointer: made(env)?,
            _log: log,
        });
        Ok(Env { handle })
    }

    pub fn info(&self) -> Result<EnvInfo> {
        let mut info = sized!(moe_env_info);
        call(|e| unsafe { sys::moe_env_get_info(self.handle.pointer.as_ptr(), &mut info, e) })?;
        // SAFETY: texts of the environment, copied while it lives.
        Ok(unsafe {
            EnvInfo {
                threads: info.threads,
                device: owned(info.device),
                isa: owned(info.isa),
            }
        })
    }
}

/// The object created by a successful call.
pub(crate) fn made<T>(pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| Error::new(Status::Internal, "nothing was made"))
}

/// The names that a function of the library lists by index.
fn names(name: impl Fn(usize) -> *const c_char) -> Vec<&'static str> {
    let pointers = (0..).map(name).take_while(|p| !p.is_null());
    // SAFETY: static texts.
    pointers.map(|p| unsafe { borrowed(p) }).collect()
}

/// Version of the library at run time.
pub fn version() -> &'static str {
    unsafe { borrowed(sys::moe_version_string()) }
}

/// Instruction sets built into the library, best first.
pub fn isas() -> Vec<&'static str> {
    names(|i| unsafe { sys::moe_isa_name(i) })
}

/// Weight formats that a [`crate::Layer`] can be packed in.
pub fn weight_formats() -> Vec<&'static str> {
    names(|i| unsafe { sys::moe_weight_format_name(i) })
}

/// Kinds of routers; [`crate::Session::set_router`] accepts "topk" and "threshold".
pub fn router_kinds() -> Vec<&'static str> {
    names(|i| unsafe { sys::moe_router_kind(i) })
}

/// Built-in chat templates.
pub fn chat_template_names() -> Vec<&'static str> {
    names(|i| unsafe { sys::moe_chat_template_name(i) })
}
