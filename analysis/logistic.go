package analysis

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"kneefinder/measurement"
)

// The logistic fit's own constants.
const (
	ridge      = 1e-3 // pulls the fit, as a thousandth of a turn would, towards a curve that just meets the objective in the bracket's middle
	ridgeSlope = 5.   // with this slope in ln λ
	fewestFit  = 3    // loads that a fit needs
	telling    = 1.   // turns by which a load's late ones scatter, from which it tells whether the curve fits
)

// share is how many turns of one load were late, both counted in turns worth an independent one.
type share struct{ x, late, n float64 } // x is ln λ

// logistic is logit(share of late turns) = target + slope*(x - knee): the share that the objective allows is reached at knee.
type logistic struct {
	shares []share
	target float64 // the logit of the share allowed
	center float64 // x of the bracket's middle
	scale  float64 // by how much the fit misses more than chance does, at least 1

	knee, slope float64
	best        float64 // the likelihood there

	contradicts bool // what the own turns of a load of the bracket decide, so that it is not to be believed
}

// fitLogistic fits the late turns of the decided steps. A step weighs what its turns are worth (n_eff), so that an
// overloaded one, whose turns all resemble their neighbours, hardly pulls. Where there is nothing to fit it says why: fewer than
// three loads that tell how many turns were late, no load on one side of the share allowed, a share that does not rise with λ, a curve that crosses where nothing was tried,
// or one that crosses on the wrong side of a load of the bracket whose own turns decide.
func fitLogistic(steps []measurement.StepResult, o measurement.Objective, lastPass, firstFail float64) (l logistic, why string) {
	l = logistic{target: logit(1 - o.Quantile), center: (math.Log(lastPass) + math.Log(firstFail)) / 2, scale: 1}
	for _, s := range byRate(steps) {
		if s.NEff == nil || s.LateTurns == nil || s.MeasuredTurns == 0 || s.Verdict == measurement.Undecided || s.Rate <= 0 {
			continue
		}
		x, late := math.Log(s.Rate), float64(*s.LateTurns)**s.NEff/float64(s.MeasuredTurns)
		if n := len(l.shares); n > 0 && l.shares[n-1].x == x {
			l.shares[n-1].late += late
			l.shares[n-1].n += *s.NEff
		} else {
			l.shares = append(l.shares, share{x, late, *s.NEff})
		}
	}
	over := func(s share) bool { return s.late > (1-o.Quantile)*s.n }
	switch {
	case len(l.shares) == 0:
		return l, "the file holds no turns, only figures of them: what was late at each load is in the turn log"
	case len(l.shares) < fewestFit:
		return l, fmt.Sprintf("a curve takes at least %d decided loads whose late turns are known, and %s", fewestFit, thereAre(len(l.shares)))
	case !slices.ContainsFunc(l.shares, over):
		return l, fmt.Sprintf("at no load more than %s of the turns were late", percentage(1-o.Quantile))
	case !slices.ContainsFunc(l.shares, func(s share) bool { return !over(s) }):
		return l, fmt.Sprintf("at every load more than %s of the turns were late", percentage(1-o.Quantile))
	case !l.maximize():
		return l, "the share of late turns does not rise with the load"
	}
	if first, last := l.shares[0].x, l.shares[len(l.shares)-1].x; l.knee < first || l.knee > last {
		return l, fmt.Sprintf("the late turns of the loads make no one curve: it would cross the limit at %s, outside all loads tried", sig(math.Exp(l.knee)))
	}
	misfit, told := 0., 0
	for _, s := range l.shares {
		p := expit(l.target + l.slope*(s.x-l.knee))
		if spread := s.n * p * (1 - p); spread >= telling {
			misfit += (s.late - s.n*p) * (s.late - s.n*p) / spread
			told++
		}
	}
	l.scale = max(1, misfit/float64(max(1, told-2)))
	why = l.against(lastPass, firstFail, 1-o.Quantile)
	l.contradicts = why != ""
	return l, why
}

// against says that the curve crosses the limit at or above the first failing load though its own turns decide that it fails, or at or below the
// largest passing one though they decide that it passes; "" where it does neither. Then the form of the curve is wrong, mostly as the
// loads are not in order of lateness, and what each load's own turns say is nearer to the truth.
func (l *logistic) against(lastPass, firstFail, allowed float64) string {
	const as = 1e-9 // of two loads
	at := math.Exp(l.knee)
	wrong, side, does := 0., "", ""
	for _, s := range l.shares {
		x, decided := math.Exp(s.x), tested(s.late, s.n, allowed)
		switch {
		case math.Abs(x-firstFail) <= as*x && decided == measurement.Fail:
			if at >= firstFail*(1-as) {
				wrong, side, does = firstFail, "not below", "fails"
			}
		case math.Abs(x-lastPass) <= as*x && decided == measurement.Pass:
			if at <= lastPass*(1+as) {
				wrong, side, does = lastPass, "not above", "passes"
			}
		}
	}
	if side == "" {
		return ""
	}
	why := "the share of late turns rises otherwise than such a curve"
	for i, s := range l.shares {
		for _, below := range l.shares[:i] {
			if a, b := below.late/below.n, s.late/s.n; a > max(b, allowed) && why[len(why)-1] == 'e' {
				late := Apart(2, 100*a, 100*b)
				why = fmt.Sprintf("the loads are not in order of lateness, for %s %% of the turns are late at %s and %s %% at %s", late[0], rate(rounded(math.Exp(below.x))), late[1], rate(rounded(math.Exp(s.x))))
			}
		}
	}
	return fmt.Sprintf("a logistic curve through the late turns of all loads would cross the limit at %s, %s %s, which %s by the test of its own turns at 95 %%, and these are to be believed: %s", Apart(3, at, wrong)[0], side, rate(wrong), does, why)
}

func logit(p float64) float64 { return math.Log(p / (1 - p)) }
func expit(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

// likelihood is the penalised log-likelihood of the curve a + b*(x - center).
func (l *logistic) likelihood(a, b float64) float64 {
	sum := -ridge / 2 * ((a-l.target)*(a-l.target) + (b-ridgeSlope)*(b-ridgeSlope))
	for _, s := range l.shares {
		e := a + b*(s.x-l.center)
		// ln p and ln(1-p) without overflow
		sum -= s.late*math.Log1p(math.Exp(-math.Abs(e))) + (s.n-s.late)*math.Log1p(math.Exp(-math.Abs(e)))
		if e < 0 {
			sum += s.late * e
		} else {
			sum -= (s.n - s.late) * e
		}
	}
	return sum
}

// maximize finds the curve by Newton's method with halved steps: the penalised likelihood is concave.
func (l *logistic) maximize() bool {
	a, b := l.target, ridgeSlope
	at := l.likelihood(a, b)
	for range 100 {
		ga, gb := -ridge*(a-l.target), -ridge*(b-ridgeSlope)
		haa, hab, hbb := ridge, 0., ridge
		for _, s := range l.shares {
			d := s.x - l.center
			p := expit(a + b*d)
			g, w := s.late-s.n*p, s.n*p*(1-p)
			ga, gb = ga+g, gb+g*d
			haa, hab, hbb = haa+w, hab+w*d, hbb+w*d*d
		}
		det := haa*hbb - hab*hab
		da, db := (hbb*ga-hab*gb)/det, (haa*gb-hab*ga)/det
		if gain := (ga*da + gb*db) / 2; !(gain > 1e-9) { // what the step would add: there is no more than rounding left of it
			break
		}
		step := 1.
		next := l.likelihood(a+da, b+db)
		for next < at && step > 1e-6 {
			step /= 2
			next = l.likelihood(a+step*da, b+step*db)
		}
		if !(next > at) {
			break
		}
		a, b, at = a+step*da, b+step*db, next
	}
	if !(b > 1e-6) || math.IsNaN(a) {
		return false
	}
	l.slope, l.knee, l.best = b, l.center+(l.target-a)/b, l.likelihood(a, b)
	return true
}

// deviance is twice what the likelihood loses when the knee is held at x, in units of the misfit: χ² of one degree of freedom
// where x is the knee.
func (l *logistic) deviance(x float64) float64 {
	along := func(b float64) float64 { return l.likelihood(l.target+b*(l.center-x), b) }
	// Concave in b: a golden section between no slope and one that makes a step of the curve.
	const golden = .6180339887498949
	lo, hi := 0., max(10*l.slope, 50)
	c, d := hi-golden*(hi-lo), lo+golden*(hi-lo)
	fc, fd := along(c), along(d)
	for range 60 {
		if fc > fd {
			hi, d, fd = d, c, fc
			c = hi - golden*(hi-lo)
			fc = along(c)
		} else {
			lo, c, fc = c, d, fd
			d = lo + golden*(hi-lo)
			fd = along(d)
		}
	}
	return max(0, 2*(l.best-max(fc, fd))) / l.scale
}

// interval is where the deviance stays within its 95 % point: the ends in x, NaN for one that lies more than a
// step of the grid outside the loads tried.
func (l *logistic) interval() (lo, hi float64) {
	t := l.student().Quantile(.975)
	most := t * t
	end := func(outer float64) float64 {
		inner := l.knee
		if (outer-inner)*(outer-l.center) < 0 || l.deviance(outer) <= most {
			return math.NaN()
		}
		for range 40 {
			mid := (inner + outer) / 2
			if l.deviance(mid) > most {
				outer = mid
			} else {
				inner = mid
			}
		}
		return inner
	}
	n := len(l.shares)
	return end(2*l.shares[0].x - l.shares[1].x), end(2*l.shares[n-1].x - l.shares[n-2].x)
}

// holds is the probability that the knee lies above exp(x): the signed root of the deviance is one of Student's t.
func (l *logistic) holds(x float64) float64 {
	z := math.Sqrt(l.deviance(x))
	if x > l.knee {
		z = -z
	}
	return l.student().CDF(z)
}

// student is how the root of the deviance is distributed where x is the knee, with as many degrees of freedom as the fit leaves:
// what a turn is worth was estimated too.
func (l *logistic) student() distuv.StudentsT {
	return distuv.StudentsT{Sigma: 1, Nu: float64(len(l.shares) - 2)}
}

// fit is the logistic curve beside the interpolated one, and what must be said of it. Its estimate is held between the largest
// passing λ and the next one above the first that fails: overloaded loads far off pull the slope.
func (l *logistic) fit(lastPass, firstFail float64) measurement.Fit {
	top := firstFail
	for _, s := range l.shares {
		if x := math.Exp(s.x); x > firstFail*(1+1e-9) {
			top = x
			break
		}
	}
	x := max(lastPass, min(math.Exp(l.knee), top))
	lo, hi := l.interval()
	f := measurement.Fit{Estimate: &x, CI95: [2]*float64{figure(math.Exp(lo)), figure(math.Exp(hi))}}
	if f.CI95[0] != nil {
		*f.CI95[0] = min(*f.CI95[0], x)
	}
	if f.CI95[1] != nil {
		*f.CI95[1] = max(*f.CI95[1], x)
	}
	return f
}

// fitOf is the curve of a run whose SLO knee is found, or why there is none.
func fitOf(r measurement.Results) (l logistic, why string) {
	o, one := onlyTTFT(r.Config.SLO)
	steps := judged(byRate(r.Steps), r.Config.SLO)
	lastPass, firstFail := bracket(steps)
	switch {
	case !one:
		return l, "the run has not one TTFT objective but none or several"
	case math.IsNaN(lastPass) || math.IsNaN(firstFail):
		return l, "no load passes below one that fails"
	}
	return fitLogistic(steps, o, lastPass, firstFail)
}

// onlyTTFT is the TTFT objective where there is just one.
func onlyTTFT(slo []measurement.Objective) (o measurement.Objective, ok bool) {
	n := 0
	for _, x := range slo {
		if x.Metric == "ttft" {
			o = x
			n++
		}
	}
	return o, n == 1
}

// bracket is the largest passing λ below the first failing one, and that one; NaN where there is none. Steps stand in order of λ.
func bracket(steps []measurement.StepResult) (lastPass, firstFail float64) {
	lastPass, firstFail = math.NaN(), math.NaN()
	for _, s := range steps {
		switch verdictAt(steps, s.Rate) {
		case measurement.Fail:
			return lastPass, s.Rate
		case measurement.Pass:
			lastPass = s.Rate
		}
	}
	return lastPass, firstFail
}
