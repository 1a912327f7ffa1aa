package telemetry

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kneefinder/measurement"
)

// An endpoint that sends its callers to another host gets nothing sent there: the headers hold a key that is its own.
func TestEndpointRedirects(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=secret-0815")
	var followed, asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer other.Close()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer endpoint.Close()
	tel, h := start(t, func(c *Config) {
		c.OTLP = OTLP{Endpoint: endpoint.URL, Protocol: "http", SampleRatio: 1, Metrics: true, Interval: time.Hour}
	})
	turn := measurement.NewTurn()
	turn.Turn, turn.Outcome, turn.Sent, turn.Due, turn.End = 1, measurement.HTTP5xx, 0, 0, ms
	h.now = 2 * ms
	tel.StepBegin(measurement.Step{Rate: 1})
	tel.Turn(turn)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_ = tel.Shutdown(ctx) // nothing was taken
	if asked.Load() == 0 || followed.Load() > 0 {
		t.Errorf("the endpoint was asked %d times, the host it sends to %d times, want some and none", asked.Load(), followed.Load())
	}
}

// A variable that the SDK would print, password and all, is refused without.
func TestEndpointVariable(t *testing.T) {
	for _, v := range []string{"http://user:hunter2@:bad:/", "http://user:hunter2@host:4317"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", v)
		o := OTLP{Endpoint: "127.0.0.1:4317", SampleRatio: 1}
		if err := o.fill(); err == nil || len(err.Error()) > 200 || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", v, err)
		}
	}
}
