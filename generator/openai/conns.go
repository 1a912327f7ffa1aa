package openai

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// idleConn is how long a connection waits for its next turn. Uvicorn, and so vLLM and SGLang, closes idle connections
	// after 5 s, and a request that meets the close is lost: a caller's pause of 5 to 7 s would hit just that.
	idleConn = 4 * time.Second

	dialTimeout = 10 * time.Second
)

// conns are the connections that no turn uses. A turn has its connection to itself and gives it back when its answer has been
// read to the end. They are kept here and not by http.Transport, because a turn tells whether it waited for a dial, whether its
// connection is used, and whether its request was sent twice: the transport dials ahead, swaps and sends again unseen.
type conns struct {
	transport *http.Transport
	clk       Clock
	base      *url.URL
	addr      string        // of base
	limit     time.Duration // how long one may be idle
	ctx       context.Context
	stop      context.CancelFunc
	wg        sync.WaitGroup // of what opens in the background

	mu       sync.Mutex
	idle     []*conn         // the longest idle first
	opening  []*conn         // in the background, for nobody yet
	promised []time.Duration // when turns to come were prepared for, and not yet taken their connection
	timer    *time.Timer     // set while there are idle ones
	closed   bool
}

// conn is one connection.
type conn struct {
	*http.ClientConn
	end  *atomic.Bool  // the other end has closed it, or it broke
	used bool          // it has carried a request
	idle time.Duration // since when
	done chan struct{} // closed when it is open, or cannot be
	err  error
}

// tlsError is the error of a handshake.
type tlsError struct{ error }

func (e tlsError) Unwrap() error { return e.error }

func newConns(t *http.Transport, clk Clock, base *url.URL) *conns {
	port := base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[base.Scheme]
	}
	ctx, stop := context.WithCancel(context.Background())
	return &conns{transport: t, clk: clk, base: base, addr: net.JoinHostPort(base.Hostname(), port), limit: idleConn,
		ctx: ctx, stop: stop}
}

// open opens a connection, with its handshake.
func (p *conns) open(ctx context.Context) (*conn, error) {
	var failed atomic.Bool
	end := new(atomic.Bool)
	ctx = context.WithValue(ctx, endKey{}, end)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { failed.Store(err != nil) },
	})
	cc, err := p.transport.NewClientConn(ctx, p.base.Scheme, p.addr)
	switch {
	case err == nil:
		return &conn{ClientConn: cc, end: end}, nil
	case failed.Load():
		return nil, tlsError{err}
	}
	return nil, err
}

// endKey is where a dial's context holds what is to be told that the connection has ended.
type endKey struct{}

// ending is a connection that tells of its end: the parser of an answer's head takes what stands before it for a whole line.
type ending struct {
	net.Conn
	end *atomic.Bool
}

// Read tells of the end.
func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	if err != nil {
		e.end.Store(true)
	}
	return n, err
}

// tellsEnd dials connections that tell of their end to those who ask.
func tellsEnd(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if end, ok := ctx.Value(endKey{}).(*atomic.Bool); ok && err == nil {
			c = &ending{c, end}
		}
		return c, err
	}
}

// connectTime is the median time of three TCP connects, about a round trip of the network. ok is false when the server cannot be
// reached, or only through a proxy: its distance says nothing.
func (p *conns) connectTime(ctx context.Context) (d time.Duration, ok bool) {
	network := p.transport.Proxy != nil // not Config.Dial
	if network {
		proxy, err := p.transport.Proxy(&http.Request{URL: p.base})
		if err != nil || proxy != nil {
			return 0, false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addr := p.addr
	connect := func() bool {
		begun := p.clk.Now()
		c, err := p.transport.DialContext(ctx, "tcp", addr)
		d = p.clk.Now() - begun
		if err != nil {
			return false
		}
		if a, isTCP := c.RemoteAddr().(*net.TCPAddr); isTCP && network {
			addr = a.String()
		}
		c.Close()
		return true
	}
	if !connect() { // finds the address, so that no time below holds a look-up of its name
		return 0, false
	}
	var times [3]time.Duration
	for i := range times {
		if !connect() {
			return 0, false
		}
		times[i] = d
	}
	slices.Sort(times[:])
	return times[1], true
}

// take gives a connection: the one that became idle last, else one that is being opened, else a new one. ready is whether it
// was there.
func (p *conns) take(ctx context.Context, prepared bool) (c *conn, ready bool, err error) {
	if c, ready = p.takeNow(prepared); ready {
		return c, true, nil
	}
	if c == nil {
		c, err = p.open(ctx)
		return c, false, err
	}
	select {
	case <-c.done:
		if c.err != nil {
			return nil, false, c.err
		}
		return c, false, nil
	case <-ctx.Done():
		p.release(c)
		return nil, false, context.Cause(ctx)
	}
}

// takeNow gives an idle connection, or one that is not open yet, or nil. A turn that nobody prepared for leaves what has been
// promised to others.
func (p *conns) takeNow(prepared bool) (c *conn, ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clk.Now()
	switch {
	case len(p.promised) == 0:
	case prepared:
		p.promised = slices.Delete(p.promised, 0, 1)
	case p.spare(now, 0) <= 0:
		return nil, false
	}
	for n := len(p.idle) - 1; n >= 0 && now-p.idle[n].idle < p.limit; n-- { // what is older, expire closes
		c = p.idle[n]
		p.idle = slices.Delete(p.idle, n, n+1)
		if c.Err() == nil { // else the server has closed it
			return c, true
		}
	}
	if len(p.opening) == 0 {
		return nil, false
	}
	c = p.opening[0]
	p.opening = slices.Delete(p.opening, 0, 1)
	return c, false
}

// spare is how many connections, idle for some time to come or being opened, are promised to nobody; the caller holds the lock.
func (p *conns) spare(now, ahead time.Duration) int {
	for len(p.promised) > 0 && now-p.promised[0] >= p.limit { // that turn never came
		p.promised = slices.Delete(p.promised, 0, 1)
	}
	n := len(p.opening) - len(p.promised)
	for _, c := range p.idle {
		if c.Err() == nil && now-c.idle+ahead < p.limit {
			n++
		}
	}
	return n
}

// release leaves a connection that is being opened to the next turn.
func (p *conns) release(c *conn) {
	p.mu.Lock()
	select {
	case <-c.done:
		p.mu.Unlock()
		if c.err == nil {
			p.put(c)
		}
	default:
		p.opening = append(p.opening, c)
		p.mu.Unlock()
	}
}

// put gives a connection back, or closes it when it cannot carry another request.
func (p *conns) put(c *conn) {
	if c.Available() == 0 || !p.keep(c) {
		c.Close()
	}
}

// keep adds an idle connection; it is false when none is kept any more.
func (p *conns) keep(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	c.idle = p.clk.Now()
	p.idle = append(p.idle, c)
	switch {
	case p.timer == nil:
		p.timer = time.AfterFunc(p.limit, p.expire)
	case len(p.idle) == 1:
		p.timer.Reset(p.limit)
	}
	return true
}

// expire closes what has been idle for too long.
func (p *conns) expire() {
	for _, c := range p.expired() {
		c.Close() // which may wait for the other end
	}
}

func (p *conns) expired() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clk.Now()
	n := 0
	for n < len(p.idle) && now-p.idle[n].idle >= p.limit {
		n++
	}
	old := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	if len(p.idle) > 0 {
		p.timer.Reset(p.idle[0].idle + p.limit - now)
	}
	return old
}

// prepare promises a connection to a turn, and opens one in the background unless one is idle that lives long enough for it,
// or being opened, and promised to nobody.
func (p *conns) prepare() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	now := p.clk.Now()
	there := p.spare(now, p.limit/4) > 0
	p.promised = append(p.promised, now)
	if there {
		return
	}
	c := &conn{done: make(chan struct{})}
	p.opening = append(p.opening, c)
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
		defer cancel()
		opened, err := p.open(ctx)
		if c.err = err; err == nil {
			c.ClientConn, c.end = opened.ClientConn, opened.end
		}
		p.mu.Lock()
		i := slices.Index(p.opening, c)
		if i >= 0 { // no turn waits for it
			p.opening = slices.Delete(p.opening, i, i+1)
		}
		close(c.done)
		p.mu.Unlock()
		if i >= 0 && err == nil {
			p.put(c)
		}
	})
}

// close closes the idle ones, and those that are given back from now on.
func (p *conns) close() {
	p.stop()
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
	p.wg.Wait()
}

// Prepare tells that a turn other than a call's first is due within a second, so that its time to the first token holds no
// dial: it opens a connection in the background, with its TLS handshake, and returns at once. The next such turn that finds no
// idle connection takes it, and waits for the rest of the dial if need be. Nothing is opened when a connection is idle for which
// no earlier call of Prepare has a use. One that no turn takes is closed after 4 s, as any idle one is. A dial that fails is
// the failure of the turn that waits for it; a later one dials itself.
func (c *Client) Prepare(ctx context.Context) {
	if ctx.Err() == nil {
		c.conns.prepare()
	}
}
