package openai

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	nullTTFT   = 100 * time.Millisecond
	nullTokens = 100
	stampLen   = 16 // bytes of a token's content: an instant in ns and a space
)

// monotonic is the machine's monotonic clock, the same in all processes.
type monotonic struct {
	base   time.Time
	offset time.Duration
}

func newMonotonic() monotonic {
	var best monotonic
	narrow := time.Hour
	for range 1000 {
		var ts syscall.Timespec
		before := time.Now()
		syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
		if took := time.Since(before); took < narrow {
			narrow = took
			best = monotonic{before, time.Duration(ts.Nano()) - took/2}
		}
	}
	return best
}

func (m monotonic) Now() time.Duration { return m.offset + time.Since(m.base) }

// nullServer answers every request with nullTokens tokens at nominal instants, each of which holds the instant at which it was
// written. One thread writes all streams and sleeps in the kernel, for Go's timers are late when idle; it never waits for a
// reader.
type nullServer struct {
	clk      monotonic
	itl      time.Duration
	requests int // to come

	mu    sync.Mutex
	came  []*nullStream // in order
	begun bool
}

type nullStream struct {
	fd   int
	next time.Duration
	sent int
	done chan bool // whether all of it was sent
}

// runNullServer serves until its input ends. It says on its output where, then when the first request came, then when the last
// one that its order tells of was answered.
func runNullServer(order benchOrder) {
	debug.SetGCPercent(-1) // a pause would be taken for the client's
	debug.SetMemoryLimit(1 << 30)
	runtime.GOMAXPROCS(4) // one for the thread that sleeps
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	s := &nullServer{clk: newMonotonic(), itl: time.Second / time.Duration(order.Rate), requests: order.Streams * order.Rounds}
	go s.pace()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				panic(err)
			}
			go s.serve(conn.(*net.TCPConn))
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

func (s *nullServer) serve(conn *net.TCPConn) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		panic(err)
	}
	st := &nullStream{done: make(chan bool, 1)}
	raw.Control(func(fd uintptr) { st.fd = int(fd) })
	for r := bufio.NewReader(conn); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		io.Copy(io.Discard, req.Body)
		if req.Method == http.MethodGet { // whether it is there, and what it is
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
			continue
		}
		s.mu.Lock()
		if !s.begun {
			s.begun = true
			fmt.Println("begun")
		}
		st.next, st.sent = s.clk.Now()+nullTTFT, 0
		s.came = append(s.came, st)
		s.mu.Unlock()
		if !<-st.done {
			return
		}
	}
}

// pace writes what is due. First tokens are due in the order in which their requests came, later ones in the order in which
// the ones before them were.
func (s *nullServer) pace() {
	runtime.LockOSThread()
	syscall.RawSyscall(syscall.SYS_PRCTL, 29, 1, 0) // timer slack of 1 ns
	var first, later []*nullStream
	buf := make([]byte, 0, 4096)
	for {
		s.mu.Lock()
		first = append(first, s.came...)
		s.came = s.came[:0]
		s.mu.Unlock()
		now := s.clk.Now()
		wake := now + nullTTFT/4 // who comes meanwhile is due later
		for len(first) > 0 && first[0].next <= now || len(later) > 0 && later[0].next <= now {
			q := &later
			if len(later) == 0 || len(first) > 0 && first[0].next < later[0].next {
				q = &first
			}
			st := (*q)[0]
			*q = (*q)[1:]
			buf = st.append(buf[:0], s.clk.Now())
			if n, err := syscall.Write(st.fd, buf); n < len(buf) {
				fmt.Fprintln(os.Stderr, "null server: a reader is too slow or gone:", n, "of", len(buf), err)
				st.done <- false
				continue
			}
			if st.sent++; st.sent == nullTokens {
				st.done <- true
				if s.requests--; s.requests == 0 {
					fmt.Println("ended")
				}
				continue
			}
			st.next += s.itl
			later = append(later, st)
			now = s.clk.Now()
		}
		for _, q := range [][]*nullStream{first, later} {
			if len(q) > 0 {
				wake = min(wake, q[0].next)
			}
		}
		if left := wake - s.clk.Now(); left > 0 {
			ts := syscall.NsecToTimespec(int64(left))
			syscall.Nanosleep(&ts, nil)
		}
	}
}

const (
	nullEvent = `data: {"id":"chatcmpl-6b2d17c0f1f94f0e8b0a5d3c2e1f0a9b","object":"chat.completion.chunk","created":1700000000,"model":"null",` +
		`"choices":[{"index":0,"delta":{"content":"`
	nullEventEnd = `"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	nullEnd      = `data: {"id":"chatcmpl-6b2d17c0f1f94f0e8b0a5d3c2e1f0a9b","object":"chat.completion.chunk","created":1700000000,"model":"null",` +
		`"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}` + "\n\n" +
		`data: {"id":"chatcmpl-6b2d17c0f1f94f0e8b0a5d3c2e1f0a9b","object":"chat.completion.chunk","created":1700000000,"model":"null",` +
		`"choices":[],"usage":{"prompt_tokens":120,"total_tokens":220,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":96}}}` + "\n\n" +
		"data: [DONE]\n\n"
)

// append appends the stream's next write.
func (st *nullStream) append(b []byte, now time.Duration) []byte {
	if st.sent == 0 {
		b = append(b, streamHead...)
	}
	b = strconv.AppendInt(b, int64(len(nullEvent)+stampLen+len(nullEventEnd)), 16)
	b = append(b, "\r\n"+nullEvent...)
	b = fmt.Appendf(b, "%0*d ", stampLen-1, now)
	b = append(b, nullEventEnd+"\r\n"...)
	if st.sent == nullTokens-1 {
		b = strconv.AppendInt(b, int64(len(nullEnd)), 16)
		b = append(b, "\r\n"+nullEnd+"\r\n0\r\n\r\n"...)
	}
	return b
}
