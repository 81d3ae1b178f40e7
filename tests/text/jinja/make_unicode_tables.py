#!/usr/bin/env python3
"""Writes src/text/jinja/unicode_tables.cpp from what Python's own str methods say.

Run with Python 3.11 (Unicode 14.0), the version that the golden cases were rendered with:
    python3.11 tests/text/jinja/make_unicode_tables.py > src/text/jinja/unicode_tables.cpp
"""
import unicodedata

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(test, strides=(1,)):
    """Runs (first, last, stride) of the code points that pass `test`."""
    members = [c for c in CODE_POINTS if test(chr(c))]
    return stride_runs([(c, 0) for c in members], strides)


def stride_runs(pairs, strides):
    runs, start = [], 0
    while start < len(pairs):
        best_end, best_stride = start, 1
        for stride in strides:
            end = start
            while (end + 1 < len(pairs) and pairs[end + 1][0] - pairs[end][0] == stride
                   and pairs[end + 1][1] == pairs[start][1]):
                end += 1
            if end > best_end:
                best_end, best_stride = end, stride
        runs.append((pairs[start][0], pairs[best_end][0], best_stride, pairs[start][1]))
        start = best_end + 1
    return runs


def case_runs(function):
    pairs = [(c, ord(function(chr(c))) - c) for c in CODE_POINTS
             if len(function(chr(c))) == 1 and function(chr(c)) != chr(c)]
    return stride_runs(pairs, (1, 2))


def exceptions(function, base):
    """Code points where `function` gives something else than the one-to-one mapping of `base`."""
    def simple(c):
        mapped = base(chr(c))
        return mapped if len(mapped) == 1 else chr(c)
    return [(c, function(chr(c))) for c in CODE_POINTS if function(chr(c)) != simple(c)]


def emit(kind, name, rows, format_row):
    print(f"\nconst {kind} {name}[{len(rows)}] = {{")
    line = "   "
    for row in rows:
        cell = " " + format_row(row) + ","
        if len(line) + len(cell) > 118:
            print(line)
            line = "   "
        line += cell
    print(line + "\n};")
    print(f"const size_t {name}_count = {len(rows)};")


def main():
    print("// Made by tests/text/jinja/make_unicode_tables.py; do not edit.")
    print(f"// Unicode {unicodedata.unidata_version}, as Python's str methods see it.")
    print('#include "text/jinja/unicode_tables.h"\n\nnamespace gristmill::jinja::unicode {')
    print("// clang-format off")
    run = lambda r: f"{{{r[0]:#x}, {r[1]:#x}, {r[2]}}}"
    emit("Run", "unprintable", ranges(lambda c: not c.isprintable()), run)
    emit("Run", "alphabetic", ranges(str.isalpha), run)
    emit("Run", "decimal", ranges(str.isdecimal), run)
    emit("Run", "digit", ranges(lambda c: c.isdigit() and not c.isdecimal()), run)
    emit("Run", "numeric", ranges(lambda c: c.isnumeric() and not c.isdigit()), run)
    emit("Run", "uppercase", ranges(str.isupper, (1, 2)), run)
    emit("Run", "lowercase", ranges(str.islower, (1, 2)), run)
    case = lambda r: f"{{{r[0]:#x}, {r[1]:#x}, {r[2]}, {r[3]}}}"
    emit("CaseRun", "to_upper", case_runs(str.upper), case)
    emit("CaseRun", "to_lower", case_runs(str.lower), case)
    special = lambda r: f"{{{r[0]:#x}, {{{', '.join(f'{ord(c):#x}' for c in r[1])}}}}}"
    emit("CaseException", "upper_exceptions", exceptions(str.upper, str.upper), special)
    emit("CaseException", "lower_exceptions", exceptions(str.lower, str.lower), special)
    emit("CaseException", "title_exceptions", exceptions(str.title, str.upper), special)
    print("\n// clang-format on\n}  // namespace gristmill::jinja::unicode")


main()
