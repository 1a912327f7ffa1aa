package wire

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestMessageContent(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"role":"user","content":"hi"}`, "hi"},
		{`{"role":"user","content":null}`, ""},
		{`{"role":"user","content":[{"type":"text","text":"a "},{"type":"text","text":"b"}]}`, "a b"},
		{`{"role":"user","content":[]}`, ""},
		{`{"role":"user","content":[{"type":"image_url"}]}`, "error"},
		{`{"role":"user","content":7}`, "error"},
	} {
		var m Message
		err := json.Unmarshal([]byte(c.in), &m)
		if got := string(m.Content); (err != nil) != (c.want == "error") || err == nil && got != c.want {
			t.Errorf("%s: got %q, %v, want %s", c.in, got, err, c.want)
		}
	}
	if b, _ := json.Marshal(Message{"user", "a"}); string(b) != `{"role":"user","content":"a"}` {
		t.Errorf("written as %s", b)
	}
}

func TestTurnID(t *testing.T) {
	for _, c := range []struct {
		nonce      uint64
		call, turn int
	}{{0, 0, 1}, {1<<64 - 1, 5_000_017, 6}, {42, -2, 1}} {
		id := TurnID(c.nonce, c.call, c.turn)
		nonce, call, turn, ok := ParseTurnID(id)
		if !ok || nonce != c.nonce || call != c.call || turn != c.turn {
			t.Errorf("%s: read back %x %d %d %v", id, nonce, call, turn, ok)
		}
	}
	for _, id := range []string{"", "knee-", "knee-12-3-4", "req-00ff-1-2", TurnID(1, 2, 3) + "x"} {
		if _, _, _, ok := ParseTurnID(id); ok {
			t.Errorf("%q was taken for a turn's id", id)
		}
	}
}

func ExampleTurnID() {
	fmt.Println(TurnID(0xff, 12, 3))
	// Output: knee-00000000000000ff-12-3
}
