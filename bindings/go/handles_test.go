// SPDX-License-Identifier: MIT

// Tests of closing, the garbage collector, concurrent calls, errors and readers that fail.

package moe

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestClosingInAnyOrder(t *testing.T) {
	env := must(NewEnv(nil))
	model := must(Open(env, storiesPath, nil))
	tokenizer := must(model.Tokenizer())
	first, second := must(model.Session(SessionOptions{})), must(model.Session(SessionOptions{}))
	chat := must(second.Chat(ChatOptions{Template: "plain"}))
	check0(t, chat.Add("user", prompt))
	ids := must(tokenizer.Encode(prompt))
	layer := must(NewLayer(env, smallLayer()))
	env.Close()
	second.Close()
	must(first.Eval(background, ids)) // the session keeps the model
	model.Close()
	must(first.Eval(background, ids))
	must(chat.Reply(background, GenerateOptions{MaxTokens: 4}, nil))
	check0(t, layer.Forward(make([]float32, smallD), make([]float32, smallD)))
	for _, handle := range []interface{ Close() }{chat, first, layer, env, model, second, first} {
		handle.Close()
	}
	first.Cancel()
	_, e1 := env.Info()
	_, e2 := Open(env, storiesPath, nil)
	_, e3 := model.Info()
	_, e4 := model.Session(SessionOptions{})
	_, e5 := tokenizer.Encode("a")
	_, e6 := first.Eval(background, ids)
	_, e7 := first.Position()
	_, e8 := second.Chat(ChatOptions{Template: "plain"})
	_, e9 := chat.Messages()
	_, e10 := chat.Reply(background, GenerateOptions{}, nil)
	e11 := layer.Forward(nil, nil)
	_, e12 := tokenizer.Piece(1)
	_, e13 := NewLayer(env, smallLayer())
	_, e14 := new(Session).Position()
	for _, err := range []error{e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, e11, e12, e13, e14} {
		fails(t, err, StatusState)
	}
	if !strings.Contains(e6.Error(), "the session is closed") {
		t.Fatal(e6)
	}
}

func TestCloseDuringACall(t *testing.T) {
	model := stories(t)
	s := must(model.Session(SessionOptions{}))
	text := ""
	_, err := s.Generate(background, encode(model, prompt), GenerateOptions{MaxTokens: 24}, func(p Piece) bool {
		text += p.Text
		s.Close()
		_, err := s.Position()
		fails(t, err, StatusState)
		return true
	})
	check0(t, err)
	equal(t, text, story)
}

func TestOneAtATime(t *testing.T) {
	model := stories(t)
	s := session(t, model)
	chat := must(s.Chat(ChatOptions{Template: "plain"}))
	_, err := s.Generate(background, encode(model, prompt), GenerateOptions{MaxTokens: 4}, func(Piece) bool {
		_, err := s.Position()
		fails(t, err, StatusState)
		fails(t, chat.Add("user", "no"), StatusState)
		return true
	})
	check0(t, err)
	check0(t, chat.Add("user", "now"))

	var wait sync.WaitGroup
	for i := 0; i < 4; i++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			text, err := must(model.Session(SessionOptions{})).Complete(background, prompt, GenerateOptions{MaxTokens: 24})
			if text != story || err != nil {
				t.Error(text, err)
			}
		}()
	}
	wait.Wait()
}

func TestTheCollectorCloses(t *testing.T) {
	freed := make(chan string, 3)
	func() {
		env := must(NewEnv(nil))
		model := must(Open(env, storiesPath, nil))
		s := must(model.Session(SessionOptions{}))
		for _, h := range []*handle{env.h, model.h, s.h} {
			what, free := h.what, h.free
			h.free = func(p unsafePointer) { free(p); freed <- what }
		}
		tellsTheStory(t, s)
	}()
	for _, expected := range []string{"session", "model", "environment"} {
		for deadline := time.Now().Add(10 * time.Second); len(freed) == 0 && time.Now().Before(deadline); {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		select {
		case what := <-freed:
			equal(t, what, expected)
		default:
			t.Fatalf("the %s was not freed", expected)
		}
	}
}

func TestErrors(t *testing.T) {
	_, err := Open(testEnv(t), "no/such.moe", nil)
	var e *Error
	if !errors.As(err, &e) || e.Status != StatusNotFound || !strings.Contains(e.Text, "no/such.moe") {
		t.Fatal(err)
	}
	equal(t, strings.HasPrefix(err.Error(), "MOE_ERR_NOT_FOUND: "), true)
	equal(t, Status(99).String(), "unknown status")
	_, err = NewEnv(&EnvOptions{ISA: "z80"})
	fails(t, err, StatusUnsupported)
	_, err = NewEnv(&EnvOptions{ISA: "a\x00b"})
	fails(t, err, StatusArgument)
	equal(t, err.(*Error).Text, `ISA: contains a zero byte: "a\x00b"`)
	s := session(t, stories(t))
	_, err = s.Generate(background, nil, GenerateOptions{Stop: []string{"a", "\x00"}}, nil)
	equal(t, err.(*Error).Text, `Stop[1]: contains a zero byte: "\x00"`)
	_, err = NewEnv(&EnvOptions{Threads: -1})
	fails(t, err, StatusRange)
	_, err = OpenBytes(testEnv(t), make([]byte, 100), nil)
	fails(t, err, StatusFormat)
	equal(t, StatusOf(nil), StatusOK)
	equal(t, StatusOf(io.EOF), StatusInternal)
}

func TestLog(t *testing.T) {
	var mu sync.Mutex
	lines := 0
	env := must(NewEnv(&EnvOptions{Threads: 1, ISA: "scalar", Device: "auto", Log: func(level LogLevel, text string) {
		mu.Lock()
		defer mu.Unlock()
		lines++
		if text == "" || level < LogError || level > LogDebug {
			t.Error(level, text)
		}
		panic("ends in the binding")
	}}))
	info := must(env.Info())
	equal(t, info.ISA, "scalar")
	equal(t, info.Threads, 1)
	tellsTheStory(t, must(must(Open(env, storiesPath, nil)).Session(SessionOptions{KV: KVDefault})))
	if lines == 0 {
		t.Fatal("nothing was logged")
	}
	env.Close()
}

var errBroken = errors.New("the disk is broken")

// broken fails at byte `at`: with an error, or with a panic.
type broken struct {
	io.ReaderAt
	at     int64
	panics bool
}

func (b broken) ReadAt(data []byte, offset int64) (int, error) {
	switch {
	case offset+int64(len(data)) <= b.at:
		return b.ReaderAt.ReadAt(data, offset)
	case b.panics:
		panic("no disk")
	}
	return 0, errBroken
}

func TestBytesAndReaders(t *testing.T) {
	env, data := testEnv(t), must(os.ReadFile(storiesPath))
	model := must(OpenBytes(env, data, nil))
	for i := range data {
		data[i] = 0 // the model has a copy
	}
	tellsTheStory(t, session(t, model))
	data = must(os.ReadFile(storiesPath))
	source := bytes.NewReader(data)
	model = must(OpenReader(env, source, source.Size(), nil))
	tellsTheStory(t, session(t, model))
	for _, at := range []int64{0, 1 << 20} {
		_, err := OpenReader(env, broken{ReaderAt: source, at: at}, source.Size(), nil)
		fails(t, err, StatusIO)
		equal(t, errors.Is(err, errBroken), true)
		equal(t, panicOf(func() { _, _ = OpenReader(env, broken{source, at, true}, source.Size(), nil) }), "no disk")
	}
	_, err := OpenReader(env, source, -5, nil)
	equal(t, err != nil, true)
	mapped := must(Open(env, storiesPath, &ModelOptions{MapWeights: true, SkipChecksums: true, IO: IOBuffered}))
	tellsTheStory(t, session(t, mapped))
	int8 := must(mapped.Session(SessionOptions{KV: KVInt8}))
	must(int8.Complete(background, prompt, GenerateOptions{MaxTokens: 4}))
}
