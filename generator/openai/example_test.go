package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/openai"
	"kneefinder/generator/workload"
)

type sinceStart time.Time

func (s sinceStart) Now() time.Duration { return time.Since(time.Time(s)) }

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}`+"\n\n")
		io.WriteString(w, `data: {"choices":[{"delta":{"content":"Hello"}}]}`+"\n\n")
		io.WriteString(w, `data: {"choices":[{"delta":{"content":" caller"},"finish_reason":"length"}]}`+"\n\n")
		io.WriteString(w, `data: {"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":2}}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()

	words, err := workload.LexiconByName("english")
	if err != nil {
		panic(err)
	}
	cfg := openai.Default()
	cfg.BaseURL = server.URL + "/v1"
	client, err := openai.New(cfg, sinceStart(time.Now()), words)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	reply := client.Do(context.Background(), generator.Request{MaxTokens: 2, Prompt: workload.Prompt{
		{Role: "user", Content: workload.Content{Segment: workload.Segment{Words: 100}}},
	}})
	t := reply.Turn
	fmt.Println(t.Outcome, t.Events, "events", t.PromptTokens, "+", t.CompletionTokens, "tokens,", t.CachedTokens, "cached")
	fmt.Println(reply.Content.Text)
	// Output:
	// ok 2 events 120 + 2 tokens, -1 cached
	// Hello caller
}
