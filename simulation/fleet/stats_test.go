package fleet

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kneefinder/simulation/engine"
)

// Every field of engine.Stats is summed, a gauge's only as long as its engine is there.
func TestStatsFields(t *testing.T) {
	fill := func() (s engine.Stats) {
		v := reflect.ValueOf(&s).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); {
			case f.CanInt():
				f.SetInt(int64(i + 1))
			case f.CanFloat():
				f.SetFloat(float64(i + 1))
			default:
				t.Fatalf("field %s is a %s: say in addStats how it adds up", v.Type().Field(i).Name, f.Type())
			}
		}
		return s
	}
	all, counters := fill(), fill()
	addStats(&all, fill(), false)
	addStats(&counters, fill(), true)
	v, c := reflect.ValueOf(all), reflect.ValueOf(counters)
	known := 0
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		number := func(v reflect.Value) int {
			if v.CanFloat() {
				return int(v.Float())
			}
			return int(v.Int())
		}
		want := 2 * (i + 1)
		if slices.Contains(peaks, name) {
			want = i + 1
		}
		if got := number(v.Field(i)); got != want {
			t.Errorf("%s of two: got %d, want %d", name, got, want)
		}
		if slices.Contains(gauges, name) {
			known++
			want = i + 1
		}
		if got := number(c.Field(i)); got != want {
			t.Errorf("%s with an engine that is gone: got %d, want %d", name, got, want)
		}
	}
	if known != len(gauges) {
		t.Errorf("%d of %d gauges are fields", known, len(gauges))
	}
}

// watched is a Watcher: what it is told of each replica adds up to the replica's own counts.
type watched struct {
	*trace
	steps   []int
	input   []int
	routed  []int
	rests   []int
	last    []engine.Stats
	retract int
}

func (w *watched) Retracted(uint64, time.Duration, int)        { w.retract++ }
func (w *watched) Routed(_ uint64, _ time.Duration, index int) { w.routed[index]++ }
func (w *watched) ReplicaStepped(index int, s engine.Step) {
	w.steps[index]++
	w.input[index] += s.Input
}
func (w *watched) ReplicaRested(index int, _ time.Duration, s engine.Stats) {
	w.rests[index]++
	w.last[index] = s
}

// summed is an engine.Watcher of a fleet.
type summed struct {
	*trace
	steps, input int
	most         int // running
	rests        int
	rest         engine.Stats
}

func (w *summed) Retracted(uint64, time.Duration, int) {}
func (w *summed) Stepped(s engine.Step) {
	w.steps++
	w.input += s.Input
	w.most = max(w.most, s.Running)
	n := 0
	for _, k := range w.tokens {
		n += k
	}
	if s.Stats.GeneratedTokens != n {
		w.t.Errorf("at %v: %d tokens told, the step says %d", s.End, n, s.Stats.GeneratedTokens)
	}
}
func (w *summed) Rested(_ time.Duration, s engine.Stats) { w.rests, w.rest = w.rests+1, s }

func TestWatchers(t *testing.T) {
	fleet := func() *Fleet {
		c := config(Replicas(3, preset(t, "demo", "demo")))
		c.Events = []Event{{At: 700 * time.Millisecond, Kind: Fail, Replica: 2, For: 100 * time.Millisecond}}
		c.Retry = Resume
		return make1(t, c)
	}
	var arrivals []arrivalOf
	for id := range 60 {
		arrivals = append(arrivals, arrivalOf{time.Duration(id) * 15 * time.Millisecond, engine.Request{ID: uint64(id), Call: id, Prompt: words(id%7, 900), MaxTokens: 30}})
	}
	alone := fleet()
	drive(alone, nil, arrivals)
	f, w := fleet(), &watched{trace: newTrace(t), steps: make([]int, 3), input: make([]int, 3), routed: make([]int, 3), rests: make([]int, 3), last: make([]engine.Stats, 3)}
	drive(f, w, arrivals)
	for i, r := range f.PerReplica() {
		if s := r.Stats; w.steps[i] != s.PrefillSteps+s.DecodeSteps || w.routed[i] != r.Sent || w.rests[i] == 0 || w.steps[i] == 0 {
			t.Errorf("replica %d: told of %d steps, %d requests, %d rests; has %+v", i, w.steps[i], w.routed[i], w.rests[i], r)
		}
	}
	g, s := fleet(), &summed{trace: newTrace(t)}
	drive(g, s, arrivals)
	all := g.Stats()
	if s.steps != all.PrefillSteps+all.DecodeSteps || s.rests == 0 || s.rest != all || s.most <= g.PerReplica()[0].Stats.MaxRunningSeen {
		t.Errorf("told of %d steps, %d rests, %d running at most, at last %+v; want %+v", s.steps, s.rests, s.most, s.rest, all)
	}
	if all.GeneratedTokens != 60*30 || all.FinishedLength != 60 {
		t.Errorf("%+v", all)
	}
	if a, b := alone.Stats(), f.Stats(); a != b || a != all {
		t.Errorf("watched or not: %+v\n%+v\n%+v", a, b, all)
	}
}

func TestFlush(t *testing.T) {
	f := make1(t, config(Replicas(2, preset(t, "demo", "demo"))))
	for id := range uint64(2) {
		f.Submit(0, engine.Request{ID: id, Call: int(id), Prompt: words(1, 500), MaxTokens: 2})
	}
	if f.FlushCache() {
		t.Error("flushed while requests wait")
	}
	for at, ok := f.Next(); ok; at, ok = f.Next() {
		if f.FlushCache() {
			t.Error("flushed while requests run")
		}
		f.AdvanceTo(at, nil)
	}
	if s := f.Stats(); s.KVCachedTokens < 1000 {
		t.Errorf("%d tokens cached by two replicas", s.KVCachedTokens)
	}
	if !f.FlushCache() || f.Stats().KVCachedTokens != 0 {
		t.Errorf("not flushed: %+v", f.Stats())
	}
}

func TestEvents(t *testing.T) {
	for _, text := range []string{"fail 2 at 1m40s for 30s", "fail 0 at 0s", "drain 11 at 1.5s", "start 3 at 1h0m0s"} {
		e, err := ParseEvent(text)
		if err != nil || e.String() != text {
			t.Errorf("%q becomes %q, %v", text, e, err)
		}
	}
	for _, text := range []string{"", "fail", "fail 1 in 3s", "fail -1 at 3s", "fail 1 at -3s", "fail 1 at 3s for 0s", "fail 1 at 3s for -1s", "fail 1 at 3s until 4s", "start 1 at 3s for 1s", "fail 1 at 3s for 1s again"} {
		if e, err := ParseEvent(text); err == nil {
			t.Errorf("%q becomes %q", text, e)
		}
	}
}

// An event that changes nothing is a slip of who wrote it, and is named; what only running shows is in the report.
func TestPointlessEvents(t *testing.T) {
	for _, c := range []struct {
		events string // with commas between
		off    bool   // whether replica 1 is so at first
		want   string // "" where each does something
	}{
		{"fail 0 at 1s, fail 0 at 2s", false, `event "fail 0 at 2s" changes nothing: replica 0 is down then, by "fail 0 at 1s"`},
		{"fail 0 at 2s, fail 0 at 1s for 5s", false, `event "fail 0 at 2s" changes nothing: replica 0 is down then, by "fail 0 at 1s for 5s"`},
		{"fail 0 at 1s for 5s, fail 0 at 7s", false, ""},
		{"fail 0 at 1s, fail 1 at 2s", false, ""},
		{"fail 0 at 1s, drain 0 at 2s", false, `event "drain 0 at 2s" changes nothing: replica 0 is down then, by "fail 0 at 1s"`},
		{"start 0 at 1s", false, `event "start 0 at 1s" changes nothing: replica 0 is up then`},
		{"fail 0 at 1s, start 0 at 2s, start 0 at 3s", false, `event "start 0 at 3s" changes nothing: replica 0 is starting already then, by "start 0 at 2s"`},
		{"fail 0 at 1s, start 0 at 2s, start 0 at 30s", false, `event "start 0 at 30s" changes nothing: replica 0 is up then, by "start 0 at 2s"`},
		{"fail 0 at 1s for 1m, start 0 at 2s", false, ""}, // earlier
		{"drain 0 at 1s, drain 0 at 2s", false, `event "drain 0 at 2s" changes nothing: replica 0 is draining already then, by "drain 0 at 1s"`},
		{"drain 0 at 1s, start 0 at 2s, drain 0 at 3s", false, ""},
		{"drain 0 at 1s, fail 0 at 2s", false, ""}, // it may have requests yet
		{"fail 1 at 1s", true, `event "fail 1 at 1s" changes nothing: replica 1 is off then`},
		{"start 1 at 1s, fail 1 at 2s", true, ""},
	} {
		cfg := config(stations(2, station{servers: 1, prompt: perToken(1)}))
		cfg.StartUp, cfg.Replicas[1].Off = 10*time.Second, c.off
		for _, text := range strings.Split(c.events, ", ") {
			e, err := ParseEvent(text)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Events = append(cfg.Events, e)
		}
		_, err := New(cfg)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", c.events, err, c.want)
		}
	}

	cfg := config(stations(2, station{servers: 1, prompt: perToken(1)}))
	cfg.Scale = []Autoscaler{{Target: 1, Every: time.Second, Min: 1, Max: 2}}
	idle, later := Event{At: time.Second, Kind: Start}, Event{At: time.Hour, Kind: Fail}
	cfg.Events = []Event{idle, later}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.AdvanceTo(2*time.Second, nil)
	if r := f.Report(2 * time.Second); !slices.Equal(r.Idle, []Event{idle}) || !slices.Equal(r.Pending, []Event{later}) {
		t.Errorf("idle %v and pending %v", r.Idle, r.Pending)
	}

	first, second := Event{At: time.Second, Kind: Fail, For: 5 * time.Second}, Event{At: 2 * time.Second, Kind: Fail, For: time.Hour}
	cfg.Events = []Event{first, second}
	if f, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	f.AdvanceTo(7*time.Second, nil)
	if r, is := f.Report(7*time.Second), f.PerReplica()[0].State; !slices.Equal(r.Idle, []Event{second}) || is != Up {
		t.Errorf("failed again while it is down: idle %v, and %v when the first failure is over", r.Idle, is)
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add("fail 2 at 100s for 30s")
	f.Add("drain 0 at 1m")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEvent(text)
		if err != nil {
			return
		}
		again, err := ParseEvent(e.String())
		if err != nil || again != e {
			t.Errorf("%q is %+v, and %q is %+v, %v", text, e, e.String(), again, err)
		}
	})
}

func TestBadConfigs(t *testing.T) {
	s := station{servers: 1, prompt: perToken(1)}
	kv := func(int) int64 { return 1 }
	for _, test := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Replicas[1].New = nil }, "replica 1 has no engine: New must be set"},
		{func(c *Config) { c.Replicas[0].Role = "draft" }, `replica 0: role is "draft", must be "prefill", "decode" or empty`},
		{func(c *Config) { c.Replicas[1].Weight = -1 }, "replica 1: weight is -1, must be above 0, or 0 for 1"},
		{func(c *Config) { c.Router = Router{} }, `router: policy is ""; there are round_robin, random, least_loaded, least_tokens, prefix_aware and kv`},
		{func(c *Config) { c.Router.Decode = "x" }, `router: decode policy is "x"; there are round_robin, random, least_loaded, least_tokens, prefix_aware and kv`},
		{func(c *Config) { c.Router.BlockTokens = 0 }, "router: a block has 0 tokens, must be at least 1"},
		{func(c *Config) { c.Router.OverlapWeight = -1 }, "router: overlap weight is -1, must be at least 0"},
		{func(c *Config) { c.Router.Staleness = -1 }, "router: staleness is -1ns, must be at least 0"},
		{func(c *Config) { c.Router.Affinity = -1 }, "router: affinity lasts -1ns, must be at least 0"},
		{func(c *Config) { c.Router.MaxRequests = -1 }, "router: a replica takes -1 requests, must be at least 1, or 0 for no limit"},
		{func(c *Config) { c.Replicas = splitStations(1, 1, s) }, "handoff: KVBytes must be set: how much KV a prompt has"},
		{func(c *Config) { c.Replicas, c.Handoff = splitStations(1, 1, s), Handoff{KVBytes: kv} }, `handoff: link "" has a bandwidth of 0 bytes a second, must be above 0`},
		{func(c *Config) {
			c.Replicas, c.Handoff = splitStations(1, 1, s), Handoff{KVBytes: kv, Link: Link{Bandwidth: 1, Latency: -1}}
		}, `handoff: link "" has a latency of -1ns, must be at least 0`},
		{func(c *Config) {
			c.Replicas, c.Handoff = splitStations(1, 1, s), Handoff{KVBytes: kv, Link: Link{Bandwidth: 1}, MaxHeld: -1}
		}, "handoff: limits are 0 requests, 0 tokens and -1 held, must be above 0, or 0 for none"},
		{func(c *Config) { c.Retry = "always" }, `retry is "always", must be "fresh", "resume" or empty`},
		{func(c *Config) { c.StartUp = -1 }, "start-up takes -1ns, must be at least 0"},
		{func(c *Config) { c.Events = []Event{{Kind: "stop"}} }, `event 1: kind is "stop", must be fail, drain or start`},
		{func(c *Config) { c.Scale = make([]Autoscaler, 1) }, "autoscaler 1: target is 0, must be above 0"},
		{func(c *Config) { c.Scale = []Autoscaler{{Target: 1}} }, "autoscaler 1: it decides every 0s, must be above 0"},
		{func(c *Config) { c.Scale = []Autoscaler{{Target: 1, Every: 1, Max: 1, Signal: "luck"}} }, `autoscaler 1: signal is "luck", must be outstanding, queue or utilisation`},
		{func(c *Config) { c.Scale = []Autoscaler{{Target: 1, Every: 1, Max: 1, Signal: Waiting}} }, "autoscaler 1: min is 0 with signal queue, which wakes nobody: must be at least 1, or the signal outstanding"},
		{func(c *Config) {
			c.Scale = []Autoscaler{{Target: 1, Every: 1, Max: 1}, {Target: 1, Every: 1, Max: 1}}
		}, `autoscaler 2: role "" has one already`},
	} {
		c := config(stations(2, s))
		test.change(&c)
		if _, err := New(c); err == nil || err.Error() != test.want {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
	c := config(Replicas(2, engine.Config{}))
	if _, err := New(c); err == nil {
		t.Error("an engine that cannot be is taken")
	}
}
