// SPDX-License-Identifier: MIT

// go run ./examples/serve MODEL [ADDRESS]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"moe"
	"moe/serve"
)

// answer writes what the service answers as HTTP. A client that goes away ends its request.
func answer(service *serve.Service, endpoint moe.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "expected POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request, err := service.Submit(r.Context(), endpoint, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer request.Cancel()
		for first := true; request.Next(); first = false {
			event := request.Event()
			events := request.Stream() && !(first && event.Status != http.StatusOK) // otherwise one object
			if first {
				begin(w, event, events)
			}
			if !events {
				_, _ = w.Write(event.JSON)
				continue
			}
			if event.Name != "" {
				fmt.Fprintf(w, "event: %s\n", event.Name)
			}
			fmt.Fprintf(w, "data: %s\n\n", event.JSON)
			if event.Last && event.Name == "" && event.Status == http.StatusOK {
				fmt.Fprint(w, "data: [DONE]\n\n")
			}
			w.(http.Flusher).Flush()
		}
	}
}

func begin(w http.ResponseWriter, event serve.Event, events bool) {
	w.Header().Set("Content-Type", "application/json")
	if events {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	if event.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(event.RetryAfter))
	}
	w.WriteHeader(event.Status)
}

func handler(service *serve.Service) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/chat/completions", answer(service, moe.EndpointChat))
	mux.Handle("/v1/completions", answer(service, moe.EndpointCompletions))
	mux.Handle("/v1/messages", answer(service, moe.EndpointMessages))
	mux.Handle("/v1/responses", answer(service, moe.EndpointResponses))
	return mux
}

func run(ctx context.Context, path, address string) error {
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
	service, err := serve.New(model, &serve.Options{ChatTemplate: os.Getenv("TEMPLATE")})
	if err != nil {
		return err
	}
	defer service.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	server := &http.Server{Handler: handler(service), ReadHeaderTimeout: time.Minute}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		stopped <- server.Shutdown(last) // the answers in progress are completed
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: serve MODEL [ADDRESS]     (TEMPLATE: a chat template other than the model's)")
	}
	address := "127.0.0.1:8080"
	if len(os.Args) > 2 {
		address = os.Args[2]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], address); err != nil {
		log.Fatal(err)
	}
}
