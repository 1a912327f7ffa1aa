package workload

import "math/rand/v2"

// Rand returns the stream of randomness for one purpose of one seed, further told apart by keys (a step, a call). Streams do
// not share state: a new draw in one shifts no other, so that a resumed or sharded run draws what the whole one would.
func Rand(seed uint64, purpose string, keys ...int) *rand.Rand {
	h := mix(seed)
	for _, b := range []byte(purpose) {
		h = mix(h ^ uint64(b))
	}
	lo := mix(h ^ 0x9e3779b97f4a7c15)
	for _, k := range keys {
		h = mix(h ^ uint64(k))
		lo = mix(lo + h)
	}
	return rand.New(rand.NewPCG(h, lo))
}

// Uniform is one draw from 0 (included) to 1 (not), for one purpose of one seed, told apart by keys; it is what Rand's streams are for
// where a single number is wanted.
func Uniform(seed uint64, purpose string, keys ...int) float64 {
	h := mix(seed + 0x632be59bd9b4e019)
	for i := range len(purpose) {
		h = h*0x100000001b3 ^ uint64(purpose[i])
	}
	h = mix(h)
	for _, k := range keys {
		h = mix(h ^ uint64(k))
	}
	return float64(h>>11) * 0x1p-53
}

// mix is the finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): every input bit moves every output bit.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
