package importer

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"kneefinder/measurement"
)

// Vegeta and Fortio time whole HTTP answers. For an answer that is no stream that is all there is to time; the figure stands where
// TTFT stands, is never less, and every curve of it says so.

func wholeAnswers(p *point, tool string) {
	p.flags = append(p.flags, measurement.FlagBuffered)
	p.note(tool + " times whole answers: what stands as TTFT is the time of a whole answer, and TTFT itself was less. A load that passes would pass by TTFT too; one that fails may not fail by it.")
}

// vegetaReport reads vegeta report --type json: nanoseconds.
func vegetaReport(_ File, n node, at string) ([]point, error) {
	p := newPoint(VegetaReport, at)
	l := n.get("latencies")
	for key, name := range map[string]string{"50th": "p50", "90th": "p90", "95th": "p95", "99th": "p99", "mean": "mean", "min": "min"} {
		p.ttft.put(name, l.first(key)/1e6)
	}
	p.e2e = p.ttft
	p.issued = n.first("requests")
	p.ok = math.Round(p.issued * n.first("success"))
	p.failed = p.issued - p.ok
	p.duration = (n.first("duration") + known(n.first("wait"), 0)) / 1e9
	p.throughput, p.offered = n.first("throughput"), n.first("rate")
	if !p.setLoad(n.first("rate"), math.NaN()) {
		return nil, refuse(at, "is a Vegeta report of no more than one request, which makes no rate", "give a longer attack")
	}
	p.arrivals, p.loadFrom = "constant", "sends"
	if p.failed > 0 {
		p.note("Vegeta's percentiles hold failed requests too.")
	}
	vegetaNotes(&p)
	return []point{p}, nil
}

func vegetaNotes(p *point) {
	wholeAnswers(p, "Vegeta")
	p.note("Vegeta counts from when a request was sent: when its workers run out, what waits for one is late and not seen to be.")
}

func isVegetaResult(n node) bool {
	return n.has("seq", "code", "timestamp", "latency") && n.has("attack")
}

// vegetaRow is one request of an attack.
type vegetaRow struct {
	attack  string
	at      time.Time
	latency float64 // s
	bad     bool
}

// vegetaResults reads vegeta encode --to json: a request a line.
func vegetaResults(f File, docs []node) (contents, error) {
	var rows []vegetaRow
	skipped := 0
	for _, d := range docs {
		at, err := time.Parse(time.RFC3339Nano, d.get("timestamp").text())
		if err != nil || !isVegetaResult(d) {
			skipped++
			continue
		}
		code := d.first("code")
		rows = append(rows, vegetaRow{d.get("attack").text(), at, d.first("latency") / 1e9, !(code >= 200 && code < 400) || d.get("error").text() != ""})
	}
	return vegetaPoints(f, rows, skipped)
}

var vegetaLine = regexp.MustCompile(`^[0-9]{16,19},[0-9]{1,3},[0-9]+,`)

func isVegetaCSV(head []byte) bool { return vegetaLine.Match(head) }

// vegetaCSV reads vegeta encode --to csv, which has no head: timestamp, code, latency, bytes out, bytes in, error, body, attack, ...
func vegetaCSV(f File) (contents, error) {
	r := csv.NewReader(bytes.NewReader(f.Data))
	r.FieldsPerRecord, r.LazyQuotes, r.ReuseRecord = -1, true, true
	var rows []vegetaRow
	skipped := 0
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var parse *csv.ParseError
		if errors.As(err, &parse) || err == nil && len(row) < 8 {
			skipped++
			continue
		}
		if err != nil {
			return contents{}, refuse(f.Name, fmt.Sprintf("cannot be read (%v)", err), "")
		}
		ns, err1 := strconv.ParseInt(row[0], 10, 64)
		code, err2 := strconv.Atoi(row[1])
		latency, err3 := strconv.ParseFloat(row[2], 64)
		if errors.Join(err1, err2, err3) != nil {
			skipped++
			continue
		}
		rows = append(rows, vegetaRow{strings.Clone(row[7]), time.Unix(0, ns), latency / 1e9, code < 200 || code >= 400 || row[5] != ""})
	}
	return vegetaPoints(f, rows, skipped)
}

// vegetaPoints makes a point of each attack.
func vegetaPoints(f File, rows []vegetaRow, skipped int) (contents, error) {
	index := map[string]int{}
	c := contents{kind: VegetaResults}
	var origins, lasts []time.Time
	for _, r := range rows {
		i, ok := index[r.attack]
		if !ok {
			i = len(c.points)
			index[r.attack] = i
			p := newPoint(VegetaResults, f.Name+":1")
			p.timed, p.arrivals, p.loadFrom = true, "constant", "sends"
			c.points = append(c.points, p)
			origins, lasts = append(origins, r.at), append(lasts, r.at)
		}
		if r.at.Before(origins[i]) {
			origins[i] = r.at
		}
		if r.at.After(lasts[i]) {
			lasts[i] = r.at
		}
	}
	for k, r := range rows {
		i := index[r.attack]
		t := request(k, r.at.Sub(origins[i]).Seconds(), r.latency, r.latency, nil)
		if r.bad {
			t = failed(t, "code")
		}
		c.points[i].turns = append(c.points[i].turns, t)
	}
	for i := range c.points {
		p := &c.points[i]
		countTurns(p)
		n := float64(len(p.turns))
		if over := lasts[i].Sub(origins[i]).Seconds(); n < 2 || !p.setLoad((n-1)/over, math.NaN()) {
			return contents{}, refuse(f.Name, "is a Vegeta attack of one request, which makes no rate", "give a longer attack")
		}
		p.arrivals = "constant"
		if skipped > 0 {
			p.doubt("%d lines are no results of Vegeta and are left out.", skipped)
		}
		vegetaNotes(p)
	}
	if len(c.points) == 0 {
		return contents{}, refuse(f.Name, "holds no result of Vegeta that can be read", "")
	}
	return c, nil
}

// fortio reads a run of Fortio, in seconds.
func fortio(_ File, n node, at string) ([]point, error) {
	p := newPoint(Fortio, at)
	h := n.get("DurationHistogram")
	for _, q := range h.get("Percentiles").items() {
		if v := q.first("Percentile"); v > 0 && v < 100 {
			p.ttft.set(v/100, q.first("Value")*1000)
		}
	}
	p.ttft.mean, p.ttft.min = h.first("Avg")*1000, h.first("Min")*1000
	p.e2e = p.ttft
	p.issued, p.failed = h.first("Count"), 0
	codes := n.get("RetCodes")
	for i, code := range codes.keys {
		if code != "200" && code != "201" && code != "204" && code != "SERVING" && code != "OK" {
			p.failed += known(codes.vals[i].number(), 0)
		}
	}
	if codes.kind == 0 {
		p.failed = known(n.get("ErrorsDurationHistogram").first("Count"), 0)
	}
	p.ok = p.issued - p.failed
	p.duration = n.first("ActualDuration") / 1e9
	p.throughput = n.first("ActualQPS")
	p.offered = p.throughput
	p.group = n.get("Labels").text()
	asked, threads := n.first("RequestedQPS"), n.first("NumThreads")
	if finite(asked) && asked > 0 {
		p.setLoad(asked, math.NaN())
		p.arrivals, p.saturation = "constant", p.throughput/asked
		p.note(fmt.Sprintf("Fortio sends from %s threads, each of which waits for its answer: when all wait nothing is sent, and the time a request should have waited is in no latency.", short(threads)))
	} else if !p.setLoad(math.NaN(), threads) {
		return nil, refuse(at, "is a run of Fortio that names neither a rate nor its threads", "give the file as Fortio wrote it")
	}
	wholeAnswers(&p, "Fortio")
	p.note("Fortio's percentiles are interpolated within the buckets of its histogram, and hold failed requests too.")
	return []point{p}, nil
}
