//go:build race

package explorer

const underRace = true
