// Package wire holds the OpenAI chat-completions protocol as values: request, chunk, completion, usage, error.
package wire

import (
	"encoding/json"
	"fmt"
)

// ChatRequest is the body of POST /v1/chat/completions, as far as load generation needs it.
type ChatRequest struct {
	Model         string          `json:"model"`
	Messages      []Message       `json:"messages"`
	MaxTokens     int             `json:"max_tokens,omitempty"`
	MaxCompletion int             `json:"max_completion_tokens,omitempty"`
	Temperature   *float64        `json:"temperature,omitempty"`
	Stream        bool            `json:"stream,omitempty"`
	StreamOptions *StreamOptions  `json:"stream_options,omitempty"`
	IgnoreEOS     bool            `json:"ignore_eos,omitempty"`
	Priority      int             `json:"priority,omitempty"` // SGLang serves the highest first, vLLM the lowest
	User          string          `json:"user,omitempty"`
	Stop          json.RawMessage `json:"stop,omitempty"`
}

// StreamOptions asks for the usage chunk at the end of a stream.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// Message is one chat message with plain text.
type Message struct {
	Role    string `json:"role"`
	Content Text   `json:"content"`
}

// Text is a message's content. It is written as a string, and read from a string, from null, or from a list of text parts,
// which clients send too; parts are joined as they stand.
type Text string

// UnmarshalJSON refuses parts that are no text.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '[' {
		return json.Unmarshal(b, (*string)(t))
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	*t = ""
	for _, p := range parts {
		if p.Type != "text" {
			return fmt.Errorf("content part of type %q: only text is understood", p.Type)
		}
		*t += Text(p.Text)
	}
	return nil
}

// Chunk is one event of a stream.
type Chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"` // "chat.completion.chunk"
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []ChunkChoice `json:"choices"`
	Usage   *Usage        `json:"usage,omitempty"`
}

// ChunkChoice is one choice's part of a chunk.
type ChunkChoice struct {
	Index        int     `json:"index"`
	Delta        Delta   `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

// Delta is what a chunk adds. ReasoningContent and Reasoning are two spellings of one thing.
type Delta struct {
	Role             string          `json:"role,omitempty"`
	Content          *string         `json:"content,omitempty"`
	ReasoningContent *string         `json:"reasoning_content,omitempty"`
	Reasoning        *string         `json:"reasoning,omitempty"`
	ToolCalls        json.RawMessage `json:"tool_calls,omitempty"`
}

// Completion is an answer that is not a stream.
type Completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"` // "chat.completion"
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitempty"`
}

// Choice is one answer of a Completion.
type Choice struct {
	Index        int     `json:"index"`
	Message      Message `json:"message"`
	FinishReason string  `json:"finish_reason"`
}

// Usage counts tokens. A nil PromptTokensDetails, or a nil CachedTokens in it, means that the server does not tell.
type Usage struct {
	PromptTokens        int            `json:"prompt_tokens"`
	CompletionTokens    int            `json:"completion_tokens"`
	TotalTokens         int            `json:"total_tokens"`
	PromptTokensDetails *PromptDetails `json:"prompt_tokens_details"`
}

// PromptDetails says how much of the prompt came from the prefix cache.
type PromptDetails struct {
	CachedTokens *int `json:"cached_tokens"`
}

// ErrorBody is the body of a refusal: OpenAI's nested shape.
type ErrorBody struct {
	Error Error `json:"error"`
}

// Error is one refusal. Code is a number or a string, as servers differ.
type Error struct {
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code,omitempty"`
}

// ModelList is the body of GET /v1/models.
type ModelList struct {
	Object string  `json:"object"` // "list"
	Data   []Model `json:"data"`
}

// Model is one entry of a ModelList. MaxModelLen is the context limit where the server tells it.
type Model struct {
	ID          string `json:"id"`
	Object      string `json:"object"` // "model"
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len,omitempty"`
}

// RequestIDHeader carries TurnID, so that a server's log can be read beside the turn log.
const RequestIDHeader = "X-Request-Id"
