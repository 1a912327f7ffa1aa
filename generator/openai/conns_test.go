package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kneefinder/generator"
	"kneefinder/measurement"
)

// closesIdle serves streams like uvicorn: a connection that is idle for 5 s after an answer is closed.
func closesIdle(t *testing.T, wrap func(net.Conn) net.Conn) *pipes {
	all, _ := writes(t, `C"a"@10 F D`)
	return &pipes{serve: func(conn net.Conn, _ int) {
		conn = wrap(conn)
		for r := bufio.NewReader(conn); ; {
			conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := r.Peek(1); err != nil {
				return
			}
			conn.SetReadDeadline(time.Time{})
			if _, _, err := readRequest(r); err != nil || !play(conn, streamHead, all, false) {
				return
			}
		}
	}}
}

// slow makes each dial take a while.
func slow(c *Client, wait time.Duration) {
	dial := c.asks.DialContext
	c.asks.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-time.After(wait):
			return dial(ctx, network, addr)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// idle is how many connections no turn uses.
func (c *Client) idle() int {
	c.conns.mu.Lock()
	defer c.conns.mu.Unlock()
	return len(c.conns.idle)
}

// testCertificate is httptest's.
func testCertificate(t *testing.T) tls.Certificate {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return s.TLS.Certificates[0]
}

// TestPrepare has a turn follow another after a pause in which the server closes what it kept.
func TestPrepare(t *testing.T) {
	cert := testCertificate(t)
	for _, test := range []struct {
		name    string
		base    string
		wrap    func(net.Conn) net.Conn
		prepare time.Duration // before the turn; 0 is never
		dialed  time.Duration
	}{
		{"not prepared", "http://server", func(c net.Conn) net.Conn { return c }, 0, 300 * time.Millisecond},
		{"prepared", "http://server", func(c net.Conn) net.Conn { return c }, 500 * time.Millisecond, 0},
		{"prepared too late", "http://server", func(c net.Conn) net.Conn { return c }, 100 * time.Millisecond, 200 * time.Millisecond},
		{"prepared too early", "http://server", func(c net.Conn) net.Conn { return c }, 5 * time.Second, 300 * time.Millisecond},
		{"not prepared, with TLS", "https://server", func(c net.Conn) net.Conn {
			return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
		}, 0, 300 * time.Millisecond},
		{"prepared, with TLS", "https://server", func(c net.Conn) net.Conn {
			return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
		}, 500 * time.Millisecond, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := closesIdle(t, test.wrap)
				c := p.client(t, func(c *Config) { c.BaseURL, c.InsecureTLS = test.base, true })
				slow(c, 300*time.Millisecond)
				if turn := c.Do(t.Context(), ask(1)).Turn; turn.Outcome != measurement.OK || turn.Dialed != 300*time.Millisecond {
					t.Errorf("first: %+v", turn)
				}
				time.Sleep(6*time.Second - test.prepare)
				if test.prepare > 0 {
					c.Prepare(t.Context())
				}
				time.Sleep(test.prepare)
				turn := c.Do(t.Context(), ask(1)).Turn
				if turn.Outcome != measurement.OK || turn.Dialed != test.dialed || turn.Retries != 0 || turn.Reused ||
					turn.FirstToken != turn.Sent+test.dialed+10*time.Millisecond {
					t.Errorf("got %+v\nwant dialed %v and a token 10ms later", turn, test.dialed)
				}
			})
		})
	}
}

// TestPrepareOverTLS is the same over real sockets, with the limits a tenth.
func TestPrepareOverTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	var opened atomic.Int32
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Config.IdleTimeout = 500 * time.Millisecond
	s.StartTLS()
	defer s.Close()
	c, err := New(Config{BaseURL: s.URL, InsecureTLS: true}, startClock(time.Now()), lexicon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.conns.limit = 400 * time.Millisecond
	for i := range 3 {
		turn := c.Do(t.Context(), ask(1)).Turn
		if turn.Outcome != measurement.OK || turn.Retries != 0 || turn.Reused || (turn.Dialed == 0) != (i > 0) {
			t.Errorf("turn %d: got %+v, want a new connection, dialed within the first turn only", i, turn)
		}
		time.Sleep(500 * time.Millisecond)
		c.Prepare(t.Context())
		for c.idle() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if got := opened.Load(); got != 4 {
		t.Errorf("%d connections for 3 turns and a Prepare without a turn, want 4", got)
	}
}

// TestPrepareOpensNoMore counts connections.
func TestPrepareOpensNoMore(t *testing.T) {
	first := ask(1)
	first.Turn = 1
	for _, test := range []struct {
		name string
		do   func(c *Client, ctx context.Context)
		want int // opened in all
		idle int // after it
	}{
		{"one idle is enough for one", func(c *Client, ctx context.Context) { c.Do(ctx, ask(1)); c.Prepare(ctx) }, 1, 1},
		{"but not for two", func(c *Client, ctx context.Context) { c.Do(ctx, ask(1)); c.Prepare(ctx); c.Prepare(ctx) }, 2, 2},
		{"each turn uses one up", func(c *Client, ctx context.Context) {
			for range 3 {
				c.Prepare(ctx)
				time.Sleep(time.Second)
				c.Do(ctx, ask(1))
			}
		}, 1, 1},
		{"a first turn leaves it to whom it was promised", func(c *Client, ctx context.Context) {
			c.Prepare(ctx)
			time.Sleep(time.Second)
			c.Do(ctx, first)
			c.Do(ctx, ask(1))
		}, 2, 2},
		{"a first turn takes what nobody needs", func(c *Client, ctx context.Context) {
			c.Do(ctx, first)
			c.Do(ctx, first)
		}, 1, 1},
		{"one that is about to close is not enough", func(c *Client, ctx context.Context) {
			c.Do(ctx, ask(1))
			time.Sleep(3500 * time.Millisecond)
			c.Prepare(ctx)
		}, 2, 2},
		{"a promise ends", func(c *Client, ctx context.Context) {
			c.Prepare(ctx)
			time.Sleep(4 * time.Second)
			c.Do(ctx, ask(1))
			c.Prepare(ctx)
		}, 2, 1},
		{"nothing for a context that has ended", func(c *Client, ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			c.Prepare(ctx)
		}, 0, 0},
		{"nothing after Close", func(c *Client, ctx context.Context) {
			c.Close()
			c.Prepare(ctx)
			c.Do(ctx, ask(1))
		}, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := closesIdle(t, func(c net.Conn) net.Conn { return c })
				c := p.client(t, nil)
				test.do(c, t.Context())
				synctest.Wait()
				if got, idle := p.opened(), c.idle(); got != test.want || idle != test.idle {
					t.Errorf("opened %d, %d idle, want %d, %d", got, idle, test.want, test.idle)
				}
				time.Sleep(idleConn)
				synctest.Wait()
				if n := c.idle(); n != 0 {
					t.Errorf("%d are idle after 4s", n)
				}
			})
		})
	}
}

// TestPrepareFails checks that a dial in the background hurts at most the turn that waits for it.
func TestPrepareFails(t *testing.T) {
	for _, test := range []struct {
		name   string
		wait   time.Duration // between Prepare and the turn
		limits generator.Limits
		want   measurement.Outcome
		detail string
		next   time.Duration // dialed by the turn after it
	}{
		{"before the turn", 2 * time.Second, generator.Limits{}, measurement.OK, "", 0},
		{"while the turn waits", 500 * time.Millisecond, generator.Limits{}, measurement.Connect, "no connection: no way", time.Second},
		{"while the turn gives up", 500 * time.Millisecond, generator.Limits{TTFT: 100 * time.Millisecond}, measurement.TTFTTimeout, "not connected", time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := closesIdle(t, func(c net.Conn) net.Conn { return c })
				c := p.client(t, func(c *Config) { c.Limits = test.limits })
				dial := c.asks.DialContext
				dials := 0
				c.asks.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials++
					n := dials
					time.Sleep(time.Second)
					if n == 1 {
						return nil, errors.New("no way")
					}
					return dial(ctx, network, addr)
				}
				c.Prepare(t.Context())
				time.Sleep(test.wait)
				turn := c.Do(t.Context(), ask(1)).Turn
				if turn.Outcome != test.want || turn.Local || !strings.Contains(turn.Detail, test.detail) {
					t.Errorf("got %s: %s (local: %v), want %s: %s, not local", turn.Outcome, turn.Detail, turn.Local, test.want, test.detail)
				}
				time.Sleep(time.Second)
				c.cfg.Limits = generator.Limits{}
				if turn := c.Do(t.Context(), ask(1)).Turn; turn.Outcome != measurement.OK || turn.Dialed != test.next {
					t.Errorf("the turn after it: got %+v, want ok, dialed %v", turn, test.next)
				}
			})
		})
	}
}

// TestAbandonedDial has a turn end while it waits for a dial in the background, which the next one then takes.
func TestAbandonedDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := closesIdle(t, func(c net.Conn) net.Conn { return c })
		c := p.client(t, nil)
		slow(c, time.Second)
		c.Prepare(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		if turn := c.Do(ctx, ask(1)).Turn; turn.Outcome != measurement.Canceled || turn.Dialed != 400*time.Millisecond {
			t.Errorf("got %+v, want canceled after 400ms of dialing", turn)
		}
		if turn := c.Do(t.Context(), ask(1)).Turn; turn.Outcome != measurement.OK || turn.Dialed != 600*time.Millisecond || p.opened() != 1 {
			t.Errorf("got %+v, %d connections, want the rest of the dial of the only one", turn, p.opened())
		}
		c.Prepare(t.Context())
		c.Prepare(t.Context())
		c.Close() // ends the dial, and waits for it
		if n := len(c.conns.opening); n != 0 {
			t.Errorf("%d are being opened after Close", n)
		}
	})
}

// TestThroughProxy checks that turns take the proxy that the environment names, for both schemes.
func TestThroughProxy(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", r.RequestURI)
	})
	secure := httptest.NewTLSServer(handler)
	defer secure.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			handler(w, r)
			return
		}
		to, err := net.Dial("tcp", secure.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		from, buf, _ := w.(http.Hijacker).Hijack()
		io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { io.Copy(to, buf); to.Close() }()
		io.Copy(from, to)
		from.Close()
	}))
	defer proxy.Close()
	through, _ := url.Parse(proxy.URL)
	for base, want := range map[string]string{
		"http://far.example":  "http://far.example/v1/chat/completions",
		"https://far.example": "/v1/chat/completions",
	} {
		c, err := New(Config{BaseURL: base, InsecureTLS: true}, startClock(time.Now()), lexicon(t))
		if err != nil {
			t.Fatal(err)
		}
		c.asks.Proxy = http.ProxyURL(through)
		reply := c.Do(t.Context(), ask(1))
		if reply.Turn.Outcome != measurement.OK || reply.Content.Text != want {
			t.Errorf("%s: got %q, %+v", base, reply.Content.Text, reply.Turn)
		}
		if d, ok := c.conns.connectTime(t.Context()); ok {
			t.Errorf("%s: connecting took %v, although only the proxy can be reached", base, d)
		}
		c.Close()
	}
}

func TestConnectTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{serve: func(conn net.Conn, _ int) { conn.Read(make([]byte, 1)) }}
		c := p.client(t, nil)
		dial := c.asks.DialContext
		waits := []time.Duration{time.Second, 30 * time.Millisecond, 90 * time.Millisecond, 10 * time.Millisecond}
		n := 0
		c.asks.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != "server:80" {
				t.Errorf("dials %s", addr)
			}
			time.Sleep(waits[n])
			n++
			return dial(ctx, network, addr)
		}
		if d, ok := c.conns.connectTime(t.Context()); d != 30*time.Millisecond || !ok || n != len(waits) {
			t.Errorf("got %v, %v after %d connects, want 30ms, the median without the first", d, ok, n)
		}
		c.asks.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no way") }
		if d, ok := c.conns.connectTime(t.Context()); d != 0 || ok {
			t.Errorf("no server: got %v, %v", d, ok)
		}
	})
	base := raw(t, func(conn net.Conn) { conn.Read(make([]byte, 1)) })
	if d, ok := loopback(t, base, generator.Limits{}).conns.connectTime(t.Context()); !ok || d <= 0 || d > time.Second {
		t.Errorf("loopback: got %v, %v", d, ok)
	}
}

// TestOutOfFiles limits the files of a child process until a turn can open no connection.
func TestOutOfFiles(t *testing.T) {
	const env = "OPENAI_TEST_OUT_OF_FILES"
	if base := os.Getenv(env); base != "" {
		outOfFiles(t, base)
		return
	}
	all, _ := writes(t, `C"a" F D`)
	base := raw(t, func(conn net.Conn) { answersOn(conn, func() bool { return play(conn, streamHead, all, false) }) })
	cmd := exec.Command(os.Args[0], "-test.run=^TestOutOfFiles$", "-test.count=1")
	cmd.Env = append(os.Environ(), env+"="+base)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, _, _ := strings.Cut(string(out), "\n")
	if want := "connect: this side is out of files or ports: "; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "too many open files (local: true)") {
		t.Errorf("got %q, want %q and the system's words, of this side", got, want)
	}
	if !strings.Contains(string(out), "afterwards: ok") {
		t.Errorf("got %s, want an answer when there are files again", out)
	}
}

func outOfFiles(t *testing.T, base string) {
	c := loopback(t, base, generator.Limits{})
	c.Do(t.Context(), ask(1)) // the poller's own files are open from here on
	c.conns.close()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, f)
	}
	turn := c.Do(t.Context(), ask(1)).Turn
	fmt.Printf("%s: %s (local: %v)\n", turn.Outcome, turn.Detail, turn.Local)
	for _, f := range files {
		f.Close()
	}
	fmt.Println("afterwards:", c.Do(t.Context(), ask(1)).Turn.Outcome)
}

// TestOutOfPorts is the same for ports, of which there are too many to use up.
func TestOutOfPorts(t *testing.T) {
	c, err := New(Config{BaseURL: "http://server", Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
	}}, startClock(time.Now()), lexicon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	turn := c.Do(t.Context(), ask(1)).Turn
	if want := "this side is out of files or ports: dial tcp: connect: cannot assign"; turn.Outcome != measurement.Connect || !turn.Local || !strings.HasPrefix(turn.Detail, want) {
		t.Errorf("got %s: %s, want %s", turn.Outcome, turn.Detail, want)
	}
}
