package analysis

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// Load writes a load of a run as it stands in sentences, such as "0.5 calls/s".
func Load(c measurement.Config, load float64) string { return unitOf(c).of(load) }

// Overload says whether a step was asked for more than it could carry for long. Its percentiles are then those of a backlog that
// grows with the length of the window, and no operating point.
type Overload struct {
	Known     bool
	Saturated bool
	Why       string // a clause of what it is told by
}

// OverloadOf judges a step by two signs, either of which suffices: less than 95 % of the turns that came were completed, which is
// where SaturationKnee puts its knee; or, after the first fifth of the window, the engine's queue grew by more than the engine runs at
// once, and was longer than that. A closed loop asks for no more than is answered, and a cap that held calls back hides what was
// asked for: there the first sign says nothing.
func OverloadOf(r measurement.Results, s measurement.StepResult) Overload {
	u := unitOf(r.Config)
	if u.closed() {
		return Overload{Why: "in a closed loop nothing is asked for until something is answered"}
	}
	if incomplete(s) {
		return Overload{Why: "the step was cut"}
	}
	slope, grown := math.NaN(), math.NaN()
	if e := s.Engine; e != nil && e.QueuedSlope != nil {
		slope = *e.QueuedSlope
		grown = slope * s.WindowS * (1 - settled)
		if limit, ok := runningLimit(r.Engine); ok { // of a fleet that of all
			if grown > limit && value(e.QueuedMax) > limit {
				return Overload{Known: true, Saturated: true, Why: fmt.Sprintf("the queue grew by %s requests a second, to %.0f at most, and %.0f can run at once", sig(slope), *e.QueuedMax, limit)}
			}
		}
	}
	queue := ""
	if !math.IsNaN(slope) {
		queue = fmt.Sprintf("; the queue grew by %s requests a second", sig(slope))
		if slope <= 0 || grown < 1 {
			queue = "; the queue did not grow"
		}
	}
	switch v := s.SaturationRatio; {
	case v == nil:
		return Overload{Why: "completions cannot be set against arrivals where a cap held calls back (raise --max-concurrent-calls)" + queue}
	case *v < saturated:
		return Overload{Known: true, Saturated: true, Why: fmt.Sprintf("of the %s that came %s were completed%s", u.answers(), completed(*v), queue)}
	default:
		return Overload{Known: true, Why: fmt.Sprintf("of the %s that came %s were completed%s", u.answers(), completed(*v), queue)}
	}
}

// Waits writes a row a step of what its turns' times and its engine's steps were made of; nothing where no step tells.
func Waits(w io.Writer, r measurement.Results) {
	if !slices.ContainsFunc(r.Steps, func(s measurement.StepResult) bool { return s.Times != nil }) {
		return
	}
	u := unitOf(r.Config)
	rows := [][]string{
		{u.column(), "TTFT mean", "P90", "queue wait P50", "P95", "from admit P50", "P95", "E2E P95", "batch", "most", "mixed", "KV peak", "saturated"},
		{string(u), "ms", "ms", "ms", "ms", "ms", "ms", "ms", "requests", "", "%", "%", ""},
	}
	backlog, unknown := false, []string{}
	for _, s := range r.Steps {
		row := []string{rate(s.Rate)}
		t, p, e := s.Times, &measurement.Packing{}, s.Engine
		if t == nil {
			t = &measurement.Times{}
		}
		if e == nil {
			e = &measurement.EngineResult{}
		}
		if e.Packing != nil {
			p = e.Packing
		}
		for _, v := range []*float64{t.TTFT.Mean, t.TTFT.P90, t.QueueWait.P50, t.QueueWait.P95, t.TTFTAdmitted.P50, t.TTFTAdmitted.P95, t.E2E.P95} {
			row = append(row, compact(v))
		}
		row = append(row, plain(p.BatchMean, "%.1f", 1), plain(p.BatchMost, "%.0f", 1), plain(p.MixedShare, "%.1f", 100), plain(e.KVPeak, "%.1f", 100))
		o := OverloadOf(r, s)
		backlog = backlog || o.Saturated
		row = append(row, map[bool]string{true: "yes", false: "no"}[o.Saturated])
		if !o.Known {
			row[len(row)-1] = "-"
			if why, _, _ := strings.Cut(o.Why, ";"); !slices.Contains(unknown, why) {
				unknown = append(unknown, why)
			}
		}
		rows = append(rows, row)
	}
	fmt.Fprintln(w, "Where the time goes, and how full the engine's steps are:")
	table(w, rows, "saturated")
	if backlog {
		fmt.Fprintln(w, "  saturated: the times are of a backlog that grows with the step, not of a load that can be carried")
	}
	if len(unknown) > 0 {
		folded(w, "  saturated -: it cannot be told:", " ", listed(unknown)+".")
	}
}

// Detail writes all that one step tells: its times, its engine's steps, the KV cache, who found how much in it, and whether it was
// saturated.
func Detail(w io.Writer, r measurement.Results, s measurement.StepResult) {
	u := unitOf(r.Config)
	fmt.Fprintf(w, "In detail at %s, by %d measured %s:\n", u.of(s.Rate), s.MeasuredTurns, u.answers())
	if t := s.Times; t != nil {
		rows := [][]string{{"ms", "mean", "P50", "P90", "P95", "P99"}}
		for _, x := range []struct {
			name string
			of   measurement.Spread
		}{
			{"TTFT from due", t.TTFT}, {"  queue wait", t.QueueWait}, {"  TTFT from admit", t.TTFTAdmitted},
			{"ITL", t.ITL}, {"TPOT", t.TPOT}, {"end to end", t.E2E},
		} {
			rows = append(rows, []string{x.name, number(x.of.Mean), number(x.of.P50), number(x.of.P90), number(x.of.P95), number(x.of.P99)})
		}
		table(w, rows, "ms")
	}
	if e := s.Engine; e != nil {
		batches(w, e)
		memory(w, u, deploymentOf(r.Engine), e)
	}
	hits := []string{}
	if s.CacheHitRate != nil {
		hits = append(hits, fmt.Sprintf("%.1f %% of the prompt tokens of the measured %s", 100**s.CacheHitRate, u.answers()))
	}
	if e := s.Engine; e != nil && e.CacheHitRate != nil {
		hits = append(hits, fmt.Sprintf("%.1f %% of those of all requests", 100**e.CacheHitRate))
	}
	if len(hits) > 0 {
		sentences(w, "Hits", strings.Join(hits, ", ")+".")
	}
	byReplica(w, deploymentOf(r.Engine), s.Engine)
	o := OverloadOf(r, s)
	switch {
	case !o.Known:
		sentences(w, "Saturated", "cannot be told: "+o.Why+".")
	case o.Saturated:
		sentences(w, "Saturated", "yes: "+o.Why+". The times above are of a backlog, not of a load that can be carried: ask for less, or give it more replicas.")
	default:
		sentences(w, "Saturated", "no: "+o.Why+".")
	}
}

func batches(w io.Writer, e *measurement.EngineResult) {
	p := e.Packing
	if p == nil || p.BatchMean == nil {
		return
	}
	text := fmt.Sprintf("%.1f requests a step on average, %s at most, in %s steps: %s prompts, whole or in part, and %s decodes, %s tokens through the model.",
		*p.BatchMean, plain(p.BatchMost, "%.0f", 1), grouped(fmt.Sprintf("%.0f", p.Steps)), maybe(p.PrefillMean), maybe(p.DecodeMean), maybe(p.QueryMean))
	text += fmt.Sprintf(" Of the steps %s prefill, and %s decode beside it.", plain(p.PrefillShare, "%.1f %%", 100), plain(p.MixedShare, "%.1f %%", 100))
	if e.PrefillBusy != nil && e.DecodeBusy != nil {
		of := ""
		if len(e.Replicas) > 1 {
			of = " of each replica, on average"
		}
		text += fmt.Sprintf(" Steps with a prefill take %.0f %% of the time%s, the others %.0f %%.", 100**e.PrefillBusy, of, 100**e.DecodeBusy)
	}
	sentences(w, "Batches", text)
}

func memory(w io.Writer, u unit, d deployment, e *measurement.EngineResult) {
	if e.KVPool == nil || e.KVUsageMean == nil {
		return
	}
	head, pool := "running", fmt.Sprintf("a pool of %s tokens", grouped(fmt.Sprintf("%.0f", *e.KVPool)))
	if of := d.kv.on(d, u); of != "" {
		head, pool = of+". Running", "the pool"
		if d.engines > 1 {
			pool = "all replicas' pools"
		}
	}
	share := func(v *float64) string { return plain(v, "%.1f %%", 100) }
	used, most := share(e.KVUsageMean), ""
	if e.KVPeak != nil {
		most = ", " + share(e.KVPeak)
		if d.engines > 1 || e.WindowUsage != nil {
			most += " of one"
		}
		most += " at most"
	}
	if e.WindowUsage != nil {
		used = share(OfPool(e, e.KVUsed))
		pool += " of layers that attend to everything"
	}
	text := fmt.Sprintf("%s requests hold %s of %s on average%s", head, used, pool, most)
	if e.KVCached != nil {
		text += fmt.Sprintf(", and %s is cache that nobody holds", share(OfPool(e, e.KVCached)))
	}
	if e.WindowUsage != nil {
		text += fmt.Sprintf("; of the window layers' own it is %s and %s", share(e.WindowUsage), share(e.WindowCached))
	}
	if e.EvictedRate != nil {
		text += fmt.Sprintf("; %s tokens a second are evicted", round(*e.EvictedRate))
	}
	if e.Retractions != nil && *e.Retractions > 0 {
		text += fmt.Sprintf(", and requests were pushed out of the batch %.0f times", *e.Retractions)
	}
	sentences(w, "KV", text+".")
}
