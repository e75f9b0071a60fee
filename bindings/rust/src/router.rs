// SPDX-License-Identifier: MIT
//! Routers as texts, "topk:2,renormalised", and as the struct of `moe_c.h`.

use crate::error::{call, Result};
use crate::sys;
use crate::text::{owned, sized, Optional};
use std::ptr;

/// The library's reading of a text; `None`: its default.
pub(crate) fn parse(text: Option<&str>) -> Result<Option<sys::moe_router>> {
    let Some(text) = text else {
        return Ok(None);
    };
    let (text, mut router) = (Optional::new(Some(text), "router")?, sized!(moe_router));
    call(|e| unsafe { sys::moe_router_parse(text.pointer(), &mut router, e) })?;
    Ok(Some(router))
}

pub(crate) fn pointer(router: &Option<sys::moe_router>) -> *const sys::moe_router {
    router.as_ref().map_or(ptr::null(), |r| r)
}

pub(crate) fn text(router: &sys::moe_router) -> Result<String> {
    let mut n = 0;
    call(|e| unsafe { sys::moe_router_format(router, ptr::null_mut(), 0, &mut n, e) })?;
    let mut text = vec![0; n + 1];
    let room = text.len();
    call(|e| unsafe { sys::moe_router_format(router, text.as_mut_ptr(), room, &mut n, e) })?;
    // SAFETY: the library terminates the text.
    Ok(unsafe { owned(text.as_ptr()) })
}
