package kv

import "math/bits"

// chain hashes a sequence unit by unit: the value behind a unit stands for all tokens up to there. Two sequences of 64-bit values
// that differ collide with a probability of about n²/2⁶⁵ for n values, which is 10⁻⁷ for a million blocks.
type chain uint64

// next is the value behind one more unit of tokens.
func (c chain) next(unit []Token) chain {
	const k0, k1, k2 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3 // odd, half their bits set (wyhash's)
	a, b := uint64(c)^k0, uint64(c)^k1
	for len(unit) >= 4 { // two products that do not wait for each other
		a = fold(a^pair(unit[0], unit[1]), k1)
		b = fold(b^pair(unit[2], unit[3]), k2)
		unit = unit[4:]
	}
	for _, t := range unit {
		a = fold(a^uint64(t)^1<<40, k1)
	}
	return chain(fold(a^k2, b^k0))
}

func pair(a, b Token) uint64 { return uint64(a) | uint64(b)<<32 }

// fold multiplies to 128 bits and adds the halves without carry.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// chains hashes sequences in units of a fixed number of tokens, and remembers long ones: turns of a call share their prompts' backing
// arrays, so that a longer turn costs only what is new.
type chains struct {
	unit  int
	short []chain
	long  [remembered]hashed // a ring
	next  int
	at    map[*Token]int // by where the tokens begin
}

type hashed struct {
	tokens []Token // kept, so that nothing else comes to begin there
	values []chain
}

const (
	remembered = 128  // sequences
	worthwhile = 1024 // tokens
)

// of returns the values behind each whole unit of tokens. They are good until the next call.
func (c *chains) of(tokens []Token) []chain {
	n := len(tokens) / c.unit
	if n*c.unit < worthwhile {
		c.short = c.extend(c.short[:0], tokens, n)
		return c.short
	}
	i, known := c.at[&tokens[0]]
	if !known {
		i, c.next = c.next, (c.next+1)%remembered
		if old := c.long[i].tokens; len(old) > 0 {
			delete(c.at, &old[0])
		}
		c.long[i] = hashed{tokens: tokens[:1], values: c.long[i].values[:0]}
		if c.at == nil {
			c.at = make(map[*Token]int)
		}
		c.at[&tokens[0]] = i
	}
	h := &c.long[i]
	h.values = c.extend(h.values, tokens, n)
	return h.values[:n]
}

// extend hashes on from what is there to n units.
func (c *chains) extend(values []chain, tokens []Token, n int) []chain {
	at := chain(0)
	if done := len(values); done > 0 {
		at = values[done-1]
	}
	for i := len(values); i < n; i++ {
		at = at.next(tokens[i*c.unit : (i+1)*c.unit])
		values = append(values, at)
	}
	return values
}
