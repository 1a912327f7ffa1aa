package mockserver

import (
	"io"
	"net/http"

	"kneefinder/generator/wire"
	"kneefinder/simulation/engine"
)

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, wire.ModelList{Object: "list", Data: []wire.Model{{
		ID: s.cfg.ModelName, Object: "model", Created: s.created, OwnedBy: string(s.cfg.Kind), MaxModelLen: s.cfg.ContextLimit,
	}}})
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-s.driver.closed:
		shuttingDown.write(w)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Version string `json:"version"`
	}{s.cfg.Version})
}

// info answers GET /server_info with SGLang's names, which both kinds use here. Engine is "kneemock", so that no client takes
// this server's figures for a GPU's.
func (s *Server) info(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Engine            string  `json:"engine"`
		Kind              Kind    `json:"kind"`
		Version           string  `json:"version"`
		ModelPath         string  `json:"model_path"`
		ServedModelName   string  `json:"served_model_name"`
		GPU               string  `json:"gpu,omitempty"`
		ContextLength     int     `json:"context_length,omitempty"`
		MaxTotalTokens    int     `json:"max_total_num_tokens"`
		ChunkedPrefill    int     `json:"chunked_prefill_size,omitempty"`
		MemFraction       float64 `json:"mem_fraction_static,omitempty"`
		EnableCacheReport bool    `json:"enable_cache_report"`
	}{
		Engine: "kneemock", Kind: s.cfg.Kind, Version: s.cfg.Version, ModelPath: s.cfg.ModelPath, ServedModelName: s.cfg.ModelName,
		GPU: s.cfg.GPU, ContextLength: s.cfg.ContextLimit, MaxTotalTokens: s.Stats().KVPoolTokens, ChunkedPrefill: s.cfg.ChunkedPrefill,
		MemFraction: s.cfg.MemFraction, EnableCacheReport: !s.cfg.NoCacheReport,
	})
}

// flushCache forgets all prompts, as SGLang does: only while no request is in the engine.
func (s *Server) flushCache(w http.ResponseWriter, _ *http.Request) {
	flushed, ok := s.driver.flushCache()
	switch {
	case !ok:
		shuttingDown.write(w)
	case !flushed:
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, "Cache not flushed: requests are running or waiting.\n")
	default:
		io.WriteString(w, "Cache flushed.\n")
	}
}

// tokenize answers POST /tokenize: the tokens of a prompt, or of messages with the template around them.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Prompt   string         `json:"prompt"`
		Messages []wire.Message `json:"messages"`
	}
	if refusal := readJSON(w, r, &req); refusal != nil {
		refusal.write(w)
		return
	}
	tokens := engine.AppendText(engine.AppendBOS(nil), req.Prompt)
	if req.Messages != nil {
		tokens = promptTokens(req.Messages)
	}
	writeJSON(w, http.StatusOK, struct {
		Tokens      []engine.Token `json:"tokens"`
		Count       int            `json:"count"`
		MaxModelLen int            `json:"max_model_len,omitempty"`
	}{tokens, len(tokens), s.cfg.ContextLimit})
}
