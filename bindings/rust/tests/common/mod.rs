#![allow(dead_code)] // each test uses only a part
// SPDX-License-Identifier: MIT
// Shared by the tests: the stories model, other models that bindings/test.sh converts, and checks of
// errors.

use moe::*;
use std::ops::ControlFlow;
use std::path::PathBuf;

pub const PROMPT: &str = "Once upon a time";
/// The text that `moe generate examples/models/stories.moe -p "Once upon a time" -n 24` prints after the prompt.
pub const STORY: &str = ", a quiet girl called Clara lived in a stone house under the mountain. \
                         She would rather listen than talk. Her best";

pub fn env() -> Env {
    Env::new(EnvOptions {
        threads: 2,
        ..Default::default()
    })
    .unwrap()
}

pub fn stories_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/models/stories.moe")
}

pub fn stories() -> Model {
    Model::open(&env(), stories_path(), &ModelOptions::default()).unwrap()
}

/// A model that bindings/test.sh has converted. Tests that need one are ignored without it.
pub fn converted(name: &str) -> Model {
    let folder = std::env::var_os("MOE_TEST_MODELS").expect("MOE_TEST_MODELS");
    Model::open(&env(), PathBuf::from(folder).join(name), &ModelOptions::default()).unwrap()
}

pub fn session(model: &Model) -> Session {
    model.session(&SessionOptions::default()).unwrap()
}

pub fn encode(model: &Model, text: &str) -> Vec<i32> {
    model.tokenizer().unwrap().encode(text).unwrap()
}

pub fn tokens(max_tokens: i32) -> GenerateOptions<'static> {
    GenerateOptions {
        max_tokens,
        ..Default::default()
    }
}

pub fn all(_: &Piece<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub fn status<T>(result: Result<T>) -> Status {
    result.err().expect("an error").status()
}
