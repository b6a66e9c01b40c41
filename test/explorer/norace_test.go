//go:build !race

package explorer

// ifRace bounds a search under the race detector only.
func ifRace(int) int { return 0 }
