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
	"sort"
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
	benchStreams = flag.String("streams", "200,500,1000,2000x30", "BenchmarkStreams: streams at once, x events/s of each (50)")
	benchProfile = flag.String("streamprofile", "", "BenchmarkStreams: write the client's CPU profiles into this directory")
)

// roleEnv makes the test binary another program of the benchmark, with its orders as JSON: the null server, or a client.
const roleEnv = "OPENAI_BENCH_ROLE"

// benchOrder is what a process does: so many streams at once, each the same number of requests one after another.
type benchOrder struct {
	Client  string // "ours", "bare" or "sglang"; "null" is the server
	Addr    string
	Streams int
	Rate    int           // events/s of a stream
	Spread  time.Duration // over which the streams start
	Rounds  int
	Profile string
}

// benchResult is what a client process tells. The truth is nullTTFT and the order's rate. Steady is without each stream's first
// request, which dials.
type benchResult struct {
	Failed                        int
	TTFT50, TTFT99                time.Duration // steady
	First99                       time.Duration // of the first requests
	ITL50, ITL99                  time.Duration // steady
	Stamp50, Stamp99, StampSteady time.Duration // read less written; 0 is unknown
	CPU                           time.Duration // user and system time of the process, an event
	RSS                           int           // bytes, at most
	Allocated                     int           // bytes a turn; 0 is unknown
	GCs                           int
}

// BenchmarkStreams times streams whose truth is known with this package's client and its turn log, with a bare net/http reader
// that looks for line ends, and with SGLang's Rust client where there is one, in processes of their own beside a null server in
// another. The client's CPU time is getrusage's, from the first request to the last answer.
func BenchmarkStreams(b *testing.B) {
	for word := range strings.SplitSeq(*benchStreams, ",") {
		order := benchOrder{Rate: 50, Rounds: 3}
		streams, rate, rated := strings.Cut(word, "x")
		var err error
		if order.Streams, err = strconv.Atoi(streams); err == nil && rated {
			order.Rate, err = strconv.Atoi(rate)
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, order.Spread = range []time.Duration{0, nullTokens * time.Second / time.Duration(order.Rate)} {
			start := map[bool]string{true: "aligned", false: "spread"}[order.Spread == 0]
			for _, order.Client = range []string{"bare", "ours", "sglang"} {
				b.Run(fmt.Sprintf("%dx%d/%s/%s", order.Streams, order.Rate, start, order.Client), func(b *testing.B) {
					for b.Loop() {
						if *benchProfile != "" {
							order.Profile = fmt.Sprintf("%s/%s-%d-%s.pprof", *benchProfile, order.Client, order.Streams, start)
						}
						benchRun(b, order).report(b)
					}
				})
			}
		}
	}
}

func (r benchResult) report(b *testing.B) {
	ms := func(name string, d time.Duration) { b.ReportMetric(float64(d)/float64(time.Millisecond), name) }
	ms("ttft-p50-ms", r.TTFT50)
	ms("ttft-p99-ms", r.TTFT99)
	ms("ttft-first-p99-ms", r.First99)
	ms("itl-p50-ms", r.ITL50)
	ms("itl-p99-ms", r.ITL99)
	if r.Stamp99 > 0 {
		ms("stamp-p50-ms", r.Stamp50)
		ms("stamp-p99-ms", r.Stamp99)
		ms("stamp-steady-p99-ms", r.StampSteady)
	}
	b.ReportMetric(float64(r.CPU)/float64(time.Microsecond), "cpu-µs/event")
	b.ReportMetric(float64(r.RSS)/(1<<20), "rss-MB")
	if r.Allocated > 0 {
		b.ReportMetric(float64(r.Allocated)/1024, "alloc-KB/turn")
		b.ReportMetric(float64(r.GCs), "gcs")
	}
	b.ReportMetric(0, "ns/op")
	if r.Failed > 0 {
		b.Errorf("%d streams failed", r.Failed)
	}
}

// BenchmarkHighestRate looks for the most streams of 50 events/s, spread, whose stamps' P99 stays under 6 ms. A number counts as
// held when it is in one of two tries.
func BenchmarkHighestRate(b *testing.B) {
	for _, client := range []string{"bare", "ours"} {
		b.Run(client, func(b *testing.B) {
			for b.Loop() {
				held := func(streams int) bool {
					for range 2 {
						r := benchRun(b, benchOrder{Client: client, Streams: streams, Rate: 50, Spread: 2 * time.Second, Rounds: 2})
						b.Logf("%d streams: P99 of the stamps %v, %d failed", streams, r.Stamp99, r.Failed)
						if r.Failed == 0 && r.Stamp99 < 6*time.Millisecond {
							return true
						}
					}
					return false
				}
				const step = 50
				n := sort.Search(3000/step, func(i int) bool { return !held((i + 1) * step) }) // that many steps are held
				b.ReportMetric(float64(n*step), "streams")
				b.ReportMetric(float64(n*step*50), "events/s")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// benchRun runs a null server and a client of it.
func benchRun(b *testing.B, order benchOrder) (r benchResult) {
	server := benchProcess(benchOrder{Client: "null", Streams: order.Streams, Rate: order.Rate, Rounds: order.Rounds})
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
	said := bufio.NewScanner(out)
	said.Scan()
	order.Addr = said.Text()
	if order.Client == "sglang" {
		return sglangRun(b, order, said)
	}
	result, err := benchProcess(order).Output()
	if err != nil {
		b.Fatal(err)
	}
	if err := json.Unmarshal(result, &r); err != nil {
		b.Fatalf("%v in %s", err, result)
	}
	return r
}

func benchProcess(order benchOrder) *exec.Cmd {
	role, err := json.Marshal(order)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+string(role))
	cmd.Stderr = os.Stderr
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
	var order benchOrder
	if err := json.Unmarshal([]byte(role), &order); err != nil {
		panic(err)
	}
	if order.Client == "null" {
		runNullServer(order)
		return
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
	r := benchResult{CPU: (cpuTime() - before) / order.events(), RSS: peakRSS("self")}
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
	r.TTFT50, r.TTFT99, r.First99 = quantile(ttft, .5), quantile(ttft, .99), quantile(first, .99)
	r.ITL50, r.ITL99 = quantile(itl, .5), quantile(itl, .99)
	r.Stamp50, r.Stamp99, r.StampSteady = quantile(stamp, .5), quantile(stamp, .99), quantile(steady, .99)
	json.NewEncoder(os.Stdout).Encode(r)
}

// quantile is -1 for none; it sorts d.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return -1
	}
	slices.Sort(d)
	return d[int(q*float64(len(d)-1))]
}

// events is how many tokens come in all; a Duration, to divide one.
func (o benchOrder) events() time.Duration { return time.Duration(o.Streams * o.Rounds * nullTokens) }

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS is not getrusage's, which a process inherits.
func peakRSS(pid string) int {
	status, err := os.ReadFile("/proc/" + pid + "/status")
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
