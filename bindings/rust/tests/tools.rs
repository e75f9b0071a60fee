// SPDX-License-Identifier: MIT
//! Calls of tools in a chat, by a model whose replies are known.

mod common;

use common::*;
use moe::*;
use std::ops::ControlFlow;

/// The readme's example.
fn ask(chat: &mut Chat, mut answer: impl FnMut(&ToolCall) -> String) -> Result<String> {
    // The readme has this.
    chat.set_tools(
        r#"[{"type": "function", "function": {
            "name": "weather", "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]"#,
    )?;
    chat.add("user", "What is the weather in Zürich?")?;
    loop {
        let (mut text, mut calls) = (String::new(), Vec::new());
        chat.reply(&GenerateOptions::default(), |piece| {
            match &piece.tool_call {
                Some(call) => calls.push(call.clone()),
                None if !piece.thinking => text += &piece.text,
                None => (),
            }
            ControlFlow::Continue(())
        })?;
        if calls.is_empty() {
            return Ok(text);
        }
        for call in calls {
            chat.add_tool_result(&call.id, &answer(&call))?;
        }
    }
    // The readme has no more.
}

fn chat() -> Chat {
    Chat::new(session(&converted("tools.moe")), &ChatOptions::default()).unwrap()
}

#[test]
#[ignore = "needs a model that bindings/test.sh converts"]
fn the_readme() {
    let mut chat = chat();
    assert_eq!(chat.tool_format(), Some("hermes"));
    let mut asked = Vec::new();
    let text = ask(&mut chat, |call| {
        asked.push(call.clone());
        "18 \"degrees\"".to_string()
    });
    assert_eq!(text.unwrap(), "Yes.");
    let calls: Vec<_> = asked.iter().map(|c| (c.name.as_str(), c.arguments.as_str())).collect();
    assert_eq!(
        calls,
        [
            ("weather", r#"{"city": "Zürich", "days": 2}"#),
            ("clock", "{}")
        ]
    );
    let messages = chat.messages().unwrap();
    assert_eq!((messages.len(), messages[1].content.as_str()), (5, "Ok!"));
    assert!(asked.iter().all(|call| messages[1].members.contains(&call.id)));
    assert_eq!(messages[3].members, format!(r#"{{"tool_call_id": "{}", "name": "clock"}}"#, asked[1].id));
    let text = chat.render(false).unwrap();
    assert!(text.contains("<tool_response>\n18 \"degrees\"\n</tool_response>"), "{text}");
    assert_eq!(status(chat.add_message(r#"{"role": "tool", "content": 5}"#)), Status::Argument);
}

#[test]
#[ignore = "needs a model that bindings/test.sh converts"]
fn a_call_is_required() {
    let mut chat = chat();
    assert_eq!(status(chat.set_tool_choice(ToolChoice::One, None)), Status::State);
    let tools = r#"[{"type": "function", "function": {"name": "weather"}},
        {"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object",
         "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": false}}}]"#;
    chat.set_tools(tools).unwrap();
    chat.set_tool_choice(ToolChoice::One, Some("f")).unwrap();
    chat.add("user", "Weather?").unwrap();
    let (mut text, mut calls) = (String::new(), Vec::new());
    let result = chat.reply(&GenerateOptions::default(), |piece| {
        text += &piece.text;
        calls.extend(piece.tool_call.clone());
        ControlFlow::Continue(())
    });
    assert_eq!((result.unwrap().n_tool_calls, text.as_str()), (1, ""));
    let arguments: String = calls[0].arguments.split_whitespace().collect();
    assert_eq!(calls[0].name, "f");
    assert!([r#"{"yes":true}"#, r#"{"yes":false}"#].contains(&arguments.as_str()), "{arguments}");
    assert_eq!(status(chat.set_tool_choice(ToolChoice::One, Some("g"))), Status::Argument);
    let unknown = tools.replace(r#""additionalProperties": false"#, r#""unevaluatedItems": true"#);
    assert_eq!(status(chat.set_tools(&unknown)), Status::Unsupported);
    chat.set_tool_choice(ToolChoice::Auto, None).unwrap();
    chat.set_tools("[]").unwrap();
}

#[test]
fn a_template_without_tools() {
    let options = ChatOptions {
        chat_template: Some("plain"),
        ..Default::default()
    };
    let mut chat = Chat::new(session(&stories()), &options).unwrap();
    assert_eq!(chat.tool_format(), None);
    let tools = r#"[{"type": "function", "function": {"name": "f"}}]"#;
    assert_eq!(status(chat.set_tools(tools)), Status::Unsupported);
}
