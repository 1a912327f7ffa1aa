package fleet

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"kneefinder/simulation/engine"
	"kneefinder/simulation/internal/scenario"
)

// TestScenarios runs testdata/*.txt: commands, a line "----", what they print. The commands are
//
//	fleet [replicas=] [prefill= decode=] [policy=] [NAME=VALUE...]  a new fleet of stations that a person can follow: so many servers= each,
//	                          prompt= for each token that is not cached, token= for each token behind the first, a cache of blocks of block=
//	event fail|drain|start REPLICA at AT [for FOR]  for the next fleet
//	scale [NAME=VALUE...]     an autoscaler for the next fleet
//	submit AT ID max=N PART...  a PART is name*length: words of its own
//	abort AT ID
//	advance AT                prints what the sink is told
//	run                       advances until nothing happens
//	replicas                  prints what each is and has done
//	report AT NAME...         prints some of Report
//	flush
func TestScenarios(t *testing.T) {
	scenario.Run(t, func(t *testing.T) scenario.Player {
		p := &player{t: t, families: map[string]int{}}
		p.next = Default()
		return func(command []string, out *strings.Builder) {
			p.out = out
			p.play(command)
		}
	})
}

type player struct {
	t        *testing.T
	f        *Fleet
	next     Config
	families map[string]int // of words, by name
	out      *strings.Builder
}

func (p *player) play(words []string) {
	args := words[1:]
	switch words[0] {
	case "fleet":
		p.fleet(args)
	case "event":
		e, err := ParseEvent(strings.Join(args, " "))
		if err != nil {
			fmt.Fprintln(p.out, err)
			return
		}
		p.next.Events = append(p.next.Events, e)
	case "scale":
		p.scale(args)
	case "submit":
		id := p.number(args[1])
		r := engine.Request{ID: uint64(id), Call: id, MaxTokens: p.number(strings.TrimPrefix(args[2], "max=")), Prompt: p.prompt(args[3:])}
		p.f.Submit(p.instant(args[0]), r)
	case "abort":
		p.f.Abort(p.instant(args[0]), uint64(p.number(args[1])))
	case "advance":
		p.f.AdvanceTo(p.instant(args[0]), &printer{out: p.out})
	case "run":
		sink := &printer{out: p.out}
		for at, ok := p.f.Next(); ok; at, ok = p.f.Next() {
			p.f.AdvanceTo(at, sink)
		}
	case "replicas":
		for i, r := range p.f.PerReplica() {
			fmt.Fprintf(p.out, "%d %s: sent %d, ended %d, failed %d, has %d", i, strings.TrimSpace(string(r.Role)+" "+string(r.State)), r.Sent, r.Ended, r.Failed, r.Outstanding)
			if r.Role == Prefill {
				fmt.Fprintf(p.out, ", handed off %d, holds %d", r.HandedOff, r.Held)
			}
			fmt.Fprintf(p.out, ", found %d tokens of %d\n", r.TokensReused, r.Tokens)
		}
	case "report":
		p.report(p.instant(args[0]), args[1:])
	case "flush":
		fmt.Fprintln(p.out, p.f.FlushCache())
	default:
		p.t.Fatalf("unknown command %q", words)
	}
}

func (p *player) fleet(args []string) {
	c := p.next
	p.next = Default()
	s := station{servers: 1, token: 10 * time.Millisecond, prompt: perToken(time.Millisecond)}
	n, prefill, decode := 0, 0, 0
	var weights, off []string
	h := &c.Handoff
	h.KVBytes = func(tokens int) int64 { return int64(tokens) }
	h.Link = Link{Name: "slow", Bandwidth: 1000}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "replicas":
			n = p.number(value)
		case "prefill":
			prefill = p.number(value)
		case "decode":
			decode = p.number(value)
		case "servers":
			s.servers = p.number(value)
		case "token":
			s.token = p.instant(value)
		case "prompt":
			s.prompt = perToken(p.instant(value))
		case "block":
			s.block, c.Router.BlockTokens = p.number(value), p.number(value)
		case "policy":
			c.Router.Policy = Policy(value)
		case "most":
			c.Router.MaxRequests = p.number(value)
		case "staleness":
			c.Router.Staleness = p.instant(value)
		case "affinity":
			c.Router.Affinity = p.instant(value)
		case "retry":
			c.Retry = Retry(value)
		case "start-up":
			c.StartUp = p.instant(value)
		case "weights":
			weights = strings.Split(value, ",")
		case "off":
			off = strings.Split(value, ",")
		case "bandwidth":
			h.Link.Bandwidth = float64(p.number(value))
		case "latency":
			h.Link.Latency = p.instant(value)
		case "hold":
			h.HoldFirst = true
		case "own-links":
			h.PerReplica = true
		case "decoding":
			h.MaxRequests = p.number(value)
		case "held":
			h.MaxHeld = p.number(value)
		default:
			p.t.Fatalf("unknown option %q", arg)
		}
	}
	c.Replicas = stations(n, s)
	if prefill+decode > 0 {
		c.Replicas = splitStations(prefill, decode, s)
	}
	for i, w := range weights {
		c.Replicas[i].Weight = float64(p.number(w))
	}
	for _, i := range off {
		c.Replicas[p.number(i)].Off = true
	}
	f, err := New(c)
	if err != nil {
		fmt.Fprintln(p.out, err)
		return
	}
	p.f = f
}

func (p *player) scale(args []string) {
	a := Autoscaler{Target: 1, Every: time.Second, Min: 1, Max: 1}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "role":
			a.Role = Role(value)
		case "signal":
			a.Signal = Signal(value)
		case "target":
			target, err := strconv.ParseFloat(value, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			a.Target = target
		case "every":
			a.Every = p.instant(value)
		case "min":
			a.Min = p.number(value)
		case "max":
			a.Max = p.number(value)
		case "cool-down":
			a.CoolDown = p.instant(value)
		default:
			p.t.Fatalf("unknown option %q", arg)
		}
	}
	p.next.Scale = append(p.next.Scale, a)
}

func (p *player) prompt(parts []string) (prompt []engine.Token) {
	for _, part := range parts {
		name, length, _ := strings.Cut(part, "*")
		if p.families[name] == 0 {
			p.families[name] = len(p.families) + 1
		}
		prompt = append(prompt, words(p.families[name], p.number(length))...)
	}
	return prompt
}

func (p *player) report(at time.Duration, names []string) {
	r := p.f.Report(at)
	values := map[string]any{
		"ended": r.Ended, "finished": r.Finished, "failed": r.Failed, "aborted": r.Aborted, "refused": r.Refused, "retried": r.Retried,
		"hits": r.Hits, "transfers": r.Transfers.Count, "bytes": r.Transfers.Bytes, "wait": r.Transfers.Wait, "travel": r.Transfers.Travel,
		"busy": r.Transfers.Busy, "paid": r.Paid, "started": r.Started, "drained": r.Drained,
		"waiting": p.f.Stats().Waiting, "parcels": r.Transfers.Waiting,
		"hitrate": fmt.Sprintf("%.3f, %.3f to %.3f", r.HitRate(), r.HitRateLow, r.HitRateHigh), "reuse": fmt.Sprintf("%.3f", r.BlockReuse()),
	}
	for _, name := range names {
		v, ok := values[name]
		if !ok {
			p.t.Fatalf("unknown figure %q", name)
		}
		fmt.Fprintf(p.out, "%s %v\n", name, v)
	}
}

func (p *player) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) instant(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// printer tells what a sink is told, of tokens only a request's first.
type printer struct {
	out   *strings.Builder
	count map[uint64]int
}

func (p *printer) Admitted(id uint64, at time.Duration, cached int) {
	fmt.Fprintf(p.out, "%v %d admitted, %d cached\n", at.Round(10*time.Microsecond), id, cached)
}

func (p *printer) Tokens(id uint64, at time.Duration, n int) {
	if p.count == nil {
		p.count = map[uint64]int{}
	}
	if p.count[id] += n; p.count[id] == n {
		fmt.Fprintf(p.out, "%v %d first token\n", at.Round(10*time.Microsecond), id)
	}
}

func (p *printer) Finished(id uint64, at time.Duration, f engine.Finish) {
	fmt.Fprintf(p.out, "%v %d %s: %d tokens, %d cached", at.Round(10*time.Microsecond), id, f.Reason, f.CompletionTokens, f.CachedTokens)
	if f.Detail != "" {
		fmt.Fprintf(p.out, "; %s", f.Detail)
	}
	fmt.Fprintln(p.out)
}
