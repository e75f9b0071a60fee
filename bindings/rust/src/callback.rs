// SPDX-License-Identifier: MIT
//! Closures that the library calls. A panic cannot pass through C: it is stored, the call is stopped,
//! and the panic resumes when the call has returned.

use std::any::Any;
use std::os::raw::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

pub(crate) struct Guarded<F> {
    function: F,
    panic: Option<Box<dyn Any + Send>>,
}

impl<F> Guarded<F> {
    pub(crate) fn new(function: F) -> Guarded<F> {
        Guarded {
            function,
            panic: None,
        }
    }

    pub(crate) fn user(&mut self) -> *mut c_void {
        self as *mut Guarded<F> as *mut c_void
    }

    /// Runs `f`; `stopped` when it panicked, now or before.
    pub(crate) fn run<R>(&mut self, stopped: R, f: impl FnOnce(&mut F) -> R) -> R {
        if self.panic.is_some() {
            return stopped;
        }
        match catch_unwind(AssertUnwindSafe(|| f(&mut self.function))) {
            Ok(result) => result,
            Err(panic) => {
                self.panic = Some(panic);
                stopped
            }
        }
    }

    pub(crate) fn panicked(&self) -> bool {
        self.panic.is_some()
    }

    pub(crate) fn into_inner(self) -> F {
        self.function
    }

    /// After the call.
    pub(crate) fn go_on(&mut self) {
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
    }
}
