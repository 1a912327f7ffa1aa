// Package anchor calibrates the engine model to a real engine: it measures single requests and small batches at low load, and fits to
// them the constants of a GPU file.
package anchor

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"gonum.org/v1/gonum/mat"

	"kneefinder/simulation/engine/cost"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/engine/model"
)

// Result is a fit.
type Result struct {
	GPU       gpu.GPU // with its Anchor
	Constants []Constant
	Residuals []Residual
	Notes     []string // what could not be measured or told apart
}

// Constant is one of a fit.
type Constant struct {
	Name  string
	Value float64
	Unit  string
	Note  string // why there is none, or what it includes
}

// Residual is how far predictions are from the measured medians of one kind's points, as parts of these.
type Residual struct {
	Kind   Kind
	Points int
	Median float64 // of the sizes
	Max    float64 // the largest size,
	Worst  string  // and the point that has it
	Bias   float64 // the median, signs kept
}

// Fit finds the constants of a GPU on which the model's steps take what was measured: non-negative least squares of the relative errors
// of the points' medians, linearised again until it stays, as which roof binds depends on the constants; points far off count less. A
// constant without which the fit is as good is left out, and what it would have been is then in the others.
func Fit(d Data, m model.Shape, card Card) (Result, error) {
	if err := d.Validate(); err != nil {
		return Result{}, err
	}
	if err := m.Validate(); err != nil {
		return Result{}, err
	}
	f, err := newFitter(d, m, card)
	if err != nil {
		return Result{}, err
	}
	if err := f.run(); err != nil {
		return Result{}, err
	}
	if slices.ContainsFunc(f.points, func(r Reading) bool { return r.Kind == Warm }) {
		again, err := newFitter(d, m, card)
		if err != nil {
			return Result{}, err
		}
		again.whole = true
		if err := again.run(); err == nil && again.sizes() < .7*f.sizes() {
			f = again
		}
	}
	return f.result(d)
}

// fitter is a fit under way.
type fitter struct {
	space
	points []Reading
	took   []float64 // of each, ms
	weight []float64
	noise  float64 // relative, of a point, from its repeats
	scale  theta   // by which constants are divided where they are compared
	out    []bool  // constants that are left out
	best   theta
	error  float64 // of best, see loss
}

func newFitter(d Data, m model.Shape, card Card) (*fitter, error) {
	s := &d.Setup
	f := &fitter{}
	f.points, f.noise = medians(d.Seen)
	f.space = space{shape: m, chunk: s.Chunk, card: card,
		options: cost.Options{Engine: cost.Engine(s.Engine), TP: s.TP, PP: s.PP, EP: s.EP, DP: s.DP}}
	if err := f.options.Validate(m, gpu.GPU{Name: card.Name}); err != nil {
		return nil, err
	}
	count, longest, shortest, batch := map[Kind]int{}, 0, math.MaxInt, [2]int{math.MaxInt, 0}
	leastTTFT, leastStep, mostTTFT, context, rows := math.Inf(1), math.Inf(1), 0., 0., 0
	for i := range f.points {
		r := &f.points[i]
		count[r.Kind]++
		t := r.took()
		f.took = append(f.took, t)
		f.weight = append(f.weight, 1)
		if r.Kind == Decode {
			n := len(r.Steps.Lengths)
			batch[0], batch[1] = min(batch[0], n), max(batch[1], n)
			leastStep = min(leastStep, t)
			sum := 0.
			for _, l := range r.Steps.Lengths {
				sum += l
			}
			context = max(context, sum)
			continue
		}
		leastTTFT = min(leastTTFT, t)
		for j := range r.Requests {
			q := &r.Requests[j]
			if q.Prompt > m.ContextLimit {
				return nil, fmt.Errorf("a prompt of %d tokens was measured, but %s has room for %d: is it the right model's config.json?", q.Prompt, m.Name, m.ContextLimit)
			}
			rows = max(rows, min(s.Chunk, q.Prompt-q.cached()))
			if r.Kind == Cold {
				shortest = min(shortest, q.Prompt)
				if q.Prompt > longest {
					longest, mostTTFT = q.Prompt, t
				}
			}
		}
	}
	switch {
	case count[Cold] < 3 || longest < 4*shortest:
		return nil, fmt.Errorf("cold requests were measured at %d lengths, from %d to %d tokens: at least 3 are needed, the longest 4 times the shortest", count[Cold], min(shortest, longest), longest)
	case count[Decode] < 2 || batch[0] == batch[1]:
		return nil, fmt.Errorf("decode was measured at %d points, with %d to %d sequences: at least two numbers of sequences are needed", count[Decode], min(batch[0], batch[1]), batch[1])
	}
	for _, k := range knots {
		if k < rows || len(f.knots) == 0 {
			f.knots = append(f.knots, k)
		}
	}

	if e := m.MoE; e.Experts > 0 {
		for k := 2; k < rows*e.TopK/e.Experts || len(f.experts) == 0; k *= 2 {
			f.experts = append(f.experts, k)
		}
	}

	n := products + len(f.knots) + len(f.experts)
	f.least, f.scale, f.out = make(theta, n), make(theta, n), make([]bool, n)
	ns := 1e6
	pairs := float64(longest) * float64(longest+1) / 2
	rise := max(mostTTFT-leastTTFT, .1*mostTTFT) * ns
	f.least[stream] = room * leastStep * ns / f.weightBytes()
	f.least[kvByte] = room * leastStep * ns / (context * f.kvBytes())
	f.least[pair] = room * leastTTFT * ns / (pairs * f.pairFLOPs())
	f.scale[request], f.scale[prefillMore] = .3*leastTTFT*ns, .3*leastTTFT*ns
	f.scale[promptToken] = max(1000, .1*rise/float64(longest))
	f.scale[decodeStep] = leastStep * ns
	f.scale[sequence] = .05 * leastStep * ns
	f.scale[stream] = leastStep * ns / f.weightBytes()
	f.scale[streamMore] = .1 * f.scale[stream]
	f.scale[kvByte] = leastStep * ns / (context * f.kvBytes())
	f.scale[pair] = .3 * rise / (pairs * f.pairFLOPs())
	for i := range f.scale[products:] {
		f.scale[products+i] = .7 * rise / (float64(longest) * f.rowFLOPs())
		f.least[products+i] = room * leastTTFT * ns / (float64(rows) * f.rowFLOPs())
	}
	if count[Warm] == 0 {
		f.out[promptToken] = true // a row of a step and a token of a prompt are the same thing then
	}
	return f, nil
}

// medians is one reading of each point, the one with the median time, and how far such a reading is usually from its point's true time,
// as a part of it: the median over the points of the deviation within a point, by the root of the number of its readings.
func medians(seen []Reading) (out []Reading, noise float64) {
	type key struct {
		kind  Kind
		point string
	}
	points := map[key][]Reading{}
	var order []key
	for _, r := range seen {
		k := key{r.Kind, r.Point}
		if points[k] == nil {
			order = append(order, k)
		}
		points[k] = append(points[k], r)
	}
	var spread []float64
	for _, k := range order {
		all := points[k]
		sort.SliceStable(all, func(i, j int) bool { return all[i].took() < all[j].took() })
		mid := all[(len(all)-1)/2]
		out = append(out, mid)
		if len(all) < 3 {
			continue
		}
		var off []float64
		for i := range all {
			off = append(off, math.Abs(all[i].took()/mid.took()-1))
		}
		spread = append(spread, 1.48*median(off)/math.Sqrt(float64(len(all))))
	}
	if len(spread) > 0 {
		noise = median(spread)
	}
	return out, max(noise, .005)
}

// run fits from many starts, as roofs make many valleys, and leaves out what is not needed.
func (f *fitter) run() error {
	f.error = math.Inf(1)
	for _, share := range []float64{0, .25, .5, .75, .95} { // of a decode step that is reading weights
		for _, few := range []float64{.3, 1, 3} { // what a row costs in small steps, beside large ones
			start := slices.Clone(f.scale)
			start[stream] *= share
			start[streamMore] *= .1 * share
			start[decodeStep] *= 1 - share
			start[kvByte] *= .1
			for i := range start[products : products+(len(f.knots)+len(f.experts))/2] {
				start[products+i] *= few
			}
			if err := f.descend(start, 30); err != nil {
				return err
			}
		}
	}
	if math.IsInf(f.error, 1) {
		return errors.New("no constants were found under which the model takes times at all: are the readings those of one engine?")
	}
	for range 3 {
		if err := f.reweigh(); err != nil {
			return err
		}
		if err := f.descend(slices.Clone(f.best), 20); err != nil {
			return err
		}
	}
	if err := f.wander(); err != nil {
		return err
	}
	if err := f.prune(); err != nil {
		return err
	}
	return f.wander()
}

// sizes is the median size of the relative errors, however the points are weighed.
func (f *fitter) sizes() float64 {
	times, err := f.predict(f.best, f.points)
	if err != nil {
		return math.Inf(1)
	}
	var all []float64
	for i, p := range times {
		all = append(all, math.Abs(p/f.took[i]-1))
	}
	return median(all)
}

// wander tries starts near the best.
func (f *fitter) wander() error {
	random := rand.New(rand.NewPCG(1, 2))
	for range 16 {
		start := slices.Clone(f.best)
		for j := range start {
			start[j] = (start[j] + .1*f.scale[j]*random.Float64()) * math.Exp(.7*random.NormFloat64())
		}
		if err := f.descend(start, 30); err != nil {
			return err
		}
	}
	return nil
}

// prune leaves out, one after another, the constants without which the fit is as good for its size (Akaike's criterion).
func (f *fitter) prune() error {
	optional := []int{promptToken, prefillMore, request, sequence, streamMore, stream, kvByte, pair}
	for {
		kept, now := -1, f.criterion(f.error)
		full, fullError := f.best, f.error
		var without theta
		var withoutError float64
		for _, j := range optional {
			if f.out[j] {
				continue
			}
			start := slices.Clone(full)
			start[j] = 0
			f.out[j] = true
			if j == stream && !f.out[streamMore] {
				f.out[j] = false
				continue
			}
			f.best, f.error = nil, math.Inf(1)
			if err := f.descend(start, 12); err != nil {
				return err
			}
			if c := f.criterion(f.error); c <= now && f.best != nil {
				kept, now, without, withoutError = j, c, f.best, f.error
			}
			f.out[j] = false
		}
		f.best, f.error = full, fullError
		if kept < 0 {
			return nil
		}
		f.out[kept] = true
		f.best, f.error = without, withoutError
	}
}

// exact is a relative error below which no fit is better than another.
const exact = 2e-3

// criterion is Akaike's, of a fit with the constants that are not left out and a loss.
func (f *fitter) criterion(loss float64) float64 {
	n, k := float64(len(f.points)), 0.
	for _, o := range f.out {
		if !o {
			k++
		}
	}
	return n*math.Log(loss/n+exact*exact) + 2*k
}

// alike is how much it costs that the products' constants between neighbouring knots differ, beside noise as large: where readings do not
// tell them apart, they are the same.
const alike = .3

// loss is the weighted sum of squares of relative errors.
func (f *fitter) loss(t theta) (sum float64, errs []float64, err error) {
	times, err := f.predict(t, f.points)
	if err != nil {
		return 0, nil, err
	}
	errs = make([]float64, len(times), len(times)+len(f.knots))
	for i, p := range times {
		errs[i] = f.weight[i] * (p/f.took[i] - 1)
	}
	for i := products; i+1 < len(t); i++ {
		if i+1 == products+len(f.knots) { // experts are others
			continue
		}
		errs = append(errs, alike*f.noise*(t[i]-t[i+1])/f.scale[i])
	}
	for _, e := range errs {
		sum += e * e
	}
	return sum, errs, nil
}

// descend improves t, and keeps it if it is the best.
func (f *fitter) descend(t theta, rounds int) error {
	for j, o := range f.out {
		if o {
			t[j] = 0
		}
	}
	now, errs, err := f.loss(t)
	if err != nil {
		return err
	}
	damp := 1e-4
	for round := range rounds {
		if round > 4 && now > 30*f.error {
			return nil // nothing will come of it
		}
		n := len(t)
		a, b := mat.NewDense(len(errs)+n, n, nil), make([]float64, len(errs)+n)
		for j := range t {
			if f.out[j] {
				continue
			}
			up := slices.Clone(t)
			step := .01 * max(t[j], .1*f.scale[j])
			up[j] += step
			_, moved, err := f.loss(up)
			if err != nil {
				return err
			}
			for i := range errs {
				slope := (moved[i] - errs[i]) / step * f.scale[j]
				a.Set(i, j, slope)
				b[i] += slope * t[j] / f.scale[j]
			}
		}
		for i := range errs {
			b[i] -= errs[i]
		}
		better := false
		for range 8 {
			for j := range t {
				s := math.Sqrt(damp)
				a.Set(len(errs)+j, j, s)
				b[len(errs)+j] = s * t[j] / f.scale[j]
			}
			next := theta(nnls(a, b))
			for j := range next {
				next[j] *= f.scale[j]
				if f.out[j] {
					next[j] = 0
				}
			}
			sum, moved, err := f.loss(next)
			if err != nil {
				return err
			}
			if sum < now {
				better = sum < now*(1-1e-3)
				t, now, errs = next, sum, moved
				damp = max(1e-9, damp/10)
				break
			}
			damp *= 10
		}
		if !better {
			break
		}
	}
	if now < f.error {
		f.best, f.error = t, now
	}
	return nil
}

// reweigh makes points that are far off, beside the others, count less: an error counts in full up to twice what is usual.
func (f *fitter) reweigh() error {
	times, err := f.predict(f.best, f.points)
	if err != nil {
		return err
	}
	var sizes []float64
	for i, p := range times {
		sizes = append(sizes, math.Abs(p/f.took[i]-1))
	}
	usual := max(.005, 1.48*median(sizes))
	for i, s := range sizes {
		f.weight[i] = min(1, math.Sqrt(2*usual/max(s, 1e-12)))
	}
	f.error, _, err = f.loss(f.best)
	return err
}
