// SPDX-License-Identifier: MIT
//! Ownership, threads, errors, and sources of models.

mod common;

use common::*;
use moe::*;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

#[test]
fn whatever_order_things_are_dropped_in() {
    let env = env();
    let model = Model::open(&env, stories_path(), &ModelOptions::default()).unwrap();
    let (tokenizer, mut first, second) =
        (model.tokenizer().unwrap(), session(&model), session(&model));
    let options = ChatOptions {
        chat_template: Some("plain"),
        ..Default::default()
    };
    let mut chat = Chat::new(second, &options).unwrap();
    drop(env);
    drop(model);
    assert_eq!(first.complete(PROMPT, &tokens(24)).unwrap(), STORY);
    drop(first);
    chat.add("user", PROMPT).unwrap();
    assert!(chat.reply(&tokens(4), all).is_ok());
    let canceller = chat.canceller();
    drop(chat);
    canceller.cancel();
    drop(canceller);
    assert!(tokenizer.encode(PROMPT).is_ok());
}

/// `check` does not compile for a type that is Sync: both implementations match.
trait NotSync<A> {
    fn check() {}
}
impl<T> NotSync<()> for T {}
impl<T: Sync> NotSync<u8> for T {}

#[test]
fn threads_share_a_model() {
    <Session as NotSync<_>>::check();
    <Chat as NotSync<_>>::check();
    <Layer as NotSync<_>>::check();
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<(Env, Model, Tokenizer, Canceller, Error)>();
    moved::<(Session, Chat, Layer)>();
    let model = stories();
    let story = |mut s: Session| move || s.complete(PROMPT, &tokens(24)).unwrap();
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(story(session(&model)))).collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), STORY);
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let error = Model::open(&env(), "no/such.moe", &ModelOptions::default()).err().unwrap();
    assert_eq!((error.status(), error.status().code()), (Status::NotFound, 21));
    assert!(error.text().contains("no/such.moe"), "{error}");
    assert!(error.to_string().starts_with("MOE_ERR_NOT_FOUND: "), "{error}");
    let boxed: Box<dyn std::error::Error> = Box::new(error);
    assert!(boxed.downcast_ref::<Error>().is_some());
    let isa = Env::new(EnvOptions {
        isa: Some("z80"),
        ..Default::default()
    });
    assert!(isa.err().unwrap().text().contains("z80"));
    let zero = Env::new(EnvOptions {
        isa: Some("a\0b"),
        ..Default::default()
    });
    let zero = zero.err().unwrap();
    assert_eq!(zero.status(), Status::Argument);
    assert_eq!(zero.text(), r#"isa: contains a zero byte: "a\0b""#);
    let stop = GenerateOptions {
        stop: &["a", "\0"],
        ..Default::default()
    };
    let stopped = session(&stories()).generate(&[5], &stop, all);
    assert_eq!(stopped.err().unwrap().text(), r#"stop[1]: contains a zero byte: "\0""#);
    let hopeless = Model::from_bytes(&env(), vec![1u8; 100], &ModelOptions::default());
    assert_eq!(status(hopeless), Status::Format);
    assert_eq!(Status::Other(99).name(), "unknown status");
}

#[test]
fn logs() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let log: Log = Box::new(move |level, text| {
        kept.lock().unwrap().push((level, text.to_string()));
        panic!("which stays here");
    });
    let options = EnvOptions {
        threads: 1,
        isa: Some("scalar"),
        device: Some("auto"),
        log: Some(log),
        ..Default::default()
    };
    let env = Env::new(options).unwrap();
    let info = env.info().unwrap();
    assert_eq!((info.threads, info.isa.as_str()), (1, "scalar"));
    let model = Model::open(&env, stories_path(), &ModelOptions::default()).unwrap();
    assert_eq!(session(&model).complete(PROMPT, &tokens(24)).unwrap(), STORY);
    assert!(!lines.lock().unwrap().is_empty());
}

struct Bytes {
    bytes: Vec<u8>,
    reads: Mutex<usize>,
    fails_after: usize,
    panics: bool,
}

impl Source for Bytes {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut reads = self.reads.lock().unwrap();
        *reads += 1;
        assert!(*reads < 100_000);
        if *reads > self.fails_after {
            assert!(!self.panics, "the disk panics");
            return Err(io::Error::new(io::ErrorKind::Other, "the disk is broken"));
        }
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        Ok(())
    }
}

#[test]
fn models_come_from_memory_and_from_readers() {
    let bytes = std::fs::read(stories_path()).unwrap();
    let model = Model::from_bytes(&env(), bytes.clone(), &ModelOptions::default()).unwrap();
    assert_eq!(session(&model).complete(PROMPT, &tokens(24)).unwrap(), STORY);
    let source = |fails_after, panics| Bytes {
        bytes: bytes.clone(),
        reads: Mutex::new(0),
        fails_after,
        panics,
    };
    let open = |source| Model::from_source(&env(), source, &ModelOptions::default());
    let model = open(source(usize::MAX, false)).unwrap();
    let mut s = session(&model);
    assert_eq!(s.complete(PROMPT, &tokens(24)).unwrap(), STORY);
    let broken = |error: Option<Error>| {
        let error = error.unwrap();
        assert_eq!((error.status(), error.text()), (Status::Io, "the disk is broken"));
    };
    broken(open(source(0, false)).err());
    broken(open(source(1, false)).err());
    broken(s.load(&source(0, false)).err());
    assert!(catch_unwind(AssertUnwindSafe(|| open(source(0, true)))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| s.load(&source(0, true)))).is_err());
    let buffered = ModelOptions {
        io: Io::Buffered,
        map_weights: true,
        skip_checksums: true,
        ..Default::default()
    };
    let mapped = Model::open(&env(), stories_path(), &buffered).unwrap();
    let int8 = SessionOptions {
        kv: KvType::Int8,
        ..Default::default()
    };
    assert!(mapped.session(&int8).unwrap().complete(PROMPT, &tokens(4)).is_ok());
}
