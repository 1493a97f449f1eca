// Asks porcupine whether histories of registers are linearizable.
//
// Reads a JSON object from stdin: by register its operations {"process", "call", "return", "write", "value"}, a return of 0 for one
// that may still take effect. Prints an object: by register "Ok", "Illegal", or "Unknown" where the time did not suffice.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const timeout = 10 * time.Second
const none = -1

type operation struct {
	Process int   `json:"process"`
	Call    int64 `json:"call"`
	Return  int64 `json:"return"`
	Write   bool  `json:"write"`
	Value   int64 `json:"value"`
}

var register = porcupine.Model{
	Init: func() interface{} { return int64(none) },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		asked := input.(operation)
		if asked.Write {
			return true, asked.Value
		}
		return asked.Value == state.(int64), state
	},
}

func main() {
	var asked map[string][]operation
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	found := map[string]porcupine.CheckResult{}
	for name, history := range asked {
		operations := make([]porcupine.Operation, 0, len(history))
		for _, each := range history {
			end := each.Return
			if end == 0 {
				end = math.MaxInt64
			}
			operations = append(operations, porcupine.Operation{
				ClientId: each.Process, Input: each, Call: each.Call, Output: each.Value, Return: end,
			})
		}
		found[name] = porcupine.CheckOperationsTimeout(register, operations, timeout)
	}
	json.NewEncoder(os.Stdout).Encode(found)
}
