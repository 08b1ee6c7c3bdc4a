"""Sets of characters as ranges of code points, and the names that RE2 has for some of them."""

from __future__ import annotations

import bisect
import functools
import sys
import unicodedata
from collections.abc import Iterable

from .._error import ShapeError, UnsupportedError

Ranges = tuple[tuple[int, int], ...]
_TOP = sys.maxunicode
_CASED = 0x1E943  # the last character that has upper and lower case


class CharSet:
    """A set of characters: sorted ranges of code points with gaps in between.

    >>> "b" in CharSet(((97, 99),)), "b" in CharSet(((97, 99),)).complement()
    (True, False)
    """

    __slots__ = ("_lows", "ranges")

    def __init__(self, ranges: Iterable[tuple[int, int]]):
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], high)
            else:
                merged.append((low, high))
        self.ranges: Ranges = tuple(merged)
        self._lows = [low for low, _ in merged]

    def __contains__(self, c: str) -> bool:
        at = bisect.bisect_right(self._lows, ord(c)) - 1
        return at >= 0 and ord(c) <= self.ranges[at][1]

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet(self.ranges + other.ranges)

    def complement(self) -> CharSet:
        gaps, low = [], 0
        for first, last in (*self.ranges, (_TOP + 1, _TOP + 1)):
            if low < first:
                gaps.append((low, first - 1))
            low = last + 1
        return CharSet(gaps)

    def folded(self) -> CharSet:
        """The set with all cases of its characters."""
        found = set()
        for low, high in self.ranges:
            for code in range(low, min(high, _CASED) + 1):
                found.update(_cases().get(chr(code), ()))
        return CharSet([*self.ranges, *((ord(c), ord(c)) for c in found)])


@functools.cache
def _cases() -> dict[str, list[str]]:
    """For each character that has cases all of them, by Unicode's mappings to one character."""
    groups: dict[str, list[str]] = {}
    for code in range(_CASED + 1):
        c = chr(code)
        upper = c.upper() if len(c.upper()) == 1 else c
        lower = upper.lower() if len(upper.lower()) == 1 else upper
        groups.setdefault(lower, []).append(c)
    return {c: group for group in groups.values() if len(group) > 1 for c in group}


def literal(c: str, fold: bool = False) -> CharSet:
    """The set of one character, with its other cases where `fold`."""
    one = CharSet([(ord(c), ord(c))])
    return one.folded() if fold else one


def _spans(*spans: str) -> CharSet:
    return CharSet([(ord(s[0]), ord(s[-1])) for s in spans])


ALL = CharSet(((0, _TOP),))
PERL = {
    "d": _spans("09"),
    "s": _spans("\t\n", "\f\r", " "),
    "w": _spans("09", "AZ", "__", "az"),
}
_POSIX = {
    "alnum": _spans("09", "AZ", "az"),
    "alpha": _spans("AZ", "az"),
    "ascii": _spans("\x00\x7f"),
    "blank": _spans("\t", " "),
    "cntrl": _spans("\x00\x1f", "\x7f"),
    "digit": _spans("09"),
    "graph": _spans("!~"),
    "lower": _spans("az"),
    "print": _spans(" ~"),
    "punct": _spans("!/", ":@", "[`", "{~"),
    "space": _spans("\t\r", " "),
    "upper": _spans("AZ"),
    "word": _spans("09", "AZ", "az", "_"),
    "xdigit": _spans("09", "AF", "af"),
}


def posix(name: str) -> CharSet:
    """The set that [:name:] stands for."""
    if name not in _POSIX:
        raise ShapeError(f"[:{name}:] is no class; known are {', '.join(_POSIX)}")
    return _POSIX[name]


@functools.cache
def property_set(name: str) -> CharSet:
    """The set that \\p{name} stands for: a general category of Unicode, as L or Lu, or Any."""
    if name == "Any":
        return ALL
    if len(name) > 2 or not name[:1].isupper():
        raise UnsupportedError(f"\\p{{{name}}}: of Unicode's classes only categories are known")
    codes = [c for c in range(_TOP + 1) if unicodedata.category(chr(c)).startswith(name)]
    if not codes:
        raise ShapeError(f"\\p{{{name}}} is no category of Unicode")
    return CharSet([(c, c) for c in codes])
