package page

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"kneefinder/measurement"
)

// frame is the page as of an instant: fragments of HTML, each replaced as a whole.
type frame struct {
	key   edition
	title string
	parts [len(fragments)]string
}

// edition says which frame is as good as another.
type edition struct {
	tick    time.Duration // counted in ticks
	version int64
}

// fragments are the ids of the page's parts, in the order in which they stand.
var fragments = [...]string{"head", "tiles", "knee", "curve", "totals", "steps", "charts"}

// stands says whether a page has a part: a steady load has no steps to compare and no knee, a sweep a table instead of totals.
func (p *Page) stands(id string) bool {
	switch id {
	case "knee", "curve", "steps":
		return !p.cfg.Steady
	case "totals":
		return p.cfg.Steady
	}
	return true
}

//go:embed page.html
var markup string

var templates = template.Must(template.New("page").Parse(markup))

// snapshot is what a frame is drawn from.
type snapshot struct {
	now     time.Duration
	run     measurement.Header
	slo     []measurement.Objective
	state   string
	steps   []step
	marks   []mark
	results measurement.Results
	steady  bool

	origin, width time.Duration
	window        time.Duration // that the rolling figures are of
	reach         time.Duration // how much of it the step that runs fills
	buckets       []bucket      // and the one that is open, as of now
	last          bucket        // the same
	asked         float64
	totals        totals
	scrapes       []scraped
	dropped       int // steps that are no longer kept
}

func (p *Page) snapshot() snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.advance()
	s := snapshot{now: now, run: p.run, slo: p.objectives(), state: p.state, steady: p.cfg.Steady, window: p.ring.window(), reach: min(p.ring.window(), now-p.ring.began), steps: slices.Clone(p.steps), marks: slices.Clone(p.marks),
		results: p.results, origin: p.ring.origin, width: p.ring.width, last: p.ring.at(now), asked: p.ring.asked, totals: p.totals, scrapes: slices.Clone(p.scrapes), dropped: p.dropped}
	s.totals.outcomes = maps.Clone(p.totals.outcomes)
	s.buckets = append(slices.Clone(p.ring.closed), s.last)
	return s
}

// draw renders the page as of now.
func (p *Page) draw() *frame {
	s := p.snapshot()
	v := p.view(&s)
	f := &frame{title: v.DocTitle}
	for i, id := range fragments {
		if !p.stands(id) {
			continue
		}
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, id, v); err != nil {
			panic(err) // a template of our own over a view of our own
		}
		f.parts[i] = strings.TrimSpace(b.String())
	}
	return f
}

// view is what the templates show.
type view struct {
	Title, DocTitle, Label, Version string
	State, StateMark                string
	Who, Where, Plan                string
	Started                         string
	Progress                        string
	Part                            int // of the run that is done, in thousandths; -1 unknown
	Objectives                      string
	Knee                            string
	KneeNote                        string
	Others                          []string
	Binds                           string
	Evidence                        []string
	Doubts                          []string
	MoreDoubts                      int
	Arrivals                        string
	Scrapes                         []string
	Held                            []string
	Outcomes                        []outcome
	Tiles                           []tile
	Charts, Curve                   template.HTML
	Asked, Unit                     string
	Rows                            []row
	Meanings                        []flagText
	Links                           []Link
	Chunks                          bool
}

type tile struct {
	Name, Value, Unit, Note string
	Mark                    string // "pass", "fail" or ""
}

type flagText struct{ Name, Meaning string }

// outcome is how many turns ended so.
type outcome struct{ Name, Meaning, Turns, Share string }

type row struct {
	Asked, Came, Turns, P50, P95, P99, Interval, ITL, Hit, Live, Errors string
	Verdict, Mark, Class                                                string
	Flags                                                               []flagText
}

const maxDoubts = 16

func (p *Page) view(s *snapshot) *view {
	c := s.run.Config
	v := &view{Title: p.cfg.Title, Label: cmp.Or(p.cfg.Label, s.run.Label, "a run without a label"), Version: p.cfg.Version, State: s.state,
		StateMark: stateMark(s.state), Asked: asked(c), Unit: unit(c), Links: p.cfg.Links, Part: -1}
	v.Who, v.Where, v.Plan = who(s.run.Engine), address(s.run.Engine.BaseURL), plan(c)
	if !p.cfg.Started.IsZero() {
		v.Started = p.cfg.Started.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	var names []string
	for _, o := range s.slo {
		names = append(names, fmt.Sprintf("%s is at most %s ms", objectiveName(o), digits(o.LimitMS)))
	}
	v.Objectives = strings.Join(names, " and ")
	v.progress(s)
	v.DocTitle = fmt.Sprintf("%s: %s - %s", v.Label, s.state, v.Title)
	v.Scrapes = scrapesSaid(s)
	if s.steady {
		v.steadyTiles(s)
		v.since(s)
	} else {
		v.knee(s)
		v.tiles(s)
		v.rows(s)
		v.Curve = template.HTML(drawCurve(s))
	}
	v.Charts = template.HTML(drawStack(s, p.cfg.Started))
	return v
}

func stateMark(state string) string {
	switch state {
	case Running, Draining:
		return "●"
	case Done:
		return "✓"
	case Interrupted, Failed:
		return "✕"
	}
	return "○"
}

func final(state string) bool { return state == Done || state == Interrupted || state == Failed }

// who is what is measured.
func who(e measurement.Engine) string {
	var out []string
	if e.Model != "" {
		out = append(out, e.Model)
	}
	switch kind := strings.TrimSpace(e.Kind + " " + e.Version); {
	case e.Kind == "simulated":
		out = append(out, kind)
	case kind != "":
		out = append(out, "on "+kind)
	}
	if e.GPU != "" {
		out = append(out, "on "+e.GPU)
	}
	if e.Fidelity != "" {
		out = append(out, "("+e.Fidelity+")")
	}
	return strings.Join(out, " ")
}

// plan is a call in a sentence.
func plan(c measurement.Config) string {
	if c.Turns == 0 {
		return ""
	}
	if c.Lone() {
		return "Single requests: " + c.Asked() + "."
	}
	if c.Transcripts != "" {
		return fmt.Sprintf("Calls speak transcripts, pauses of %s-%s s.", digits(c.GapMinSeconds), digits(c.GapMaxSeconds))
	}
	return fmt.Sprintf("A call: %d turns on a system prompt of %d tokens of its own, %d tokens out, pauses of %s-%s s.",
		c.Turns, c.SystemPromptTokens, c.OutputTokens, digits(c.GapMinSeconds), digits(c.GapMaxSeconds))
}

// expected is how long a step at one rate should take of an endpoint that keeps up.
func expected(c measurement.Config, rate float64) time.Duration {
	turns := float64(max(c.Turns-1, 1))
	lifetime := turns * ((c.GapMinSeconds+c.GapMaxSeconds)/2 + .02*float64(c.OutputTokens))
	if closed(c) {
		rate /= max(lifetime, 1e-3)
	}
	window := c.StepSeconds
	if rate > 0 {
		window = max(window, min(c.MaxStepSeconds, float64(c.MinTurns)/(rate*turns)))
	}
	return time.Duration((c.WarmupSeconds + window + min(lifetime, c.DrainSeconds)) * float64(time.Second))
}

// progress says how far the run is, and how long it may still take.
func (v *view) progress(s *snapshot) {
	c := s.run.Config
	ran := elapsed(s.now - s.origin)
	if final(s.state) {
		v.Progress = fmt.Sprintf("%s after %s.", strings.ToUpper(s.state[:1])+s.state[1:], ran)
		if s.state == Done {
			v.Part = 1000
		}
		return
	}
	if len(s.steps) == 0 {
		v.Progress = "No step has begun."
		return
	}
	cur := &s.steps[len(s.steps)-1]
	if s.steady {
		v.Progress = fmt.Sprintf("Running for %s, at %s %s.", ran, digits(cur.rate), unit(c))
		if s.state == Draining || cur.drains || cur.end >= 0 {
			v.Progress = fmt.Sprintf("No calls arrive any more; those in progress end. It ran for %s.", ran)
		}
		return
	}
	k, n := s.dropped+len(s.steps), len(c.Rates)
	name := fmt.Sprintf("Step %d of the %d planned", k, n)
	switch {
	case c.FindKnee:
		name = fmt.Sprintf("Step %d of a search for the knee", k)
	case n <= 1:
		name = fmt.Sprintf("Running for %s", ran)
	case k > n:
		name = fmt.Sprintf("Step %d, beyond the %d planned", k, n)
	}
	text := []string{fmt.Sprintf("%s, at %s %s", name, digits(cur.rate), unit(c))}
	switch {
	case cur.end >= 0:
		text = append(text, "ended")
	case s.state == Draining || cur.drains:
		text = append(text, "measured; calls in progress end")
	case s.now < cur.windowStart:
		text = append(text, "warming up")
	default:
		said := "measuring: " + count(cur.turns, "measured turn")
		if cur.turns < c.MinTurns {
			said += fmt.Sprintf(" of at least %d", c.MinTurns)
		}
		text = append(text, said)
	}
	v.Progress = strings.Join(text, ", ") + "."
	if n <= 1 || c.FindKnee || c.StepSeconds <= 0 {
		return
	}
	var done, left time.Duration
	for i, rate := range c.Rates {
		e := expected(c, rate)
		switch {
		case i < k-1:
			done += e
		case i == k-1 && cur.end >= 0:
			done += e
		case i == k-1:
			part := min(s.now-max(cur.start, 0), e)
			done, left = done+part, left+e-part
		default:
			left += e
		}
	}
	if k > n {
		left += max(expected(c, cur.rate)-(s.now-cur.start), 0)
	}
	if all := done + left; all > 0 {
		v.Part = int(1000 * done / all)
	}
	if left > 0 {
		v.Progress += " " + about(left) + " left; rates may be added."
	}
}

func (v *view) knee(s *snapshot) {
	c, r := s.run.Config, &s.results
	v.Knee = kneeSentence(c, r.Knees.SLO, final(s.state)) + s.lateSentence(r.Knees.SLO)
	v.KneeNote = r.Knees.SLO.Note
	if k := r.Knees.Curvature; k.Status == measurement.Found && k.Rate != nil {
		v.Others = append(v.Others, fmt.Sprintf("The curve bends at %s %s.", figure(k.Rate, 1), unit(c)))
	}
	if said := saturationSentence(c, r.Knees.Saturation); said != "" {
		v.Others = append(v.Others, said)
	}
	if r.Mechanism.Name != "" {
		v.Binds = mechanism(r.Mechanism.Name)
		if r.Mechanism.Confidence != "" {
			v.Binds += " (confidence " + r.Mechanism.Confidence + ")"
		}
		v.Evidence = r.Mechanism.Evidence
	}
	v.Doubts = append(s.flagDoubts(), r.Warnings...)
	if len(v.Doubts) > maxDoubts {
		v.Doubts, v.MoreDoubts = v.Doubts[:maxDoubts], len(v.Doubts)-maxDoubts
	}
	if final(s.state) {
		v.Arrivals = arrivalsSentence(r.Arrivals)
	}
}

// ttftObjective is the limit of TTFT at a quantile; ok is false when there is none.
func (s *snapshot) ttftObjective(quantile float64) (limitMS float64, ok bool) {
	for _, o := range s.slo {
		if o.Metric == "ttft" && o.Quantile == quantile {
			return o.LimitMS, true
		}
	}
	return 0, false
}

// rows are the table's, by the order in which the steps ran.
func (v *view) rows(s *snapshot) {
	seen := map[string]bool{}
	for i := range s.steps {
		st := &s.steps[i]
		r := row{Asked: digits(st.rate), Came: none, Turns: fmt.Sprint(st.turns), P50: none, P95: none, P99: none, Interval: none, ITL: none,
			Hit: none, Live: none, Errors: none, Verdict: "ended", Class: "running"}
		if x := st.result; x != nil {
			r = row{Asked: digits(x.Rate), Came: figure(x.ArrivedRate, 1), Turns: fmt.Sprint(x.MeasuredTurns), P50: figure(x.TTFTP50, 1),
				P95: figure(x.TTFTP95, 1), P99: figure(x.TTFTP99, 1), Interval: interval(x.TTFTP95CI), ITL: figure(x.ITLP95, 1), Hit: share(x.CacheHitRate),
				Live: figure(x.LiveCallsMean, 1), Errors: share(x.ErrorRate), Verdict: string(x.Verdict), Class: string(x.Verdict)}
			if x.TTFTP95 == nil && slices.Contains(x.Flags, measurement.FlagCensored) {
				r.P95 = "no token"
			}
			switch x.Verdict {
			case measurement.Pass:
				r.Mark = "✓"
			case measurement.Fail:
				r.Mark = "✕"
			default:
				r.Mark = "?"
			}
			for _, f := range x.Flags {
				t := flagText{f, measurement.FlagMeaning(f)}
				r.Flags = append(r.Flags, t)
				if !seen[f] && t.Meaning != "" {
					seen[f] = true
					v.Meanings = append(v.Meanings, t)
				}
			}
			v.Chunks = v.Chunks || x.ITLBasis == "chunk"
		} else if st.end < 0 && !final(s.state) {
			r.Mark, r.Verdict = "●", "measuring"
			switch {
			case st.drains:
				r.Verdict = "draining"
			case s.now < st.windowStart:
				r.Verdict = "warming up"
			}
			r.Came, r.Live = digits(s.last.came), digits(s.last.calls)
		}
		v.Rows = append(v.Rows, r)
	}
}
