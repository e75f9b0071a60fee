// SPDX-License-Identifier: MIT
//! Calls of tools in the JSON of the library, whose form is known, and results for them.

use std::fmt::Write;

/// A call of a tool in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// A JSON object.
    pub arguments: String,
}

impl ToolCall {
    /// Reads `{"id": "...", "name": "...", "arguments": {...}}`, in this order.
    pub(crate) fn parse(json: &str) -> Option<ToolCall> {
        let (id, rest) = string(json.strip_prefix(r#"{"id": "#)?)?;
        let (name, rest) = string(rest.strip_prefix(r#", "name": "#)?)?;
        let arguments = rest.strip_prefix(r#", "arguments": "#)?.strip_suffix('}')?;
        Some(ToolCall {
            id,
            name,
            arguments: arguments.to_string(),
        })
    }
}

/// A JSON string at the beginning of `json`, and what is behind it.
fn string(json: &str) -> Option<(String, &str)> {
    let mut units = Vec::new();
    let mut rest = json.strip_prefix('"')?;
    loop {
        let c = rest.chars().next()?;
        rest = &rest[c.len_utf8()..];
        let c = match c {
            '"' => return Some((String::from_utf16_lossy(&units), rest)),
            '\\' => {
                let escape = rest.chars().next()?;
                rest = &rest[escape.len_utf8()..];
                match escape {
                    'u' => {
                        units.push(u16::from_str_radix(rest.get(..4)?, 16).ok()?);
                        rest = &rest[4..];
                        continue;
                    }
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    other => other,
                }
            }
            c => c,
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
}

/// The message that answers a call.
pub(crate) fn result(id: &str, content: &str) -> String {
    let mut json = String::from(r#"{"role": "tool", "tool_call_id": "#);
    write_string(&mut json, id);
    json.push_str(r#", "content": "#);
    write_string(&mut json, content);
    json.push('}');
    json
}

fn write_string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => write!(json, "\\u{:04x}", c as u32).expect("a String grows"),
            c => json.push(c),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read() {
        let json = r#"{"id": "a\"b", "name": "f\u00fc\ud83e\udd8a\n\\", "arguments": {"id": "}"}}"#;
        let call = ToolCall::parse(json).unwrap();
        assert_eq!((call.id.as_str(), call.name.as_str()), ("a\"b", "fü🦊\n\\"));
        assert_eq!(call.arguments, r#"{"id": "}"}"#);
        for cut in 0..json.len() - 1 {
            let whole = ToolCall::parse(&json[..cut]);
            assert!(whole.map_or(true, |c| c.arguments != call.arguments), "{cut}");
        }
        assert_eq!(ToolCall::parse(r#"{"id": "\u12"#), None);
    }

    #[test]
    fn results_are_escaped() {
        let json = result("a\"", "18 ° \\ \n\u{1f} 🦊");
        let expected =
            r#"{"role": "tool", "tool_call_id": "a\"", "content": "18 ° \\ \u000a\u001f 🦊"}"#;
        assert_eq!(json, expected);
    }
}
