package gtid

import (
	"math/rand/v2"
	"os"
	"strconv"
)

func Any() string { return strconv.Itoa(rand.IntN(9) + os.Getpid()) }
