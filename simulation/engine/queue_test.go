package engine

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A queue gives what a sorted list gives, retracted requests first.
func TestQueueOrder(t *testing.T) {
	small := rapid.IntRange(0, 2)
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var fresh, retracted []*request
		for id := range uint64(rapid.IntRange(0, 20).Draw(t, "n")) {
			r := &request{stamp: time.Duration(small.Draw(t, "stamp")),
				Request: Request{Call: small.Draw(t, "call"), Turn: small.Draw(t, "turn"), ID: id}}
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				q.putBack(r)
				retracted = append(retracted, r)
			case 1:
				drop := func(r *request) bool { return r.Call == 1 }
				q.take(drop)
				fresh, retracted = slices.DeleteFunc(fresh, drop), slices.DeleteFunc(retracted, drop)
			default:
				q.push(r)
				fresh = append(fresh, r)
			}
		}
		for _, list := range [][]*request{retracted, fresh} {
			slices.SortFunc(list, func(a, b *request) int { // spelled out
				switch {
				case a.stamp != b.stamp:
					return int(a.stamp - b.stamp)
				case a.Call != b.Call:
					return a.Call - b.Call
				case a.Turn != b.Turn:
					return a.Turn - b.Turn
				}
				return int(a.ID) - int(b.ID)
			})
			for _, want := range list {
				if got := q.first(); got != want {
					t.Fatalf("got %+v, want %+v", got, want)
				}
				q.remove(want)
			}
		}
		if q.len() != 0 || q.first() != nil {
			t.Fatalf("%d are left", q.len())
		}
	})
}
