package gpu

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// ReadFile reads a GPU file. See FromFile.
func ReadFile(path string) (GPU, error) {
	f, err := os.Open(path)
	if err != nil {
		return GPU{}, err
	}
	defer f.Close()
	return FromFile(f, path)
}

// FromFile reads a GPU from YAML or JSON; path names it in errors, and the GPU where the file gives no name. A field that does not
// exist is an error, and so is one that is missing of memory_gb (or memory_bytes), bandwidth_gb_s and bf16_tflops: nothing here can
// be guessed. Every other peak is none where it is left out, and every kernel that is left out is as on the GPU measured nearest,
// which Measured then names. Where overheads stand, all of them count as the file has them, those that are left out as none.
//
//	name: a10-at-home           # else the file's name
//	memory_gb: 24               # 10^9 bytes, or as the driver reports: memory_bytes
//	bandwidth_gb_s: 600         # of its memory
//	bf16_tflops: 125            # dense
//	fp8_tflops: 0               # 0 or left out: none
//	fp4_tflops: 0
//	scale_up_gb_s: 0            # NVLink or the like, one direction
//	scale_up_gpus: 0            # that it joins
//	pcie_gb_s: 32               # left out: 32
//	watts: 150
//	usd_per_hour: 0.75
//	reserve_gb: 2               # beside weights and KV; left out: what the engine sets aside
//	source: data sheet of 2021
//	kernels:                    # see Kernels
//	  bf16: {launch_us: 3, compute: [[64, .2], [512, .6]], stream: [[1, .85]]} # of m rows: [m, part of the peak]
//	  fp8: {...}                # left out while bf16 is there: as bf16; so for experts and experts4, which also have narrow
//	  prefill: [{head_dim: 128, launch_us: 6, fraction: .5, row_keys: 245}]
//	                            # whole: true: a backend that computes the rows of a cached prefix too
//	  decode: [{head_dim: 128, launch_us: 10, sequence_us: .02, fraction: .8}]
//	  decode_window: [...]      # left out while decode is there: as decode
//	  pass: {launch_us: 3, fraction: .8}
//	  all_reduce: [{gpus: 2, us: [[1024, 8], [1048576, 75]]}] # [bytes, time]; also all_gather, all_to_all
//	overheads:                  # see Overheads
//	  {prefill_us: 2000, decode_us: 400, sequence_us: 5, launch_us: 5, request_us: 3000, prompt_token_us: 1, graphs: 256}
//	anchor:                     # see Anchor; kneesim anchor writes it
//	  {engine: vllm, model: llama-3.1-8b, ...}
func FromFile(r io.Reader, path string) (GPU, error) {
	d := yaml.NewDecoder(r)
	d.KnownFields(true)
	var f file
	if err := d.Decode(&f); err != nil {
		return GPU{}, fmt.Errorf("%s: %w", path, plain(err))
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return GPU{}, fmt.Errorf("%s: a second document begins behind the first: a file holds one GPU", path)
	}
	if f.MemoryBytes == 0 && f.MemoryGB == 0 {
		return GPU{}, fmt.Errorf("%s: memory_gb is missing: how much a GPU holds cannot be guessed; nvidia-smi tells it", path)
	}
	if f.MemoryBytes != 0 && f.MemoryGB != 0 {
		return GPU{}, fmt.Errorf("%s: memory_gb and memory_bytes are both given: leave one away", path)
	}
	for _, m := range []struct {
		name  string
		value float64
	}{{"bandwidth_gb_s", f.Bandwidth}, {"bf16_tflops", f.BF16}} {
		if m.value == 0 {
			return GPU{}, fmt.Errorf("%s: %s is missing: the data sheet has it", path, m.name)
		}
		if !(m.value > 0 && m.value <= most) {
			return GPU{}, fmt.Errorf("%s: %s is %v, must be above 0 and at most %v", path, m.name, m.value, float64(most))
		}
	}
	if !(f.MemoryGB >= 0 && f.MemoryGB <= 1e6) {
		return GPU{}, fmt.Errorf("%s: memory_gb is %v, must be above 0 and at most 1e6", path, f.MemoryGB)
	}
	g := f.gpu()
	if g.Name == "" {
		base := filepath.Base(path)
		g.Name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	if err := g.Validate(); err != nil {
		return GPU{}, fmt.Errorf("%s: %w", path, err)
	}
	return g.Filled(), nil
}

// most is a peak that no accelerator comes near.
const most = 1e9

// file is the form of a GPU file.
type file struct {
	Name        string     `yaml:"name"`
	MemoryGB    float64    `yaml:"memory_gb"`
	MemoryBytes int64      `yaml:"memory_bytes"`
	Bandwidth   float64    `yaml:"bandwidth_gb_s"`
	BF16        float64    `yaml:"bf16_tflops"`
	FP8         float64    `yaml:"fp8_tflops"`
	FP4         float64    `yaml:"fp4_tflops"`
	ScaleUp     float64    `yaml:"scale_up_gb_s"`
	ScaleUpGPUs int        `yaml:"scale_up_gpus"`
	PCIe        float64    `yaml:"pcie_gb_s"`
	Watts       float64    `yaml:"watts"`
	Price       float64    `yaml:"usd_per_hour"`
	Source      string     `yaml:"source"`
	Reserve     float64    `yaml:"reserve_gb"`
	Kernels     kernels    `yaml:"kernels"`
	Overheads   *overheads `yaml:"overheads"`
	Anchor      *Anchor    `yaml:"anchor"`
}

type kernels struct {
	BF16         product      `yaml:"bf16"`
	FP8          product      `yaml:"fp8"`
	Experts      product      `yaml:"experts"`
	Experts4     product      `yaml:"experts4"`
	Prefill      []prefill    `yaml:"prefill"`
	Decode       []decode     `yaml:"decode"`
	DecodeWindow []decode     `yaml:"decode_window"`
	Pass         decode       `yaml:"pass"`
	AllReduce    []collective `yaml:"all_reduce"`
	AllGather    []collective `yaml:"all_gather"`
	AllToAll     []collective `yaml:"all_to_all"`
}

type product struct {
	Launch  float64 `yaml:"launch_us"`
	Compute []pair  `yaml:"compute"`
	Stream  []pair  `yaml:"stream"`
	Narrow  float64 `yaml:"narrow"`
}

// pair is a point of a curve: rows and a fraction, or bytes and microseconds.
type pair [2]float64

type prefill struct {
	HeadDim  int     `yaml:"head_dim"`
	Launch   float64 `yaml:"launch_us"`
	Fraction float64 `yaml:"fraction"`
	RowKeys  float64 `yaml:"row_keys"`
	Whole    bool    `yaml:"whole"`
}

type decode struct {
	HeadDim  int     `yaml:"head_dim"`
	Launch   float64 `yaml:"launch_us"`
	Sequence float64 `yaml:"sequence_us"`
	Fraction float64 `yaml:"fraction"`
}

type collective struct {
	GPUs int    `yaml:"gpus"`
	US   []pair `yaml:"us"`
}

type overheads struct {
	Prefill     float64 `yaml:"prefill_us"`
	Decode      float64 `yaml:"decode_us"`
	Sequence    float64 `yaml:"sequence_us"`
	Launch      float64 `yaml:"launch_us"`
	Request     float64 `yaml:"request_us"`
	PromptToken float64 `yaml:"prompt_token_us"`
	Graphs      int     `yaml:"graphs"`
}

func (f *file) gpu() GPU {
	g := GPU{
		Name: f.Name, Memory: f.MemoryBytes + int64(f.MemoryGB*1e9), Bandwidth: f.Bandwidth * 1e9,
		BF16: f.BF16 * 1e12, FP8: f.FP8 * 1e12, FP4: f.FP4 * 1e12,
		ScaleUp: f.ScaleUp * 1e9, ScaleUpGPUs: f.ScaleUpGPUs, PCIe: f.PCIe * 1e9, Watts: f.Watts, Source: f.Source, Anchor: f.Anchor,
		Reserve: int64(f.Reserve * 1e9),
	}
	if f.Price > 0 {
		g.Prices = []Price{{"as given", f.Price, "the GPU file"}}
	}
	k := &f.Kernels
	g.Kernels = Kernels{
		BF16: k.BF16.product(), FP8: k.FP8.product(), Experts: k.Experts.product(), Experts4: k.Experts4.product(),
		Decode: decodes(k.Decode), DecodeWindow: decodes(k.DecodeWindow),
		Pass:      Pass{Launch: us(k.Pass.Launch), Fraction: k.Pass.Fraction},
		AllReduce: collectives(k.AllReduce), AllGather: collectives(k.AllGather), AllToAll: collectives(k.AllToAll),
	}
	for _, p := range k.Prefill {
		g.Kernels.Prefill = append(g.Kernels.Prefill, Prefill{p.HeadDim, us(p.Launch), p.Fraction, p.RowKeys, p.Whole})
	}
	if o := f.Overheads; o != nil {
		g.Overheads = &Overheads{
			Prefill: us(o.Prefill), Decode: us(o.Decode), Sequence: us(o.Sequence), Launch: us(o.Launch),
			Request: us(o.Request), PromptToken: us(o.PromptToken), Graphs: o.Graphs,
		}
	}
	return g
}

func (p product) product() Product {
	return Product{Launch: us(p.Launch), Compute: curve(p.Compute), Stream: curve(p.Stream), Narrow: p.Narrow}
}

func curve(pairs []pair) (c Curve) {
	for _, p := range pairs {
		c = append(c, Point{int(p[0]), p[1]})
	}
	return c
}

func decodes(list []decode) (out []Decode) {
	for _, d := range list {
		out = append(out, Decode{d.HeadDim, us(d.Launch), us(d.Sequence), d.Fraction})
	}
	return out
}

func collectives(list []collective) (out []Collective) {
	for _, c := range list {
		n := Collective{GPUs: c.GPUs}
		for _, p := range c.US {
			n.Points = append(n.Points, Transfer{p[0], us(p[1])})
		}
		out = append(out, n)
	}
	return out
}

func us(v float64) time.Duration { return time.Duration(v * 1e3) }

var unknown = regexp.MustCompile(`^line (\d+): field (\S+) not found in type gpu\.(\S+)$`)

// fieldsOf lists the fields of a part of the format by its type's name.
func fieldsOf(name string) string {
	for _, part := range []any{file{}, kernels{}, product{}, prefill{}, decode{}, collective{}, overheads{}, Anchor{}} {
		t := reflect.TypeOf(part)
		if t.Name() != name {
			continue
		}
		var names []string
		for i := range t.NumField() {
			names = append(names, t.Field(i).Tag.Get("yaml"))
		}
		return strings.Join(names, ", ")
	}
	return ""
}

// plain says in this format's words what the decoder did not like.
func plain(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty")
	}
	all := new(yaml.TypeError)
	if !errors.As(err, &all) {
		return err
	}
	var lines []string
	for _, e := range all.Errors {
		if m := unknown.FindStringSubmatch(e); m != nil {
			e = fmt.Sprintf("line %s: there is no field %s in %s", m[1], m[2], strings.Replace(m[3], "file", "a GPU file", 1))
			if names := fieldsOf(m[3]); names != "" {
				e += "; there are " + names
			}
		}
		lines = append(lines, e)
	}
	return errors.New(strings.Join(lines, "; "))
}
