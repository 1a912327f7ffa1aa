package scrape

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxPage is more than any engine sends; a longer page is refused, however small it was packed.
const maxPage = 8 << 20

// source is one address that is read again and again; one goroutine has it.
type source struct {
	kind   string // Engine or GPU
	number int    // among the GPU exporters
	url    string
	shown  string // the address without user, password and query
	header http.Header

	failing bool
	told    string // the last trouble with a page that was reported
}

// newClient is a client that shares nothing with the one that measures.
func newClient(c Config) (client *http.Client, closed func()) {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment, // never for loopback
		DialContext:         (&net.Dialer{Timeout: c.Timeout}).DialContext,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: c.InsecureTLS},
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     time.Minute,
	}
	if c.dial != nil {
		t.Proxy, t.DialContext = nil, c.dial
	}
	return &http.Client{
		Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a header with a key in it goes where it was meant to go
		},
	}, t.CloseIdleConnections
}

// body is a page as it came.
type body struct {
	text        []byte
	openMetrics bool
	torn        bool // its end did not come
}

// get fetches the page; answered is called when the head of the answer is there. A page that broke off comes with the error.
func (s *source) get(ctx context.Context, client *http.Client, answered func()) (body, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return body{}, withoutURL(err)
	}
	for k, v := range s.header {
		req.Header[k] = v
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4,*/*;q=0.1")
	res, err := client.Do(req)
	if err != nil {
		return body{}, withoutURL(err)
	}
	defer res.Body.Close()
	answered()
	if res.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
		return body{}, refused(res, s.kind)
	}
	b := body{openMetrics: strings.HasPrefix(res.Header.Get("Content-Type"), "application/openmetrics-text")}
	b.text, err = io.ReadAll(io.LimitReader(res.Body, maxPage+1))
	switch {
	case len(b.text) > maxPage:
		return body{}, fmt.Errorf("the page is longer than %d MiB", maxPage>>20)
	case err != nil:
		b.torn = ctx.Err() == nil
		return b, withoutURL(err)
	}
	return b, nil
}

func refused(res *http.Response, kind string) error {
	err := fmt.Errorf("the answer is %s", res.Status)
	switch {
	case res.StatusCode == http.StatusNotFound && kind == Engine:
		return fmt.Errorf("%w: SGLang has metrics with --enable-metrics, llama.cpp with --metrics", err)
	case res.StatusCode/100 == 3:
		return fmt.Errorf("%w, to %q: redirects are not followed, name the place itself", err, host(res))
	}
	return err
}

// host is where a redirect leads, without what an address may hold of secrets.
func host(res *http.Response) string {
	u, err := res.Location()
	if err != nil {
		return "nowhere"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// withoutURL is the cause alone: an address may hold a password.
func withoutURL(err error) error {
	var in *url.Error
	if errors.As(err, &in) {
		return in.Err
	}
	return err
}

// report logs a source's state when it changes: once when it begins to fail, once when it recovers, and once for each thing that
// is wrong with its page.
func (s *source) report(log *slog.Logger, trouble string, err error) {
	log = log.With("source", s.kind, "url", s.shown)
	switch {
	case err != nil && !s.failing:
		log.Warn("metrics cannot be read; their figures are missing until they can", "error", err)
	case err == nil && s.failing:
		log.Warn("metrics can be read again")
	}
	s.failing = err != nil
	if trouble != "" && trouble != s.told && err == nil {
		log.Warn("a part of the metrics is left out", "error", trouble)
		s.told = trouble
	}
}

func (s *source) wants() func(name string) (string, bool) {
	if s.kind == Engine {
		return wantsEngine()
	}
	return wantsGPU()
}

func (s *source) read(p page) values {
	if s.kind == Engine {
		return readEngine(p)
	}
	return readGPUs(p)
}

func (s *source) nothing() string {
	if s.kind == Engine {
		return "the page holds no metrics of SGLang, vLLM, llama.cpp or TGI"
	}
	return "the page holds no metrics of DCGM exporter, nvidia_gpu_exporter or AMD's device metrics exporter"
}
