"""Query results that a script printed one value per line or in columns of spaces.

PowerShell's ``ConvertFrom-Csv`` gives ``name : value`` lists and tables under a row of dashes, and
scripts write JSON objects. All are turned back into the comma-separated form of the query.
"""

from __future__ import annotations

import csv
import io
import re

from qwendeploy.hardware.texts.columns import column, is_column

_ITEM = re.compile(r"^\s{0,8}([A-Za-z][\w.]{1,40}(?: \[[A-Za-z%/]{1,8}\])?)\s*: (.{0,200})$")
_DASHES = re.compile(r"^\s{0,8}-{2,60}(?: +-{1,60}){1,40}\s*$")
_KEYS = frozenset({"index", "name", "gpu_name", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id"})
MAX_RECORDS = 1024


def records_as_query(lines: list[str]) -> list[str]:
    """Return the lines with every list or ruled table of columns in the query's own form."""
    found: list[str] = []
    position = 0
    while position < len(lines):
        taken, rows = _list_at(lines, position)
        if not taken:
            taken, rows = _table_at(lines, position)
        found.extend(rows or [lines[position]])
        position += taken or 1
    return found


def _item(line: str) -> tuple[str, str] | None:
    match = _ITEM.match(line)
    return (match[1], match[2].strip()) if match and is_column(match[1]) else None


def _list_at(lines: list[str], start: int) -> tuple[int, list[str]]:
    """Return how many lines a list takes and the same as header and rows, if it is of records.

    A record ends where its first name comes again; blank lines alone end none.
    """
    if _item(lines[start]) is None:
        return 0, []
    records: list[dict[str, str]] = [{}]
    end = start
    for position in range(start, len(lines)):
        if not lines[position].strip():
            continue
        item = _item(lines[position])
        if item is None or len(records) > MAX_RECORDS:
            break
        if item[0] in records[-1]:
            records.append({})
        records[-1][item[0]] = item[1]
        end = position
    names = list(dict.fromkeys(name for record in records for name in record))
    if len(names) < 2 or not _KEYS & {column(name) for name in names}:
        return end + 1 - start, lines[start : end + 1]
    rows = [[record.get(name, "") for name in names] for record in records]
    return end + 1 - start, _written([names, *rows])


def _table_at(lines: list[str], start: int) -> tuple[int, list[str]]:
    """Return how many lines a table under a row of dashes takes and the same as rows.

    The dashes tell where each column begins; its values go on to where the next one begins.
    """
    if start + 1 >= len(lines) or not _DASHES.match(lines[start + 1]):
        return 0, []
    places = [match.start() for match in re.finditer(r"-+", lines[start + 1])]
    bounds = list(zip(places, [*places[1:], None], strict=True))

    def cells(line: str) -> list[str]:
        return [line[begin:stop].strip() for begin, stop in bounds]

    names = cells(lines[start])
    if not all(is_column(name) for name in names):
        return 0, []
    rows = []
    for line in lines[start + 2 : start + 2 + MAX_RECORDS]:
        if not line.strip():
            break
        rows.append(cells(line))
    return 2 + len(rows), _written([names, *rows])


def _written(rows: list[list[str]]) -> list[str]:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return ["", *stream.getvalue().splitlines(), ""]
