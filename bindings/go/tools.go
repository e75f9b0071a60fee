// SPDX-License-Identifier: MIT

// Tools that a model may call in a chat, its calls and their results, over moe_chat_*.

package moe

// #include <moe_c.h>
import "C"

import (
	"encoding/json"
	"unsafe"
)

// Tool is a function that the model may call.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Parameters is a JSON schema: whatever encoding/json writes as one, such as a json.RawMessage or a map. nil: none.
	Parameters any `json:"parameters,omitempty"`
	// Strict, if true, holds calls to a form while they are generated: the arguments satisfy Parameters. If false,
	// they may be any object even where ToolChoice requires a call. nil: the default, which is neither.
	Strict *bool `json:"strict,omitempty"`
}

// ToolCall is a call of a tool in a reply.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // a JSON object
}

// SetTools gives the model the tools that it may call; none: no tools. Calls in later replies are pieces with
// Piece.ToolCall, and Members of the reply's message. StatusUnsupported if the template has no tools, or asks for
// calls in no format that is known (ToolFormat), or for a schema that arguments cannot be held to.
func (c *Chat) SetTools(tools ...Tool) error {
	type function struct {
		Type     string `json:"type"`
		Function Tool   `json:"function"`
	}
	list := make([]function, len(tools))
	for i, tool := range tools {
		list[i] = function{"function", tool}
	}
	return c.withJSON(list, "tools", func(chat *C.moe_chat, text *C.char, n C.size_t, e *C.moe_error) C.moe_status {
		return C.moe_chat_set_tools(chat, text, n, e)
	})
}

// SetToolChoice chooses whether later replies call tools. name: of the tool, if a call is required; "": any.
// StatusState without tools.
func (c *Chat) SetToolChoice(choice ToolChoice, name string) error {
	var a arena
	defer a.free()
	text, err := a.text(name, "name")
	if err != nil {
		return err
	}
	return c.run(func(chat *C.moe_chat, e *C.moe_error) C.moe_status {
		return C.moe_chat_set_tool_choice(chat, C.moe_tool_choice(choice), text, e)
	})
}

// ToolFormat is the format in which the template asks for calls of tools, such as "hermes"; "": none that is known.
func (c *Chat) ToolFormat() (string, error) {
	p, release, err := c.use()
	if err != nil {
		return "", err
	}
	defer release()
	return C.GoString(C.moe_chat_tool_format(p)), nil
}

// AddToolResult appends what the tool gave for a call. id: ToolCall.ID.
func (c *Chat) AddToolResult(id, content string) error {
	return c.AddMessage(map[string]any{"role": "tool", "tool_call_id": id, "content": content})
}

// AddMessage appends a message with calls of tools, or whatever else the template knows: a value that encoding/json
// writes as a message of OpenAI's chat completions. The template gets all members.
func (c *Chat) AddMessage(message any) error {
	return c.withJSON(message, "message", func(chat *C.moe_chat, text *C.char, n C.size_t, e *C.moe_error) C.moe_status {
		return C.moe_chat_add_message(chat, text, n, e)
	})
}

func (c *Chat) withJSON(value any, what string, call func(*C.moe_chat, *C.char, C.size_t, *C.moe_error) C.moe_status) error {
	text, err := json.Marshal(value)
	if err != nil {
		return &Error{Status: StatusArgument, Text: what + ": " + err.Error()}
	}
	return c.run(func(chat *C.moe_chat, e *C.moe_error) C.moe_status {
		return call(chat, (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text)), e)
	})
}

func toolCallOf(p *C.moe_piece) *ToolCall {
	if p.flags&C.MOE_PIECE_TOOL_CALL == 0 {
		return nil
	}
	call := new(ToolCall)
	if err := json.Unmarshal([]byte(goText(p.text, p.n_bytes)), call); err != nil {
		panic(err) // the library gives valid JSON
	}
	return call
}
