// SPDX-License-Identifier: MIT
//! Files that are replaced when their new content is complete.

use crate::env::made;
use crate::error::{call, Result};
use crate::sys;
use crate::text::c_string;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::FromRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};

/// The file, locked. Dropped without commit() it is unchanged.
pub(crate) struct Replacement(NonNull<sys::moe_replacement>);

impl Replacement {
    pub(crate) fn open(path: &Path) -> Result<Replacement> {
        let path = c_string(path.as_os_str().as_bytes(), "path")?;
        let mut out = ptr::null_mut();
        call(|e| unsafe { sys::moe_replacement_open(path.as_ptr(), &mut out, e) })?;
        Ok(Replacement(made(out)?))
    }

    /// The new content, which belongs to the library.
    pub(crate) fn begin(&self) -> Result<ManuallyDrop<File>> {
        let mut file = -1;
        call(|e| unsafe { sys::moe_replacement_begin(self.0.as_ptr(), &mut file, e) })?;
        // SAFETY: the descriptor is open until commit() or drop, and not closed by this File.
        Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(file) }))
    }

    pub(crate) fn commit(self) -> Result<()> {
        call(|e| unsafe { sys::moe_replacement_commit(self.0.as_ptr(), e) })
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        unsafe { sys::moe_replacement_free(self.0.as_ptr()) }
    }
}
