// SPDX-License-Identifier: MIT
//! Strings, arrays and structs across the C boundary.

use crate::enums::Status;
use crate::error::{call, Error, Result};
use crate::sys;
use std::ffi::{CStr, CString};
use std::fmt::Display;
use std::os::raw::c_char;
use std::ptr;

/// A parameter or output struct of the library: zero, but for its size.
macro_rules! sized {
    ($name:ident) => {{
        // SAFETY: all fields are numbers and pointers, for which zero is a value.
        let mut made: $crate::sys::$name = unsafe { std::mem::zeroed() };
        made.struct_size = std::mem::size_of::<$crate::sys::$name>() as u32;
        made
    }};
}
pub(crate) use sized;

pub(crate) fn c_string(text: impl AsRef<[u8]>, what: impl Display) -> Result<CString> {
    let text = text.as_ref();
    CString::new(text).map_err(|_| {
        let text = String::from_utf8_lossy(text);
        Error::new(Status::Argument, format!("{what}: contains a zero byte: {text:?}"))
    })
}

/// An optional text; NULL in C.
pub(crate) struct Optional(Option<CString>);

impl Optional {
    pub(crate) fn new(text: Option<&str>, what: &str) -> Result<Optional> {
        Ok(Optional(text.map(|t| c_string(t, what)).transpose()?))
    }

    pub(crate) fn pointer(&self) -> *const c_char {
        self.0.as_ref().map_or(ptr::null(), |t| t.as_ptr())
    }
}

/// Texts as a `const char* const*`.
pub(crate) struct Texts {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Texts {
    pub(crate) fn new(texts: &[&str], what: &str) -> Result<Texts> {
        let each = texts.iter().enumerate();
        let owned = each.map(|(i, t)| c_string(t, format_args!("{what}[{i}]")));
        let owned = owned.collect::<Result<Vec<_>>>()?;
        Ok(Texts {
            pointers: owned.iter().map(|t| t.as_ptr()).collect(),
            _texts: owned,
        })
    }

    pub(crate) fn pointer(&self) -> *const *const c_char {
        if self.pointers.is_empty() {
            return ptr::null();
        }
        self.pointers.as_ptr()
    }
}

/// Text of the library; "" for NULL and invalid UTF-8.
///
/// # Safety
/// The text is terminated and lives for 'a.
pub(crate) unsafe fn borrowed<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
}

/// # Safety
/// NULL, or terminated.
pub(crate) unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
/// `n` elements at `data`, or NULL and 0, for 'a.
pub(crate) unsafe fn slice<'a, T>(data: *const T, n: usize) -> &'a [T] {
    if data.is_null() || n == 0 {
        return &[];
    }
    unsafe { std::slice::from_raw_parts(data, n) }
}

/// Memory for `n` results; `Status::Memory` if there is not as much.
pub(crate) fn zeros(n: usize) -> Result<Vec<f32>> {
    let mut numbers = Vec::new();
    if numbers.try_reserve_exact(n).is_err() {
        return Err(Error::new(Status::Memory, format!("no memory for {n} numbers")));
    }
    numbers.resize(n, 0.0);
    Ok(numbers)
}

/// The result of a call with (buffer, capacity, length). `terminator`: elements written after it.
pub(crate) fn filled<T: Copy + Default>(
    guess: usize,
    terminator: usize,
    mut f: impl FnMut(*mut T, usize, *mut usize, *mut sys::moe_error) -> sys::moe_status,
) -> Result<Vec<T>> {
    let mut n = 0;
    let mut buffer = vec![T::default(); guess.max(64)];
    let first = call(|e| f(buffer.as_mut_ptr(), buffer.len(), &mut n, e));
    match first {
        Err(e) if e.status() == Status::TooLong && n + terminator > buffer.len() => {
            buffer.resize(n + terminator, T::default());
            call(|e| f(buffer.as_mut_ptr(), buffer.len(), &mut n, e))?;
        }
        other => other?,
    }
    buffer.truncate(n);
    Ok(buffer)
}

/// Text written by `filled`.
pub(crate) fn filled_text(
    f: impl FnMut(*mut c_char, usize, *mut usize, *mut sys::moe_error) -> sys::moe_status,
) -> Result<String> {
    let bytes: Vec<u8> = filled(256, 1, f)?.into_iter().map(|b: c_char| b as u8).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A count as the library's int32_t.
pub(crate) fn int(value: usize, what: &str) -> Result<i32> {
    i32::try_from(value)
        .map_err(|_| Error::new(Status::Range, format!("{what}: {value} is too large")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_may_be_too_large() {
        assert_eq!(zeros(3), Ok(vec![0.0; 3]));
        assert_eq!(zeros(usize::MAX / 8).err().unwrap().status(), Status::Memory);
    }
}
