//go:build race

package explorer

// ifRace bounds a search under the race detector, which has nothing to find in
// one goroutine and makes it ten times slower.
func ifRace(states int) int { return states }
