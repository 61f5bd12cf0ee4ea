"""Reads the fields of the agent's log (agent/log/DESIGN.md), as a program of the user's would."""

import re

FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^" ]+)(?: |$)')


def value_of(literal):
    if not literal.startswith('"'):
        return literal
    return re.sub(r'\\(x20|.)', lambda found: " " if found[1] == "x20" else found[1], literal[1:-1])


def events(log):
    """[{"event": …, field: value}] of the lines that have fields; fails where what stands there cannot be read."""
    found = []
    for line in log.splitlines():
        at = line.rfind("  event=")
        if at < 0:
            continue
        fields, end = {}, at + 2
        while end < len(line):
            field = FIELD.match(line, end)
            assert field, f"no field at {line[end:]!r}: {line}"
            fields[field[1]] = value_of(field[2])
            end = field.end()
        found.append(fields)
    return found
