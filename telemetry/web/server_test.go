package web

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves cfg on a free port until the test ends; stop ends it earlier and returns how long that took.
func start(t *testing.T, cfg Config) (s *Server, base string, stop func() time.Duration) {
	t.Helper()
	if cfg.ListenAddresses == nil {
		cfg.ListenAddresses = []string{"127.0.0.1:0"}
	}
	s, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	var once atomic.Bool
	stop = func() time.Duration {
		if once.Swap(true) {
			return 0
		}
		began := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		return time.Since(began)
	}
	t.Cleanup(func() { stop() })
	return s, "http://" + s.Addrs()[0].String(), stop
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ask makes one request on a connection of its own.
func ask(t *testing.T, method, url string, edit func(*http.Request), tlsConfig *tls.Config) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(req)
	}
	tr := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return resp.StatusCode, string(text)
}

func text(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) })
}

func TestPaths(t *testing.T) {
	var ready atomic.Bool
	reloads := 0
	var fail error
	_, base, _ := start(t, Config{Metrics: text("metrics"), Page: text("page"), Ready: ready.Load, Reload: func() error { reloads++; return fail }})
	for _, c := range []struct {
		method, path string
		status       int
		body         string
		why          string
	}{
		{"GET", "/", 200, "page", ""},
		{"HEAD", "/", 200, "", "what GET answers"},
		{"GET", "/metrics", 200, "metrics", ""},
		{"GET", "/events", 200, "page", "the page's stream is passed through"},
		{"GET", "/-/healthy", 200, "healthy\n", ""},
		{"GET", "/-/ready", 503, "not ready yet\n", "before Ready"},
		{"GET", "/nothing", 404, "404 page not found\n", ""},
		{"GET", "/debug/pprof/", 404, "404 page not found\n", "profiles are nobody's business"},
		{"POST", "/", 405, "Method Not Allowed\n", ""},
		{"GET", "/-/reload", 405, "Method Not Allowed\n", "a link must not reload"},
		{"POST", "/-/reload", 200, "reloaded\n", ""},
		{"PUT", "/-/reload", 200, "reloaded\n", "as Prometheus"},
	} {
		status, body := ask(t, c.method, base+c.path, nil, nil)
		if status != c.status || body != c.body {
			t.Errorf("%s %s: got %d %q, want %d %q %s", c.method, c.path, status, body, c.status, c.body, c.why)
		}
	}
	if reloads != 2 {
		t.Errorf("reloaded %d times, want 2", reloads)
	}
	ready.Store(true)
	if status, body := ask(t, "GET", base+"/-/ready", nil, nil); status != 200 || body != "ready\n" {
		t.Errorf("ready: got %d %q", status, body)
	}
	fail = errors.New("rate: -1: must be positive")
	if status, body := ask(t, "POST", base+"/-/reload", nil, nil); status != 500 || body != "not reloaded: rate: -1: must be positive\n" {
		t.Errorf("bad reload: got %d %q", status, body)
	}
	foreign := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	if status, _ := ask(t, "POST", base+"/-/reload", foreign, nil); status != 403 {
		t.Errorf("reload asked by another site's page: got %d, want 403", status)
	}
	if reloads != 3 {
		t.Errorf("reloaded %d times, want 3", reloads)
	}
}

func TestNoReload(t *testing.T) {
	_, base, _ := start(t, Config{Metrics: text("m"), MetricsPath: "/m"})
	for path, want := range map[string]int{"/-/reload": 404, "/": 404, "/m": 200, "/metrics": 404, "/-/ready": 200} {
		method := "GET"
		if path == "/-/reload" {
			method = "POST"
		}
		if got, _ := ask(t, method, base+path, nil, nil); got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}
}

func TestBadConfig(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	free := []string{"127.0.0.1:0"}
	for _, c := range []struct {
		name string
		cfg  Config
		want string // in the error
	}{
		{"port taken", Config{ListenAddresses: []string{addr}}, "listen on " + addr + ": the port is taken, perhaps by another kneeload; choose another with --web.listen-address, or port 0 for any that is free"},
		{"second port taken", Config{ListenAddresses: []string{"127.0.0.1:0", addr}}, "the port is taken"},
		{"no port", Config{ListenAddresses: []string{"9464"}}, "listen on 9464: address 9464: missing port in address; --web.listen-address wants HOST:PORT or :PORT"},
		{"not ours", Config{ListenAddresses: []string{"192.0.2.1:9464"}}, "this machine has no such address"},
		{"none", Config{}, "no address to listen on"},
		{"path", Config{ListenAddresses: free, MetricsPath: "/events"}, `metrics path "/events": it must be a slash and then letters, digits and . _ - /, and neither /events nor below /-/`},
		{"path with two slashes", Config{ListenAddresses: free, MetricsPath: "//metrics"}, `metrics path "//metrics"`},
		{"path that goes up", Config{ListenAddresses: free, MetricsPath: "/a/../b"}, `metrics path "/a/../b"`},
		{"path with a query", Config{ListenAddresses: free, MetricsPath: "/a?b"}, `metrics path "/a?b"`},
		{"path with an escape", Config{ListenAddresses: free, MetricsPath: "/%zz"}, `metrics path "/%zz"`},
		{"path in letters that are escaped", Config{ListenAddresses: free, MetricsPath: "/é"}, `metrics path "/é"`},
		{"path without slash", Config{ListenAddresses: free, MetricsPath: "metrics"}, `metrics path "metrics"`},
		{"no file", Config{ListenAddresses: free, ConfigFile: "/nowhere/web.yml"}, "web config /nowhere/web.yml: no such file or directory; its format is"},
		{"unknown key", Config{ListenAddresses: free, ConfigFile: write(t, "web.yml", "tls_server_confg: {}\n")}, "field tls_server_confg not found"},
		{"no certificate", Config{ListenAddresses: free, ConfigFile: write(t, "web.yml", "tls_server_config:\n  cert_file: none.crt\n  key_file: none.key\n")}, "none.crt"},
		{"plain password", Config{ListenAddresses: free, ConfigFile: write(t, "web.yml", "basic_auth_users:\n  ada: secret\n")}, "passwords stand as bcrypt hashes"},
		{"limit of nothing", Config{ListenAddresses: free, ConfigFile: write(t, "web.yml", "rate_limit:\n  interval: 1s\n")}, "refuses every request; burst must be 1 or more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Listen(c.cfg)
			if err == nil {
				s.Close()
				t.Fatalf("got no error, want %q", c.want)
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q", err, c.want)
			}
		})
	}
}

func TestCloseLetsThePortGo(t *testing.T) {
	s, err := Listen(Config{ListenAddresses: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	addr := s.Addrs()[0].String()
	s.Close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	l.Close()
}

// certificate writes a certificate of its own for 127.0.0.1 and returns who trusts it.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kneeload"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		text := pem.EncodeToMemory(block)
		pool.AppendCertsFromPEM(text)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

// The hash is bcrypt's of "secret".
const users = "basic_auth_users:\n  ada: $2a$04$mziGWg.FUv78imVQ6IcDX.RMuc.3xfLPFvgoWB8XEVeN35EDVlA62\n"

func TestTLSAndPasswords(t *testing.T) {
	file := write(t, "web.yml", "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"+users)
	trust := &tls.Config{RootCAs: certificate(t, filepath.Dir(file))}
	s, _, _ := start(t, Config{ConfigFile: file, Metrics: text("metrics"), ListenAddresses: []string{"127.0.0.1:0", "127.0.0.1:0"}})
	for _, addr := range s.Addrs() { // each of several addresses asks once
		base := "https://" + addr.String()
		for _, c := range []struct {
			path, password string
			status         int
		}{{"/metrics", "", 401}, {"/metrics", "wrong", 401}, {"/-/healthy", "", 401}, {"/metrics", "secret", 200}} {
			status, _ := ask(t, "GET", base+c.path, func(r *http.Request) {
				if c.password != "" {
					r.SetBasicAuth("ada", c.password)
				}
			}, trust)
			if status != c.status {
				t.Errorf("%s with password %q: got %d, want %d", c.path, c.password, status, c.status)
			}
		}
		if status, body := ask(t, "GET", "http://"+addr.String()+"/metrics", nil, nil); status != 400 {
			t.Errorf("plain HTTP: got %d %q, want 400", status, body)
		}
	}
}

func TestRateLimit(t *testing.T) {
	_, base, _ := start(t, Config{ConfigFile: write(t, "web.yml", "rate_limit:\n  burst: 3\n  interval: 1h\n"), Metrics: text("metrics")})
	for i, want := range []int{200, 200, 200, 429, 429} {
		if got, _ := ask(t, "GET", base+"/metrics", nil, nil); got != want {
			t.Errorf("request %d: got %d, want %d", i, got, want)
		}
	}
}

// An open stream ends with the server, and does not hold it; a stream outlives the limits of other answers.
func TestShutdownEndsStreams(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		for {
			if _, err := io.WriteString(w, "data: x\n\n"); err != nil {
				return
			}
			if rc.Flush() != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	for _, encrypted := range []bool{false, true} { // the latter over HTTP/2
		cfg := Config{Page: page, Limits: Limits{Request: 100 * time.Millisecond, Response: 100 * time.Millisecond, Shutdown: 20 * time.Second}}
		tr := &http.Transport{ForceAttemptHTTP2: true}
		if encrypted {
			cfg.ConfigFile = write(t, "web.yml", "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n")
			tr.TLSClientConfig = &tls.Config{RootCAs: certificate(t, filepath.Dir(cfg.ConfigFile))}
		}
		_, base, stop := start(t, cfg)
		if encrypted {
			base = strings.Replace(base, "http:", "https:", 1)
		}
		resp, err := (&http.Client{Transport: tr}).Get(base + "/events")
		if err != nil {
			t.Fatal(err)
		}
		if encrypted != (resp.ProtoMajor == 2) {
			t.Errorf("encrypted %v: %s", encrypted, resp.Proto)
		}
		lines := bufio.NewScanner(resp.Body)
		for began := time.Now(); time.Since(began) < 400*time.Millisecond; {
			if !lines.Scan() {
				t.Fatalf("%s: the stream ended after %v: %v", resp.Proto, time.Since(began), lines.Err())
			}
		}
		if took := stop(); took > 5*time.Second {
			t.Errorf("%s: Serve took %v to end beside an open stream", resp.Proto, took)
		}
		for lines.Scan() {
			// what was on its way
		}
		resp.Body.Close()
		tr.CloseIdleConnections()
	}
}

// An answer that never ends is cut when its time is up.
func TestShutdownCutsOthers(t *testing.T) {
	entered, gone := make(chan struct{}), make(chan struct{})
	metrics := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(gone)
	})
	s, _, stop := start(t, Config{Metrics: metrics, Limits: Limits{Shutdown: 50 * time.Millisecond}})
	conn, err := net.Dial("tcp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	if took := stop(); took > 5*time.Second {
		t.Errorf("Serve took %v to end", took)
	}
	<-gone
}

// Half a header holds a connection no longer than the limit.
func TestSlowHeader(t *testing.T) {
	s, _, _ := start(t, Config{Limits: Limits{Header: 50 * time.Millisecond}})
	conn, err := net.Dial("tcp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /-/healthy HTTP/1.1\r\nHost:")
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the connection was still open after 10 s: %v", err)
	}
}

// A reader that takes nothing does not keep the metrics from others.
func TestReaderThatTakesNothing(t *testing.T) {
	gaveUp := make(chan error, 1)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 1<<20)
		for {
			if _, err := w.Write(block); err != nil {
				gaveUp <- err
				return
			}
		}
	})
	_, base, _ := start(t, Config{Metrics: metrics, Limits: Limits{Scrape: 300 * time.Millisecond}})
	c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-gaveUp:
	case <-time.After(20 * time.Second):
		t.Fatal("the metrics are still being written to a reader that takes nothing")
	}
}

func Example() {
	s, err := Listen(Config{ListenAddresses: []string{"127.0.0.1:0"}, Metrics: text("kneeload_calls_in_flight 3\n")})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx) }()
	resp, err := http.Get("http://" + s.Addrs()[0].String() + "/metrics")
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Print(string(body))
	http.DefaultClient.CloseIdleConnections()
	stop()
	fmt.Println(<-ended)
	// Output:
	// kneeload_calls_in_flight 3
	// <nil>
}
