package main

import (
	"errors"
	"strings"
)

// splitWords splits a command as a shell would, with quotes and backslashes,
// but expands nothing: no variables, no globs, no operators.
func splitWords(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case ' ', '\t', '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		case '\'':
			end := strings.IndexByte(s[i+1:], '\'')
			if end < 0 {
				return nil, errors.New("a ' is not closed")
			}
			word.WriteString(s[i+1 : i+1+end])
			i += end + 1
			inWord = true
		case '"':
			n, err := quoted(&word, s[i+1:])
			if err != nil {
				return nil, err
			}
			i += n
			inWord = true
		case '\\':
			if i+1 == len(s) {
				return nil, errors.New("it ends with a backslash")
			}
			i++
			word.WriteByte(s[i])
			inWord = true
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// quoted reads up to the closing ", and gives how many bytes that took.
func quoted(word *strings.Builder, s string) (int, error) {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return i + 1, nil
		case s[i] == '\\' && i+1 < len(s) && strings.IndexByte("\"\\$`", s[i+1]) >= 0:
			i++
			word.WriteByte(s[i])
		default:
			word.WriteByte(s[i])
		}
	}
	return 0, errors.New(`a " is not closed`)
}
