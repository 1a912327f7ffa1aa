package recipe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kneefinder/simulation/engine"
	"kneefinder/simulation/engine/gpu"
	"kneefinder/simulation/fleet"
)

// Fleet is the flags of several engines behind a router.
type Fleet struct {
	Replicas        int           `help:"Engines behind a router; 0: one, without." group:"fleet"`
	ReplicaGPUs     []string      `name:"replica-gpus" help:"The GPU of each replica, instead of --replicas of one kind, with commas between." placeholder:"NAME" group:"fleet"`
	ReplicaWeights  []float64     `help:"Capacity of each replica beside the others', for the router; by default all alike." placeholder:"NUMBER" group:"fleet"`
	PrefillReplicas int           `help:"Replicas that only prefill, beside --decode-replicas that only decode." group:"fleet"`
	DecodeReplicas  int           `help:"Replicas that only decode." group:"fleet"`
	Router          string        `help:"Who gets a request: round_robin, random, least_loaded, least_tokens, prefix_aware or kv." default:"round_robin" complete:"round_robin,random,least_loaded,least_tokens,prefix_aware,kv" group:"fleet"`
	OverlapWeight   float64       `help:"Of --router kv: what a block of the prompt that is not cached weighs, beside a block of load." default:"1" group:"fleet"`
	RouterBlock     int           `help:"Tokens of the blocks that prefix_aware and kv look at." default:"512" group:"fleet"`
	RouterStaleness time.Duration `help:"Age up to which the router's view of the replicas grows before it is renewed." default:"0s" group:"fleet"`
	Affinity        time.Duration `help:"A call's next request within so long goes where its last one went." default:"0s" group:"fleet"`
	ReplicaLimit    int           `help:"Requests that a replica has at a time; others wait at the router. 0: no limit." group:"fleet"`

	KVLink        string        `name:"kv-link" help:"How KV travels from prefill to decode: ${kvlinks}." default:"nixl" complete:"nixl,mooncake,mori" group:"fleet"`
	KVLinkGBs     float64       `name:"kv-link-gb-s" aliases:"kv-link-gbps" help:"Its bandwidth instead, gigabytes a second; all transfers share it." group:"fleet"`
	KVLinkLatency time.Duration `name:"kv-link-latency" help:"Its latency instead." default:"0s" group:"fleet"`
	KVLinkEach    bool          `name:"kv-link-each" help:"Every prefill replica has a link of its own." group:"fleet"`

	ReplicaEvent []string      `help:"What befalls a replica: \"fail 2 at 100s for 30s\", \"drain 0 at 1m\", \"start 3 at 90s\". Can be given again." sep:"none" placeholder:"EVENT" group:"fleet"`
	Retry        string        `help:"What becomes of the requests of a replica that fails: none, fresh (those without a token go elsewhere) or resume (all do)." default:"none" complete:"none,fresh,resume" group:"fleet"`
	StartUp      time.Duration `help:"Time from the decision to start a replica until it takes requests." default:"0s" group:"fleet"`

	AutoscaleSignal  string        `help:"What the autoscaler holds near its target: outstanding or queue (requests a replica) or utilisation (0 to 1)." default:"outstanding" complete:"outstanding,queue,utilisation" group:"fleet"`
	AutoscaleTarget  float64       `help:"The target, a replica; 0: no autoscaler. --replicas is the most it starts." group:"fleet"`
	AutoscaleMin     int           `help:"Fewest replicas, up from the start." default:"1" group:"fleet"`
	AutoscaleEvery   time.Duration `help:"Between its decisions." default:"15s" group:"fleet"`
	AutoscaleTimeout time.Duration `name:"autoscale-cool-down" help:"Since it last changed anything, before it takes replicas away." default:"5m" group:"fleet"`
}

// Engine is one engine or a fleet.
type Engine interface {
	Submit(at time.Duration, r engine.Request)
	Abort(at time.Duration, id uint64)
	Next() (at time.Duration, ok bool)
	Quiet() (at time.Duration, ok bool)
	AdvanceTo(at time.Duration, s engine.Sink)
	Stats() engine.Stats
	FlushCache() bool
	ResetPeaks()
}

// none reports whether the flags ask for one engine and nothing around it.
func (f Fleet) none() bool {
	return f.Replicas == 0 && len(f.ReplicaGPUs) == 0 && f.PrefillReplicas == 0 && f.DecodeReplicas == 0
}

// New makes what the flags ask for of engines of c.
func (f Fleet) New(c engine.Config, seed uint64) (Engine, error) {
	if f.none() {
		if name := f.astray(); name != "" {
			return nil, fmt.Errorf("--%s is of a fleet: give --replicas", name)
		}
		return engine.New(c)
	}
	config, err := f.config(c, seed)
	if err != nil {
		return nil, err
	}
	return fleet.New(config)
}

// astray is a flag that is given and means nothing without a fleet, or "".
func (f Fleet) astray() string {
	for _, x := range []struct {
		name  string
		given bool
	}{
		{"replica-event", f.ReplicaEvent != nil}, {"autoscale-target", f.AutoscaleTarget != 0}, {"replica-weights", f.ReplicaWeights != nil},
		{"router", f.Router != "" && f.Router != string(fleet.RoundRobin)}, {"router-staleness", f.RouterStaleness != 0}, {"affinity", f.Affinity != 0},
		{"replica-limit", f.ReplicaLimit != 0}, {"retry", f.Retry != "" && f.Retry != "none"}, {"start-up", f.StartUp != 0},
	} {
		if x.given {
			return x.name
		}
	}
	return f.linkAstray()
}

// linkAstray is a flag of the link between replicas that prefill and decode, given where there are none, or "".
func (f Fleet) linkAstray() string {
	switch {
	case f.PrefillReplicas != 0 || f.DecodeReplicas != 0:
		return ""
	case f.KVLinkGBs != 0:
		return "kv-link-gb-s"
	case f.KVLinkLatency != 0:
		return "kv-link-latency"
	case f.KVLinkEach:
		return "kv-link-each"
	}
	return ""
}

// String says what the flags ask for, "" of one engine: "4 replicas behind a router (kv)".
func (f Fleet) String() string {
	if f.none() {
		return ""
	}
	router := " behind a router (" + f.Router
	if f.Affinity > 0 {
		router += ", affinity " + f.Affinity.String()
	}
	router += ")"
	if f.PrefillReplicas != 0 || f.DecodeReplicas != 0 {
		return fmt.Sprintf("%d prefill and %d decode replicas%s", f.PrefillReplicas, f.DecodeReplicas, router)
	}
	if n := f.size(); n != 1 {
		return fmt.Sprintf("%d replicas%s", n, router)
	}
	return "1 replica" + router
}

// size is how many engines there are at most.
func (f Fleet) size() int {
	return max(1, f.Replicas, len(f.ReplicaGPUs), f.PrefillReplicas+f.DecodeReplicas)
}

func (f Fleet) gpuNames() string {
	var names []string
	for _, name := range f.ReplicaGPUs {
		if g, ok := gpu.ByName(name); ok {
			name = g.Name
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// details is the fleet for the files: what is not as it comes.
func (f Fleet) details() map[string]any {
	out := map[string]any{"router": f.Router}
	put := func(name string, value any, given bool) {
		if given {
			out[name] = value
		}
	}
	put("replicas", f.size(), f.Replicas != 0 || len(f.ReplicaGPUs) != 0)
	put("replica_gpus", f.ReplicaGPUs, len(f.ReplicaGPUs) != 0)
	put("replica_weights", f.ReplicaWeights, len(f.ReplicaWeights) != 0)
	put("affinity_s", f.Affinity.Seconds(), f.Affinity != 0)
	put("router_staleness_s", f.RouterStaleness.Seconds(), f.RouterStaleness != 0)
	put("replica_limit", f.ReplicaLimit, f.ReplicaLimit != 0)
	if kv := fleet.Policy(f.Router) == fleet.KV; kv || fleet.Policy(f.Router) == fleet.PrefixAware {
		put("router_block", f.RouterBlock, true)
		put("overlap_weight", f.OverlapWeight, kv)
	}
	if f.PrefillReplicas != 0 || f.DecodeReplicas != 0 {
		out["prefill_replicas"], out["decode_replicas"] = f.PrefillReplicas, f.DecodeReplicas
		put("kv_link", f.KVLink, f.KVLinkGBs == 0)
		put("kv_link_gb_s", f.KVLinkGBs, f.KVLinkGBs != 0)
		put("kv_link_latency_s", f.KVLinkLatency.Seconds(), f.KVLinkLatency != 0)
		put("kv_link_each", true, f.KVLinkEach)
	}
	put("replica_events", f.ReplicaEvent, len(f.ReplicaEvent) != 0)
	put("retry", f.Retry, len(f.ReplicaEvent) != 0)
	put("start_up_s", f.StartUp.Seconds(), f.StartUp != 0)
	if f.AutoscaleTarget != 0 {
		out["autoscale"] = map[string]any{"signal": f.AutoscaleSignal, "target": f.AutoscaleTarget, "min": f.AutoscaleMin,
			"every_s": f.AutoscaleEvery.Seconds(), "cool_down_s": f.AutoscaleTimeout.Seconds()}
	}
	return out
}

func (f Fleet) config(c engine.Config, seed uint64) (fleet.Config, error) {
	config := fleet.Default()
	var err error
	if config.Replicas, err = f.replicas(c); err != nil {
		return config, err
	}
	if n := len(f.ReplicaWeights); n > 0 {
		if n != len(config.Replicas) {
			return config, fmt.Errorf("--replica-weights has %d numbers for %d replicas", n, len(config.Replicas))
		}
		for i, w := range f.ReplicaWeights {
			config.Replicas[i].Weight = w
		}
	}
	r := &config.Router
	r.Policy, r.Seed, r.OverlapWeight, r.BlockTokens = fleet.Policy(f.Router), seed, f.OverlapWeight, f.RouterBlock
	r.Staleness, r.Affinity, r.MaxRequests = f.RouterStaleness, f.Affinity, f.ReplicaLimit
	if config.Handoff, err = f.handoff(c); err != nil {
		return config, err
	}
	for _, text := range f.ReplicaEvent {
		e, err := fleet.ParseEvent(text)
		if err != nil {
			return config, fmt.Errorf("--replica-event: %w", err)
		}
		config.Events = append(config.Events, e)
	}
	if f.Retry != "none" {
		config.Retry = fleet.Retry(f.Retry)
	}
	config.StartUp = f.StartUp
	if f.AutoscaleTarget != 0 {
		if f.PrefillReplicas > 0 {
			return config, fmt.Errorf("--autoscale-target: replicas that only prefill or decode are not scaled here: leave it away, or --prefill-replicas")
		}
		config.Scale = []fleet.Autoscaler{{Signal: fleet.Signal(f.AutoscaleSignal), Target: f.AutoscaleTarget, Every: f.AutoscaleEvery,
			Min: f.AutoscaleMin, Max: len(config.Replicas), CoolDown: f.AutoscaleTimeout, Tolerance: .1}}
		for i := min(f.AutoscaleMin, len(config.Replicas)); i < len(config.Replicas); i++ {
			config.Replicas[i].Off = true
		}
	}
	return config, nil
}

// replicas are the engines: alike, on GPUs of their own, or divided into those that prefill and those that decode.
func (f Fleet) replicas(c engine.Config) ([]fleet.Replica, error) {
	split := f.PrefillReplicas != 0 || f.DecodeReplicas != 0
	switch {
	case len(f.ReplicaGPUs) > 0 && (split || f.Replicas != 0 && f.Replicas != len(f.ReplicaGPUs)):
		return nil, fmt.Errorf("--replica-gpus names %d replicas: leave --replicas, --prefill-replicas and --decode-replicas away", len(f.ReplicaGPUs))
	case split && f.Replicas != 0:
		return nil, fmt.Errorf("--replicas do all of a request, --prefill-replicas and --decode-replicas a part: give one or the other")
	case (f.PrefillReplicas == 0) != (f.DecodeReplicas == 0):
		return nil, fmt.Errorf("--prefill-replicas and --decode-replicas go together: one prefills, the other decodes")
	case f.Replicas < 0 || f.PrefillReplicas < 0 || f.DecodeReplicas < 0:
		return nil, fmt.Errorf("a fleet has %d, %d and %d replicas: none may be negative", f.Replicas, f.PrefillReplicas, f.DecodeReplicas)
	case f.Replicas+f.PrefillReplicas+f.DecodeReplicas > mostReplicas:
		return nil, fmt.Errorf("a fleet has at most %d replicas here", mostReplicas)
	}
	var out []fleet.Replica
	for _, name := range f.ReplicaGPUs {
		g, ok := gpu.ByName(name)
		if !ok {
			return nil, fmt.Errorf("--replica-gpus: %q is not known; there are %s", name, strings.Join(gpu.Names(), ", "))
		}
		one := c
		one.GPU = g
		if err := fits(one); err != nil {
			return nil, fmt.Errorf("--replica-gpus: %s: %w", name, err)
		}
		out = append(out, fleet.Replicas(1, one)...)
	}
	out = append(out, fleet.Replicas(f.Replicas, c)...)
	for _, part := range []struct {
		n    int
		role fleet.Role
	}{{f.PrefillReplicas, fleet.Prefill}, {f.DecodeReplicas, fleet.Decode}} {
		for _, r := range fleet.Replicas(part.n, c) {
			r.Role = part.role
			out = append(out, r)
		}
	}
	return out, nil
}

const mostReplicas = 1024

func (f Fleet) handoff(c engine.Config) (h fleet.Handoff, err error) {
	link, ok := fleet.LinkByName(f.KVLink)
	if !ok {
		return h, fmt.Errorf("--kv-link %q is not known; there are %s, or give --kv-link-gb-s", f.KVLink, strings.Join(fleet.LinkNames(), ", "))
	}
	if name := f.linkAstray(); name != "" {
		return h, fmt.Errorf("--%s is of the link between replicas that prefill and replicas that decode: give --prefill-replicas and --decode-replicas", name)
	}
	if f.KVLinkGBs < 0 {
		return h, fmt.Errorf("--kv-link-gb-s is %v, must be above 0", f.KVLinkGBs)
	}
	if f.KVLinkGBs > 0 {
		link = fleet.Link{Name: "own", Bandwidth: f.KVLinkGBs * 1e9}
	}
	if f.KVLinkLatency > 0 {
		link.Latency = f.KVLinkLatency
	}
	return fleet.Handoff{Link: link, PerReplica: f.KVLinkEach, KVBytes: c.Model.SequenceBytes}, nil
}
