// SPDX-License-Identifier: MIT
//! Text to token ids and back.

use crate::enums::Status;
use crate::error::{Error, Result};
use crate::model::ModelHandle;
use crate::sys;
use crate::text::{filled, filled_text, owned};
use std::os::raw::c_char;
use std::ptr::NonNull;
use std::sync::Arc;

/// Selects how a text is encoded. The default: as the beginning of a sequence, without special tokens that
/// the text itself spells out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeText {
    /// Add nothing before or after the text: for a continuation.
    pub no_special: bool,
    /// Convert special tokens spelled out in the text to their ids.
    pub parse_special: bool,
}

/// Belongs to a model, which it references. Any number of threads may use it.
#[derive(Clone)]
pub struct Tokenizer {
    pub(crate) pointer: NonNull<sys::moe_tokenizer>,
    pub(crate) _model: Arc<ModelHandle>,
}

// SAFETY: the library lets any number of threads use a tokenizer.
unsafe impl Send for Tokenizer {}
unsafe impl Sync for Tokenizer {}

impl Tokenizer {
    /// The ids of a text that begins a sequence.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        self.encode_with(text, EncodeText::default())
    }

    pub fn encode_with(&self, text: &str, how: EncodeText) -> Result<Vec<i32>> {
        let mut flags = 0;
        if how.no_special {
            flags |= sys::MOE_ENCODE_NO_SPECIAL;
        }
        if how.parse_special {
            flags |= sys::MOE_ENCODE_PARSE_SPECIAL;
        }
        let (data, n_bytes) = (text.as_ptr() as *const c_char, text.len());
        filled(n_bytes + 8, 0, |tokens, capacity, n, e| unsafe {
            sys::moe_tokenizer_encode(
                self.pointer.as_ptr(),
                data,
                n_bytes,
                flags,
                tokens,
                capacity,
                n,
                e,
            )
        })
    }

    /// The text of some ids; invalid UTF-8 becomes U+FFFD.
    pub fn decode(&self, tokens: &[i32], skip_special: bool) -> Result<String> {
        let flags = if skip_special { sys::MOE_DECODE_SKIP_SPECIAL } else { 0 };
        filled_text(|text, capacity, n, e| unsafe {
            let p = self.pointer.as_ptr();
            sys::moe_tokenizer_decode(p, tokens.as_ptr(), tokens.len(), flags, text, capacity, n, e)
        })
    }

    /// The vocabulary's spelling of a token.
    pub fn piece(&self, token: i32) -> Result<String> {
        let text = unsafe { sys::moe_tokenizer_piece(self.pointer.as_ptr(), token) };
        if text.is_null() {
            return Err(Error::new(Status::Range, format!("token {token}: not in the vocabulary")));
        }
        Ok(unsafe { owned(text) })
    }
}
