package mockserver_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"kneefinder/generator/wire"
	"kneefinder/simulation/engine"
	"kneefinder/simulation/mockserver"
)

// A server of the demo model on the demo GPU, and one question to it.
func Example() {
	cfg, err := engine.Preset("demo", "demo")
	if err != nil {
		log.Fatal(err)
	}
	eng, err := engine.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	mock := mockserver.New(mockserver.Config{ModelName: "demo"}, eng)
	defer mock.Close()
	web := httptest.NewServer(mock.Handler())
	defer web.Close()

	resp, err := web.Client().Post(web.URL+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model": "demo", "max_tokens": 5, "messages": [{"role": "user", "content": "What is a knee?"}]}`))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	var answer wire.Completion
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Usage.PromptTokens, "tokens in,", answer.Usage.CompletionTokens, "out, ended by", answer.Choices[0].FinishReason)
	// Output: 13 tokens in, 5 out, ended by length
}
