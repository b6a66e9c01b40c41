package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/repld/repld/internal/fault"
)

// fileContent is what a configuration file says.
type fileContent struct {
	// values is nested as viper wants it, each leaf the text that was written.
	values map[string]any
	// lines says where each dotted key stands.
	lines map[string]int
}

// maxFile is far more than any configuration needs.
const maxFile = 1 << 20

// readFile reads the file. A missing one is empty, unless the user named it.
func readFile(path string, named bool) (*fileContent, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return &fileContent{}, nil
	}
	if err != nil {
		do := "check the name and the permissions, or start without --config"
		if !named {
			do = "let repld read it, or name another file with --config"
		}
		return nil, &fault.Error{Kind: fault.Usage, Code: "config_file", What: "cannot read the configuration file " + path,
			Cause: errors.Unwrap(err).Error(), State: notStarted, Do: do, Err: err}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	if err != nil {
		return nil, badFile(path, err.Error())
	}
	return parseFile(path, text)
}

func parseFile(path string, text []byte) (*fileContent, error) {
	out := &fileContent{values: map[string]any{}, lines: map[string]int{}}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return out, nil
	} else if err != nil {
		return nil, badFile(path, plain(err))
	}
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, badFile(path, plain(err))
		}
		return nil, badFile(path, fmt.Sprintf("line %d: a second document begins; only one is read", second.Line))
	}
	root := doc.Content[0]
	if isNull(root) {
		return out, nil
	}
	if err := out.walk(path, root, "", out.values); err != nil {
		return nil, err
	}
	return out, nil
}

// walk takes over one mapping. Walking the nodes, not decoding, is what gives
// every error its line and keeps the names as they were written.
func (c *fileContent) walk(path string, node *yaml.Node, section string, into map[string]any) error {
	node = resolve(node)
	if node.Kind != yaml.MappingNode {
		name := section
		if name == "" {
			name = "the file"
		}
		return badValue(fmt.Sprintf("%s, line %d: %s", path, node.Line, name), "it must hold keys and values")
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], resolve(node.Content[i+1])
		name := key.Value
		if section != "" {
			name = section + "." + key.Value
		}
		where := fmt.Sprintf("%s, line %d: %s", path, key.Line, name)
		if line, twice := seen[name]; twice {
			return badValue(where, fmt.Sprintf("it is set twice, first in line %d", line))
		}
		seen[name] = key.Line
		if section == "" && isSection(name) {
			if isNull(value) {
				continue
			}
			nested := map[string]any{}
			into[name] = nested
			if err := c.walk(path, value, name, nested); err != nil {
				return err
			}
			continue
		}
		if !isKey(name) {
			return unknownKey(where, name, append(keyNames(), sections()...))
		}
		if isList(name) {
			text, err := listText(value)
			if err != nil {
				return badValue(where, err.Error())
			}
			c.lines[name] = key.Line
			into[key.Value] = text
			continue
		}
		if value.Kind != yaml.ScalarNode {
			return badValue(where, "it takes a single value")
		}
		if isNull(value) {
			return badValue(where, "it has no value")
		}
		c.lines[name] = key.Line
		into[key.Value] = value.Value
	}
	return nil
}

// listText gives a list of words as the JSON that flags and the environment take.
func listText(node *yaml.Node) (string, error) {
	if node.Kind != yaml.SequenceNode {
		return "", errors.New("it takes a list: [/path/of/program, argument]")
	}
	list := make([]string, len(node.Content))
	for i, item := range node.Content {
		if item = resolve(item); item.Kind != yaml.ScalarNode || isNull(item) {
			return "", fmt.Errorf("line %d: each element of the list is one word", item.Line)
		}
		list[i] = item.Value
	}
	text, err := json.Marshal(list)
	return string(text), err
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func isKey(name string) bool {
	for _, k := range Keys() {
		if k.Name == name {
			return true
		}
	}
	return false
}

func isList(name string) bool {
	for _, k := range Keys() {
		if k.Name == name {
			return k.Kind == kindArgv
		}
	}
	return false
}

func isSection(name string) bool {
	for _, s := range sections() {
		if s == name {
			return true
		}
	}
	return false
}

func sections() []string {
	var out []string
	for _, k := range Keys() {
		if s := k.Section(); s != "" && (len(out) == 0 || out[len(out)-1] != s) {
			out = append(out, s)
		}
	}
	return out
}

// plain takes the library's name off an error, which already has the line.
func plain(err error) string {
	return regexp.MustCompile(`^yaml: `).ReplaceAllString(strings.TrimSpace(err.Error()), "")
}

func badFile(path, text string) error {
	return &fault.Error{Kind: fault.Usage, Code: "config_file", What: "cannot read the configuration file " + path,
		Cause: text, State: notStarted, Do: "correct the file; examples/repld.yaml is a complete one"}
}
