package duration

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseTakesDaysAndRefusesBareNumbers(t *testing.T) {
	good := map[string]time.Duration{
		"0":      0,
		"0s":     0,
		"100ms":  100 * time.Millisecond,
		"1m30s":  90 * time.Second,
		"7d":     7 * day,
		"1d12h":  36 * time.Hour,
		"0.5d":   12 * time.Hour,
		" 10s ":  10 * time.Second,
		"-1d12h": -36 * time.Hour,
	}
	for in, want := range good {
		if got, err := Parse(in); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", " ", "2", "-3", "ten", "10 s", "d", "1d-2h", "1d2", "1dd", "NaNd", "9999999999d", "106751d999999h"} {
		if got, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", in, got)
		}
	}
}

func TestFormatIsReadBackAsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(-1e12, 1e12).Draw(t, "ms")
		unit := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(t, "unit")
		d := time.Duration(ms) * time.Millisecond
		d -= d % unit
		got, err := Parse(Format(d))
		if err != nil || got != d {
			t.Fatalf("Parse(Format(%v) = %q) = %v, %v", d, Format(d), got, err)
		}
	})
	for d, want := range map[time.Duration]string{5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Minute: "1h30m", 7 * day: "7d", 0: "0s", 10 * time.Minute: "10m"} {
		if got := Format(d); got != want {
			t.Errorf("Format(%v) = %q, want %q", d, got, want)
		}
	}
}
