// SPDX-License-Identifier: MIT

// Tests of every part of the package on the stories model of this repository.

package moe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestTokenizer(t *testing.T) {
	model := stories(t)
	tokenizer := must(model.Tokenizer())
	ids := must(tokenizer.Encode(prompt))
	bare := must(tokenizer.EncodeWith(prompt, EncodeText{NoSpecial: true}))
	if !reflect.DeepEqual(ids[1:], bare) || ids[0] != must(model.Info()).BOSToken {
		t.Fatal(ids, bare)
	}
	equal(t, must(tokenizer.Decode(ids, true)), prompt)
	special := must(tokenizer.Piece(ids[0]))
	parsed := must(tokenizer.EncodeWith(special, EncodeText{NoSpecial: true, ParseSpecial: true}))
	if len(parsed) != 1 || parsed[0] != ids[0] {
		t.Fatal(parsed)
	}
	_, err := tokenizer.Piece(1 << 20)
	fails(t, err, StatusRange)
	long := strings.Repeat(prompt, 500) // exceeds the initial size of every buffer
	equal(t, must(tokenizer.Decode(must(tokenizer.Encode(long)), true)), long)
	equal(t, len(must(tokenizer.EncodeWith("", EncodeText{NoSpecial: true}))), 0)
}

func TestGeneratesWhatTheCommandDoes(t *testing.T) {
	tellsTheStory(t, session(t, stories(t)))
}

func TestStreamsPieces(t *testing.T) {
	model := stories(t)
	text, n := "", 0
	result, err := session(t, model).Generate(background, encode(model, prompt), GenerateOptions{MaxTokens: 24, NTop: 2},
		func(p Piece) bool {
			text += p.Text
			if p.Token >= 0 {
				n++
			}
			if p.Logprob > 0 || p.Thinking || len(p.Top) != 2 || p.Top[0].Token != p.Token {
				t.Error(p)
			}
			return true
		})
	check0(t, err)
	equal(t, text, story)
	equal(t, n, 24)
	if result.Finish != FinishLength || result.NPrompt != 5 || result.NGenerated != 24 || result.GenerateSeconds <= 0 || result.PromptSeconds <= 0 {
		t.Fatal(result)
	}
}

func TestDraftsChangeNothingButTheSpeed(t *testing.T) {
	model, texts := stories(t), [2]string{}
	for i, most := range []int{0, 8} {
		result, err := session(t, model).Generate(background, encode(model, prompt), GenerateOptions{MaxTokens: 200, MaxDraft: most},
			func(p Piece) bool {
				texts[i] += p.Text
				return true
			})
		check0(t, err)
		if (result.NDrafted > 0) != (most > 0) || result.NAccepted > result.NDrafted {
			t.Error(result)
		}
	}
	equal(t, texts[0], texts[1])
	_, err := session(t, model).Generate(background, encode(model, prompt), GenerateOptions{MaxDraft: 17}, nil)
	fails(t, err, StatusRange)
}

func TestEndsAsTold(t *testing.T) {
	model := stories(t)
	ids, fox := encode(model, prompt), encode(model, "The fox was very")
	result, err := session(t, model).Generate(background, ids, GenerateOptions{}, func(Piece) bool { return false })
	check0(t, err)
	equal(t, result.Finish, FinishCallback)
	equal(t, result.NGenerated, 1)
	text, err := session(t, model).Complete(background, prompt, GenerateOptions{Stop: []string{" house"}})
	check0(t, err)
	equal(t, text, ", a quiet girl called Clara lived in a stone")
	result = must(session(t, model).Generate(background, fox, GenerateOptions{}, nil))
	equal(t, result.Finish, FinishEOS)
	equal(t, result.NGenerated, 10)
	result = must(session(t, model).Generate(background, fox, GenerateOptions{IgnoreEOS: true, MaxTokens: 12}, nil))
	equal(t, result.Finish, FinishLength)
	small := must(model.Session(SessionOptions{Context: 8}))
	equal(t, must(small.Generate(background, ids, GenerateOptions{}, nil)).Finish, FinishContext)
	equal(t, must(small.Context()), 8)
}

func TestCancel(t *testing.T) {
	model := stories(t)
	s := session(t, model)
	s.Cancel() // no call is in progress: no effect
	endless := GenerateOptions{IgnoreEOS: true}
	_, err := s.Generate(background, encode(model, prompt), endless, func(Piece) bool {
		s.Cancel()
		return true
	})
	fails(t, err, StatusCancelled)
	if must(s.Position()) < 5 {
		t.Fatal(must(s.Position()))
	}

	ctx, cancel := context.WithCancel(background)
	_, err = session(t, model).Generate(ctx, encode(model, prompt), endless, func(Piece) bool {
		cancel()
		time.Sleep(5 * time.Millisecond)
		return true
	})
	fails(t, err, StatusCancelled)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	_, err = s.Eval(ctx, []int32{5}) // cancelled before it begins
	fails(t, err, StatusCancelled)
	ctx, cancel = context.WithTimeout(background, time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if _, err = s.Eval(ctx, []int32{5}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	_, err = s.Eval(background, []int32{5}) // later calls are not affected
	check0(t, err)
}

func panicOf(f func()) (value string) {
	defer func() { value = fmt.Sprint(recover()) }()
	f()
	return
}

func TestPanicsComeOutOfTheCall(t *testing.T) {
	model := stories(t)
	s, ids := session(t, model), encode(model, prompt)
	panicked := panicOf(func() {
		_, _ = s.Generate(background, ids, GenerateOptions{}, func(Piece) bool { panic("enough") })
	})
	equal(t, panicked, "enough")
	check0(t, s.Rewind(0))
	tellsTheStory(t, s)
	check0(t, s.WatchRouting(func(*RoutingChoices) { panic("watched") }))
	equal(t, panicOf(func() { _ = s.Append(background, ids[1:]) }), "watched")
	check0(t, s.WatchRouting(nil))
	check0(t, s.Append(background, ids[1:]))
}

func TestSample(t *testing.T) {
	model := stories(t)
	s := session(t, model)
	_, err := s.Sample(Sampling{}, 0)
	fails(t, err, StatusState)
	check0(t, s.Append(background, encode(model, "The fox was very")))
	greedy := must(s.Sample(Sampling{}, 3))
	if len(greedy.Top) != 3 || greedy.Top[0] != greedy.TokenLogprob {
		t.Fatal(greedy)
	}
	ban := []LogitBias{{greedy.Token, float32(math.Inf(-1))}}
	equal(t, must(s.Sample(Sampling{Bias: ban}, 0)).Token, greedy.Top[1].Token)
	draw := func(seed uint64) int32 { return must(s.Sample(Sampling{Temperature: 2, Seed: seed}, 0)).Token }
	equal(t, draw(1), draw(1))
	others := 0
	for seed := uint64(2); seed < 20; seed++ {
		if draw(seed) != draw(1) {
			others++
		}
	}
	if others == 0 {
		t.Fatal("every seed draws the same")
	}
	_, err = s.Sample(Sampling{Temperature: -1}, 0)
	fails(t, err, StatusRange)
	_, err = s.Sample(Sampling{}, -1)
	fails(t, err, StatusRange)
}

func TestEval(t *testing.T) {
	model := stories(t)
	ids, vocab := encode(model, "The fox was very"), must(model.Info()).VocabSize
	whole, parts, other := session(t, model), session(t, model), session(t, model)
	rows := must(whole.EvalAll(background, ids))
	equal(t, len(rows), len(ids)*vocab)
	check0(t, parts.Append(background, ids[:2]))
	if !reflect.DeepEqual(must(parts.Eval(background, ids[2:])), rows[len(rows)-vocab:]) {
		t.Fatal("parts differ from the whole")
	}
	equal(t, must(whole.Position()), len(ids))
	check0(t, parts.Rewind(2))
	stepped := must(Step(background, []*Session{parts, other}, []int32{ids[2], ids[0]}))
	if !reflect.DeepEqual(stepped[:vocab], rows[2*vocab:3*vocab]) || !reflect.DeepEqual(stepped[vocab:], rows[:vocab]) {
		t.Fatal("a step differs")
	}
	pieces := must(EvalEach(background, []*Session{parts, other}, [][]int32{ids[3:4], ids[1:3]}))
	if !reflect.DeepEqual(pieces[:vocab], rows[3*vocab:4*vocab]) || !reflect.DeepEqual(pieces[vocab:], rows[2*vocab:3*vocab]) {
		t.Fatal("pieces differ")
	}
	_, err := EvalEach(background, []*Session{parts, other}, [][]int32{ids[:1], nil})
	fails(t, err, StatusArgument)
	_, err = EvalEach(background, []*Session{parts}, nil)
	fails(t, err, StatusArgument)
	_, err = Step(background, []*Session{parts, parts}, []int32{1, 2})
	fails(t, err, StatusState)
	_, err = Step(background, []*Session{parts}, []int32{1, 2})
	fails(t, err, StatusArgument)
	_, err = whole.Eval(background, []int32{1 << 20})
	fails(t, err, StatusRange)
	fails(t, whole.Rewind(99), StatusRange)
	fails(t, whole.Rewind(-1), StatusRange)
	fails(t, whole.Append(background, make([]int32, 1<<20)), StatusTooLong)
	many := make([]int32, 1<<26) // the memory for their results would end the process
	_, err = whole.EvalAll(background, many)
	fails(t, err, StatusTooLong)
	_, err = whole.Encode(background, many, EncodeOptions{Hidden: true})
	fails(t, err, StatusTooLong)
	_, err = whole.Encode(background, ids, EncodeOptions{Outputs: true})
	fails(t, err, StatusUnsupported)
}

func TestScore(t *testing.T) {
	model := stories(t)
	ids, vocab := encode(model, "The fox was very"), must(model.Info()).VocabSize
	rows, s := must(session(t, model).EvalAll(background, ids)), session(t, model)
	scores := must(s.Score(background, ids[:3]))
	equal(t, len(scores), 2) // the first token is not scored
	scores = append(scores, must(s.Score(background, ids[3:]))...)
	for i, score := range scores {
		sum, row := 0.0, rows[i*vocab:(i+1)*vocab]
		for _, logit := range row {
			sum += math.Exp(float64(logit))
		}
		if expected := float64(row[ids[i+1]]) - math.Log(sum); math.Abs(float64(score)-expected) > 1e-4 {
			t.Fatal(i, score, expected)
		}
	}
	equal(t, len(scores), len(ids)-1)
	equal(t, must(s.Position()), len(ids))
	_, err := s.Score(background, []int32{-1})
	fails(t, err, StatusRange)
}

func TestEmbedWithADecoder(t *testing.T) {
	model := stories(t)
	s, ids, d := session(t, model), encode(model, prompt), must(model.Info()).DModel
	hidden := must(s.Encode(background, ids, EncodeOptions{Hidden: true})).Hidden
	if !reflect.DeepEqual(must(s.Embed(background, prompt, PoolLast)), hidden[len(hidden)-d:]) ||
		!reflect.DeepEqual(must(s.Embed(background, prompt, PoolFirst)), hidden[:d]) {
		t.Fatal("embed differs")
	}
	_, err := s.Embed(background, "", PoolMean)
	fails(t, err, StatusArgument)
	equal(t, must(s.Position()), 0)
}

func TestLogits(t *testing.T) {
	model := stories(t)
	s, ids := session(t, model), encode(model, prompt)
	var seen []int
	var made []int32
	o := GenerateOptions{MaxTokens: 3, Logits: func(tokens []int32, logits []float32) bool {
		seen = append(seen, len(tokens))
		best := 0
		for i := range logits {
			if logits[i] > logits[best] {
				best = i
			}
		}
		logits[best] = float32(math.Inf(-1))
		return true
	}}
	must(s.Generate(background, ids, o, func(p Piece) bool { made = append(made, p.Token); return true }))
	if !reflect.DeepEqual(seen, []int{5, 6, 7}) {
		t.Fatal(seen)
	}
	check0(t, s.Rewind(0))
	check0(t, s.Append(background, ids))
	equal(t, made[0], must(s.Sample(Sampling{}, 2)).Top[1].Token)
	o.Logits = func([]int32, []float32) bool { return false }
	result := must(s.Generate(background, nil, o, nil))
	equal(t, result.Finish, FinishCallback)
	equal(t, result.NGenerated, 0)
	o.Logits = func([]int32, []float32) bool { panic("no") }
	equal(t, panicOf(func() { _, _ = s.Generate(background, nil, o, nil) }), "no")
	n := 0
	o.Logits = func([]int32, []float32) bool { n++; return true }
	chat := must(s.Chat(ChatOptions{Template: "plain"}))
	check0(t, chat.Add("user", prompt))
	must(chat.Reply(background, o, nil))
	equal(t, n, 3)
}

// full accepts `room` bytes, then fails.
type full struct{ room int }

var errFull = errors.New("the disk is full")

func (f *full) Write(data []byte) (int, error) {
	if f.room -= len(data); f.room < 0 {
		return 0, errFull
	}
	return len(data), nil
}

// short drops the last byte and does not say so.
type short struct{}

func (short) Write(data []byte) (int, error) { return len(data) - 1, nil }

func TestSaveLoadAndFork(t *testing.T) {
	model := stories(t)
	s, other := session(t, model), session(t, model)
	begun := must(s.Complete(background, prompt, GenerateOptions{MaxTokens: 8}))
	rest := func(s *Session) string {
		return begun + must(s.Complete(background, "", GenerateOptions{MaxTokens: 16}))
	}
	var saved bytes.Buffer
	check0(t, s.Save(&saved))
	load := func(data []byte) error { return other.Load(bytes.NewReader(data), int64(len(data))) }
	check0(t, load(saved.Bytes()))
	fork := must(s.Fork())
	equal(t, rest(s), story)
	s.Close()
	equal(t, rest(fork), story)
	equal(t, rest(other), story)

	path := filepath.Join(t.TempDir(), "saved")
	check0(t, os.WriteFile(path, []byte("old"), 0o600))
	check0(t, fork.SaveFile(path))
	equal(t, must(os.Stat(path)).Mode().Perm(), 0o600)
	equal(t, len(must(os.ReadDir(filepath.Dir(path)))), 1)
	check0(t, load(must(os.ReadFile(path))))
	equal(t, must(other.Position()), must(fork.Position()))
	fails(t, fork.SaveFile(filepath.Dir(path)), StatusIO)

	err := fork.Save(&full{100})
	fails(t, err, StatusIO)
	if !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	err = fork.Save(short{})
	fails(t, err, StatusIO)
	equal(t, errors.Is(err, io.ErrShortWrite), true)
	data := saved.Bytes()
	fails(t, load(data[:len(data)-1]), StatusFormat)
	data[len(data)-1] ^= 1
	fails(t, load(data), StatusCorrupt)
	fails(t, load(nil), StatusFormat)
	fails(t, other.Load(bytes.NewReader(nil), -1), StatusRange)
	err = other.Load(broken{}, 1000)
	fails(t, err, StatusIO)
	equal(t, errors.Is(err, errBroken), true)
	equal(t, panicOf(func() { _ = other.Load(broken{panics: true}, 1000) }), "no disk")
	equal(t, panicOf(func() { _ = fork.Save(nil) }) != "<nil>", true)
	check0(t, other.Copy(fork, 2))
	equal(t, must(other.Position()), 2)
	fails(t, other.Copy(fork, -1), StatusRange)
	fork.Close()
	_, err = fork.Fork()
	fails(t, err, StatusState)
}

func TestPerplexity(t *testing.T) {
	model := stories(t)
	ids := must(must(model.Tokenizer()).EncodeWith(prompt+story, EncodeText{NoSpecial: true}))
	s := must(model.Session(SessionOptions{Context: 16, KV: KVF16}))
	windows := 0
	measured, err := s.Perplexity(background, ids, func(done, total uint64) bool {
		windows++
		return done <= total
	})
	check0(t, err)
	if measured.Perplexity < 1 || measured.Perplexity > 20 || windows < 2 || measured.NScored < 20 ||
		math.Abs(math.Exp(measured.MeanNLL)-measured.Perplexity) > 1e-9 {
		t.Fatal(measured, windows)
	}
	equal(t, must(s.Perplexity(background, ids, nil)), measured)
	_, err = s.Perplexity(background, ids, func(uint64, uint64) bool { return false })
	fails(t, err, StatusCancelled)
	equal(t, panicOf(func() { _, _ = s.Perplexity(background, ids, func(uint64, uint64) bool { panic(7) }) }), "7")
}

// Slices that a callback keeps are its own: the library's memory is used again, and freed.
func TestWhatACallbackSawMayBeKept(t *testing.T) {
	model := stories(t)
	s, ids := session(t, model), encode(model, prompt)
	var kept []*RoutingChoices
	var hidden [][]float32
	check0(t, s.WatchRouting(func(c *RoutingChoices) {
		kept, hidden = append(kept, c), append(hidden, append([]float32(nil), c.Hidden...))
	}))
	check0(t, s.Append(background, ids))
	check0(t, s.WatchRouting(nil))
	for i, c := range kept {
		equal(t, reflect.DeepEqual(c.Hidden, hidden[i]), true)
		c.Weights[0], c.Counts[0] = 7, 7 // nobody reads it
	}
	var rows, copies [][]float32
	o := GenerateOptions{MaxTokens: 3, Logits: func(tokens []int32, logits []float32) bool {
		rows, copies = append(rows, logits), append(copies, append([]float32(nil), logits...))
		return true
	}}
	must(s.Complete(background, "", o))
	s.Close()
	equal(t, reflect.DeepEqual(rows, copies), true)
	equal(t, len(rows), 3)
}

func TestRouting(t *testing.T) {
	model := stories(t)
	s, ids := session(t, model), encode(model, prompt)
	_, err := s.Routing(0)
	fails(t, err, StatusState)
	_, err = s.Activations(0)
	fails(t, err, StatusState)
	layers := map[int]int32{}
	check0(t, s.WatchRouting(func(c *RoutingChoices) {
		if len(c.Counts) != c.NTokens || len(c.Experts) != c.NTokens*c.NSlots || len(c.Weights) != len(c.Experts) || c.Position != 0 {
			t.Error(c)
		}
		if len(c.Hidden) != c.NTokens*96 || len(c.Scores) != c.NTokens*16 || c.Scores[c.Experts[0]] <= c.Scores[c.Experts[1]] {
			t.Error(len(c.Hidden), len(c.Scores))
		}
		if c.Layer == 0 {
			c.Experts[0], c.Counts[0] = 7, 1
		}
		layers[c.Layer] = c.Experts[0]
	}))
	check0(t, s.CountRouting(true))
	check0(t, s.Append(background, ids))
	equal(t, layers[0], 7)
	equal(t, len(layers), must(model.Info()).NMoeLayers)
	check0(t, s.WatchRouting(nil))
	stats, info := must(s.Routing(0)), must(model.LayerInfo(0))
	equal(t, stats.NTokens, uint64(len(ids)*info.NSubheads))
	equal(t, len(stats.TokensPerExpert), info.NExperts)
	if stats.TokensPerExpert[7] == 0 {
		t.Fatal("what the callback wrote was not used")
	}
	sum := uint64(0)
	for _, n := range stats.ExpertsPerToken {
		sum += n
	}
	equal(t, sum, stats.NTokens)
	inner := must(s.Activations(0))
	equal(t, inner, ActivationStats{stats.NActivations, stats.NPositive})
	if inner.NPositive == 0 || inner.NPositive >= inner.NActivations {
		t.Fatal(inner)
	}
	_, err = s.Activations(4)
	fails(t, err, StatusRange)
	check0(t, s.SetRouter("topk:1"))
	check0(t, s.SetRouter(""))
	fails(t, s.SetRouter("topk:no"), StatusArgument)
}

func TestDescribesAModel(t *testing.T) {
	model := stories(t)
	info := must(model.Info())
	if info.VocabSize != 1536 || info.Head != "tokens" || info.IsEncoder || len(info.EOSTokens) == 0 || info.NActiveParameters >= info.NParameters {
		t.Fatal(info)
	}
	layer := must(model.LayerInfo(0))
	if layer.NSubheads < 2 || layer.Router != "topk:2" || layer.Kind != "topk" || layer.K != 2 || layer.Weights != "raw" || layer.Gate != "" {
		t.Fatal(layer)
	}
	_, err := model.LayerInfo(99)
	fails(t, err, StatusRange)
	found := false
	for _, tensor := range must(model.Tensors()) {
		found = found || tensor.Part == "experts" && tensor.Format == "ternary2"
	}
	equal(t, found, true)
	plan, sum := must(model.MemoryPlan(SessionOptions{}, 1)), uint64(0)
	for _, line := range must(model.Memory(SessionOptions{})) {
		sum += line.Bytes
	}
	equal(t, sum, plan.NeededBytes)
	equal(t, must(model.SuggestMemory(SessionOptions{}, 16)), 0)
	check0(t, model.Verify())
	equal(t, must(model.ChatTemplate()), "")
	equal(t, Version(), "0.1.0")
	if must(GetMemoryInfo()).AvailableBytes == 0 {
		t.Fatal("no memory")
	}
	for one, names := range map[string][]string{"scalar": ISAs(), "ternary2": WeightFormats(),
		"topk": RouterKinds(), "chatml": ChatTemplateNames()} {
		if !strings.Contains(","+strings.Join(names, ",")+",", ","+one+",") {
			t.Error(names, one)
		}
	}
}

func TestMemoryCap(t *testing.T) {
	options := ModelOptions{MemoryBytes: 3_400_000, Session: SessionOptions{Context: 128}}
	model := must(Open(testEnv(t), storiesPath, &options))
	s := must(model.Session(options.Session))
	tellsTheStory(t, s)
	stats := must(s.MemoryStats())
	if stats.CapBytes != 3_400_000 || stats.Session.NUses == 0 || stats.PeakBytes > stats.CapBytes {
		t.Fatal(stats)
	}
	options.MemoryBytes = 9
	_, err := Open(testEnv(t), storiesPath, &options)
	fails(t, err, StatusBudget)
}

func TestChat(t *testing.T) {
	model := stories(t)
	s := session(t, model)
	chat := must(s.Chat(ChatOptions{Template: "chatml", System: "You are a fox."}))
	check0(t, chat.Add("user", "Which way?"))
	text := must(chat.Render(true))
	if !strings.Contains(text, "You are a fox.") || !strings.HasSuffix(text, "<|im_start|>assistant\n") {
		t.Fatal(text)
	}
	equal(t, len(must(chat.Tokens(true))), 68)
	reply := ""
	result, err := chat.Reply(background, GenerateOptions{MaxTokens: 8}, func(p Piece) bool { reply += p.Text; return true })
	check0(t, err)
	equal(t, reply, "\nThere was once a boy named Jack")
	equal(t, result.NPrompt, 68)
	messages := must(chat.Messages())
	equal(t, len(messages), 2)
	equal(t, messages[1].Role, "assistant")
	equal(t, must(chat.RemoveOldest(len(must(chat.Tokens(true))))), 0)
	_, err = chat.RemoveOldest(4)
	fails(t, err, StatusTooLong)
	sampling, inFile, err := model.Sampling()
	check0(t, err)
	equal(t, sampling.Temperature, float32(0.8))
	equal(t, inFile, false)
	check0(t, chat.Truncate(1))
	check0(t, chat.SetSystem(""))
	equal(t, strings.Contains(must(chat.Render(false)), "fox"), false)
	other := session(t, model)
	check0(t, chat.SetSession(other))
	s.Close()
	equal(t, must(chat.Reply(background, GenerateOptions{MaxTokens: 4}, nil)).NReused, 0)
	ctx, cancel := context.WithCancel(background)
	_, err = chat.Reply(ctx, GenerateOptions{IgnoreEOS: true}, func(Piece) bool {
		cancel()
		time.Sleep(5 * time.Millisecond)
		return true
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	before := must(chat.Messages())
	for _, o := range []GenerateOptions{{}, {MaxTokens: 1}, {Logits: func([]int32, []float32) bool { panic("no") }}} {
		equal(t, panicOf(func() { _, _ = chat.Reply(background, o, func(Piece) bool { panic("no") }) }), "no")
		equal(t, reflect.DeepEqual(must(chat.Messages()), before), true)
	}
	last := must(model.Session(SessionOptions{}))
	check0(t, chat.SetSession(last))
	last.Close() // the chat keeps the session
	must(chat.Reply(background, GenerateOptions{MaxTokens: 4}, nil))
	equal(t, last.h.holders, 1)
	_, err = other.Chat(ChatOptions{})
	fails(t, err, StatusNotFound)
	equal(t, must(other.Chat(ChatOptions{Template: "plain", NoDate: true, Variables: []string{"a=b"}})) != nil, true)
}

func TestThinking(t *testing.T) {
	model := converted(t, "script.moe")
	if must(model.ChatTemplate()) == "" {
		t.Fatal("no template")
	}
	chat := must(session(t, model).Chat(ChatOptions{}))
	check0(t, chat.Add("user", "Hello"))
	thought, answer := "", ""
	result := must(chat.Reply(background, GenerateOptions{}, func(p Piece) bool {
		if p.Thinking {
			thought += p.Text
		} else {
			answer += p.Text
		}
		return true
	}))
	equal(t, thought+"|"+answer, "ab|Yes.")
	equal(t, result.NThinking, 4)
	equal(t, must(chat.Messages())[1], Message{Role: "assistant", Content: "Yes.", Thinking: "ab"})
	must(session(t, model).Chat(ChatOptions{Thinking: ThinkingOff}))
}

func TestEncoder(t *testing.T) {
	model := converted(t, "encoder.moe")
	info := must(model.Info())
	equal(t, info.IsEncoder, true)
	s, ids := session(t, model), encode(model, "the cat")
	whole := must(s.Encode(background, ids, EncodeOptions{Hidden: true, Pooled: true, Outputs: true}))
	n, d, v := len(ids), info.DModel, info.NOutputs
	if len(whole.Hidden) != n*d || len(whole.Pooled) != d || len(whole.Outputs) != n*v {
		t.Fatal(len(whole.Hidden), len(whole.Pooled), len(whole.Outputs))
	}
	for c := 0; c < d; c++ {
		mean := float32(0)
		for r := 0; r < n; r++ {
			mean += whole.Hidden[r*d+c] / float32(n)
		}
		if math.Abs(float64(mean-whole.Pooled[c])) > 1e-5 {
			t.Fatal(mean, whole.Pooled[c])
		}
	}
	some := must(s.Encode(background, ids, EncodeOptions{Outputs: true, Rows: []int32{1}}))
	if !reflect.DeepEqual(some.Outputs, whole.Outputs[v:2*v]) || some.Hidden != nil || some.Pooled != nil {
		t.Fatal("rows differ")
	}
	if !reflect.DeepEqual(must(s.Embed(background, "the cat", PoolMean)), whole.Pooled) ||
		!reflect.DeepEqual(must(s.Embed(background, "the cat", PoolFirst)), whole.Hidden[:d]) {
		t.Fatal("embed differs")
	}
	_, err := s.Encode(background, nil, EncodeOptions{Hidden: true})
	fails(t, err, StatusRange)
	_, err = s.Eval(background, ids)
	fails(t, err, StatusUnsupported)
}

func TestTranslation(t *testing.T) {
	model := converted(t, "translator.moe")
	info := must(model.Info())
	equal(t, info.IsEncoderDecoder, true)
	equal(t, info.SourceLength, 48)
	equal(t, must(model.LayerInfo(3)).NCrossHeads, 4)
	s := must(model.Session(SessionOptions{MaxBeam: 3, KV: KVF32}))
	defer s.Close()
	source := encode(model, "the cat")
	steps := 0
	wanted := TranslateOptions{NBest: 3, MaxTokens: 6, Stop: BeamStopStep, Progress: func(_, most uint64) bool {
		steps++
		return most == 6
	}}
	found := must(s.Translate(background, source, wanted))
	if len(found) != 3 || steps == 0 || found[0].Score < found[2].Score {
		t.Fatal(found, steps)
	}
	for _, text := range found {
		equal(t, text.Tokens[0], int32(4))
		equal(t, text.Tokens[len(text.Tokens)-1], int32(2))
	}
	wanted.Progress = nil
	equal(t, reflect.DeepEqual(must(s.Translate(background, source, wanted)), found), true)
	wanted.Progress = func(_, _ uint64) bool { return false }
	_, err := s.Translate(background, source, wanted)
	fails(t, err, StatusCancelled)
	must(s.Translate(background, source, TranslateOptions{MinTokens: -1}))
	for _, o := range []TranslateOptions{{Beam: 4}, {MinTokens: -2}} {
		_, err = s.Translate(background, source, o)
		fails(t, err, StatusRange)
	}
	_, err = s.ReadSource(background, make([]int32, 1<<26))
	fails(t, err, StatusTooLong)
	equal(t, len(must(s.ReadSource(background, source))), len(source)*info.DModel)
	equal(t, len(must(s.Eval(background, []int32{info.StartToken}))), info.VocabSize)
}
