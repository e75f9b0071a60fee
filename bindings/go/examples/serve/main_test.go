// SPDX-License-Identifier: MIT

// Requests over HTTP to the example.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"moe"
	"moe/serve"
)

func server(t *testing.T) (*serve.Service, string) {
	env, err := moe.NewEnv(&moe.EnvOptions{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	model, err := moe.Open(env, "../../../../examples/models/stories.moe", nil)
	if err != nil {
		t.Fatal(err)
	}
	service, err := serve.New(model, &serve.Options{ChatTemplate: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler(service))
	t.Cleanup(func() { s.Close(); service.Close(); model.Close(); env.Close() })
	return service, s.URL
}

func post(t *testing.T, url, body string) (*http.Response, string) {
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

type choices struct {
	Choices []struct {
		Message, Delta struct{ Content string }
	}
}

func content(t *testing.T, text string) string {
	var c choices
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(text, err)
	}
	all := ""
	for _, choice := range c.Choices {
		all += choice.Message.Content + choice.Delta.Content
	}
	return all
}

const ask = `{"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 12, "temperature": 0, "stream": %t}`

func TestChat(t *testing.T) {
	_, url := server(t)
	url += "/v1/chat/completions"
	response, whole := post(t, url, fmt.Sprintf(ask, false))
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "application/json" {
		t.Fatal(response.Status, whole)
	}
	expected := content(t, whole)
	response, stream := post(t, url, fmt.Sprintf(ask, true))
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(response.Status, stream)
	}
	found, events := "", strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n")
	for _, event := range events[:len(events)-1] {
		found += content(t, strings.TrimPrefix(event, "data: "))
	}
	if found != expected || found == "" || len(events) < 12 || events[len(events)-1] != "data: [DONE]" {
		t.Fatal(stream, expected)
	}
	response, refusal := post(t, url, `{"messages": 5}`)
	if response.StatusCode != 400 || !strings.Contains(refusal, "invalid_request_error") {
		t.Fatal(response.Status, refusal)
	}
	if response, text := post(t, url, strings.Repeat(" ", 5<<20)); response.StatusCode != 400 {
		t.Fatal(response.Status, text)
	}
	response, err := http.Get(url)
	if err != nil || response.StatusCode != 405 {
		t.Fatal(response, err)
	}
	response.Body.Close()
}

func TestMessagesHaveNames(t *testing.T) {
	_, url := server(t)
	_, text := post(t, url+"/v1/messages", `{"messages": [{"role": "user", "content": "Once"}], "max_tokens": 2, "stream": true}`)
	if !strings.HasPrefix(text, "event: message_start\ndata: {") || strings.Contains(text, "[DONE]") {
		t.Fatal(text)
	}
}

func TestAClientGoesAway(t *testing.T) {
	service, url := server(t)
	ctx, cancel := context.WithCancel(context.Background())
	body := `{"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "stream": true}`
	request, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(body))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	response.Body.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stats, err := service.Stats()
		if err != nil || time.Now().After(deadline) {
			t.Fatal(stats, err)
		}
		if stats.Cancelled == 1 {
			return
		}
	}
}
