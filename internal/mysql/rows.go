package mysql

import (
	"database/sql/driver"
	"errors"
	"io"
	"strconv"
)

// Row is one row of a result, by the names of its columns. A column that is
// absent reads as NULL: a server's version decides which ones SHOW gives.
type Row struct {
	columns map[string]int
	values  []driver.Value
}

// Has tells whether the row has the column, whatever its value.
func (r *Row) Has(column string) bool {
	_, ok := r.columns[column]
	return ok
}

// Null tells whether the column is NULL or absent.
func (r *Row) Null(column string) bool {
	i, ok := r.columns[column]
	return !ok || r.values[i] == nil
}

// String is the column as text, "" if NULL.
func (r *Row) String(column string) string {
	i, ok := r.columns[column]
	if !ok {
		return ""
	}
	switch v := r.values[i].(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case uint64:
		return strconv.FormatUint(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case float32:
		return strconv.FormatFloat(float64(v), 'f', -1, 32)
	default:
		return ""
	}
}

// Uint is the column as a number, 0 if it is NULL or none.
func (r *Row) Uint(column string) uint64 {
	n, err := strconv.ParseUint(r.String(column), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Float is the column as a number with a fraction, 0 if it is NULL or none.
func (r *Row) Float(column string) float64 {
	f, err := strconv.ParseFloat(r.String(column), 64)
	if err != nil {
		return 0
	}
	return f
}

// Bool reads 1, ON and Yes as true.
func (r *Row) Bool(column string) bool { return isOn(r.String(column)) }

// isOn reads a server's ways to say yes.
func isOn(s string) bool { return s == "1" || s == "ON" || s == "Yes" }

// readRows copies all rows: the driver's values are its own buffer.
func readRows(rows driver.Rows) ([]Row, error) {
	names := rows.Columns()
	columns := make(map[string]int, len(names))
	for i, n := range names {
		columns[n] = i
	}
	var out []Row
	for {
		values := make([]driver.Value, len(names))
		err := rows.Next(values)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				values[i] = string(b)
			}
		}
		out = append(out, Row{columns: columns, values: values})
	}
}
