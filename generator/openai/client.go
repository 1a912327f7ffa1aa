// Package openai asks a server for streamed chat completions and times every token of the answers.
package openai

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"kneefinder/generator"
	"kneefinder/generator/workload"
)

const (
	readSize = 4 << 10   // as much as the transport gives of an answer in chunks
	maxKept  = 256 << 10 // buffers that one huge event or answer blew up are not kept for the next turn
)

// buffer is what a read goes into, while it is read.
type buffer [readSize]byte

// Clock tells the time since the start of the run.
type Clock interface{ Now() time.Duration }

var _ generator.Endpoint = (*Client)(nil)
var _ Words = (*workload.Lexicon)(nil)

// Client is a generator.Endpoint: a server that speaks OpenAI's protocol over HTTP/1.1, where each stream has a connection
// and so its own flow of bytes. Its methods may be called by many goroutines at once.
type Client struct {
	cfg     Config
	clk     Clock
	words   Words
	base    *url.URL
	chat    *url.URL
	header  http.Header // of every request
	host    string      // replaces the URL's, unless empty
	secrets []string
	head    []byte // of every body
	options []byte
	asks    *http.Transport // carries what is no turn
	conns   *conns          // carry turns
	readers sync.Pool       // of *reader
	buffers sync.Pool       // of *buffer
}

// New returns a client, or says which field of the config is wrong. The caller closes it.
func New(cfg Config, clk Clock, words Words) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	base, err := baseURL(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg:     cfg,
		clk:     clk,
		words:   words,
		base:    base,
		header:  http.Header{"User-Agent": {"kneefinder"}},
		secrets: cfg.secrets(),
		head:    cfg.head(),
		options: cfg.options(),
		asks:    transport(cfg),
		readers: sync.Pool{New: func() any { return new(reader) }},
		buffers: sync.Pool{New: func() any { return new(buffer) }},
	}
	c.conns = newConns(c.asks, clk, base)
	switch {
	case cfg.APIKey != "":
		c.header.Set("Authorization", "Bearer "+cfg.APIKey)
	case base.User != nil:
		password, _ := base.User.Password()
		r := http.Request{Header: c.header}
		r.SetBasicAuth(base.User.Username(), password)
	}
	base.User = nil
	for name, values := range cfg.Header {
		name = http.CanonicalHeaderKey(name)
		if name == "Host" && len(values) > 0 {
			c.host = values[0]
			continue
		}
		c.header[name] = slices.Clone(values)
	}
	c.chat = c.url("/v1/chat/completions")
	return c, nil
}

// Close closes the connections that no turn uses, and ends what Prepare began.
func (c *Client) Close() {
	c.conns.close()
	c.asks.CloseIdleConnections()
}

// url is the base URL with a path appended.
func (c *Client) url(path string) *url.URL {
	u := *c.base
	u.Path += path
	return &u
}

// transport opens connections. It limits none: that would queue turns on this side, and count the wait as the server's.
func transport(cfg Config) *http.Transport {
	t := &http.Transport{
		DialContext:         cfg.Dial,
		IdleConnTimeout:     idleConn,
		TLSHandshakeTimeout: dialTimeout,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: cfg.InsecureTLS},
		DisableCompression:  true, // a compressor holds tokens back
		Protocols:           new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	if cfg.Dial == nil {
		t.Proxy = http.ProxyFromEnvironment // never for loopback
		t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	t.DialContext = tellsEnd(t.DialContext)
	return t
}
