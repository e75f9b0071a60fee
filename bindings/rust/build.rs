// SPDX-License-Identifier: MIT
//! Finds libmoe, and libmoe_serve for the feature `serve`: in MOE_LIB_DIR where that is set, otherwise
//! through pkg-config's moe.pc and moe_serve.pc.

use std::env;
use std::process::Command;

fn pkg_config(library: &str) -> Result<Vec<String>, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_string());
    let done = Command::new(&program)
        .args(["--libs", "--cflags-only-other", library])
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).trim().to_string());
    }
    let flags = String::from_utf8_lossy(&done.stdout).into_owned();
    Ok(flags.split_whitespace().map(str::to_string).collect())
}

fn main() {
    for name in [
        "MOE_LIB_DIR",
        "PKG_CONFIG",
        "PKG_CONFIG_PATH",
        "PKG_CONFIG_LIBDIR",
    ] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let serve = env::var_os("CARGO_FEATURE_SERVE").is_some();
    let library = if serve { "moe_serve" } else { "moe" };
    if let Ok(folder) = env::var("MOE_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        if serve {
            println!("cargo:rustc-link-lib=moe_serve");
        }
        println!("cargo:rustc-link-lib=moe");
        return;
    }
    let flags = pkg_config(library).unwrap_or_else(|why| {
        eprintln!("lib{library} was not found: {why}");
        eprintln!(
            "Install it and set PKG_CONFIG_PATH, or set MOE_LIB_DIR to the folder of lib{library}.so."
        );
        std::process::exit(1);
    });
    for flag in flags {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(name) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={name}");
        }
    }
}
