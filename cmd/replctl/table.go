package main

import (
	"strings"
	"unicode/utf8"
)

// column is one column of a table.
type column struct {
	title string
	// min is how narrow it may be made, 0 if it must not be shortened. tail keeps
	// the end of a text that is shortened, where a GTID or a port stands.
	min  int
	tail bool
}

const gap = "  "

// renderTable lays rows out in columns that fit the look's width, shortening
// the widest of those that may be.
func renderTable(cols []column, rows [][]string, l look) string {
	widths := make([]int, len(cols))
	for i, c := range cols {
		widths[i] = utf8.RuneCountInString(c.title)
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for total(widths) > l.width && l.width > 0 {
		widest := -1
		for i, c := range cols {
			if c.min > 0 && widths[i] > c.min && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	var b strings.Builder
	line := func(cells []string) {
		var text strings.Builder
		for i, cell := range cells {
			cell = shorten(cell, widths[i], cols[i].tail, l)
			text.WriteString(cell)
			if i < len(cells)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + gap)
			}
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	titles := make([]string, len(cols))
	for i, c := range cols {
		titles[i] = c.title
	}
	line(titles)
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

func total(widths []int) int {
	sum := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// shorten cuts s to width and marks the cut.
func shorten(s string, width int, tail bool, l look) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	mark := "…"
	if l.ascii {
		mark = "~"
	}
	if tail {
		return mark + string(runes[len(runes)-width+1:])
	}
	return string(runes[:width-1]) + mark
}

// wrap breaks text at blanks so that each line, with its indentation, fits the
// look's width. A word that is longer stays whole: it may be a command.
func wrap(text, first, rest string, l look) string {
	var b strings.Builder
	b.WriteString(first)
	at := utf8.RuneCountInString(first)
	fresh := true
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if !fresh && l.width > 0 && at+1+n > l.width {
			b.WriteString("\n" + rest)
			at, fresh = utf8.RuneCountInString(rest), true
		}
		if !fresh {
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at, fresh = at+n, false
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}
