// SPDX-License-Identifier: MIT

// Answers, refusals and ends of a service's requests, against the command's text.

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"moe"
)

const storiesPath = "../../../examples/models/stories.moe"

// The text that `moe generate examples/models/stories.moe -p "Once upon a time" -n 24` prints after the prompt.
const story = ", a quiet girl called Clara lived in a stone house under the mountain. " +
	"She would rather listen than talk. Her best"

const (
	tellWhole = `{"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}`
	tellParts = `{"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "stream": true}`
	tellLong  = `{"prompt": "Once upon a time", "max_tokens": 500, "ignore_eos": true, "stream": true}`
	// It takes seconds, so that on a busy machine too it has not ended when a test cancels it or closes the service.
	tellEndless = `{"prompt": "Once upon a time", "max_tokens": 500, "ignore_eos": true, "stream": true, "n": 30}`
)

var background = context.Background()

// must returns the value; an error panics.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func check0(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("expected %v, found %v", expected, found)
	}
}

func fails(t *testing.T, err error, expected moe.Status) {
	t.Helper()
	if moe.StatusOf(err) != expected {
		t.Fatalf("expected %v, found %v", expected, err)
	}
}

func stories(t *testing.T) *moe.Model {
	env := must(moe.NewEnv(&moe.EnvOptions{Threads: 2}))
	model := must(moe.Open(env, storiesPath, nil))
	t.Cleanup(func() { model.Close(); env.Close() })
	return model
}

func service(t *testing.T, options *Options) *Service {
	s := must(New(stories(t), options))
	t.Cleanup(s.Close)
	return s
}

// textOf is the text of an answer or a part of one.
func textOf(t *testing.T, e Event) string {
	t.Helper()
	var answer struct{ Choices []struct{ Text string } }
	check0(t, json.Unmarshal(e.JSON, &answer))
	text := ""
	for _, choice := range answer.Choices {
		text += choice.Text
	}
	return text
}

// errorOf is the type of the error that an event has.
func errorOf(t *testing.T, e Event) string {
	t.Helper()
	var answer struct{ Error struct{ Type string } }
	check0(t, json.Unmarshal(e.JSON, &answer))
	return answer.Error.Type
}

func submit(t *testing.T, s *Service, body string) *Request {
	t.Helper()
	return must(s.Submit(background, moe.EndpointCompletions, []byte(body)))
}

// counted waits for counts, which may follow the last event.
func counted(t *testing.T, s *Service, good func(Stats) bool) Stats {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stats := must(s.Stats())
		if good(stats) {
			return stats
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", stats)
		}
	}
}

func TestAnswersAreWhatTheModelSays(t *testing.T) {
	s := service(t, nil)
	var wait sync.WaitGroup
	for i := 0; i < 4; i++ {
		whole, parts := submit(t, s, tellWhole), submit(t, s, tellParts)
		equal(t, whole.Stream(), false)
		equal(t, parts.Stream(), true)
		wait.Add(1)
		go func() {
			defer wait.Done()
			text, n := "", 0
			for ; parts.Next(); n++ {
				text += textOf(t, parts.Event())
			}
			if text != story || n < 24 || parts.Event().Status != 200 || parts.Next() {
				t.Error(text, n, parts.Event())
			}
			answer := whole.Answer()
			if textOf(t, answer) != story || answer.Status != 200 || !answer.Last || whole.Next() {
				t.Error(answer)
			}
		}()
	}
	wait.Wait()
	stats := counted(t, s, func(c Stats) bool { return c.Answered == 8 })
	equal(t, stats.Requests, 8)
	equal(t, stats.GeneratedTokens, 8*24)
	equal(t, stats.Slots, 8)
	equal(t, stats.Draining, false)
}

// tell has the readme's example.
func tell(ctx context.Context, model *moe.Model) error {
	// The readme has this.
	service, err := New(model, &Options{Slots: 4})
	if err != nil {
		return err
	}
	defer service.Close()
	body := `{"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "stream": true}`
	request, err := service.Submit(ctx, moe.EndpointCompletions, []byte(body))
	if err != nil {
		return err
	}
	for request.Next() {
		event := request.Event()
		fmt.Println(event.Status, string(event.JSON))
	}
	// The readme has no more.
	return nil
}

func TestTheReadme(t *testing.T) {
	out := os.Stdout
	read, write, err := os.Pipe()
	check0(t, err)
	os.Stdout = write
	err = tell(background, stories(t))
	os.Stdout = out
	check0(t, err)
	write.Close()
	text, n := "", 0
	for _, line := range strings.Split(strings.TrimSpace(string(must(io.ReadAll(read)))), "\n") {
		status, part, _ := strings.Cut(line, " ")
		equal(t, status, "200")
		text += textOf(t, Event{JSON: []byte(part)})
		n++
	}
	equal(t, strings.HasPrefix(story, text) && n >= 12, true)
}

func TestEndpoints(t *testing.T) {
	s := service(t, &Options{ChatTemplate: "plain", Name: "tales"})
	ask := func(endpoint moe.Endpoint, body string) Event {
		return must(s.Submit(background, endpoint, []byte(body))).Answer()
	}
	tokens := ask(moe.EndpointTokenize, `{"prompt": "Once upon a time"}`)
	equal(t, tokens.Status, 200)
	equal(t, strings.Contains(string(tokens.JSON), "703"), true)
	equal(t, strings.Contains(string(ask(moe.EndpointStatistics, "").JSON), `"tales"`), true)
	chat := ask(moe.EndpointChat, `{"model": "tales", "messages": [{"role": "user", "content": "Once"}], "max_tokens": 3}`)
	equal(t, chat.Status, 200)
	names := ""
	parts := must(s.Submit(background, moe.EndpointMessages,
		[]byte(`{"messages": [{"role": "user", "content": "Once"}], "max_tokens": 1, "stream": true}`)))
	for parts.Next() {
		names += parts.Event().Name + " "
	}
	equal(t, strings.HasPrefix(names, "message_start content_block_start "), true)
	equal(t, strings.HasSuffix(names, " message_stop "), true)
	_, err := s.Submit(background, 99, []byte("{}"))
	fails(t, err, moe.StatusArgument)
}

func TestRefusals(t *testing.T) {
	s := service(t, &Options{Slots: 1, MaxWaiting: 1})
	for _, body := range []string{"", "{", `{"prompt": 5}`, `{"prompt": "a", "temprature": 1}`, "{\"prompt\": \"\xff\"}"} {
		r := submit(t, s, body)
		equal(t, r.Stream(), false)
		event := r.Answer()
		equal(t, event.Status, 400)
		equal(t, errorOf(t, event), "invalid_request_error")
		r.Cancel()
	}
	first, second := submit(t, s, tellLong), submit(t, s, tellLong)
	first.Next() // the second waits now
	third := submit(t, s, tellWhole).Answer()
	equal(t, third.Status, 429)
	equal(t, third.RetryAfter > 0, true)
	first.Cancel()
	second.Cancel()
	equal(t, first.Answer().Status, 499)
	equal(t, second.Answer().Status, 499)
	counted(t, s, func(c Stats) bool { return c.Refused == 6 && c.Cancelled == 2 })
}

func TestAContextCancels(t *testing.T) {
	s := service(t, nil)
	ctx, cancel := context.WithCancel(background)
	r := must(s.Submit(ctx, moe.EndpointCompletions, []byte(tellEndless)))
	equal(t, r.Next(), true)
	cancel()
	equal(t, r.Answer().Status, 499)
	counted(t, s, func(c Stats) bool { return c.Cancelled == 1 })
	_, err := s.Submit(ctx, moe.EndpointCompletions, []byte(tellEndless))
	fails(t, err, moe.StatusCancelled)
	equal(t, errors.Is(err, context.Canceled), true)
	equal(t, textOf(t, submit(t, s, tellWhole).Answer()), story)
}

func TestTimeIsLimited(t *testing.T) {
	s := service(t, &Options{MaxSeconds: 1, Session: moe.SessionOptions{Context: 500}, Slots: 1})
	equal(t, must(s.Stats()).Context, 500)
	r := submit(t, s, `{"prompt": "Once upon a time", "max_tokens": 490, "ignore_eos": true, "n": 64}`)
	equal(t, r.Answer().Status, 504)
}

func TestDrain(t *testing.T) {
	s := service(t, nil)
	r := submit(t, s, tellLong)
	ctx, cancel := context.WithTimeout(background, time.Millisecond)
	defer cancel()
	err := s.Drain(ctx)
	fails(t, err, moe.StatusCancelled)
	equal(t, errors.Is(err, context.DeadlineExceeded), true)
	equal(t, must(s.Stats()).Draining, true)
	equal(t, submit(t, s, tellWhole).Answer().Status, 503)
	check0(t, s.Drain(background))
	equal(t, r.Answer().Status, 200)
	check0(t, s.Drain(ctx)) // there is nothing to wait for
}

func TestCloseEndsRequests(t *testing.T) {
	s := service(t, nil)
	r := submit(t, s, tellEndless)
	r.Next()
	drained := make(chan error)
	go func() { drained <- s.Drain(background) }()
	for !must(s.Stats()).Draining {
		time.Sleep(time.Millisecond)
	}
	s.Close()
	if err := <-drained; err != nil { // it may have seen the request end just before the service was freed
		fails(t, err, moe.StatusState)
	}
	n := len(r.unread) // all that will come is there
	last := r.unread[n-1]
	equal(t, last.Last, true)
	equal(t, last.Status, 503)
	equal(t, string(r.Answer().JSON), string(last.JSON))
	r.Cancel()
	s.Close()
	_, err := s.Stats()
	fails(t, err, moe.StatusState)
	_, err = s.Submit(background, moe.EndpointCompletions, []byte(tellWhole))
	fails(t, err, moe.StatusState)
	fails(t, s.Drain(background), moe.StatusState)
}

func TestClosingInAnyOrder(t *testing.T) {
	env := must(moe.NewEnv(nil))
	model := must(moe.Open(env, storiesPath, nil))
	s := must(New(model, nil))
	env.Close()
	model.Close()
	equal(t, textOf(t, submit(t, s, tellWhole).Answer()), story)
	s.Close()
	_, err := New(model, nil)
	fails(t, err, moe.StatusState)
	_, err = New(nil, nil)
	fails(t, err, moe.StatusArgument)
}

func TestOptionsAreChecked(t *testing.T) {
	model := stories(t)
	for _, c := range []struct {
		options Options
		status  moe.Status
	}{
		{Options{Slots: -1}, moe.StatusRange}, {Options{Slots: 1 << 40}, moe.StatusRange},
		{Options{MaxWaiting: -1}, moe.StatusRange}, {Options{MaxPrompt: -1}, moe.StatusRange},
		{Options{Slice: 1 << 20}, moe.StatusRange}, {Options{MaxSeconds: -1}, moe.StatusRange},
		{Options{Session: moe.SessionOptions{Context: 1 << 20}}, moe.StatusRange},
		{Options{Router: "best:1"}, moe.StatusArgument}, {Options{Name: "a\x00b"}, moe.StatusArgument},
		{Options{CacheFolder: "/dev/null/none"}, moe.StatusIO},
	} {
		s, err := New(model, &c.options)
		if s != nil || moe.StatusOf(err) != c.status {
			t.Fatalf("%+v: expected %v, found %v", c.options, c.status, err)
		}
	}
	s := service(t, &Options{Router: "topk:1", Session: moe.SessionOptions{KV: moe.KVInt8}, NoReuse: true, Slice: 4, MaxPrompt: 5})
	equal(t, submit(t, s, `{"prompt": "Once upon a time, there was", "max_tokens": 1}`).Answer().Status, 400)
	equal(t, textOf(t, submit(t, s, tellWhole).Answer()) != story, true) // one expert fewer
}

func TestACacheFolder(t *testing.T) {
	folder := t.TempDir()
	prompt := strings.Repeat("Once upon a time ", 20)
	ask, _ := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": 4, "temperature": 0})
	texts := []string{}
	for _, reused := range []bool{false, true} {
		s := service(t, &Options{CacheFolder: folder, CacheBytes: 1 << 30})
		texts = append(texts, textOf(t, submit(t, s, string(ask)).Answer()))
		check0(t, s.Drain(background))
		stats := must(s.Stats())
		equal(t, stats.CacheBytes > 0, true)
		equal(t, stats.ReusedTokens > 0, reused)
		s.Close()
	}
	equal(t, texts[0], texts[1])
	equal(t, len(must(os.ReadDir(folder))) > 0, true)
}

func TestReceipts(t *testing.T) {
	var receipts []string // written by the service's thread before the answer's last event
	s := service(t, &Options{Name: "tales", Receipt: func(line []byte) {
		receipts = append(receipts, string(line))
		panic("ends here")
	}})
	equal(t, submit(t, s, tellWhole).Answer().Status, 200)
	equal(t, len(receipts), 1)
	equal(t, submit(t, s, "{").Answer().Status, 400)
	equal(t, len(receipts), 1)
	equal(t, submit(t, s, tellParts).Answer().Status, 200)
	equal(t, len(receipts), 2)
	for _, line := range receipts {
		var receipt struct{ Model, Endpoint string }
		check0(t, json.Unmarshal([]byte(line), &receipt))
		equal(t, receipt.Model, "tales")
		equal(t, receipt.Endpoint, "/v1/completions")
	}
}

func TestTheCollectorCloses(t *testing.T) {
	freed := make(chan bool, 1)
	func() {
		s := must(New(stories(t), nil))
		release := s.release
		s.release = func() { release(); freed <- true }
		r := submit(t, s, tellEndless) // keeps the service until it ends
		r.Next()
		for i := 0; i < 3; i++ {
			runtime.GC()
		}
		equal(t, len(freed), 0)
		r.Cancel()
		r.Answer()
	}()
	for deadline := time.Now().Add(time.Minute); len(freed) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the service was not collected")
		}
		runtime.GC()
	}
}
