"""YAML with the line and column of every key and value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from headgate.config.model import Path
from headgate.errors import Finding

# Far more than any pipeline has; nested aliases that multiply exceed it at once.
_MOST_VALUES = 20_000
_LARGEST_NUMBER = 2**64
# A word after `!`, `&` or `*` is a name in YAML, but may be an unquoted password.
_NAMES = re.compile(r" (alias|anchor|tag|handle) (['\"]).*\2")


@dataclass(frozen=True)
class YamlMark:
    """A position in the file, counted from 1."""

    line: int = 1
    column: int = 1


@dataclass
class MarkedYaml:
    """A parsed YAML text, with the positions of its keys and values."""

    file: str
    data: object = None
    readable: bool = True
    findings: list[Finding] = field(default_factory=list)
    keys: dict[Path, YamlMark] = field(default_factory=dict)
    values: dict[Path, YamlMark] = field(default_factory=dict)
    texts: dict[Path, YamlMark] = field(default_factory=dict)
    """Positions of texts that the file has verbatim, without folding or escapes."""

    def mark_of_key(self, path: Path) -> YamlMark:
        return self.keys.get(path) or self.mark_of_value(path)

    def mark_of_value(self, path: Path) -> YamlMark:
        """Return the position of a value, or of the mapping that lacks it."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, YamlMark())

    def mark_inside(self, path: Path, line: int | None, column: int | None) -> YamlMark:
        """Return the position of a line and column inside a text that the file has verbatim."""
        while path and path not in self.values:
            path = path[:-1]
        start = self.texts.get(path)
        if start is None or line is None:
            return self.mark_of_value(path)
        return YamlMark(start.line + line - 1, start.column + (column or 1) - 1)

    def found(self, code: str, message: str, mark: YamlMark, hint: str | None = None) -> None:
        self.findings.append(Finding(code, message, self.file, mark.line, mark.column, hint))


def read_marked_yaml(text: str, file: str) -> MarkedYaml:
    """Parse one document; if it cannot be parsed, that is the only finding."""
    marked = MarkedYaml(file)
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        marked.data = _NodeReader(text, loader, marked).read(root, ()) if root else {}
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        position = error.problem_mark or error.context_mark
        mark, message = _mark(position), _NAMES.sub(r" \1", problem)
    except yaml.reader.ReaderError as error:
        mark = YamlMark(text.count("\n", 0, error.position) + 1)
        message = "YAML does not allow this character"
    except RecursionError:
        mark, message = YamlMark(), "values are nested too deeply"
    else:
        return marked
    unreadable = MarkedYaml(file, readable=False)
    unreadable.found("not-yaml", message, mark)
    return unreadable


class _NodeReader:
    """Walks the nodes of a YAML text and records their positions."""

    def __init__(self, text: str, loader: yaml.SafeLoader, marked: MarkedYaml) -> None:
        self._loader = loader
        self._marked = marked
        self._values_left = _MOST_VALUES
        self._lines = text.splitlines()

    def read(self, node: yaml.Node, path: Path) -> object:
        self._values_left -= 1
        if self._values_left < 0:
            raise _unreadable("the file has too many values", node)
        self._marked.values.setdefault(path, _mark(node.start_mark))
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                return self._read_mapping(node, path)
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
            case yaml.ScalarNode():
                if start := self._start_of_text(node):
                    self._marked.texts.setdefault(path, start)
                return self._read_scalar(node)
            case _:
                raise _unreadable("tags such as `!!set` are not allowed", node)

    def _read_mapping(self, node: yaml.MappingNode, path: Path) -> dict[str | int, object]:
        mapping: dict[str | int, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "<<":
                raise _unreadable("a key must be plain text", key_node)
            is_number = key_node.tag == "tag:yaml.org,2002:int"
            key = self._read_scalar(key_node) if is_number else key_node.value
            here = (*path, key)
            if key in mapping:
                hint = f"the first is on line {self._marked.keys[here].line}"
                mark = _mark(key_node.start_mark)
                self._marked.found("duplicate-key", f"`{key}` is given twice", mark, hint)
                continue
            self._marked.keys[here] = _mark(key_node.start_mark)
            if not isinstance(value_node, yaml.ScalarNode):
                # Point at the key of a mapping, not at its first line.
                self._marked.values[here] = self._marked.keys[here]
            mapping[key] = self.read(value_node, here)
        return mapping

    def _start_of_text(self, node: yaml.ScalarNode) -> YamlMark | None:
        """Return where a text starts; None if it is folded or has escapes."""
        start, end = node.start_mark, node.end_mark
        if node.style == "|":
            lines = self._lines[start.line + 1 : end.line + 1]
            whole = next((line for line in lines if line.strip()), None)
            first = next((line for line in node.value.splitlines() if line.strip()), "")
            if whole is None or not whole.endswith(first):
                return None
            return YamlMark(start.line + 2, len(whole) - len(first) + 1)
        opening = len(node.style or "")
        verbatim = (
            end.line == start.line and end.index - start.index == len(node.value) + 2 * opening
        )
        return YamlMark(start.line + 1, start.column + 1 + opening) if verbatim else None

    def _read_scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            value = self._loader.construct_object(node)
        except (ValueError, OverflowError):
            value = _LARGEST_NUMBER + 1
        if isinstance(value, int) and abs(value) > _LARGEST_NUMBER:
            raise _unreadable("a number or date cannot be read; put it in quotes", node)
        return value


def _mark(mark: yaml.Mark | None) -> YamlMark:
    return YamlMark(mark.line + 1, mark.column + 1) if mark else YamlMark()


def _unreadable(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
