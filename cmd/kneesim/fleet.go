package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"kneefinder/analysis"
	"kneefinder/simulation/fleet"
)

// fleetReport is what befell the replicas of a fleet and what its links carried, over the whole run.
type fleetReport struct {
	Requests        int      `json:"requests"`
	Failed          int      `json:"failed"`
	Retried         int      `json:"retried"`
	ReplicaHours    float64  `json:"replica_hours"` // up or failed
	Hours           float64  `json:"hours"`
	Started         int      `json:"started"` // by the autoscaler
	Drained         int      `json:"drained"`
	Transfers       int      `json:"transfers"`
	TransferGB      float64  `json:"transfer_gb"`
	TransferMeanMS  float64  `json:"transfer_mean_ms"` // on the link
	TransferMaxMS   float64  `json:"transfer_max_ms"`
	TransferWaitMS  float64  `json:"transfer_wait_mean_ms"` // for a place at a decode replica
	LinkBusy        float64  `json:"link_busy"`             // 0 to 1
	Idle            []string `json:"events_without_effect,omitempty"`
	Pending         []string `json:"events_behind_the_end,omitempty"`
	disaggregated   bool
	scaled, unequal bool
	end             time.Duration
}

// fleetOf is the report of a machine as of an instant; nil of one engine.
func fleetOf(m machine, at time.Duration) *fleetReport {
	f, ok := m.(*fleet.Fleet)
	if !ok || at <= 0 {
		return nil
	}
	r := f.Report(at)
	t := r.Transfers
	n := time.Duration(max(1, t.Count))
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	out := &fleetReport{end: at, Requests: r.Ended, Failed: r.Failed, Retried: r.Retried, ReplicaHours: r.Paid.Hours(), Hours: at.Hours(), Started: r.Started,
		Drained: r.Drained, Transfers: t.Count, TransferGB: float64(t.Bytes) / 1e9, TransferMeanMS: ms(t.Travel / n), TransferMaxMS: ms(t.TravelMax),
		TransferWaitMS: ms(t.Wait / n), LinkBusy: t.Busy.Seconds() / at.Seconds()}
	replicas := f.PerReplica()
	for _, p := range replicas {
		out.disaggregated = out.disaggregated || p.Role != fleet.Whole
	}
	for _, e := range r.Idle {
		out.Idle = append(out.Idle, e.String())
	}
	for _, e := range r.Pending {
		out.Pending = append(out.Pending, e.String())
	}
	out.scaled = r.Started+r.Drained > 0
	out.unequal = r.Paid != at*time.Duration(len(replicas))
	return out
}

// text says it where there is something to say.
func (r *fleetReport) text(w io.Writer) {
	if r == nil {
		return
	}
	var parts []string
	if r.Failed+r.Retried > 0 {
		parts = append(parts, fmt.Sprintf("of %d requests %d were lost with a replica that failed; %d were sent again to another", r.Requests, r.Failed, r.Retried))
	}
	if r.disaggregated {
		sig := func(v float64) string { return analysis.Digits(v, 3) }
		parts = append(parts, fmt.Sprintf("%d prompts' KV, %s GB, went from prefill to decode in %s ms on average, %s at most, behind %s ms of waiting for a place; the link was busy %s %% of the time",
			r.Transfers, sig(r.TransferGB), sig(r.TransferMeanMS), sig(r.TransferMaxMS), sig(r.TransferWaitMS), analysis.Digits(100*r.LinkBusy, 2)))
	}
	if r.scaled {
		parts = append(parts, fmt.Sprintf("the autoscaler %s and %s", times("started", r.Started), times("drained", r.Drained)))
	}
	if r.unequal {
		parts = append(parts, fmt.Sprintf("%.2f replicas were paid for on average", r.ReplicaHours/r.Hours))
	}
	if len(r.Idle) > 0 {
		parts = append(parts, fmt.Sprintf("these events changed nothing, as the autoscaler had been there before: %s", strings.Join(r.Idle, ", ")))
	}
	if len(r.Pending) > 0 {
		parts = append(parts, fmt.Sprintf("the run ended after %v, before these events came: %s", r.end.Round(time.Second), strings.Join(r.Pending, ", ")))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "\nFleet, over the whole run: %s.\n", strings.Join(parts, "; "))
	}
}

// times says how often something was done to replicas.
func times(did string, n int) string {
	switch n {
	case 0:
		return did + " none"
	case 1:
		return did + " one once"
	}
	return fmt.Sprintf("%s replicas %d times", did, n)
}
