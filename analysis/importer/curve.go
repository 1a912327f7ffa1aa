package importer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

// joinRecords gives single requests of AIPerf, which name no load, to the summary of the same run, if one lies in the same folder.
// The load of others is read from how they were sent.
func joinRecords(points []point) []point {
	out := points[:0:0]
	for _, p := range points {
		if p.kind != AIPerfRecords {
			out = append(out, p)
			continue
		}
		dir := func(q point) string { name, _, _ := cutAt(q.at); return path.Dir(filepath.ToSlash(name)) }
		i := slices.IndexFunc(points, func(q point) bool { return q.kind == AIPerf && dir(q) == dir(p) })
		j := slices.IndexFunc(out, func(q point) bool { return i >= 0 && q.at == points[i].at })
		if i >= 0 && j < 0 { // the summary comes later
			points[i].turns, points[i].timed, points[i].dueTold = p.turns, true, p.dueTold
			continue
		}
		if j >= 0 && len(out[j].turns) == 0 {
			out[j].turns, out[j].timed, out[j].dueTold = p.turns, true, p.dueTold
			continue
		}
		out = append(out, p)
	}
	for i := range out {
		derivedLoad(&out[i])
	}
	return out
}

func cutAt(at string) (name, line string, ok bool) {
	i := strings.LastIndexByte(at, ':')
	if i < 0 {
		return at, "", false
	}
	return at[:i], at[i+1:], true
}

// derivedLoad sets the load of a point whose file names none, and says what it was taken from.
func derivedLoad(p *point) {
	if finite(p.load) || p.loadFrom == "" {
		return
	}
	if p.loadFrom == "completions" {
		if p.setLoad(p.throughput, math.NaN()) {
			p.note(fmt.Sprintf("The files of %s name no load: completions per second stand in its place, which fold back on themselves beyond saturation. Give the file that holds the settings of the run.", p.kind))
		}
		return
	}
	var due []time.Duration
	var busy []float64
	for _, t := range p.turns {
		due = append(due, t.Due)
		if t.End > t.Due {
			busy = append(busy, (t.End - t.Due).Seconds())
		}
	}
	slices.Sort(due)
	slices.Sort(busy)
	over := (due[len(due)-1] - due[0]).Seconds()
	typical := measurement.Quantile(busy, .5)
	most, share := mostInFlight(p.turns)
	switch {
	case share > .5 || over < typical:
		p.setLoad(math.NaN(), float64(most))
		p.note(fmt.Sprintf("The files of %s name no load. So many requests were in flight for most of the time that it is read as a closed loop of that many: give profile_export_aiperf.json of the same folder too, which tells it.", p.kind))
	case over > 0:
		p.setLoad(float64(len(due)-1)/over, math.NaN())
		p.note(fmt.Sprintf("The files of %s name no load: the rate at which requests were sent stands in its place. Give profile_export_aiperf.json of the same folder too, which tells what was asked.", p.kind))
	}
}

// mostInFlight is the most requests that were in flight at once, and for what share of the time until the last was sent.
func mostInFlight(turns []measurement.Turn) (most int, share float64) {
	type edge struct {
		at time.Duration
		by int
	}
	var edges []edge
	last := time.Duration(0)
	for _, t := range turns {
		if t.End > t.Due {
			edges = append(edges, edge{t.Due, 1}, edge{t.End, -1})
		}
		last = max(last, t.Due)
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	for pass := range 2 {
		n, since, at := 0, time.Duration(0), time.Duration(0)
		for _, e := range edges {
			if pass == 1 && n == most {
				at += max(0, min(e.at, last)-since)
			}
			n, since = n+e.by, e.at
			if pass == 0 {
				most = max(most, n)
			}
		}
		if last > 0 {
			share = float64(at) / float64(last)
		}
	}
	return most, share
}

// curvesOf puts points that differ in nothing but their load into one curve each.
func curvesOf(points []point, slo []measurement.Objective) ([]measurement.Results, error) {
	if len(points) == 0 {
		return nil, nil
	}
	var keys []string
	groups := map[string][]point{}
	stray := map[string][]string{} // what is said of points that stand at no load, by group without the axis
	var strays []string            // its groups, in order
	for _, p := range points {
		p.normal()
		group := strings.Join([]string{string(p.kind), p.engine.Kind, p.engine.Model, p.engine.GPU, p.group}, "\x00")
		if !finite(p.load) {
			if stray[group] == nil {
				strays = append(strays, group)
			}
			stray[group] = append(stray[group], p.own...)
			continue
		}
		key := group + "\x00" + string(p.axis)
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], p)
	}
	var out []measurement.Results
	var lone []error
	var dropped []string
	for _, key := range keys {
		ps := groups[key]
		group := strings.TrimSuffix(key, "\x00"+string(ps[0].axis))
		slices.SortStableFunc(ps, func(a, b point) int { return cmp.Compare(a.load, b.load) })
		if err := withoutTTFT(ps); err != nil {
			lone, dropped = append(lone, err), append(dropped, err.Error()+".")
			continue
		}
		if ps[0].load == ps[len(ps)-1].load {
			is := fmt.Sprintf("is one run of %s at %s, and one load is no curve", ps[0].kind, loadText(ps[0]))
			if ps[0].loadFrom != "" {
				is = fmt.Sprintf("is one run of %s (about %s), and one load is no curve", ps[0].kind, loadText(ps[0]))
			}
			if len(ps) > 1 {
				is = fmt.Sprintf("and %d more are runs of %s at %s alone, and one load is no curve", len(ps)-1, ps[0].kind, loadText(ps[0]))
			}
			err := refuse(ps[0].at, is, "give the files of the runs at other loads too, all in one command")
			lone, dropped = append(lone, err), append(dropped, err.Error()+".")
			continue
		}
		out = append(out, curve(ps, stray[group], slo))
		delete(stray, group)
	}
	var said []string
	for _, group := range strays {
		said = append(said, stray[group]...)
	}
	if len(keys) == 0 {
		return nil, refuse(strings.Join(said, " "), "No other load is in the files, and nothing is left to make a curve of", "give runs at several rates or limits of requests at once")
	}
	if len(out) == 0 {
		var first *RefusedError
		if len(said) > 0 && errors.As(lone[0], &first) {
			first.Is += fmt.Sprintf(" (left out: %s)", strings.TrimSuffix(strings.Join(said, " "), "."))
		}
		return nil, errors.Join(lone...)
	}
	out[0].Warnings = append(append(out[0].Warnings, dropped...), said...)
	nameApart(out)
	return out, nil
}

// withoutTTFT refuses runs that were answered and tell no TTFT.
func withoutTTFT(ps []point) error {
	answered := false
	for _, p := range ps {
		if p.ttft.told() || p.ok == 0 || slices.ContainsFunc(p.turns, func(t measurement.Turn) bool { return t.FirstToken >= 0 }) {
			if p.ok != 0 {
				return nil
			}
			continue
		}
		answered = true
	}
	if !answered {
		return nil
	}
	if ps[0].kind == CSV {
		var said []string
		for _, p := range ps {
			said = append(said, p.own...)
		}
		return refuse(ps[0].at, fmt.Sprintf("begins a table without any TTFT (%s)", strings.TrimSuffix(strings.Join(said, " "), ".")), "write each as a number in the unit that its column names")
	}
	return refuse(ps[0].at, fmt.Sprintf("is a run of %s that tells no time to first token", ps[0].kind), "have the tool stream its answers, and write percentiles of TTFT")
}

func loadText(p point) string {
	of := "request"
	if p.ofCalls {
		of = "call"
	}
	switch {
	case p.axis == rateAxis:
		return fmt.Sprintf("%s %ss/s", short(p.load), of)
	case p.load == 1:
		return fmt.Sprintf("1 %s at once", of)
	}
	return fmt.Sprintf("%s %ss at once", short(p.load), of)
}

// settings are what is known of how a curve was asked for. Nothing that its files do not tell is 0: it is named as unknown.
func settings(ps []point, slo []measurement.Objective) measurement.Config {
	c := ps[0].config
	if ps[0].whole != nil { // a run of ours keeps its own objectives
		c.Rates = []float64{}
		return c
	}
	c.Turns, c.SLO, c.Rates, c.Arrivals = 1, slo, []float64{}, ps[0].arrivals
	if !ps[0].ofCalls {
		c.LoadOf = measurement.Requests
	}
	if c.LoadOf == measurement.Requests {
		c.PromptTokens = c.UserTokens
	}
	c.Unknown = untold(c)
	severalTurns := func(p point) bool {
		return p.ofCalls || slices.ContainsFunc(p.turns, func(t measurement.Turn) bool { return t.Turn > 1 })
	}
	if slices.ContainsFunc(ps, severalTurns) {
		c.Unknown = append(c.Unknown, "turns")
	}
	for _, p := range ps {
		if p.arrivals != c.Arrivals {
			c.Arrivals = "unknown"
		}
	}
	if c.Arrivals == "unknown" {
		c.Unknown = append(c.Unknown, "arrivals")
	}
	return c
}

// curve makes one of points in ascending load.
func curve(ps []point, stray []string, slo []measurement.Objective) measurement.Results {
	evidence := clientCap(ps)
	p := &ps[0]
	config := settings(ps, slo)
	var steps []measurement.StepResult
	var notes, own []string
	for i := range ps {
		q := &ps[i]
		steps = append(steps, q.step(i, slo))
		if k := len(config.Rates); k == 0 || config.Rates[k-1] != q.load {
			config.Rates = append(config.Rates, q.load)
		}
		for _, s := range q.notes {
			if !slices.Contains(notes, s) {
				notes = append(notes, s)
			}
		}
		own = append(own, q.own...)
	}
	h := measurement.Header{Label: label(*p), Tool: string(p.kind), Config: config, Engine: p.engine}
	r := analysis.SoFar(h, steps)
	r.Knees.Curvature = curvature(h, steps, r.Knees.Curvature)
	r.Arrivals = certificate(ps, config)
	r.Mechanism = measurement.Mechanism{Evidence: []string{}, Confidence: "none"}
	r.Mechanism.Evidence = append(r.Mechanism.Evidence, evidence...)
	if p.whole == nil {
		r.Mechanism.Evidence = append(r.Mechanism.Evidence, fmt.Sprintf("What binds at the knee the files of %s do not tell: they hold neither the engine's own figures nor when prefixes were warm.", p.kind))
	}
	r.Knees.SLO.Note = withBounds(r.Knees.SLO.Note, ps, r.Steps)
	r.Warnings = append(r.Warnings, missing(ps, slo)...)
	r.Warnings = append(append(append(r.Warnings, own...), stray...), notes...)
	return r
}

// withBounds puts what decided a step, where the files do not hold the quantile itself, into what is said of the knee: first of the
// load that passes, then of the one that fails.
func withBounds(note string, ps []point, steps []measurement.StepResult) string {
	const none = "no figure is at hand"
	pass, fail := "", ""
	for i, s := range steps {
		switch {
		case s.Verdict == measurement.Pass && fail == "":
			pass = ps[i].bound
		case s.Verdict == measurement.Fail && fail == "":
			fail = ps[i].bound
			if fail == "" {
				fail = none
			}
		}
	}
	for _, b := range []string{pass, fail} {
		if b != "" && b != none {
			note = strings.Replace(note, none, b, 1)
		}
	}
	return note
}

// missing says which objectives the files hold no percentile for, and which they do.
func missing(ps []point, slo []measurement.Objective) (out []string) {
	for _, o := range slo {
		var have []float64
		lacks := 0
		for i := range ps {
			if len(ps[i].turns) > 0 || ps[i].whole != nil {
				continue
			}
			s := ps[i].spreadOf(o.Metric)
			if s.at(o.Quantile) == nil && !s.infinite(o.Quantile) && ps[i].ok > 0 {
				lacks++
			}
			for q := range s.quantiles {
				if !slices.Contains(have, q) {
					have = append(have, q)
				}
			}
		}
		if lacks == 0 {
			continue
		}
		slices.Sort(have)
		var names []string
		for _, q := range have {
			names = append(names, "P"+short(100*q))
		}
		s := fmt.Sprintf("%d of %d steps hold no P%s %s, and none is made up.", lacks, len(ps), short(100*o.Quantile), metricName(o.Metric))
		if len(have) > 0 {
			s += fmt.Sprintf(" The files have %s: to judge by one of these ask for it, as in --slo %s:p%s:%sms, or have the tool write P%s.", strings.Join(names, ", "), o.Metric, short(100*have[len(have)-1]), short(o.LimitMS), short(100*o.Quantile))
		} else {
			s += fmt.Sprintf(" The files have no percentile of %s at all.", metricName(o.Metric))
		}
		out = append(out, s)
	}
	return out
}

// curvature is the elbow of P95 TTFT, or of the highest percentile that every step holds where some step holds no P95.
func curvature(h measurement.Header, steps []measurement.StepResult, k measurement.Knee) measurement.Knee {
	all := func(of func(*measurement.StepResult) *float64) bool {
		return !slices.ContainsFunc(steps, func(s measurement.StepResult) bool {
			return of(&s) == nil && s.MeasuredTurns > s.Errors && !slices.Contains(s.Flags, measurement.FlagCensored)
		})
	}
	held := func(s *measurement.StepResult) bool {
		return s.TTFTP95 != nil || s.TTFTP95AtLeast != nil || slices.Contains(s.Flags, measurement.FlagCensored)
	}
	if all(func(s *measurement.StepResult) *float64 {
		if held(s) {
			return &s.Rate
		}
		return nil
	}) {
		return k
	}
	for _, other := range []struct {
		name string
		of   func(*measurement.StepResult) *float64
	}{
		{"P99", func(s *measurement.StepResult) *float64 { return s.TTFTP99 }},
		{"P50", func(s *measurement.StepResult) *float64 { return s.TTFTP50 }},
	} {
		if !all(other.of) {
			continue
		}
		in := slices.Clone(steps)
		for i := range in {
			in[i].TTFTP95 = other.of(&in[i])
		}
		k = analysis.SoFar(h, in).Knees.Curvature
		k.Note = strings.ReplaceAll(k.Note, "P95", other.name)
		if k.Status == measurement.Found {
			k.Note = strings.TrimSpace(fmt.Sprintf("Read from %s TTFT, for the files hold no P95 of every step. %s", other.name, k.Note))
		}
		return k
	}
	k = measurement.Knee{Status: measurement.NoKnee, Method: k.Method, Note: "The steps hold no percentile of TTFT in common."}
	return k
}

// certificate tests the instants at which requests were sent, where the files hold them.
func certificate(ps []point, c measurement.Config) measurement.Arrivals {
	a := measurement.Arrivals{Dispersion: []measurement.WindowTest{}}
	if ps[0].whole != nil {
		return a
	}
	log := measurement.Log{Header: measurement.Header{Config: c}}
	var start time.Duration
	requests := 0.
	for i, p := range ps {
		requests += known(p.ok, 0) + known(p.failed, 0)
		if !p.timed || p.axis != rateAxis {
			continue
		}
		s := frame(measurement.Step{Step: i, Rate: p.load}, p.turns)
		end := s.WindowEnd
		s.Start, s.WindowStart, s.WindowEnd, s.DrainEnd = start+s.Start, start+s.WindowStart, start+s.WindowEnd, start+s.WindowEnd
		log.Steps = append(log.Steps, s)
		for _, t := range p.turns {
			if t.Turn != 1 {
				continue
			}
			t.Step, t.Call = i, i*measurement.CallsPerStep+len(log.Turns)%measurement.CallsPerStep
			t.Due, t.Sent = start+t.Due, start+t.Sent
			log.Turns = append(log.Turns, t)
		}
		start += end + time.Second
	}
	if c.Arrivals == closedLoop {
		a.Process, a.Calls = closedLoop, int(min(requests, 1e12))
		return a
	}
	if len(log.Turns) > 0 {
		if c.Arrivals == "unknown" { // then whether they were Poisson is what is asked
			log.Header.Config.Arrivals = ""
		}
		a = analysis.Certify(log)
		if slices.ContainsFunc(ps, func(p point) bool { return !p.dueTold }) { // then when each was sent is all that is known
			a.LagP50, a.LagP99, a.LagMax = nil, nil, nil
		}
	}
	return a
}

// label names a curve by what sets it apart, or by its files.
func label(p point) string {
	name, _, _ := cutAt(p.at)
	switch {
	case p.whole != nil && p.group != "":
		return p.group
	case p.group != "" && p.engine.Model == "":
		return p.group
	case p.engine.Model != "":
		return strings.TrimSpace(path.Base(p.engine.Model) + " " + p.group)
	case folder(name) != "":
		return folder(name)
	}
	base := path.Base(filepath.ToSlash(name))
	return strings.TrimSuffix(base, path.Ext(base))
}

// nameApart gives curves of one label what tells them apart.
func nameApart(rs []measurement.Results) {
	for _, more := range []func(r measurement.Results) string{
		func(r measurement.Results) string { return r.Engine.GPU },
		func(r measurement.Results) string { return r.Engine.Kind },
		func(r measurement.Results) string { return r.Tool },
		func(r measurement.Results) string {
			if r.Config.Arrivals == closedLoop {
				return "closed loop"
			}
			return "by rate"
		},
	} {
		count := map[string]int{}
		for _, r := range rs {
			count[r.Label]++
		}
		for i := range rs {
			if add := more(rs[i]); count[rs[i].Label] > 1 && add != "" && !strings.Contains(rs[i].Label, add) {
				rs[i].Label += ", " + add
			}
		}
	}
}
