package fleet

import (
	"fmt"
	"math"
)

// validate says which field breaks which rule, the first one it meets.
func (c Config) validate() error {
	if len(c.Replicas) == 0 {
		return fmt.Errorf("fleet: there are no replicas, must be at least one")
	}
	count := map[Role]int{}
	for i, r := range c.Replicas {
		switch {
		case r.New == nil:
			return fmt.Errorf("replica %d has no engine: New must be set", i)
		case r.Role != Whole && r.Role != Prefill && r.Role != Decode:
			return fmt.Errorf("replica %d: role is %q, must be %q, %q or empty", i, r.Role, Prefill, Decode)
		case !(r.Weight >= 0) || math.IsInf(r.Weight, 0):
			return fmt.Errorf("replica %d: weight is %v, must be above 0, or 0 for 1", i, r.Weight)
		}
		count[r.Role]++
	}
	split := count[Prefill] + count[Decode]
	if split > 0 && (count[Whole] > 0 || count[Prefill] == 0 || count[Decode] == 0) {
		return fmt.Errorf("fleet: there are %d prefill, %d decode and %d whole replicas, must be some of the first two and none of the third, or whole ones alone",
			count[Prefill], count[Decode], count[Whole])
	}
	if err := c.Router.validate(); err != nil {
		return err
	}
	if split > 0 {
		if err := c.Handoff.validate(); err != nil {
			return err
		}
	}
	for i, e := range c.Events {
		if err := e.validate(len(c.Replicas)); err != nil {
			return fmt.Errorf("event %d: %w", i+1, err)
		}
	}
	if c.Retry != NoRetry && c.Retry != Fresh && c.Retry != Resume {
		return fmt.Errorf("retry is %q, must be %q, %q or empty", c.Retry, Fresh, Resume)
	}
	if c.StartUp < 0 {
		return fmt.Errorf("start-up takes %v, must be at least 0", c.StartUp)
	}
	seen := map[Role]bool{}
	for i, a := range c.Scale {
		if seen[a.Role] {
			return fmt.Errorf("autoscaler %d: role %q has one already", i+1, a.Role)
		}
		seen[a.Role] = true
		if err := a.validate(count[a.Role]); err != nil {
			return fmt.Errorf("autoscaler %d: %w", i+1, err)
		}
	}
	return c.pointless()
}
