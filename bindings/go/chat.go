// SPDX-License-Identifier: MIT

// Chat: conversations in a session, over moe_chat_*.

package moe

// #include <moe_c.h>
import "C"

import (
	"context"
	"unsafe"
)

// ChatOptions are the options of a Chat.
type ChatOptions struct {
	Thinking  Thinking
	Template  string   // one of ChatTemplateNames, or Jinja text; "": the model's own
	System    string   // text in front of the conversation; "": none
	Variables []string // "NAME=VALUE" for the template
	Date      string   // "YYYY-MM-DD" for templates that ask; "": today, UTC
	NoDate    bool     // there is none
}

// Message of a conversation.
type Message struct {
	Role, Content string
	Thinking      string // of a reply; "": none
	Members       string // a JSON object of others, as AddMessage takes them: "tool_calls" of a reply ...; "": none
}

// ChatResult describes a reply.
type ChatResult struct {
	Finish                         Finish
	NPrompt                        int // tokens of the conversation, up to the reply
	NReused                        int // of these, held by the session already
	NGenerated                     int
	NThinking                      int // of these, thinking and its tags
	PromptSeconds, GenerateSeconds float64
	NDrafted, NAccepted            int // as in GenerateResult
	NToolCalls                     int // in a chat with tools: calls in the reply
}

// Chat is a conversation in a session, which it references; several chats may share one.
type Chat struct {
	h       *handle
	one     single
	session *Session
}

// Chat starts a conversation in the session.
func (s *Session) Chat(o ChatOptions) (*Chat, error) {
	var a arena
	defer a.free()
	var params C.moe_chat_params
	params.struct_size = C.uint32_t(C.sizeof_moe_chat_params)
	params.thinking = C.moe_thinking(o.Thinking)
	err := a.texts(option{&params.chat_template, o.Template, "Template"}, option{&params.system, o.System, "System"},
		option{&params.date, o.Date, "Date"})
	if err != nil {
		return nil, err
	}
	if params.variables, params.n_variables, err = a.list(o.Variables, "Variables"); err != nil {
		return nil, err
	}
	if o.NoDate {
		params.date, _ = a.given("", "Date")
	}
	c := &Chat{session: s}
	err = s.run(context.Background(), func(p *C.moe_session, e *C.moe_error) C.moe_status {
		var chat *C.moe_chat
		status := C.moe_chat_create(p, &params, &chat, e)
		if status == C.MOE_OK {
			free := func(p unsafe.Pointer) { C.moe_chat_free((*C.moe_chat)(p)) }
			c.h = newHandle("chat", unsafe.Pointer(chat), s.h, free)
		}
		return status
	})
	if err != nil {
		return nil, err
	}
	return collected(c), nil
}

// Close frees the memory; the session remains open.
func (c *Chat) Close() { c.h.close() }

// use locks the chat and its session, which may be closed: the chat references what it needs.
func (c *Chat) use() (*C.moe_chat, func(), error) {
	p, err := c.h.acquire()
	if err != nil {
		return nil, nil, err
	}
	if err := c.one.enter("chat"); err != nil {
		c.h.release()
		return nil, nil, err
	}
	one := c.session.one
	if err := one.enter("session"); err != nil {
		c.one.leave()
		c.h.release()
		return nil, nil, err
	}
	return (*C.moe_chat)(p), func() { one.leave(); c.one.leave(); c.h.release() }, nil
}

func (c *Chat) run(call func(chat *C.moe_chat, e *C.moe_error) C.moe_status) error {
	p, release, err := c.use()
	if err != nil {
		return err
	}
	defer release()
	var e C.moe_error
	return check(call(p, &e), &e)
}

// SetSession continues in another session of the same model.
func (c *Chat) SetSession(s *Session) error {
	p, release, err := c.use()
	if err != nil {
		return err
	}
	defer release()
	if s.one == c.session.one {
		return nil
	}
	session, leave, err := s.use()
	if err != nil {
		return err
	}
	defer leave()
	var e C.moe_error
	if err := check(C.moe_chat_set_session(p, session, &e), &e); err != nil {
		return err
	}
	c.h.adopt(s.h)
	c.session = s
	return nil
}

// Add appends a message.
func (c *Chat) Add(role, content string) error {
	var a arena
	defer a.free()
	name, err := a.given(role, "role")
	if err != nil {
		return err
	}
	data := append([]byte(content), 0)
	return c.run(func(chat *C.moe_chat, e *C.moe_error) C.moe_status {
		return C.moe_chat_add(chat, name, (*C.char)(unsafe.Pointer(&data[0])), C.size_t(len(content)), e)
	})
}

// Truncate removes all but the first messages. The system text remains.
func (c *Chat) Truncate(nMessages int) error {
	if _, err := count(nMessages, "nMessages"); err != nil {
		return err
	}
	return c.run(func(chat *C.moe_chat, e *C.moe_error) C.moe_status {
		return C.moe_chat_truncate(chat, C.size_t(nMessages), e)
	})
}

// RemoveOldest removes the oldest turns, as few as possible, until the conversation with the beginning of a reply has at
// most maxTokens tokens; the result is the number of messages. A turn is a message with the role "user" and those up to
// the next one. The system text, messages before the first turn and the last turn remain; StatusTooLong if these alone have
// more tokens.
func (c *Chat) RemoveOldest(maxTokens int) (int, error) {
	if _, err := count(maxTokens, "maxTokens"); err != nil {
		return 0, err
	}
	var n C.size_t
	err := c.run(func(chat *C.moe_chat, e *C.moe_error) C.moe_status {
		return C.moe_chat_remove_oldest(chat, C.size_t(maxTokens), &n, e)
	})
	return int(n), err
}

// SetSystem replaces the system text; "": none.
func (c *Chat) SetSystem(system string) error {
	var a arena
	defer a.free()
	text, err := a.text(system, "system")
	if err != nil {
		return err
	}
	return c.run(func(chat *C.moe_chat, e *C.moe_error) C.moe_status { return C.moe_chat_set_system(chat, text, e) })
}

// Messages are the conversation, without the system text.
func (c *Chat) Messages() ([]Message, error) {
	p, release, err := c.use()
	if err != nil {
		return nil, err
	}
	defer release()
	messages := make([]Message, C.moe_chat_message_count(p))
	for i := range messages {
		var m C.moe_chat_message
		m.struct_size = C.uint32_t(C.sizeof_moe_chat_message)
		var e C.moe_error
		if err := check(C.moe_chat_get_message(p, C.size_t(i), &m, &e), &e); err != nil {
			return nil, err
		}
		messages[i] = Message{
			C.GoString(m.role), goText(m.content, m.n_bytes), goText(m.thinking, m.n_thinking_bytes), C.GoString(m.members),
		}
	}
	return messages, nil
}

// Render returns the conversation as the model reads it; beginReply: with the start of a reply.
func (c *Chat) Render(beginReply bool) (string, error) {
	return filledText(func(buffer *C.char, capacity C.size_t, n *C.size_t) error {
		return c.run(func(chat *C.moe_chat, e *C.moe_error) C.moe_status {
			return C.moe_chat_render(chat, C.bool(beginReply), buffer, capacity, n, e)
		})
	})
}

// Tokens are the same as ids.
func (c *Chat) Tokens(beginReply bool) ([]int32, error) {
	return filled(256, 0, func(buffer *int32, capacity C.size_t, n *C.size_t) error {
		return c.run(func(chat *C.moe_chat, e *C.moe_error) C.moe_status {
			return C.moe_chat_tokens(chat, C.bool(beginReply), (*C.int32_t)(buffer), capacity, n, e)
		})
	})
}

// Reply generates the reply to the messages so far and appends it to them, unless it fails or a
// callback panics. The callback may be nil.
func (c *Chat) Reply(ctx context.Context, o GenerateOptions, callback func(Piece) bool) (ChatResult, error) {
	var out C.moe_chat_result
	out.struct_size = C.uint32_t(C.sizeof_moe_chat_result)
	err := o.withParams(callback, func(params *C.moe_generate_params, callbacks *guard) error {
		p, release, err := c.use()
		if err != nil {
			return err
		}
		defer release()
		session, watched := (*C.moe_session)(c.session.h.pointer), c.session.watched
		nBefore := C.moe_chat_message_count(p)
		err = during(ctx, func() { C.moe_session_cancel(session) }, func() error {
			var e C.moe_error
			return check(C.moe_chat_reply(p, params, &out, &e), &e)
		})
		if callbacks.panicked { // for the library the reply only ended early
			C.moe_chat_truncate(p, nBefore, nil)
		}
		watched.goOn()
		return err
	})
	return ChatResult{
		Finish: Finish(out.finish), NPrompt: int(out.n_prompt), NReused: int(out.n_reused),
		NGenerated: int(out.n_generated), NThinking: int(out.n_thinking),
		PromptSeconds: float64(out.prompt_seconds), GenerateSeconds: float64(out.generate_seconds),
		NDrafted: int(out.n_drafted), NAccepted: int(out.n_accepted), NToolCalls: int(out.n_tool_calls),
	}, err
}
