package analysis

import (
	"fmt"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// deployment is what answered, as far as a run's header tells: how many engines, and GPUs in each.
type deployment struct {
	engines  int      // 1 unless it is a fleet
	gpus     int      // of one engine; 0 where that is not told
	prefill  int      // of the engines, the first that only prefill, where the others only decode
	scaled   bool     // by an autoscaler: the engines are the most it starts
	unknown  bool     // what stands behind the endpoint, as of any that is not simulated
	rhythm   bool     // several replicas among which calls are dealt in turn, or come back to: which meet is up to how many they are
	alike    bool     // the replicas
	kv       memoryOf // of one engine
	settings []string // as "name=value", those of which there is one by name, in a fixed order
}

// memoryOf is the KV memory of one engine of a simulated run.
type memoryOf struct {
	bytes, tokens     int // of the pool on one GPU; tokens of the longest sequence that it holds
	scheme            string
	calls, callTokens int // how many calls of the run's workload stay warm, and how long one is; 0 where that is not known
}

// says is the memory so that one scheme's can be set beside another's, in calls or requests; "" where it is not told.
func (m memoryOf) says(u unit) string {
	if m.bytes <= 0 || m.tokens <= 0 {
		return ""
	}
	out := sig(float64(m.bytes)/1e9) + " GB"
	if m.scheme != "" {
		out += ", as scheme " + m.scheme + " shares it out"
	}
	if m.callTokens > 0 {
		return out + fmt.Sprintf("; %s of %s tokens fit", count(m.calls, strings.TrimSuffix(u.calls(), "s")), grouped(fmt.Sprint(m.callTokens)))
	}
	return out + fmt.Sprintf("; one sequence of %s tokens would fill it", grouped(fmt.Sprint(m.tokens)))
}

// deploymentOf reads the details of a header. Those of a simulated run tell all of it; a server tells its tensor parallelism at best.
func deploymentOf(e measurement.Engine) deployment {
	d := deployment{engines: 1, unknown: e.Kind != "simulated"}
	number := func(m map[string]any, names ...string) int {
		for _, name := range names {
			switch v := m[name].(type) {
			case int:
				return v
			case float64:
				return int(v)
			}
		}
		return 0
	}
	set := func(name, value string) {
		if value != "" {
			d.settings = append(d.settings, name+"="+value)
		}
	}
	several := func(name string, of ...string) int {
		n := number(e.Details, of...)
		if n > 1 {
			set(name, fmt.Sprint(n))
		}
		return n
	}
	if kind := e.Details["kind"]; e.Kind == "simulated" && kind != nil {
		set("engine", fmt.Sprint(kind))
	}
	tp := several("tp", "tp", "tp_size", "tensor_parallel_size")
	pp := several("pp", "pp", "pp_size", "pipeline_parallel_size")
	several("ep", "ep", "ep_size")
	several("dp", "attention_dp")
	switch n := number(e.Details, "gpus"); {
	case n > 0:
		d.gpus = n
	case e.Kind == "simulated":
		d.gpus = 1
	default:
		d.gpus = tp * max(1, pp)
	}
	d.kv = memoryOf{bytes: number(e.Details, "kv_pool_bytes"), tokens: number(e.Details, "kv_pool_tokens"), calls: number(e.Details, "kv_calls"),
		callTokens: number(e.Details, "kv_call_tokens")}
	if scheme, ok := e.Details["kv_scheme"]; ok {
		d.kv.scheme = fmt.Sprint(scheme)
		set("kv", d.kv.scheme)
	}
	fleet, ok := e.Details["fleet"].(map[string]any)
	if !ok {
		return d
	}
	d.engines = max(1, number(fleet, "replicas"))
	if p, q := number(fleet, "prefill_replicas"), number(fleet, "decode_replicas"); p+q > 0 {
		d.engines, d.prefill = p+q, p
		set("prefill", fmt.Sprintf("%d×%s", p, e.GPU))
		set("decode", fmt.Sprintf("%d×%s", q, e.GPU))
	} else {
		set("fleet", strings.Join(alike(fleet["replica_gpus"], d.engines, e.GPU), "+"))
	}
	if router, ok := fleet["router"].(string); ok && d.engines > 1 {
		set("router", router)
	}
	_, d.scaled = fleet["autoscale"]
	_, affinity := fleet["affinity_s"]
	d.rhythm = d.engines > 1 && (affinity || fleet["router"] == nil || fleet["router"] == "round_robin")
	d.alike = d.prefill == 0 && fleet["replica_gpus"] == nil
	return d
}

// alike counts the replicas of each GPU, in the order of their names' first: "2×l40s", "1×h100".
func alike(names any, engines int, gpu string) (out []string) {
	var each []string
	switch v := names.(type) {
	case []string:
		each = v
	case []any:
		for _, name := range v {
			each = append(each, fmt.Sprint(name))
		}
	default:
		return []string{fmt.Sprintf("%d×%s", engines, gpu)}
	}
	count := map[string]int{}
	for _, name := range each {
		count[name]++
	}
	for i, name := range each {
		if slices.Index(each, name) == i {
			out = append(out, fmt.Sprintf("%d×%s", count[name], name))
		}
	}
	return out
}

// setting is the value of one by its name; "" of one that is not told.
func (d deployment) setting(name string) string {
	for _, s := range d.settings {
		if value, ok := strings.CutPrefix(s, name+"="); ok {
			return value
		}
	}
	return ""
}

// Deployed is what of the other side a title says beside model and GPU, as far as it told: whose engine is modelled, how many GPUs it spreads
// over and the fleet of it, as "engine=vllm tp=2 fleet=4×h100-sxm"; "" where nothing of it is told.
func Deployed(e measurement.Engine) string { return deploymentOf(e).shape() }

// KVMemory says how large the KV memory of one of a simulated run's engines is, in bytes, bytes a token and calls of its workload that stay warm,
// of which only the last sets one scheme beside another; "" where it is not told.
func KVMemory(r measurement.Results) string {
	d := deploymentOf(r.Engine)
	return d.kv.on(d, unitOf(r.Config))
}

// on says the memory with what there is one of it for.
func (m memoryOf) on(d deployment, u unit) string {
	of := m.says(u)
	switch {
	case of == "":
		return ""
	case d.engines > 1 && d.gpus > 1:
		return "on each GPU of each engine " + of
	case d.engines > 1:
		return "in each engine " + of
	case d.gpus > 1:
		return "on each GPU " + of
	}
	return of
}

// shape is what a title says of it: "engine=vllm tp=2 fleet=4×h100-sxm"; "" where nothing is told.
func (d deployment) shape() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(d.settings), func(s string) bool { return strings.HasPrefix(s, "router=") || strings.HasPrefix(s, "kv=") }), " ")
}

// distinct are, for each of several deployments, the settings in which they are not all alike; "" where they are.
func distinct(ds []deployment) []string {
	out := make([]string, len(ds))
	for _, name := range []string{"engine", "tp", "pp", "ep", "dp", "kv", "fleet", "prefill", "decode", "router"} {
		differs := slices.ContainsFunc(ds, func(d deployment) bool { return d.setting(name) != ds[0].setting(name) })
		for i, d := range ds {
			if v := d.setting(name); differs && v != "" {
				out[i] = strings.TrimSpace(out[i] + " " + name + "=" + v)
			}
		}
	}
	return out
}

// needs counts what of such a deployment a load needs: replicas, or fleets where it is one, and the GPUs in all of them.
func (d deployment) needs(n int) string {
	var of []string
	what := d.one()
	if d.engines > 1 {
		upTo := ""
		if d.scaled {
			upTo = "up to "
		}
		of = append(of, upTo+count(d.engines, "engine"))
	}
	if d.gpus > 1 {
		of = append(of, count(d.gpus, "GPU"))
	}
	text := count(n, what)
	if len(of) > 0 {
		text += " of " + strings.Join(of, " of ") + " each"
		if all := n * d.engines * max(1, d.gpus); d.gpus > 0 {
			most := ""
			if d.scaled {
				most = " at most"
			}
			text += fmt.Sprintf(", %s in all%s,", count(all, "GPU"), most)
		}
	}
	if d.unknown {
		each := ", each"
		if n == 1 {
			each = ","
		}
		text = strings.TrimSuffix(text, ",") + each + " like the one measured,"
	}
	return text
}

// neighbours are the numbers of replicas a tenth below and above, in words; "" where there is no one number of them.
func (d deployment) neighbours() string {
	if !d.alike {
		return ""
	}
	tenth := max(1, (d.engines+5)/10)
	return fmt.Sprintf("%d and %d replicas", d.engines-tenth, d.engines+tenth)
}

// one is what stays together, in a word.
func (d deployment) one() string {
	if d.engines > 1 {
		return "fleet"
	}
	if d.unknown { // a router with any number of engines may stand there
		return "endpoint"
	}
	return "replica"
}
