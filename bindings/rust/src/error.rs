// SPDX-License-Identifier: MIT
//! Statuses of the library, and the error that carries one.

use crate::sys;
use crate::text::borrowed;
use std::fmt;

/// Why a call failed. The groups are those of `moe_c.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    Argument,
    Range,
    Shape,
    NonFinite,
    State,
    TooLong,
    Unsupported,
    Io,
    NotFound,
    Format,
    Version,
    Corrupt,
    Text,
    Memory,
    Budget,
    Device,
    Cancelled,
    Internal,
    /// A number that this crate does not know.
    Other(i32),
}

const KNOWN: [(sys::moe_status, Status); 18] = [
    (sys::MOE_ERR_ARGUMENT, Status::Argument),
    (sys::MOE_ERR_RANGE, Status::Range),
    (sys::MOE_ERR_SHAPE, Status::Shape),
    (sys::MOE_ERR_NON_FINITE, Status::NonFinite),
    (sys::MOE_ERR_STATE, Status::State),
    (sys::MOE_ERR_TOO_LONG, Status::TooLong),
    (sys::MOE_ERR_UNSUPPORTED, Status::Unsupported),
    (sys::MOE_ERR_IO, Status::Io),
    (sys::MOE_ERR_NOT_FOUND, Status::NotFound),
    (sys::MOE_ERR_FORMAT, Status::Format),
    (sys::MOE_ERR_VERSION, Status::Version),
    (sys::MOE_ERR_CORRUPT, Status::Corrupt),
    (sys::MOE_ERR_TEXT, Status::Text),
    (sys::MOE_ERR_MEMORY, Status::Memory),
    (sys::MOE_ERR_BUDGET, Status::Budget),
    (sys::MOE_ERR_DEVICE, Status::Device),
    (sys::MOE_ERR_CANCELLED, Status::Cancelled),
    (sys::MOE_ERR_INTERNAL, Status::Internal),
];

impl Status {
    fn of(code: sys::moe_status) -> Status {
        let known = KNOWN.iter().find(|(number, _)| *number == code);
        known.map_or(Status::Other(code), |(_, status)| *status)
    }

    /// The number in `moe_c.h`.
    pub fn code(self) -> i32 {
        match self {
            Status::Other(code) => code,
            _ => KNOWN.iter().find(|(_, s)| *s == self).map_or(-1, |k| k.0),
        }
    }

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
