package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kneefinder/generator"
)

func TestIdentify(t *testing.T) {
	for _, test := range []struct {
		name  string
		pages map[string]string
		want  string // kind, version, model
		has   string // a part of the details
	}{
		{"sglang", map[string]string{
			"/v1/models":   `{"data":[{"id":"google/gemma-3-12b-it","owned_by":"sglang","max_model_len":32768}]}`,
			"/server_info": `{"version":"0.5.4","api_key":"` + key + `","admin_api_key":"x","chunked_prefill_size":8192,"nothing":null,"tag":"` + key + `","list":[1,2],"large":"` + strings.Repeat("x ", 400) + `","max_total_num_tokens":100000,"internal_states":[{"memory_usage":{"kvcache":9.5},"a":"` + strings.Repeat("x", 600) + `"}]}`,
		}, "sglang 0.5.4 google/gemma-3-12b-it", "map[chunked_prefill_size:8192 large:" + strings.TrimSpace(strings.Repeat("x ", 100)) + " ... list:[1 2] max_model_len:32768 max_total_num_tokens:100000 memory_usage:map[kvcache:9.5] tag:[secret]]"},
		{"an older sglang", map[string]string{
			"/v1/models":       `{"data":[{"id":"m","owned_by":"sglang"}]}`,
			"/get_server_info": `{"version":"0.4.1","tp_size":2}`,
		}, "sglang 0.4.1 m", "tp_size:2"},
		{"vllm", map[string]string{
			"/v1/models": `{"data":[{"id":"m","owned_by":"vllm","max_model_len":4096}]}`,
			"/version":   `{"version":"0.10.1"}`,
		}, "vllm 0.10.1 m", "map[max_model_len:4096]"},
		{"vllm behind a proxy", map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`, "/version": `{"version":"0.10.1"}`}, "vllm 0.10.1 m", ""},
		{"kneemock", map[string]string{
			"/v1/models":   `{"data":[{"id":"m","owned_by":"sglang"}]}`,
			"/server_info": `{"engine":"kneemock","kind":"sglang","version":"1","gpu":"l40s","max_total_num_tokens":5}`,
		}, "kneemock 1 m", "gpu:l40s"},
		{"llama.cpp", map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"llamacpp"}]}`}, "llama.cpp  m", "map[]"},
		{"two models", map[string]string{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"},{"id":"b","owned_by":"vllm"}]}`}, "  ", ""},
		{"nothing", nil, "  ", "map[]"},
		{"not JSON", map[string]string{"/v1/models": `<html>`, "/server_info": `[]`, "/version": `"1"`}, "  ", "map[]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page, ok := test.pages[r.URL.Path]
				if !ok || r.Header.Get("Authorization") != "Bearer "+key {
					http.NotFound(w, r)
					return
				}
				w.Write([]byte(page))
			}))
			defer s.Close()
			cfg := Config{BaseURL: s.URL + "/v1", APIKey: key}
			c, err := New(cfg, startClock(time.Now()), lexicon(t))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			e, err := c.Identify(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Kind + " " + e.Version + " " + e.Model; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := fmt.Sprint(e.Details); !strings.Contains(got, test.has) || strings.Contains(got, key) {
				t.Errorf("got details\n%s, want\n%s", got, test.has)
			}
			if e.ConnectMS == nil || *e.ConnectMS <= 0 || *e.ConnectMS > 1000 {
				t.Errorf("got connect time %v", e.ConnectMS)
			}
			if e.BaseURL != s.URL {
				t.Errorf("got base URL %s, want %s", e.BaseURL, s.URL)
			}
		})
	}
}

func TestModels(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(`{"object":"list","data":[{"id":"m","max_model_len":9}]}`))
	}))
	defer s.Close()
	models, err := loopback(t, s.URL, generator.Limits{}).Models(context.Background())
	if err != nil || len(models) != 1 || models[0].ID != "m" || models[0].MaxModelLen != 9 {
		t.Errorf("got %+v, %v", models, err)
	}
	_, err = loopback(t, s.URL+"/elsewhere", generator.Limits{}).Models(context.Background())
	if err == nil || !strings.Contains(err.Error(), "get /v1/models: the server answered 404 404 page not found") {
		t.Errorf("got %v", err)
	}
}

func TestTokenize(t *testing.T) {
	const text = `Say "naïve" & go.`
	type answer func(body map[string]any) (code int, said string)
	says := func(code int, said string) answer { return func(map[string]any) (int, string) { return code, said } }
	for _, test := range []struct {
		name string
		answer
		want int
		ok   bool
	}{
		{"vllm", func(b map[string]any) (int, string) {
			if b["model"] != "m" || b["prompt"] != text || b["add_special_tokens"] != false {
				t.Errorf("vllm is asked %v", b)
			}
			return 200, `{"count":3,"max_model_len":4096,"tokens":[1,2,3],"token_strs":null}`
		}, 3, true},
		{"sglang", says(200, `{"tokens":[1,2],"count":2,"max_model_len":4096}`), 2, true},
		{"llama.cpp", func(b map[string]any) (int, string) {
			if b["content"] != text {
				return 200, `{"tokens":[]}`
			}
			return 200, `{"tokens":[5,{"id":6,"piece":"x"}]}`
		}, 2, true},
		{"no such page", says(404, `{"detail":"Not Found"}`), 0, false},
		{"not JSON", says(200, `<html>`), 0, false},
		{"other JSON", says(200, `{"data":[1]}`), 0, false},
		{"a list of counts", says(200, `{"count":[1]}`), 0, false},
		{"no token in a text", says(200, `{"count":0,"tokens":[]}`), 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body map[string]any
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Method+r.URL.Path != "POST/tokenize" || r.Header.Get("Authorization") != "Bearer "+key {
					t.Errorf("got %s %s, %v", r.Method, r.URL, err)
				}
				code, said := test.answer(body)
				w.WriteHeader(code)
				w.Write([]byte(said))
			}))
			defer s.Close()
			if n, ok := loopback(t, s.URL, generator.Limits{}).Tokenize(t.Context(), text); n != test.want || ok != test.ok {
				t.Errorf("got %d, %v, want %d, %v", n, ok, test.want, test.ok)
			}
		})
	}
	if n, ok := loopback(t, "http://127.0.0.1:1", generator.Limits{}).Tokenize(t.Context(), text); n != 0 || ok {
		t.Errorf("no server: got %d, %v", n, ok)
	}
}
