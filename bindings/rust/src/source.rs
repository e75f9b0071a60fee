// SPDX-License-Identifier: MIT
//! Where models and saved sessions are read from.

use crate::enums::Status;
use crate::error::{Error, Result};
use crate::sys;
use crate::text::sized;
use std::any::Any;
use std::fs::File;
use std::io;
use std::os::raw::c_void;
use std::os::unix::fs::FileExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::Mutex;

/// Where a model is read from, by any thread, also after open; or a saved session, while it is loaded.
/// It must not call this crate: the model may be locked.
pub trait Source: Send + Sync {
    /// The size of the whole model file in bytes.
    fn size(&self) -> u64;
    /// Fills the whole buffer with the bytes at `offset`.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |m| m.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buffer, offset)
    }
}

impl Source for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let found = usize::try_from(offset).ok().and_then(|o| self.get(o..));
        let found = found.and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

enum Failure {
    Error(io::Error),
    Panic(Box<dyn Any + Send>),
}

/// A source that the library reads, with its first failure.
pub(crate) struct Reader<S> {
    source: S,
    failure: Mutex<Option<Failure>>,
}

impl<S: Source> Reader<S> {
    pub(crate) fn new(source: S) -> Reader<S> {
        Reader {
            source,
            failure: Mutex::new(None),
        }
    }

    /// Valid while `self` stays where it is.
    pub(crate) fn reader(&self) -> sys::moe_reader {
        let mut reader = sized!(moe_reader);
        reader.size = self.source.size();
        reader.read = Some(on_read::<S>);
        reader.user = self as *const Reader<S> as *mut c_void;
        reader
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> bool {
        let done = catch_unwind(AssertUnwindSafe(|| self.source.read_exact_at(buffer, offset)));
        let failure = match done {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => Failure::Error(error),
            Err(panic) => Failure::Panic(panic),
        };
        if let Ok(mut first) = self.failure.lock() {
            first.get_or_insert(failure);
        }
        false
    }

    /// The result of a call that has read: if reading failed, with the error or the panic of the source.
    pub(crate) fn outcome<T>(&self, result: Result<T>) -> Result<T> {
        if !matches!(&result, Err(error) if error.status() == Status::Io) {
            return result;
        }
        let failure = self.failure.lock().ok().and_then(|mut first| first.take());
        match failure {
            Some(Failure::Error(error)) => Err(Error::new(Status::Io, error.to_string())),
            Some(Failure::Panic(panic)) => resume_unwind(panic),
            None => result,
        }
    }
}

unsafe extern "C" fn on_read<S: Source>(
    user: *mut c_void,
    offset: u64,
    buffer: *mut c_void,
    bytes: usize,
) -> bool {
    // SAFETY: who asked for the reading keeps the Reader. The buffer is the library's and may hold
    // anything yet: a safe slice must be initialised.
    let (reader, buffer) = unsafe {
        ptr::write_bytes(buffer as *mut u8, 0, bytes);
        let buffer = std::slice::from_raw_parts_mut(buffer as *mut u8, bytes);
        (&*(user as *const Reader<S>), buffer)
    };
    reader.read(buffer, offset)
}
