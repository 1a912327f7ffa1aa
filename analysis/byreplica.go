package analysis

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"kneefinder/measurement"
)

// How replicas are shown.
const (
	fewReplicas  = 6   // of a role: so many have a row each
	mostOutliers = 5   // of a role, with a row each
	fences       = 1.5 // interquartile ranges beyond the quartiles from where a replica is an outlier (Tukey 1977),
	farOff       = .1  // when it differs from the median by so much of it too
)

// columnsOf are what a row of a replica shows: figures, and how they are written.
var columnsOf = []struct {
	head, unit string
	of         func(measurement.ReplicaResult) *float64
	write      func(*float64) string
}{
	{"prompts", "tokens", func(r measurement.ReplicaResult) *float64 { return r.PromptTokens }, compact},
	{"hit", "%", func(r measurement.ReplicaResult) *float64 { return r.CacheHitRate }, func(v *float64) string { return plain(v, "%.1f", 100) }},
	{"running", "mean", func(r measurement.ReplicaResult) *float64 { return r.RunningMean }, func(v *float64) string { return plain(v, "%.1f", 1) }},
	{"KV used", "%", func(r measurement.ReplicaResult) *float64 { return r.KVUsageMean }, func(v *float64) string { return plain(v, "%.1f", 100) }},
}

// byReplica writes what each of several engines did; of many of a role the least, the median and the most of each column, and those that
// are far from the others. Of one engine it writes nothing.
func byReplica(w io.Writer, d deployment, e *measurement.EngineResult) {
	if e == nil || len(e.Replicas) < 2 {
		return
	}
	rows := [][]string{{"By replica"}, {""}}
	for _, c := range columnsOf {
		rows[0], rows[1] = append(rows[0], c.head), append(rows[1], c.unit)
	}
	groups := []struct {
		role string
		of   []measurement.ReplicaResult
	}{{"", e.Replicas}}
	if n := d.prefill; n > 0 && n < len(e.Replicas) {
		groups[0].role, groups[0].of = "prefill ", e.Replicas[:n]
		groups = append(groups, groups[0])
		groups[1].role, groups[1].of = "decode ", e.Replicas[n:]
	}
	for _, g := range groups {
		shown := g.of
		more := 0
		if len(g.of) > fewReplicas {
			for _, x := range []struct {
				name string
				q    float64
			}{{fmt.Sprintf("%sleast of %d", g.role, len(g.of)), 0}, {g.role + "median", .5}, {g.role + "most", 1}} {
				row := []string{x.name}
				for _, c := range columnsOf {
					row = append(row, c.write(figure(measurement.Quantile(figuresOf(g.of, c.of), x.q))))
				}
				rows = append(rows, row)
			}
			if shown = outliers(g.of); len(shown) > mostOutliers {
				shown, more = shown[:mostOutliers], len(shown)-mostOutliers
			}
		}
		for _, r := range shown {
			row := []string{fmt.Sprintf("%s%d", g.role, r.Replica)}
			for _, c := range columnsOf {
				row = append(row, c.write(c.of(r)))
			}
			rows = append(rows, row)
		}
		if more > 0 {
			rows = append(rows, append([]string{fmt.Sprintf("%d more as far off", more)}, make([]string, len(columnsOf))...))
		}
	}
	table(w, rows, "By replica")
}

// figuresOf are those that are known, ascending.
func figuresOf(rs []measurement.ReplicaResult, of func(measurement.ReplicaResult) *float64) []float64 {
	var out []float64
	for _, r := range rs {
		if v := of(r); v != nil {
			out = append(out, *v)
		}
	}
	return sorted(out)
}

// outliers are the replicas that are far from the others by any column, the farthest first.
func outliers(rs []measurement.ReplicaResult) (out []measurement.ReplicaResult) {
	far := map[int]float64{} // by replica, in interquartile ranges
	for _, c := range columnsOf {
		all := figuresOf(rs, c.of)
		lo, median, hi := measurement.Quantile(all, .25), measurement.Quantile(all, .5), measurement.Quantile(all, .75)
		for _, r := range rs {
			v := value(c.of(r))
			if beyond := max(lo-v, v-hi); beyond > fences*(hi-lo) && math.Abs(v-median) > farOff*math.Abs(median) {
				far[r.Replica] = max(far[r.Replica], beyond/max(hi-lo, farOff*math.Abs(median), math.SmallestNonzeroFloat64))
			}
		}
	}
	for _, r := range rs {
		if far[r.Replica] > 0 {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b measurement.ReplicaResult) int { return cmp.Compare(far[b.Replica], far[a.Replica]) })
	return out
}
