// SPDX-License-Identifier: MIT

// Shared by the other tests: the stories model, and checks that name the value.

package moe

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

const prompt = "Once upon a time"

// The text that `moe generate examples/models/stories.moe -p "Once upon a time" -n 24` prints after the prompt.
const story = ", a quiet girl called Clara lived in a stone house under the mountain. " +
	"She would rather listen than talk. Her best"

const storiesPath = "../../examples/models/stories.moe"

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

func fails(t *testing.T, err error, expected Status) {
	t.Helper()
	if StatusOf(err) != expected {
		t.Fatalf("expected %v, found %v", expected, err)
	}
}

func testEnv(t *testing.T) *Env {
	env := must(NewEnv(&EnvOptions{Threads: 2}))
	t.Cleanup(env.Close)
	return env
}

func stories(t *testing.T) *Model {
	model := must(Open(testEnv(t), storiesPath, nil))
	t.Cleanup(model.Close)
	return model
}

// converted opens a model that bindings/test.sh has converted.
func converted(t *testing.T, name string) *Model {
	folder := os.Getenv("MOE_TEST_MODELS")
	if folder == "" {
		t.Skip("needs MOE_TEST_MODELS, which bindings/test.sh sets")
	}
	model := must(Open(testEnv(t), filepath.Join(folder, name), nil))
	t.Cleanup(model.Close)
	return model
}

func session(t *testing.T, m *Model) *Session {
	s := must(m.Session(SessionOptions{}))
	t.Cleanup(s.Close)
	return s
}

func encode(m *Model, text string) []int32 { return must(must(m.Tokenizer()).Encode(text)) }

func tellsTheStory(t *testing.T, s *Session) {
	t.Helper()
	text, err := s.Complete(background, prompt, GenerateOptions{MaxTokens: 24})
	check0(t, err)
	equal(t, text, story)
}
