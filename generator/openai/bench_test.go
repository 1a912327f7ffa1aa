package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kneefinder/generator/wire"
	"kneefinder/measurement"
)

var (
	benchStreams = flag.String("streams", "200,500,1000", "BenchmarkStreams: streams at once")
	benchProfile = flag.String("streamprofile", "", "BenchmarkStreams: write the client's CPU profiles into this directory")
)

// roleEnv makes the test binary another program of the benchmark: the null server, or a client with its orders as JSON.
const roleEnv = "OPENAI_BENCH_ROLE"

// benchOrder is what a client process does: so many streams at once, each the same number of requests one after another.
type benchOrder struct {
	Client  string // "ours" or "bare"
	Addr    string
	Streams int
	Spread  time.Duration // over which the streams start
	Rounds  int
	Profile string
}

// benchResult is what a client process tells. The truth is nullTTFT and nullITL. Steady is without each stream's first request,
// which dials.
type benchResult struct {
	Failed                        int
	TTFT50, TTFT99                time.Duration // steady
	First99                       time.Duration // of the first requests
	ITL50, ITL99                  time.Duration // steady
	Stamp50, Stamp99, StampSteady time.Duration // read less written
	CPU                           time.Duration // user and system time of the process, an event
	RSS                           int           // bytes, at most
	Allocated                     int           // bytes a turn
	GCs                           int
}

// BenchmarkStreams times streams whose truth is known with this package's client and its turn log, and with a bare net/http
// reader that looks for line ends, in processes of their own beside a null server in a third. The client's CPU time is
// getrusage's, from the first request to the last answer.
func BenchmarkStreams(b *testing.B) {
	for word := range strings.SplitSeq(*benchStreams, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			b.Fatal(err)
		}
		for _, spread := range []time.Duration{0, 2 * time.Second} {
			for _, client := range []string{"bare", "ours"} {
				start := map[bool]string{true: "aligned", false: "spread"}[spread == 0]
				b.Run(fmt.Sprintf("%d/%s/%s", n, start, client), func(b *testing.B) {
					for b.Loop() {
						order := benchOrder{Client: client, Streams: n, Spread: spread, Rounds: 3}
						if *benchProfile != "" {
							order.Profile = fmt.Sprintf("%s/%s-%d-%s.pprof", *benchProfile, client, n, start)
						}
						r := benchRun(b, order)
						ms := func(name string, d time.Duration) {
							b.ReportMetric(float64(d)/float64(time.Millisecond), name)
						}
						ms("ttft-p50-ms", r.TTFT50)
						ms("ttft-p99-ms", r.TTFT99)
						ms("ttft-first-p99-ms", r.First99)
						ms("itl-p50-ms", r.ITL50)
						ms("itl-p99-ms", r.ITL99)
						ms("stamp-p50-ms", r.Stamp50)
						ms("stamp-p99-ms", r.Stamp99)
						ms("stamp-steady-p99-ms", r.StampSteady)
						b.ReportMetric(float64(r.CPU)/float64(time.Microsecond), "cpu-µs/event")
						b.ReportMetric(float64(r.RSS)/(1<<20), "rss-MB")
						b.ReportMetric(float64(r.Allocated)/1024, "alloc-KB/turn")
						b.ReportMetric(float64(r.GCs), "gcs")
						b.ReportMetric(0, "ns/op")
						if r.Failed > 0 {
							b.Errorf("%d streams failed", r.Failed)
						}
					}
				})
			}
		}
	}
}

// benchRun runs a null server and a client of it.
func benchRun(b *testing.B, order benchOrder) (r benchResult) {
	server := benchProcess("null")
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer server.Wait()
	defer in.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	order.Addr = strings.TrimSpace(line)
	role, err := json.Marshal(order)
	if err != nil {
		b.Fatal(err)
	}
	client := benchProcess(string(role))
	client.Stderr = os.Stderr
	said, err := client.Output()
	if err != nil {
		b.Fatal(err)
	}
	if err := json.Unmarshal(said, &r); err != nil {
		b.Fatalf("%v in %s", err, said)
	}
	return r
}

func benchProcess(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	return cmd
}

// benchTurn is what a client notes of one stream.
type benchTurn struct {
	sent  time.Duration
	reads []time.Duration // of the token events
	wrote []time.Duration // the server's stamps in them
}

// benchMain is main for a process of the benchmark.
func benchMain(role string) {
	if role == "null" {
		runNullServer()
		return
	}
	var order benchOrder
	if err := json.Unmarshal([]byte(role), &order); err != nil {
		panic(err)
	}
	clk := newMonotonic()
	client := bareClient
	if order.Client == "ours" {
		client = ourClient
	}
	one, turns := client(order, clk)
	if order.Profile != "" {
		f, err := os.Create(order.Profile)
		if err != nil {
			panic(err)
		}
		pprof.StartCPUProfile(f)
	}
	var mem [2]runtime.MemStats
	runtime.ReadMemStats(&mem[0])
	before := cpuTime()
	begin := time.Now().Add(50 * time.Millisecond)
	var wg sync.WaitGroup
	for i := range order.Streams {
		wg.Go(func() {
			time.Sleep(time.Until(begin.Add(order.Spread * time.Duration(i) / time.Duration(order.Streams))))
			for round := range order.Rounds {
				one(i, round)
			}
		})
	}
	wg.Wait()
	r := benchResult{CPU: (cpuTime() - before) / time.Duration(order.Streams*order.Rounds*nullTokens), RSS: peakRSS()}
	runtime.ReadMemStats(&mem[1])
	pprof.StopCPUProfile()
	r.GCs = int(mem[1].NumGC - mem[0].NumGC)
	r.Allocated = int(mem[1].TotalAlloc-mem[0].TotalAlloc) / (order.Streams * order.Rounds)

	var ttft, first, itl, stamp, steady []time.Duration
	for i, turn := range turns() {
		if len(turn.reads) != nullTokens || len(turn.wrote) != nullTokens {
			r.Failed++
			continue
		}
		isFirst := i < order.Streams
		if isFirst {
			first = append(first, turn.reads[0]-turn.sent)
		} else {
			ttft = append(ttft, turn.reads[0]-turn.sent)
		}
		for k, read := range turn.reads {
			late := read - turn.wrote[k]
			stamp = append(stamp, late)
			if isFirst {
				continue
			}
			steady = append(steady, late)
			if k > 0 {
				itl = append(itl, read-turn.reads[k-1])
			}
		}
	}
	at := func(d []time.Duration, q float64) time.Duration {
		if len(d) == 0 {
			return -1
		}
		slices.Sort(d)
		return d[int(q*float64(len(d)-1))]
	}
	r.TTFT50, r.TTFT99, r.First99 = at(ttft, .5), at(ttft, .99), at(first, .99)
	r.ITL50, r.ITL99 = at(itl, .5), at(itl, .99)
	r.Stamp50, r.Stamp99, r.StampSteady = at(stamp, .5), at(stamp, .99), at(steady, .99)
	json.NewEncoder(os.Stdout).Encode(r)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS is not getrusage's, which a process inherits.
func peakRSS() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		panic(err)
	}
	return kb << 10
}

// ourClient asks with a Client that has everything on, and writes a turn log.
func ourClient(order benchOrder, clk Clock) (one func(stream, round int), turns func() []benchTurn) {
	cfg := Default()
	cfg.BaseURL, cfg.Model = "http://"+order.Addr, "null"
	c, err := New(cfg, clk, lexicon(nil))
	if err != nil {
		panic(err)
	}
	file, err := os.CreateTemp("", "turns")
	if err != nil {
		panic(err)
	}
	os.Remove(file.Name())
	log := measurement.NewLogWriter(file, false)
	type answer struct {
		turn measurement.Turn
		text string
	}
	answers := make([]answer, order.Streams*order.Rounds)
	one = func(stream, round int) {
		r := ask(nullTokens)
		r.Call, r.Turn = stream, round+1
		reply := c.Do(context.Background(), r)
		reply.Turn.Due = reply.Turn.Sent
		log.Turn(reply.Turn)
		answers[round*order.Streams+stream] = answer{reply.Turn, reply.Content.Text}
	}
	return one, func() (all []benchTurn) {
		log.Flush()
		if log.Err() != nil {
			panic(log.Err())
		}
		for _, a := range answers {
			t := benchTurn{sent: a.turn.Sent}
			if a.turn.Outcome == measurement.OK {
				at := a.turn.FirstToken
				t.reads = append(t.reads, at)
				for _, g := range a.turn.Gaps {
					at += g
					t.reads = append(t.reads, at)
				}
				for text := a.text; len(text) >= stampLen; text = text[stampLen:] {
					ns, _ := strconv.Atoi(text[:stampLen-1])
					t.wrote = append(t.wrote, time.Duration(ns))
				}
			} else {
				fmt.Fprintln(os.Stderr, a.turn.Outcome, a.turn.Detail)
			}
			all = append(all, t)
		}
		return all
	}
}

// bareClient reads streams with as little as net/http allows: it looks for the ends of lines, and notes instants.
func bareClient(order benchOrder, clk Clock) (one func(stream, round int), turns func() []benchTurn) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1 << 30, DisableCompression: true}
	words, err := json.Marshal(wire.ChatRequest{Model: "null", MaxTokens: nullTokens, Stream: true, Messages: []wire.Message{
		{Role: "system", Content: wire.Text(lexicon(nil).AppendText(nil, ask(1).Prompt[0].Content.Segment))},
		{Role: "user", Content: wire.Text(ask(1).Prompt[1].Content.Text)},
	}})
	if err != nil {
		panic(err)
	}
	all := make([]benchTurn, order.Streams*order.Rounds)
	prefix := []byte(nullEvent)
	one = func(stream, round int) {
		turn := &all[round*order.Streams+stream]
		turn.reads = make([]time.Duration, 0, nullTokens)
		turn.wrote = make([]time.Duration, 0, nullTokens)
		req, err := http.NewRequest(http.MethodPost, "http://"+order.Addr+"/v1/chat/completions", bytes.NewReader(words))
		if err != nil {
			panic(err)
		}
		turn.sent = clk.Now()
		res, err := transport.RoundTrip(req)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		defer res.Body.Close()
		buf := make([]byte, readSize)
		kept := 0
		for {
			n, err := res.Body.Read(buf[kept:])
			now := clk.Now()
			rest := buf[:kept+n]
			for {
				end := bytes.IndexByte(rest, '\n')
				if end < 0 {
					break
				}
				if line := rest[:end]; bytes.HasPrefix(line, prefix) {
					ns, _ := strconv.Atoi(string(line[len(prefix) : len(prefix)+stampLen-1]))
					turn.reads = append(turn.reads, now)
					turn.wrote = append(turn.wrote, time.Duration(ns))
				}
				rest = rest[end+1:]
			}
			kept = copy(buf, rest)
			if err != nil {
				if err != io.EOF {
					fmt.Fprintln(os.Stderr, err)
				}
				return
			}
		}
	}
	return one, func() []benchTurn { return all }
}
