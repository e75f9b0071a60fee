// SPDX-License-Identifier: MIT
//! A conversation over a session.

use crate::enums::{Finish, Thinking, ToolChoice};
use crate::env::made;
use crate::error::{call, Result};
use crate::generate::{with_params, GenerateOptions, Piece, NO_LOGITS};
use crate::session::{Canceller, Session};
use crate::sys;
use crate::text::{borrowed, c_string, filled, filled_text, int, sized, slice, Optional, Texts};
use crate::tools;
use std::ops::ControlFlow;
use std::os::raw::c_char;
use std::ptr::{self, NonNull};

/// Options of a [`Chat`]. The default: the model's own template.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatOptions<'a> {
    pub thinking: Thinking,
    /// A name of [`crate::chat_template_names`], or Jinja text.
    pub chat_template: Option<&'a str>,
    /// First message, with the role "system".
    pub system: Option<&'a str>,
    /// "NAME=VALUE" for the template.
    pub variables: &'a [&'a str],
    /// "YYYY-MM-DD" for templates that use it; `None`: today, UTC; "": no date.
    pub date: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub role: String,
    pub content: String,
    /// The thinking of a reply; "": none.
    pub thinking: String,
    /// A JSON object of other members, as `add_message` takes them: `tool_calls` of a reply,
    /// `tool_call_id` of a result; "": none.
    pub members: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChatResult {
    pub finish: Finish,
    /// Tokens of the conversation, up to the reply.
    pub n_prompt: i32,
    /// Tokens of the prompt that the session held already.
    pub n_reused: i32,
    pub n_generated: i32,
    /// Generated tokens that are thinking, its tags included.
    pub n_thinking: i32,
    pub prompt_seconds: f64,
    pub generate_seconds: f64,
    /// As in `GenerateResult`.
    pub n_drafted: i32,
    pub n_accepted: i32,
    /// In a chat with tools: calls in the reply.
    pub n_tool_calls: i32,
}

struct ChatHandle(NonNull<sys::moe_chat>);

impl Drop for ChatHandle {
    fn drop(&mut self) {
        unsafe { sys::moe_chat_free(self.0.as_ptr()) }
    }
}

/// Removes a reply that the library has appended, unless it is forgotten: for the library, a reply
/// whose callback panicked only ended early.
struct Unfinished {
    chat: *mut sys::moe_chat,
    n_before: usize,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // SAFETY: it exists during a reply of the chat.
        unsafe { sys::moe_chat_truncate(self.chat, self.n_before, ptr::null_mut()) };
    }
}

/// Owns its session; [`Chat::into_session`] returns it.
pub struct Chat {
    handle: ChatHandle, // freed before the session
    session: Session,
}

// SAFETY: the library lets one thread after the other use a chat.
unsafe impl Send for Chat {}

impl Chat {
    pub fn new(session: Session, options: &ChatOptions<'_>) -> Result<Chat> {
        let chat_template = Optional::new(options.chat_template, "chat_template")?;
        let (system, date) =
            (Optional::new(options.system, "system")?, Optional::new(options.date, "date")?);
        let variables = Texts::new(options.variables, "variables")?;
        let mut params = sized!(moe_chat_params);
        params.thinking = options.thinking.code();
        params.chat_template = chat_template.pointer();
        params.system = system.pointer();
        params.variables = variables.pointer();
        params.n_variables = int(options.variables.len(), "variables")?;
        params.date = date.pointer();
        let mut chat = ptr::null_mut();
        call(|e| unsafe { sys::moe_chat_create(session.pointer(), &params, &mut chat, e) })?;
        Ok(Chat {
            handle: ChatHandle(made(chat)?),
            session,
        })
    }

    fn pointer(&self) -> *mut sys::moe_chat {
        self.handle.0.as_ptr()
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn into_session(self) -> Session {
        let Chat { handle, session } = self;
        drop(handle);
        session
    }

    /// Continues in another session of the same model, which it swaps with the old one.
    pub fn swap_session(&mut self, session: &mut Session) -> Result<()> {
        call(|e| unsafe { sys::moe_chat_set_session(self.pointer(), session.pointer(), e) })?;
        std::mem::swap(&mut self.session, session);
        Ok(())
    }

    /// Ends a reply from any thread.
    pub fn canceller(&self) -> Canceller {
        self.session.canceller()
    }

    /// Appends a message.
    pub fn add(&mut self, role: &str, content: &str) -> Result<()> {
        let role = c_string(role, "role")?;
        let (text, n) = (content.as_ptr() as *const c_char, content.len());
        call(|e| unsafe { sys::moe_chat_add(self.pointer(), role.as_ptr(), text, n, e) })
    }

    /// Appends a message in JSON with calls of tools, or whatever else the template knows, as
    /// OpenAI's chat completions have them. The template gets all members.
    pub fn add_message(&mut self, json: &str) -> Result<()> {
        let (text, n) = (json.as_ptr() as *const c_char, json.len());
        call(|e| unsafe { sys::moe_chat_add_message(self.pointer(), text, n, e) })
    }

    /// Appends what the tool gave for a call. `id`: that of the [`crate::ToolCall`].
    pub fn add_tool_result(&mut self, id: &str, content: &str) -> Result<()> {
        self.add_message(&tools::result(id, content))
    }

    /// Gives the model tools that it may call, a JSON list as in OpenAI's chat completions:
    /// `[{"type": "function", "function": {"name": ..., "description": ..., "parameters": {a JSON
    /// schema}}}]`; an empty list: none. Calls in later replies are pieces with `tool_call`, and
    /// `members` of the reply's message. With `"strict": true` in a function, calls are held to a form
    /// while they are generated: the arguments satisfy its parameters. `Status::Unsupported` if the
    /// template has no tools, or asks for calls in no format that is known, or for a schema that
    /// arguments cannot be held to.
    pub fn set_tools(&mut self, json: &str) -> Result<()> {
        let (text, n) = (json.as_ptr() as *const c_char, json.len());
        call(|e| unsafe { sys::moe_chat_set_tools(self.pointer(), text, n, e) })
    }

    /// Chooses whether later replies call tools. `name`: of the tool, if a call is required; `None`:
    /// any. `Status::State` without tools.
    pub fn set_tool_choice(&mut self, choice: ToolChoice, name: Option<&str>) -> Result<()> {
        let (name, choice) = (Optional::new(name, "name")?, choice.code());
        call(|e| unsafe {
            sys::moe_chat_set_tool_choice(self.pointer(), choice, name.pointer(), e)
        })
    }

    /// The format in which the template asks for calls of tools, such as "hermes"; `None`: none that
    /// is known.
    pub fn tool_format(&self) -> Option<&'static str> {
        let format = unsafe { sys::moe_chat_tool_format(self.pointer()) };
        Some(unsafe { borrowed(format) }).filter(|name| !name.is_empty())
    }

    /// Removes all but the first messages. The system text remains.
    pub fn truncate(&mut self, n_messages: usize) -> Result<()> {
        call(|e| unsafe { sys::moe_chat_truncate(self.pointer(), n_messages, e) })
    }

    /// Removes the oldest turns, as few as possible, until the conversation with the beginning of a
    /// reply has at most `max_tokens` tokens; returns the number of messages. A turn is a message
    /// with the role "user" and those up to the next one. The system text, messages before the
    /// first turn and the last turn remain; `Status::TooLong` if these alone have more tokens.
    pub fn remove_oldest(&mut self, max_tokens: usize) -> Result<usize> {
        let mut n = 0;
        call(|e| unsafe { sys::moe_chat_remove_oldest(self.pointer(), max_tokens, &mut n, e) })?;
        Ok(n)
    }

    /// Replaces the system text.
    pub fn set_system(&mut self, system: Option<&str>) -> Result<()> {
        let system = Optional::new(system, "system")?;
        call(|e| unsafe { sys::moe_chat_set_system(self.pointer(), system.pointer(), e) })
    }

    /// The conversation, without the system text.
    pub fn messages(&self) -> Result<Vec<Message>> {
        let n = unsafe { sys::moe_chat_message_count(self.pointer()) };
        (0..n).map(|i| self.message(i)).collect()
    }

    fn message(&self, index: usize) -> Result<Message> {
        let mut m = sized!(moe_chat_message);
        call(|e| unsafe { sys::moe_chat_get_message(self.pointer(), index, &mut m, e) })?;
        let text = |data, n| {
            let bytes = unsafe { slice(data as *const u8, n) };
            String::from_utf8_lossy(bytes).into_owned()
        };
        Ok(Message {
            role: unsafe { borrowed(m.role) }.to_string(),
            content: text(m.content, m.n_bytes),
            thinking: text(m.thinking, m.n_thinking_bytes),
            members: unsafe { borrowed(m.members) }.to_string(),
        })
    }

    /// The conversation as the model reads it; `begin_reply`: with the start of the next reply.
    pub fn render(&self, begin_reply: bool) -> Result<String> {
        filled_text(|text, capacity, n, e| unsafe {
            sys::moe_chat_render(self.pointer(), begin_reply, text, capacity, n, e)
        })
    }

    /// The same as token ids.
    pub fn tokens(&self, begin_reply: bool) -> Result<Vec<i32>> {
        filled(256, 0, |tokens, capacity, n, e| unsafe {
            sys::moe_chat_tokens(self.pointer(), begin_reply, tokens, capacity, n, e)
        })
    }

    /// Generates the reply to the messages so far and appends it to them, unless it fails or a
    /// callback panics.
    pub fn reply<F>(&mut self, options: &GenerateOptions<'_>, callback: F) -> Result<ChatResult>
    where
        F: FnMut(&Piece<'_>) -> ControlFlow<()>,
    {
        self.reply_by(options, NO_LOGITS, callback)
    }

    /// [`Chat::reply`] with a logits callback, as in [`Session::generate_with_logits`].
    pub fn reply_with_logits<L, F>(
        &mut self,
        options: &GenerateOptions<'_>,
        logits: L,
        callback: F,
    ) -> Result<ChatResult>
    where
        L: FnMut(&[i32], &mut [f32]) -> ControlFlow<()>,
        F: FnMut(&Piece<'_>) -> ControlFlow<()>,
    {
        self.reply_by(options, Some(logits), callback)
    }

    fn reply_by<L, F>(
        &mut self,
        options: &GenerateOptions<'_>,
        logits: Option<L>,
        callback: F,
    ) -> Result<ChatResult>
    where
        L: FnMut(&[i32], &mut [f32]) -> ControlFlow<()>,
        F: FnMut(&Piece<'_>) -> ControlFlow<()>,
    {
        let (chat, mut out) = (self.pointer(), sized!(moe_chat_result));
        let n_before = unsafe { sys::moe_chat_message_count(chat) };
        let unfinished = Unfinished { chat, n_before };
        let result = with_params(options, logits, callback, |params| {
            call(|e| unsafe { sys::moe_chat_reply(chat, params, &mut out, e) })
        });
        self.session.go_on();
        result?;
        std::mem::forget(unfinished);
        Ok(ChatResult {
            finish: Finish::of(out.finish),
            n_prompt: out.n_prompt,
            n_reused: out.n_reused,
            n_generated: out.n_generated,
            n_thinking: out.n_thinking,
            prompt_seconds: out.prompt_seconds,
            generate_seconds: out.generate_seconds,
            n_drafted: out.n_drafted,
            n_accepted: out.n_accepted,
            n_tool_calls: out.n_tool_calls,
        })
    }
}
