package topology

import (
	"reflect"
	"time"
)

// planned names the fields of the state that may rightly lie in the future.
var planned = map[string]bool{"PausedUntil": true, "RestartUntil": true, "Deadline": true}

// rebase puts the times of a state that was read from disk onto the clock as it
// runs now, and says by how much that was set back since: at least by what the
// latest time in the state lies in the future. A host that starts with a wrong
// clock, or a step of NTP, must not make a failover wait until the clock has
// come to where it was. Periods keep their length. Afterwards the times carry
// Go's monotonic clock, so that a later step of the other one cannot touch them.
func rebase(st *State, now time.Time) (back time.Duration) {
	times(reflect.ValueOf(st.Clusters), "", func(name string, t time.Time) time.Time {
		if !planned[name] {
			back = max(back, t.Sub(now))
		}
		return t
	})
	times(reflect.ValueOf(st.Clusters), "", func(_ string, t time.Time) time.Time {
		return now.Add(t.Sub(now) - back)
	})
	return back
}

var timeType = reflect.TypeFor[time.Time]()

// times replaces every time in v that is set. The values of maps are pointers.
func times(v reflect.Value, name string, f func(field string, t time.Time) time.Time) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			times(v.Elem(), name, f)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			times(it.Value(), name, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			times(v.Index(i), name, f)
		}
	case reflect.Struct:
		if v.Type() == timeType {
			if t := v.Interface().(time.Time); !t.IsZero() {
				v.Set(reflect.ValueOf(f(name, t)))
			}
			return
		}
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				times(v.Field(i), field.Name, f)
			}
		}
	}
}
