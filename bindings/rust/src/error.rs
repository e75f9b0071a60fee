// SPDX-License-Identifier: MIT
//! Statuses of the library, and the error that carries one.

use crate::enums::Status;
use crate::sys;
use crate::text::borrowed;
use std::fmt;

impl Status {
    /// The spelling in `moe_c.h`, such as "MOE_ERR_RANGE".
    pub fn name(self) -> &'static str {
        // SAFETY: static text for any number.
        unsafe { borrowed(sys::moe_status_name(self.code())) }
    }
}

/// A failed call: the status, and one line that names the faulty item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    text: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Error {
        Error {
            status,
            text: text.into(),
        }
    }

    pub fn status(&self) -> Status {
        self.status
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.name(), self.text)
    }
}

impl std::error::Error for Error {}

/// Makes a call of the library that can fail.
pub(crate) fn call(f: impl FnOnce(*mut sys::moe_error) -> sys::moe_status) -> Result<()> {
    let mut error = sys::moe_error {
        code: sys::MOE_OK,
        text: [0; sys::MOE_ERROR_TEXT_BYTES],
    };
    let status = f(&mut error);
    if status == sys::MOE_OK {
        return Ok(());
    }
    let code = if error.code == sys::MOE_OK { status } else { error.code };
    // SAFETY: the library terminates the text; it was zero before.
    let text = unsafe { borrowed(error.text.as_ptr()) };
    Err(Error::new(Status::of(code), text))
}
