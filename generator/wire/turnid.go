package wire

import "fmt"

// TurnID names a turn in a request header: "knee-<nonce>-<call>-<turn>". The mock server queues requests that arrive at the
// same instant by call and turn.
func TurnID(nonce uint64, call, turn int) string {
	return fmt.Sprintf("knee-%016x-%d-%d", nonce, call, turn)
}

// ParseTurnID reads what TurnID wrote; ok is false for anything else.
func ParseTurnID(s string) (nonce uint64, call, turn int, ok bool) {
	n, err := fmt.Sscanf(s, "knee-%16x-%d-%d", &nonce, &call, &turn)
	return nonce, call, turn, n == 3 && err == nil && s == TurnID(nonce, call, turn)
}
