// SPDX-License-Identifier: MIT
//! cargo run --example generate MODEL PROMPT [TOKENS]

use moe::{Env, EnvOptions, GenerateOptions, Model, ModelOptions, SessionOptions};
use std::io::Write;
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [path, prompt] = [1, 2].map(|i| arguments.get(i).expect("usage: generate MODEL PROMPT"));
    let max_tokens = arguments.get(3).map_or(Ok(24), |n| n.parse())?;

    let env = Env::new(EnvOptions::default())?;
    let model = Model::open(&env, path, &ModelOptions::default())?;
    let tokens = model.tokenizer().expect("a tokenizer").encode(prompt)?;
    let mut session = model.session(&SessionOptions::default())?;
    let options = GenerateOptions {
        max_tokens,
        ..Default::default()
    };

    print!("{prompt}");
    let result = session.generate(&tokens, &options, |piece| {
        print!("{}", piece.text);
        match std::io::stdout().flush() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()), // the reader has gone
        }
    })?;
    println!("\n{} tokens, {:?}", result.n_generated, result.finish);
    Ok(())
}
