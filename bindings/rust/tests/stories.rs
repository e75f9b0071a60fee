// SPDX-License-Identifier: MIT
//! The stories model of this repository generates the same text as the command.

mod common;

use common::*;
use moe::*;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

#[test]
fn tokenizes() {
    let model = stories();
    let tokenizer = model.tokenizer().unwrap();
    let ids = tokenizer.encode(PROMPT).unwrap();
    let how = EncodeText {
        no_special: true,
        ..Default::default()
    };
    assert_eq!(ids[1..], tokenizer.encode_with(PROMPT, how).unwrap());
    assert_eq!(ids[0], model.info().unwrap().bos_token);
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), PROMPT);
    let special = tokenizer.piece(ids[0]).unwrap();
    let how = EncodeText {
        no_special: true,
        parse_special: true,
    };
    assert_eq!(tokenizer.encode_with(&special, how).unwrap(), [ids[0]]);
    assert!(tokenizer
        .encode_with(
            &special,
            EncodeText {
                no_special: true,
                ..how
            }
        )
        .is_ok());
    assert_eq!(status(tokenizer.piece(1 << 20)), Status::Range);
    let long = PROMPT.repeat(500); // exceeds the initial size of every buffer
    assert_eq!(tokenizer.decode(&tokenizer.encode(&long).unwrap(), true).unwrap(), long);
}

#[test]
fn generates_what_the_command_does() {
    let model = stories();
    assert_eq!(session(&model).complete(PROMPT, &tokens(24)).unwrap(), STORY);
}

#[test]
fn streams_pieces() {
    let model = stories();
    let (mut text, mut n) = (String::new(), 0);
    let options = GenerateOptions {
        n_top: 2,
        ..tokens(24)
    };
    let result = session(&model).generate(&encode(&model, PROMPT), &options, |piece| {
        text.push_str(&piece.text);
        n += i32::from(piece.token.is_some());
        assert!(piece.logprob <= 0.0 && !piece.thinking);
        assert_eq!((piece.top.len(), Some(piece.top[0].token)), (2, piece.token));
        ControlFlow::Continue(())
    });
    let result = result.unwrap();
    assert_eq!((text.as_str(), n), (STORY, 24));
    assert_eq!((result.finish, result.n_prompt, result.n_generated), (Finish::Length, 5, 24));
    assert!(result.prompt_seconds > 0.0 && result.generate_seconds > 0.0);
}

#[test]
fn guesses_change_nothing_but_the_speed() {
    let model = stories();
    let prompt = encode(&model, PROMPT);
    let text = |max_draft| {
        let (mut text, mut n) = (String::new(), (0, 0));
        let options = GenerateOptions {
            max_draft,
            ..tokens(200)
        };
        let result = session(&model).generate(&prompt, &options, |piece| {
            text.push_str(&piece.text);
            ControlFlow::Continue(())
        });
        if let Ok(result) = result {
            n = (result.n_drafted, result.n_accepted);
        }
        (text, n)
    };
    let ((plain, none), (guessed, (n_drafted, n_accepted))) = (text(0), text(8));
    assert_eq!((plain, none), (guessed, (0, 0)));
    assert!(n_drafted > 0 && (0..=n_drafted).contains(&n_accepted));
}

#[test]
fn ends_as_told() {
    let model = stories();
    let prompt = encode(&model, PROMPT);
    let stopped = session(&model).generate(&prompt, &tokens(24), |_| ControlFlow::Break(()));
    assert_eq!(stopped.map(|r| (r.finish, r.n_generated)), Ok((Finish::Callback, 1)));
    let options = GenerateOptions {
        stop: &[" house"],
        ..tokens(24)
    };
    let mut text = String::new();
    let result = session(&model).generate(&prompt, &options, |piece| {
        text.push_str(&piece.text);
        ControlFlow::Continue(())
    });
    assert_eq!(result.unwrap().finish, Finish::Stop);
    assert_eq!(text, ", a quiet girl called Clara lived in a stone");
    let fox = encode(&model, "The fox was very");
    let result = session(&model).generate(&fox, &GenerateOptions::default(), all).unwrap();
    assert_eq!((result.finish, result.n_generated), (Finish::Eos, 10));
    let options = GenerateOptions {
        ignore_eos: true,
        ..tokens(12)
    };
    assert_eq!(session(&model).generate(&fox, &options, all).unwrap().finish, Finish::Length);
    let small = SessionOptions {
        context: 8,
        ..Default::default()
    };
    let result = model.session(&small).unwrap().generate(&prompt, &GenerateOptions::default(), all);
    assert_eq!(result.unwrap().finish, Finish::Context);
}

#[test]
fn is_cancelled_from_another_thread_or_the_callback() {
    let model = stories();
    let mut s = session(&model);
    let canceller = s.canceller();
    canceller.cancel(); // no call is in progress: no effect
    let options = GenerateOptions {
        ignore_eos: true,
        ..Default::default()
    };
    let result = s.generate(&encode(&model, PROMPT), &options, |_| {
        let c = canceller.clone();
        std::thread::spawn(move || c.cancel()).join().unwrap();
        ControlFlow::Continue(())
    });
    assert_eq!(status(result), Status::Cancelled);
    let position = s.position();
    assert!(position >= 5);
    drop(s);
    canceller.cancel(); // it keeps the session's memory allocated
}

#[test]
fn a_panic_comes_out_of_the_call() {
    let model = stories();
    let prompt = encode(&model, PROMPT);
    let mut s = session(&model);
    let call = || s.generate(&prompt, &tokens(8), |_| panic!("enough"));
    let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"enough"));
    s.rewind(0).unwrap();
    assert_eq!(s.complete(PROMPT, &tokens(24)).unwrap(), STORY);
    s.watch_routing(|_| panic!("watched")).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| s.append(&prompt[1..]))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"watched"));
    s.unwatch_routing().unwrap();
    assert!(s.append(&prompt[1..]).is_ok());
}

#[test]
fn samples() {
    let model = stories();
    let mut s = session(&model);
    assert_eq!(status(s.sample(&Sampling::default(), 0)), Status::State);
    s.append(&encode(&model, "The fox was very")).unwrap();
    let greedy = s.sample(&Sampling::default(), 3).unwrap();
    assert_eq!((greedy.top.len(), greedy.top[0].token), (3, greedy.token));
    assert_eq!(greedy.top[0].logprob, greedy.logprob);
    let ban = LogitBias {
        token: greedy.token,
        bias: f32::NEG_INFINITY,
    };
    let second = s
        .sample(
            &Sampling {
                bias: vec![ban],
                ..Default::default()
            },
            0,
        )
        .unwrap();
    assert_eq!(second.token, greedy.top[1].token);
    let warm = |seed| Sampling {
        temperature: 2.0,
        seed,
        ..Default::default()
    };
    let draw = |s: &mut Session, seed| s.sample(&warm(seed), 0).unwrap().token;
    assert_eq!(draw(&mut s, 1), draw(&mut s, 1));
    assert!((2..20).any(|seed| draw(&mut s, seed) != draw(&mut s, 1)));
    assert_eq!(
        status(s.sample(
            &Sampling {
                temperature: -1.0,
                ..warm(1)
            },
            0
        )),
        Status::Range
    );
}

#[test]
fn evaluates() {
    let model = stories();
    let ids = encode(&model, "The fox was very");
    let vocab = model.info().unwrap().vocab_size as usize;
    let (mut whole, mut parts) = (session(&model), session(&model));
    let rows = whole.eval_all(&ids).unwrap();
    assert_eq!(rows.len(), ids.len() * vocab);
    parts.append(&ids[..2]).unwrap();
    assert_eq!(parts.eval(&ids[2..]).unwrap(), rows[rows.len() - vocab..]);
    assert_eq!((whole.position(), parts.position()), (6, 6));
    parts.rewind(2).unwrap();
    let stepped =
        Session::step(&mut [&mut parts, &mut session(&model)], &[ids[2], ids[0]]).unwrap();
    assert_eq!(stepped[..vocab], rows[2 * vocab..3 * vocab]);
    assert_eq!(stepped[vocab..], rows[..vocab]);
    assert_eq!(status(Session::step(&mut [&mut parts], &[1, 2])), Status::Argument);
    let mut other = session(&model);
    let pieces =
        Session::eval_each(&mut [&mut parts, &mut other], &[&ids[3..4], &ids[..3]]).unwrap();
    assert_eq!(pieces[..vocab], rows[3 * vocab..4 * vocab]);
    assert_eq!(pieces[vocab..], rows[2 * vocab..3 * vocab]);
    assert_eq!((parts.position(), other.position()), (4, 3));
    assert_eq!(status(Session::eval_each(&mut [&mut parts], &[])), Status::Argument);
    assert_eq!(status(Session::eval_each(&mut [&mut parts], &[&[]])), Status::Argument);
    assert_eq!(status(whole.eval(&[1 << 20])), Status::Range);
    assert_eq!(status(whole.rewind(99)), Status::Range);
    assert_eq!(status(whole.append(&vec![5; 1 << 20])), Status::TooLong);
    let many = vec![0; 1 << 26]; // the memory for their results would end the process
    assert_eq!(status(whole.eval_all(&many)), Status::TooLong);
    let hidden = EncodeOptions {
        hidden: true,
        ..Default::default()
    };
    assert_eq!(status(whole.encode(&many, &hidden)), Status::TooLong);
    let outputs = EncodeOptions {
        outputs: true,
        ..Default::default()
    };
    assert_eq!(status(whole.encode(&ids, &outputs)), Status::Unsupported);
}

#[test]
fn scores() {
    let model = stories();
    let ids = encode(&model, "The fox was very");
    let vocab = model.info().unwrap().vocab_size as usize;
    let rows = session(&model).eval_all(&ids).unwrap();
    let logprob = |i: usize| {
        let row = &rows[(i - 1) * vocab..i * vocab];
        let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
        f64::from(row[ids[i] as usize]) - sum.ln()
    };
    let mut s = session(&model);
    let mut scores = s.score(&ids[..3]).unwrap();
    assert_eq!(scores.len(), 2); // the first token is not scored
    scores.extend(s.score(&ids[3..]).unwrap());
    for (i, score) in scores.iter().enumerate() {
        assert!((f64::from(*score) - logprob(i + 1)).abs() < 1e-4, "{i}: {score}");
    }
    assert_eq!((scores.len(), s.position()), (ids.len() - 1, ids.len() as i32));
    assert_eq!(status(s.score(&[-1])), Status::Range);
}

#[test]
fn embeds_with_a_decoder() {
    let model = stories();
    let (mut s, ids) = (session(&model), encode(&model, PROMPT));
    let d = model.info().unwrap().d_model as usize;
    let options = EncodeOptions {
        hidden: true,
        ..Default::default()
    };
    let hidden = s.encode(&ids, &options).unwrap().hidden;
    assert_eq!(s.embed(PROMPT, Pooling::Last).unwrap(), hidden[hidden.len() - d..]);
    assert_eq!(s.embed(PROMPT, Pooling::First).unwrap(), hidden[..d]);
    assert_eq!(status(s.embed("", Pooling::First)), Status::Argument);
    assert_eq!(s.position(), 0);
}

#[test]
fn changes_logits() {
    let model = stories();
    let prompt = encode(&model, PROMPT);
    let (mut s, mut seen, mut made) = (session(&model), Vec::new(), Vec::new());
    let ban = |text: &[i32], logits: &mut [f32]| {
        seen.push(text.len());
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        logits[best] = f32::NEG_INFINITY;
        ControlFlow::Continue(())
    };
    let collect = |piece: &Piece<'_>| {
        made.push(piece.token);
        ControlFlow::Continue(())
    };
    s.generate_with_logits(&prompt, &tokens(3), ban, collect).unwrap();
    assert_eq!(seen, [5, 6, 7]);
    s.rewind(0).unwrap();
    s.append(&prompt).unwrap();
    let second = s.sample(&Sampling::default(), 2).unwrap().top[1].token;
    assert_eq!(made[0], Some(second));
    let stop = |_: &[i32], _: &mut [f32]| ControlFlow::Break(());
    let result = s.generate_with_logits(&[], &tokens(3), stop, all).unwrap();
    assert_eq!((result.finish, result.n_generated), (Finish::Callback, 0));
    let call = || s.generate_with_logits(&[], &tokens(3), |_, _| panic!("no"), all);
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    let options = ChatOptions {
        chat_template: Some("plain"),
        ..Default::default()
    };
    let mut chat = Chat::new(s, &options).unwrap();
    chat.add("user", PROMPT).unwrap();
    let mut n = 0;
    let count = |_: &[i32], _: &mut [f32]| {
        n += 1;
        ControlFlow::Continue(())
    };
    chat.reply_with_logits(&tokens(4), count, all).unwrap();
    assert_eq!(n, 4);
}

/// Accepts so many bytes, then fails.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(std::io::Error::new(std::io::ErrorKind::Other, "the disk is full"));
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn saves_loads_and_forks() {
    let model = stories();
    let mut s = session(&model);
    let begun = s.complete(PROMPT, &tokens(8)).unwrap();
    let rest = |s: &mut Session| begun.clone() + &s.complete("", &tokens(16)).unwrap();
    let mut saved = Vec::new();
    s.save(&mut saved).unwrap();
    let mut other = session(&model);
    other.load(&saved).unwrap();
    let mut fork = s.fork().unwrap();
    assert_eq!(rest(&mut s), STORY);
    drop(s);
    assert_eq!(rest(&mut fork), STORY);
    assert_eq!(rest(&mut other), STORY);

    let path = std::env::temp_dir().join(format!("moe-rust-{}.session", std::process::id()));
    fork.rewind(6).unwrap();
    fork.save(std::fs::File::create(&path).unwrap()).unwrap();
    other.load(&std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(other.position(), 6);
    let mode = || std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap()) & 0o777;
    let private: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, private).unwrap();
    other.copy(&mut fork, 3).unwrap();
    assert_eq!(other.position(), 3);
    assert!(other.copy(&mut fork, -1).is_err());
    fork.rewind(5).unwrap();
    fork.save_file(&path).unwrap();
    assert_eq!(mode(), 0o600);
    other.load(&std::fs::File::open(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(other.position(), 5);
    assert_eq!(status(other.save_file(std::env::temp_dir())), Status::Io);

    let error = other.save(Full(100)).unwrap_err();
    assert_eq!((error.status(), error.text()), (Status::Io, "the disk is full"));
    let buffered = std::io::BufWriter::with_capacity(2 * saved.len(), Full(100));
    let error = other.save(buffered).unwrap_err(); // of its flush alone
    assert_eq!((error.status(), error.text()), (Status::Io, "the disk is full"));
    assert_eq!(status(other.load(&saved[..saved.len() - 1].to_vec())), Status::Format);
    let last = saved.len() - 1;
    saved[last] ^= 1;
    assert_eq!(status(other.load(&saved)), Status::Corrupt);
    assert_eq!(status(other.load(&Vec::new())), Status::Format);
}

#[test]
fn measures_perplexity() {
    let model = stories();
    let how = EncodeText {
        no_special: true,
        ..Default::default()
    };
    let ids = model.tokenizer().unwrap().encode_with(&format!("{PROMPT}{STORY}"), how).unwrap();
    let mut s = model
        .session(&SessionOptions {
            context: 16,
            ..Default::default()
        })
        .unwrap();
    let mut windows = 0;
    let measured = s.perplexity(&ids, |done, total| {
        assert!(done <= total);
        windows += 1;
        ControlFlow::Continue(())
    });
    let measured = measured.unwrap();
    assert!(measured.perplexity > 1.0 && measured.perplexity < 20.0 && windows > 1);
    assert!((measured.mean_nll.exp() - measured.perplexity).abs() < 1e-9 && measured.n_scored > 20);
    assert_eq!(status(s.perplexity(&ids, |_, _| ControlFlow::Break(()))), Status::Cancelled);
}

#[test]
fn counts_and_watches_routing() {
    let model = stories();
    let ids = encode(&model, PROMPT);
    let mut s = session(&model);
    assert_eq!(status(s.routing(0)), Status::State);
    assert_eq!(status(s.activations(0)), Status::State);
    s.count_routing(true).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    s.watch_routing(move |c| {
        assert_eq!((c.counts.len(), c.experts.len()), (c.n_tokens, c.n_tokens * c.n_slots));
        assert_eq!((c.weights.len(), c.position), (c.experts.len(), 0));
        assert_eq!((c.hidden.len(), c.scores.len()), (c.n_tokens * 96, c.n_tokens * 16));
        assert!(c.scores[..16].iter().all(|&s| s <= c.scores[c.experts[0] as usize]));
        c.experts[0] = if c.layer == 0 { 7 } else { c.experts[0] }; // append() fails if a token has 7 twice
        kept.lock().unwrap().push((c.layer, c.experts[0]));
    })
    .unwrap();
    let _ = s.append(&ids);
    s.unwatch_routing().unwrap();
    assert_eq!(seen.lock().unwrap()[0], (0, 7));
    s.rewind(0).unwrap();
    s.count_routing(true).unwrap();
    s.append(&ids).unwrap();
    let stats = s.routing(0).unwrap();
    let info = model.layer_info(0).unwrap();
    assert_eq!(stats.n_tokens, ids.len() as u64 * info.n_subheads as u64);
    assert_eq!((stats.n_experts, stats.tokens_per_expert.len()), (info.n_experts, 16));
    assert_eq!(stats.experts_per_token.iter().sum::<u64>(), stats.n_tokens);
    let inner = s.activations(0).unwrap();
    assert_eq!((inner.n_activations, inner.n_positive), (stats.n_activations, stats.n_positive));
    assert!(inner.n_positive > 0 && inner.n_positive < inner.n_activations);
    assert_eq!(status(s.activations(4)), Status::Range);
    s.set_router(Some("topk:1")).unwrap();
    s.set_router(None).unwrap();
    assert_eq!(status(s.set_router(Some("topk:no"))), Status::Argument);
}

#[test]
fn describes_a_model() {
    let model = stories();
    let info = model.info().unwrap();
    assert_eq!((info.vocab_size, info.head.as_str(), info.is_encoder), (1536, "tokens", false));
    assert!(info.n_active_parameters < info.n_parameters && !info.eos_tokens.is_empty());
    let layer = model.layer_info(0).unwrap();
    assert!(layer.n_subheads > 1);
    assert_eq!((layer.router.as_str(), layer.kind.as_str(), layer.k), ("topk:2", "topk", 2));
    assert_eq!((layer.weights.as_str(), layer.gate.as_str()), ("raw", ""));
    assert_eq!(status(model.layer_info(99)), Status::Range);
    let tensors = model.tensors().unwrap();
    assert!(tensors.iter().any(|t| t.part == "experts" && t.format == "ternary2"));
    let memory = model.memory(&SessionOptions::default()).unwrap();
    let plan = model.memory_plan(&SessionOptions::default(), 1).unwrap();
    assert_eq!(memory.iter().map(|l| l.bytes).sum::<u64>(), plan.needed_bytes);
    assert!(memory.iter().any(|l| l.what == "expert weights"));
    assert_eq!(model.suggest_memory(&SessionOptions::default(), 16), Ok(0));
    assert!(memory_info().unwrap().available_bytes > 0);
    model.verify().unwrap();
    assert_eq!(model.chat_template(), None);
    assert_eq!(version(), "0.1.0");
    for (names, one) in [
        (isas(), "scalar"),
        (weight_formats(), "ternary2"),
        (router_kinds(), "topk"),
        (chat_template_names(), "chatml"),
    ] {
        assert!(names.contains(&one), "{names:?}");
    }
}

#[test]
fn runs_under_a_cap() {
    let options = ModelOptions {
        memory_bytes: 3_400_000,
        ..Default::default()
    };
    let options = ModelOptions {
        session: SessionOptions {
            context: 128,
            ..options.session
        },
        ..options
    };
    let model = Model::open(&env(), stories_path(), &options).unwrap();
    let mut s = model.session(&options.session).unwrap();
    assert_eq!(s.complete(PROMPT, &tokens(24)).unwrap(), STORY);
    let stats = s.memory_stats().unwrap();
    assert_eq!(stats.cap_bytes, 3_400_000);
    assert!(stats.session.n_uses > 0 && stats.peak_bytes <= stats.cap_bytes);
    let error = Model::open(
        &env(),
        stories_path(),
        &ModelOptions {
            memory_bytes: 9,
            ..options
        },
    )
    .err();
    assert_eq!(error.unwrap().status(), Status::Budget);
}

#[test]
fn talks() {
    let model = stories();
    let options = ChatOptions {
        chat_template: Some("chatml"),
        system: Some("You are a fox."),
        ..Default::default()
    };
    let mut chat = Chat::new(session(&model), &options).unwrap();
    chat.add("user", "Which way?").unwrap();
    let text = chat.render(true).unwrap();
    assert!(text.contains("You are a fox.") && text.ends_with("<|im_start|>assistant\n"));
    assert_eq!(chat.tokens(true).unwrap().len(), 68);
    let mut reply = String::new();
    let result = chat.reply(&tokens(8), |piece| {
        reply.push_str(&piece.text);
        ControlFlow::Continue(())
    });
    let result = result.unwrap();
    assert_eq!((reply.as_str(), result.n_prompt), ("\nThere was once a boy named Jack", 68));
    let messages = chat.messages().unwrap();
    assert_eq!((messages.len(), messages[1].role.as_str()), (2, "assistant"));
    assert_eq!(messages[1].content.trim(), reply.trim());
    let n = chat.tokens(true).unwrap().len();
    assert_eq!(chat.remove_oldest(n).unwrap(), 0);
    assert_eq!(chat.remove_oldest(4).unwrap_err().status(), Status::TooLong);
    let (sampling, in_file) = model.sampling().unwrap();
    assert_eq!((sampling.temperature, sampling.top_p, in_file), (0.8, 0.95, false));
    chat.truncate(1).unwrap();
    chat.set_system(None).unwrap();
    assert!(!chat.render(false).unwrap().contains("fox"));
    let mut other = session(&model);
    chat.swap_session(&mut other).unwrap();
    assert!(other.position() > 0 && chat.session().position() == 0);
    drop(other);
    assert_eq!(chat.reply(&tokens(4), all).unwrap().n_reused, 0);
    let before = chat.messages().unwrap();
    let quit = |_: &Piece<'_>| panic!("no");
    let ban = |_: &[i32], _: &mut [f32]| panic!("no");
    for max_tokens in [1, 8] {
        let call = || chat.reply(&tokens(max_tokens), quit);
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        let call = || chat.reply_with_logits(&tokens(max_tokens), ban, all);
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        assert_eq!(chat.messages().unwrap(), before);
    }
    let canceller = chat.canceller();
    let result = chat.reply(
        &GenerateOptions {
            ignore_eos: true,
            ..tokens(0)
        },
        |_| {
            canceller.cancel();
            ControlFlow::Continue(())
        },
    );
    assert_eq!(status(result), Status::Cancelled);
    let mut back = chat.into_session();
    back.rewind(0).unwrap();
    assert_eq!(back.complete(PROMPT, &tokens(24)).unwrap(), STORY);
    assert_eq!(status(Chat::new(back, &ChatOptions::default())), Status::NotFound);
}

#[test]
#[ignore = "needs a model that bindings/test.sh converts"]
fn thinks_before_it_answers() {
    let model = converted("script.moe");
    assert!(model.chat_template().is_some());
    let mut chat = Chat::new(session(&model), &ChatOptions::default()).unwrap();
    chat.add("user", "Hello").unwrap();
    let (mut thought, mut answer) = (String::new(), String::new());
    let result = chat.reply(&GenerateOptions::default(), |piece| {
        if piece.thinking { &mut thought } else { &mut answer }.push_str(&piece.text);
        ControlFlow::Continue(())
    });
    assert_eq!((thought.as_str(), answer.as_str()), ("ab", "Yes."));
    assert_eq!(result.unwrap().n_thinking, 4);
    assert_eq!(chat.messages().unwrap()[1].thinking, "ab");
    let no_thinking = ChatOptions {
        thinking: Thinking::Off,
        ..Default::default()
    };
    assert!(Chat::new(session(&model), &no_thinking).is_ok());
}

#[test]
#[ignore = "needs a model that bindings/test.sh converts"]
fn encodes_with_an_encoder() {
    let model = converted("encoder.moe");
    let info = model.info().unwrap();
    assert!(info.is_encoder && info.mask_token >= 0);
    let (mut s, ids) = (session(&model), encode(&model, "the cat"));
    let options = EncodeOptions {
        hidden: true,
        pooling: Some(Pooling::Mean),
        outputs: true,
        ..Default::default()
    };
    let whole = s.encode(&ids, &options).unwrap();
    let (n, d, v) = (ids.len(), info.d_model as usize, info.n_outputs as usize);
    assert_eq!((whole.hidden.len(), whole.pooled.len(), whole.outputs.len()), (n * d, d, n * v));
    let mean = |c| (0..n).map(|r| whole.hidden[r * d + c]).sum::<f32>() / n as f32;
    assert!((0..d).all(|c| (mean(c) - whole.pooled[c]).abs() < 1e-5));
    let some = EncodeOptions {
        outputs: true,
        rows: Some(&[1]),
        ..Default::default()
    };
    let some = s.encode(&ids, &some).unwrap();
    assert_eq!((some.outputs.as_slice(), some.hidden.len()), (&whole.outputs[v..2 * v], 0));
    assert_eq!(s.embed("the cat", Pooling::Mean).unwrap(), whole.pooled);
    assert_eq!(s.embed("the cat", Pooling::Default).unwrap(), whole.pooled);
    assert_eq!((info.pooling.as_str(), info.normalized, info.default_prompt), ("", false, None));
    assert!(model.prompts().unwrap().is_empty());
    let unit = EncodeOptions {
        pooling: Some(Pooling::Mean),
        normalize: Normalize::On,
        ..Default::default()
    };
    let unit = s.encode(&ids, &unit).unwrap().pooled;
    assert!((unit.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
    assert_eq!(s.embed("the cat", Pooling::First).unwrap(), whole.hidden[..d]);
    assert_eq!(status(s.encode(&[], &options)), Status::Range);
    assert_eq!(status(s.eval(&ids)), Status::Unsupported);
}

#[test]
#[ignore = "needs a model that bindings/test.sh converts"]
fn translates_with_an_encoder_decoder() {
    let model = converted("translator.moe");
    let info = model.info().unwrap();
    assert!(info.is_encoder_decoder && info.n_encoder_layers == 2 && info.source_length == 48);
    assert_eq!(model.layer_info(3).unwrap().n_cross_heads, 4);
    let options = SessionOptions {
        max_beam: 3,
        kv: KvType::F32,
        ..Default::default()
    };
    let mut s = model.session(&options).unwrap();
    let source = encode(&model, "the cat");
    let wanted = TranslateOptions {
        n_best: 3,
        max_tokens: 6,
        stop: BeamStop::Step,
        ..Default::default()
    };
    let mut steps = 0;
    let found = s.translate(&source, &wanted, |_, most| {
        assert_eq!(most, 6);
        steps += 1;
        ControlFlow::Continue(())
    });
    let found = found.unwrap();
    assert!(found.len() == 3 && steps > 0);
    assert!(found[0].score >= found[1].score && found[1].score >= found[2].score);
    assert!(found.iter().all(|t| t.tokens[0] == 4 && t.tokens.last() == Some(&2)));
    let go_on = |_, _| ControlFlow::Continue(());
    assert_eq!(s.translate(&source, &wanted, go_on).unwrap(), found);
    let stopped = s.translate(&source, &wanted, |_, _| ControlFlow::Break(()));
    assert_eq!(status(stopped), Status::Cancelled);
    let wide = TranslateOptions {
        beam: 4,
        ..Default::default()
    };
    assert_eq!(status(s.translate(&source, &wide, go_on)), Status::Range);
    assert_eq!(status(s.read_source(&vec![0; 1 << 26])), Status::TooLong);
    let hidden = s.read_source(&source).unwrap();
    assert_eq!(hidden.len(), source.len() * info.d_model as usize);
    assert_eq!(s.eval(&[info.start_token]).unwrap().len(), info.vocab_size as usize);
}
