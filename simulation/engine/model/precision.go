package model

// Precision is how a number is stored. Empty is BF16.
type Precision string

// The precisions. Those with a scale of a byte for a short block count it: MXFP4 and MXFP8 share one among 32 numbers, NVFP4 among
// 16. The others' scales are too few to matter (one for 128 numbers or more) and left out. BF16 stands for every number of two
// bytes.
const (
	BF16  Precision = "bf16"
	FP8   Precision = "fp8"
	INT8  Precision = "int8"
	FP4   Precision = "fp4"
	INT4  Precision = "int4"
	MXFP4 Precision = "mxfp4"
	MXFP8 Precision = "mxfp8"
	NVFP4 Precision = "nvfp4"
)

var precisions = [...]Precision{BF16, FP8, INT8, FP4, INT4, MXFP4, MXFP8, NVFP4}

// Precisions is how weights are stored: the linear layers, attention's projections and the routed experts among them, and the
// embedding and output projection. An empty Attention or Experts is as Linear, an empty Head is BF16. The router of a mixture of
// experts is BF16 always: no published checkpoint stores it otherwise.
type Precisions struct {
	Linear    Precision
	Attention Precision // checkpoints that keep attention whole are common
	Experts   Precision
	Head      Precision
}

// OfAttention is the precision of attention's projections.
func (p Precisions) OfAttention() Precision {
	if p.Attention == "" {
		return p.Linear
	}
	return p.Attention
}

// OfExperts is the precision of routed experts.
func (p Precisions) OfExperts() Precision {
	if p.Experts == "" {
		return p.Linear
	}
	return p.Experts
}

// Bits is what one number takes, scales that matter included; 0 for a precision that does not exist.
func (p Precision) Bits() float64 { return float64(p.eighths()) / 8 }

// Bytes is what n numbers take, rounded up.
func (p Precision) Bytes(n int64) int64 { return (n*p.eighths() + 63) / 64 }

// eighths of a bit: every scale is a whole number of them.
func (p Precision) eighths() int64 {
	switch p {
	case BF16, "":
		return 16 * 8
	case FP8, INT8:
		return 8 * 8
	case FP4, INT4:
		return 4 * 8
	case MXFP8:
		return 8*8 + 8*8/32
	case MXFP4:
		return 4*8 + 8*8/32
	case NVFP4:
		return 4*8 + 8*8/16
	}
	return 0
}

func (p Precision) known() bool { return p.eighths() > 0 }
