// Package duration reads and prints lengths of time as people write them in
// repld's configuration and on replctl's command line: Go's notation and days.
package duration

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Parse reads Go's notation ("1m30s", "100ms") with days in front ("7d",
// "1d12h"). A number without a unit is an error, but for 0: it is too easy to
// mean seconds and get milliseconds.
func Parse(s string) (time.Duration, error) {
	t := strings.TrimSpace(s)
	if t == "" {
		return 0, errors.New("it is empty; write for example 500ms, 10s, 5m or 7d")
	}
	days, rest, found := strings.Cut(t, "d")
	if !found {
		return parseGo(s, t)
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || math.IsNaN(n) {
		return 0, bad(s)
	}
	if math.Abs(n) > math.MaxInt64/2/float64(day) {
		return 0, fmt.Errorf("%q is too long", s)
	}
	d := time.Duration(n * float64(day))
	if rest == "" {
		return d, nil
	}
	if rest[0] == '-' || rest[0] == '+' {
		return 0, bad(s)
	}
	r, err := parseGo(s, rest)
	if err != nil {
		return 0, err
	}
	if n < 0 {
		r = -r
	}
	sum := d + r
	if r > 0 && sum < d || r < 0 && sum > d {
		return 0, fmt.Errorf("%q is too long", s)
	}
	return sum, nil
}

func parseGo(whole, t string) (time.Duration, error) {
	d, err := time.ParseDuration(t)
	if err == nil {
		return d, nil
	}
	if _, numErr := strconv.ParseFloat(t, 64); numErr == nil {
		return 0, fmt.Errorf("%q has no unit; write for example %sms, %ss or %sm", whole, t, t, t)
	}
	return 0, bad(whole)
}

func bad(s string) error {
	return fmt.Errorf("%q is not a length of time; write for example 500ms, 10s, 5m or 7d", s)
}

// Format prints d as [Parse] reads it, without the zero parts that Go prints:
// "5m", not "5m0s"; whole days as days.
func Format(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
