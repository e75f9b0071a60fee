// SPDX-License-Identifier: MIT

// Calls of tools in a chat, by a model whose replies are known.

package moe

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// ask has the readme's example.
func ask(ctx context.Context, chat *Chat, answer func(ToolCall) string) (string, error) {
	// The readme has this.
	schema := json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}}}`)
	if err := chat.SetTools(Tool{Name: "weather", Description: "Weather of a city", Parameters: schema}); err != nil {
		return "", err
	}
	if err := chat.Add("user", "What is the weather in Zürich?"); err != nil {
		return "", err
	}
	for {
		text, calls := "", []ToolCall{}
		_, err := chat.Reply(ctx, GenerateOptions{}, func(p Piece) bool {
			if p.ToolCall != nil {
				calls = append(calls, *p.ToolCall)
			} else if !p.Thinking {
				text += p.Text
			}
			return true
		})
		if err != nil || len(calls) == 0 {
			return text, err
		}
		for _, call := range calls {
			if err := chat.AddToolResult(call.ID, answer(call)); err != nil {
				return "", err
			}
		}
	}
	// The readme has no more.
}

func tools(t *testing.T) *Chat {
	return must(session(t, converted(t, "tools.moe")).Chat(ChatOptions{}))
}

func TestToolCalls(t *testing.T) {
	chat := tools(t)
	equal(t, must(chat.ToolFormat()), "hermes")
	asked := []string{}
	text, err := ask(background, chat, func(call ToolCall) string {
		asked = append(asked, call.Name+string(call.Arguments))
		return "18 \"degrees\""
	})
	check0(t, err)
	equal(t, text, "Yes.")
	equal(t, fmt.Sprint(asked), `[weather{"city": "Zürich", "days": 2} clock{}]`)
	messages := must(chat.Messages())
	equal(t, len(messages), 5)
	equal(t, messages[1].Content, "Ok!")
	var members struct {
		Calls []struct{ ID string } `json:"tool_calls"`
	}
	check0(t, json.Unmarshal([]byte(messages[1].Members), &members))
	equal(t, len(members.Calls), 2)
	equal(t, messages[3].Members, fmt.Sprintf(`{"tool_call_id": "%s", "name": "clock"}`, members.Calls[1].ID))
	equal(t, strings.Contains(must(chat.Render(false)), "<tool_response>\n18 \"degrees\"\n</tool_response>"), true)
	fails(t, chat.AddMessage(map[string]any{"role": "assistant", "tool_calls": 5}), StatusArgument)
	fails(t, chat.AddMessage(func() {}), StatusArgument)
}

func TestToolChoice(t *testing.T) {
	chat, strict := tools(t), true
	fails(t, chat.SetToolChoice(ToolsOne, ""), StatusState)
	schema := map[string]any{"type": "object", "properties": map[string]any{"yes": map[string]any{"type": "boolean"}},
		"required": []string{"yes"}, "additionalProperties": false}
	check0(t, chat.SetTools(Tool{Name: "weather"}, Tool{Name: "f", Parameters: schema, Strict: &strict}))
	check0(t, chat.SetToolChoice(ToolsOne, "f"))
	check0(t, chat.Add("user", "Weather?"))
	var pieces []Piece
	result := must(chat.Reply(background, GenerateOptions{}, func(p Piece) bool { pieces = append(pieces, p); return true }))
	equal(t, result.NToolCalls, 1)
	var arguments map[string]any
	for _, p := range pieces {
		equal(t, p.Text, "")
		if p.ToolCall != nil {
			equal(t, p.ToolCall.Name, "f")
			check0(t, json.Unmarshal(p.ToolCall.Arguments, &arguments))
		}
	}
	_, isBool := arguments["yes"].(bool)
	equal(t, isBool && reflect.ValueOf(arguments).Len() == 1, true)
	fails(t, chat.SetToolChoice(ToolsOne, "g"), StatusArgument)
	fails(t, chat.SetToolChoice(ToolsOne, "\x00"), StatusArgument)
	fails(t, chat.SetTools(Tool{Name: "f", Parameters: json.RawMessage(`{"unevaluatedItems": true}`), Strict: &strict}), StatusUnsupported)
	check0(t, chat.SetToolChoice(ToolsAuto, ""))
	check0(t, chat.SetTools())

	plain := must(session(t, stories(t)).Chat(ChatOptions{Template: "plain"}))
	equal(t, must(plain.ToolFormat()), "")
	fails(t, plain.SetTools(Tool{Name: "f"}), StatusUnsupported)
}
