// SPDX-License-Identifier: MIT
//! Answers, refusals and ends of a service's requests, against the command's text.

mod common;

use common::*;
use moe::service::*;
use moe::*;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WHOLE: &str = r#"{"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}"#;
const PARTS: &str =
    r#"{"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "stream": true}"#;
const LONG: &str =
    r#"{"prompt": "Once upon a time", "max_tokens": 500, "ignore_eos": true, "stream": true}"#;
// It takes seconds, so that on a busy machine too it has not ended when a test cancels it or closes the service.
const ENDLESS: &str =
    r#"{"prompt": "Once upon a time", "max_tokens": 500, "ignore_eos": true, "stream": true, "n": 30}"#;

fn service(params: ServiceParams) -> Service {
    Service::new(&stories(), params).unwrap()
}

fn submit(service: &Service, body: &str) -> Request {
    service.submit(Endpoint::Completions, body).unwrap()
}

fn answer(service: &Service, body: &str) -> ServiceEvent {
    submit(service, body).answer().unwrap()
}

/// The text of the first choice, whose characters here need no escapes.
fn text_of(event: &ServiceEvent) -> String {
    let rest = event.json.split(r#""text":""#).nth(1).unwrap_or("");
    rest.split('"').next().unwrap().to_string()
}

/// Waits for counts, which may follow the last event.
fn counted(service: &Service, good: impl Fn(&ServiceStats) -> bool) -> ServiceStats {
    for _ in 0..60_000 {
        let stats = service.stats().unwrap();
        if good(&stats) {
            return stats;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{:?}", service.stats());
}

#[test]
fn answers_are_what_the_model_says() {
    let service = service(ServiceParams::new());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let service = service.clone();
            std::thread::spawn(move || {
                let (whole, parts) = (submit(&service, WHOLE), submit(&service, PARTS));
                assert_eq!((whole.is_stream(), parts.is_stream()), (false, true));
                let events: Vec<_> = parts.collect();
                assert!(events.len() >= 24 && events.iter().all(|e| e.status == 200));
                assert_eq!(events.iter().filter(|e| e.last).count(), 1);
                assert_eq!(events.iter().map(text_of).collect::<String>(), STORY);
                let event = whole.answer().unwrap();
                assert_eq!(
                    (event.status, event.last, text_of(&event).as_str()),
                    (200, true, STORY)
                );
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let stats = counted(&service, |s| s.n_answered == 8);
    assert_eq!((stats.n_requests, stats.n_slots, stats.generated_tokens), (8, 8, 8 * 24));
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<(Service, RequestCanceller, ServiceEvent)>();
    moved::<Request>();
}

/// The readme's example.
fn tell(model: &Model) -> std::result::Result<Vec<ServiceEvent>, Box<dyn Error>> {
    // The readme has this.
    let mut events = Vec::new();
    let service = Service::new(model, ServiceParams::new().n_slots(4))?;
    let body =
        r#"{"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "stream": true}"#;
    for event in service.submit(Endpoint::Completions, body)? {
        println!("{} {}", event.status, event.json);
        events.push(event);
    }
    // The readme has no more.
    Ok(events)
}

#[test]
fn the_readme() {
    let events = tell(&stories()).unwrap();
    let text: String = events.iter().map(text_of).collect();
    assert!(events.len() >= 12 && !text.is_empty() && STORY.starts_with(&text), "{text}");
}

#[test]
fn endpoints() {
    let service = service(ServiceParams::new().chat_template("plain").name("tales"));
    let ask = |endpoint, body: &str| service.submit(endpoint, body).unwrap();
    let tokens = ask(Endpoint::Tokenize, r#"{"prompt": "Once upon a time"}"#).answer().unwrap();
    assert!(tokens.status == 200 && tokens.json.contains("703"));
    assert!(ask(Endpoint::Statistics, "").answer().unwrap().json.contains(r#""tales""#));
    let body =
        r#"{"messages": [{"role": "user", "content": "Once"}], "max_tokens": 1, "stream": true}"#;
    assert_eq!(ask(Endpoint::Chat, body).answer().unwrap().status, 200);
    let names: Vec<_> = ask(Endpoint::Messages, body).map(|e| e.name).collect();
    assert_eq!(
        (names[0].as_str(), names.last().unwrap().as_str()),
        ("message_start", "message_stop")
    );
}

#[test]
fn refusals() {
    let service = service(ServiceParams::new().n_slots(1).max_waiting(1));
    for body in [
        "",
        "{",
        r#"{"prompt": 5}"#,
        r#"{"prompt": "a", "temprature": 1}"#,
    ] {
        let request = submit(&service, body);
        assert!(!request.is_stream());
        let event = request.answer().unwrap();
        assert_eq!(event.status, 400);
        assert!(event.json.contains(r#""type":"invalid_request_error""#), "{}", event.json);
    }
    let bad = service.submit(Endpoint::Completions, b"{\"prompt\": \"\xff\"}").unwrap();
    assert_eq!(bad.answer().unwrap().status, 400);
    let mut first = submit(&service, LONG);
    let second = submit(&service, LONG);
    first.next().unwrap(); // the second waits now
    let third = answer(&service, WHOLE);
    assert_eq!((third.status, third.retry_after.is_zero()), (429, false));
    counted(&service, |s| s.n_refused == 6);
    drop((first, second));
    counted(&service, |s| s.n_cancelled == 2);
}

#[test]
fn requests_are_cancelled() {
    let service = service(ServiceParams::new());
    let mut request = submit(&service, ENDLESS);
    assert_eq!(request.next_within(Duration::from_secs(60)).unwrap().status, 200);
    let canceller = request.canceller();
    std::thread::spawn(move || canceller.cancel()).join().unwrap();
    let last = request.by_ref().last().unwrap();
    assert_eq!((last.status, last.last), (499, true));
    assert_eq!(request.next(), None);
    assert_eq!(request.next_within(Duration::ZERO), None);
    drop(submit(&service, ENDLESS));
    counted(&service, |s| s.n_cancelled == 2);
    assert_eq!(text_of(&answer(&service, WHOLE)), STORY);
}

#[test]
fn time_is_limited() {
    let session = SessionOptions {
        context: 500,
        ..Default::default()
    };
    let service = service(ServiceParams::new().max_seconds(1).n_slots(1).session(session));
    assert_eq!(service.stats().unwrap().context, 500);
    let body = r#"{"prompt": "Once", "max_tokens": 490, "ignore_eos": true, "n": 64}"#;
    assert_eq!(answer(&service, body).status, 504);
}

#[test]
fn draining() {
    let service = service(ServiceParams::new());
    let request = submit(&service, LONG);
    assert!(!service.drain(Some(Duration::ZERO)).unwrap());
    assert!(service.stats().unwrap().draining);
    assert_eq!(answer(&service, WHOLE).status, 503);
    assert!(service.drain(None).unwrap());
    assert_eq!(request.answer().unwrap().status, 200);
}

#[test]
fn close_ends_requests() {
    let service = service(ServiceParams::new());
    let mut request = submit(&service, ENDLESS);
    request.next().unwrap();
    let other = service.clone();
    let drained = std::thread::spawn(move || other.drain(None));
    counted(&service, |s| s.draining);
    service.close();
    // It may have seen the request end just before the service was freed.
    if let Err(error) = drained.join().unwrap() {
        assert_eq!(error.status(), Status::State);
    }
    let last = request.by_ref().last().unwrap();
    assert_eq!((last.status, last.last), (503, true));
    request.cancel();
    service.close();
    assert_eq!(status(service.stats()), Status::State);
    assert_eq!(status(service.drain(None)), Status::State);
    assert_eq!(status(service.submit(Endpoint::Completions, WHOLE)), Status::State);
}

#[test]
fn whatever_order_things_are_dropped_in() {
    let model = stories();
    let service = Service::new(&model, ServiceParams::new()).unwrap();
    drop(model);
    let (first, second) = (submit(&service, WHOLE), submit(&service, ENDLESS));
    let canceller = second.canceller();
    drop(service);
    assert_eq!(text_of(&first.answer().unwrap()), STORY);
    drop(second);
    canceller.cancel();
}

#[test]
fn settings_are_checked() {
    let model = stories();
    let refused = |params, expected| {
        assert_eq!(status(Service::new(&model, params)), expected);
    };
    refused(ServiceParams::new().n_slots(-1), Status::Range);
    refused(ServiceParams::new().max_waiting(-1), Status::Range);
    refused(ServiceParams::new().max_prompt(-1), Status::Range);
    refused(ServiceParams::new().slice(1 << 20), Status::Range);
    refused(ServiceParams::new().max_seconds(-1), Status::Range);
    refused(ServiceParams::new().draft(17), Status::Range);
    refused(ServiceParams::new().router("best:1"), Status::Argument);
    refused(ServiceParams::new().name("a\0b"), Status::Argument);
    refused(ServiceParams::new().cache("/dev/null/none", 0), Status::Io);
    let other = service(ServiceParams::new().router("topk:1").no_reuse(true).slice(4));
    assert_ne!(text_of(&answer(&other, WHOLE)), STORY); // one expert fewer
}

#[test]
fn receipts() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let params = ServiceParams::new().name("tales").receipt(move |line| {
        kept.lock().unwrap_or_else(|e| e.into_inner()).push(line.to_string());
        panic!("ends here");
    });
    let service = service(params);
    let count = || lines.lock().unwrap().len();
    assert_eq!(answer(&service, WHOLE).status, 200);
    assert_eq!(count(), 1); // it was there before the last event
    assert_eq!(answer(&service, "{").status, 400);
    assert_eq!(answer(&service, PARTS).status, 200);
    assert_eq!(count(), 2);
    for line in lines.lock().unwrap().iter() {
        assert!(line.contains(r#""model":"tales""#) && line.contains("/v1/completions"), "{line}");
    }
}
