// SPDX-License-Identifier: MIT

// go run ./examples/generate MODEL PROMPT [TOKENS]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"

	"moe"
)

func run(ctx context.Context, path, prompt string, maxTokens int) error {
	env, err := moe.NewEnv(nil)
	if err != nil {
		return err
	}
	defer env.Close()
	model, err := moe.Open(env, path, nil)
	if err != nil {
		return err
	}
	defer model.Close()
	tokenizer, err := model.Tokenizer()
	if err != nil {
		return err
	}
	tokens, err := tokenizer.Encode(prompt)
	if err != nil {
		return err
	}
	session, err := model.Session(moe.SessionOptions{})
	if err != nil {
		return err
	}
	defer session.Close()

	fmt.Print(prompt)
	result, err := session.Generate(ctx, tokens, moe.GenerateOptions{MaxTokens: maxTokens},
		func(piece moe.Piece) bool {
			_, err := fmt.Print(piece.Text)
			return err == nil // otherwise the reader has gone
		})
	fmt.Printf("\n%d tokens, %s\n", result.NGenerated, result.Finish)
	return err
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: generate MODEL PROMPT [TOKENS]")
	}
	maxTokens := 24
	if len(os.Args) > 3 {
		maxTokens, _ = strconv.Atoi(os.Args[3])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // Ctrl-C ends it
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], maxTokens); err != nil {
		log.Fatal(err)
	}
}
