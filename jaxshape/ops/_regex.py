"""Regular expressions in RE2's syntax, matched in time linear in the text.

A pattern becomes an automaton whose states are walked all at once, so that no pattern, whoever
wrote it, takes time exponential in the text as backtracking does. What a match captures is not
asked for: whether a text matches, and how far the longest match goes, do not depend on greediness.
As in RE2, `\\d`, `\\w`, `\\s` and `\\b` know ASCII only, and `$` is the end of the text.
"""

from __future__ import annotations

import functools

from .._error import ShapeError, UnsupportedError
from ._charset import ALL, PERL, CharSet, literal, posix, property_set

REPEATS = 1000  # of one repetition, as in RE2
STATES = 50_000  # of one automaton
DEPTH = 100  # groups within one another
MEMO = 1_000_000  # states of the steps remembered

_WORD = PERL["w"]
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ASSERTIONS = {"A": "begin", "z": "end", "b": "word", "B": "not word"}
_FLAGS = "imsU"

# The syntax tree: ("set", CharSet), ("assert", kind), ("all", parts), ("any", choices),
# ("repeat", part, least, most or None).
Tree = tuple


class _Parser:
    """Reads a pattern into a tree; flags hold from where they stand to the end of their group."""

    def __init__(self, pattern: str):
        self.pattern, self.text = pattern, pattern  # in the text, quotations become escapes
        self.at, self.depth = 0, 0
        self.flags: frozenset[str] = frozenset()

    def fail(self, why: str) -> ShapeError:
        return ShapeError(f"the pattern {self.pattern[:100]!r} is not valid: {why} at {self.at}")

    def peek(self, n: int = 1) -> str:
        return self.text[self.at : self.at + n]

    def take(self, n: int = 1) -> str:
        taken = self.peek(n)
        if len(taken) < n:
            raise self.fail("it ends too early")
        self.at += n
        return taken

    def took(self, text: str) -> bool:
        found = self.text.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def until(self, end: str) -> str:
        found = self.text.find(end, self.at)
        if found < 0:
            raise self.fail(f"{end} is missing")
        taken, self.at = self.text[self.at : found], found + len(end)
        return taken

    def whole(self) -> Tree:
        tree = self.choice()
        if self.at < len(self.text):
            raise self.fail("a ) closes no group")
        return tree

    def choice(self) -> Tree:
        flags = self.flags
        choices = [self.sequence()]
        while self.took("|"):
            choices.append(self.sequence())
        self.flags = flags
        return choices[0] if len(choices) == 1 else ("any", choices)

    def sequence(self) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self.text) and self.peek() not in "|)":
            part = self.atom()
            if part is None and parts:
                part = parts.pop()  # what is repeated behind flags stands in front of them
            if bounds := self.bounds():
                if part is None:
                    raise self.fail("nothing is there to repeat")
                part = ("repeat", part, *bounds)
                if self.bounds():
                    raise self.fail("a repetition is repeated")
            parts += [] if part is None else [part]
        return ("all", parts)

    def bounds(self) -> tuple[int, int | None] | None:
        """The repetition that stands here, if one does."""
        before = self.at
        if self.peek() and self.peek() in "*+?":
            found = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self.take()]
        else:
            if not self.took("{"):
                return None
            least, comma, most = self.text[self.at :].partition("}")[0].partition(",")
            if "}" not in self.text[self.at :] or not least.isascii() or not least.isdigit():
                self.at = before
                return None
            if most and not (most.isascii() and most.isdigit()):
                self.at = before
                return None
            self.until("}")
            found = int(least), int(most) if most else None if comma else int(least)
            if found[0] > REPEATS or (found[1] or 0) > REPEATS:
                raise self.fail(f"more than {REPEATS} repetitions")
            if found[1] is not None and found[1] < found[0]:
                raise self.fail("the bounds of a repetition are in the wrong order")
        self.took("?")
        return found

    def atom(self) -> Tree | None:
        """One thing that may be repeated; None for what only sets flags or quotes nothing."""
        c = self.take()
        if c in "*+?":
            raise self.fail("nothing is there to repeat")
        if c == "(":
            return self.group()
        if c == "[":
            return ("set", self.brackets())
        if c == ".":
            return ("set", ALL if "s" in self.flags else literal("\n").complement())
        if c == "^":
            return ("assert", "line begin" if "m" in self.flags else "begin")
        if c == "$":
            return ("assert", "line end" if "m" in self.flags else "end")
        if c != "\\":
            return self.literal(c)
        if self.took("Q"):
            quoted, _, rest = self.text[self.at :].partition("\\E")
            escaped = "".join(rf"\x{{{ord(q):x}}}" for q in quoted)
            self.text = self.text[: self.at] + escaped + rest
            return None
        if self.peek() in _ASSERTIONS and self.peek():
            return ("assert", _ASSERTIONS[self.take()])
        return ("set", found) if (found := self.named_set()) else self.literal(self.escaped())

    def literal(self, c: str) -> Tree:
        return ("set", literal(c, "i" in self.flags))

    def group(self) -> Tree | None:
        outer = self.flags
        if self.took("?"):
            if self.took("P<") or self.took("<"):
                name = self.until(">")
                if not name or not all(n.isalnum() or n == "_" for n in name):
                    raise self.fail("a group's name is wanted")  # so are look-behinds refused
            elif not self.set_flags():
                return None  # they hold up to the end of the group around
        self.depth += 1
        if self.depth > DEPTH:
            raise self.fail(f"groups more than {DEPTH} deep")
        tree = self.choice()
        if not self.took(")"):
            raise self.fail("a ( is not closed")
        self.flags, self.depth = outer, self.depth - 1
        return tree

    def set_flags(self) -> bool:
        """Read flags; whether a group of their own follows."""
        on, seen = True, 0
        while True:
            c = self.take()
            if c in ":)":
                if not on and not seen:
                    raise self.fail("a flag is wanted after -")
                return c == ":"
            if c == "-" and on:
                on, seen = False, 0
                continue
            if c not in _FLAGS:
                raise self.fail(f"(?{c} is no group of RE2")
            seen += 1
            self.flags = self.flags | {c} if on else self.flags - {c}

    def escaped(self) -> str:
        """The character that an escape stands for; the backslash is behind us."""
        c = self.take()
        if c in _ESCAPES:
            return _ESCAPES[c]
        if c == "x":
            digits = self.until("}") if self.took("{") else self.take(2)
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError) as e:
                raise self.fail(f"\\x{digits} is no character") from e
        if c in "01234567" and (c == "0" or self.peek() and self.peek() in "01234567"):
            while len(c) < 3 and self.peek() and self.peek() in "01234567":
                c += self.take()
            return chr(int(c, 8))
        if c == "C":
            raise UnsupportedError(f"the pattern {self.pattern!r} matches single bytes (\\C)")
        if c.isascii() and (c.isalnum() or c == "_"):
            raise self.fail(f"\\{c} is no escape of RE2")
        return c

    def named_set(self) -> CharSet | None:
        """The set that a class escape stands for, as \\d and \\p{Lu}, if one stands here."""
        c = self.peek()
        if c and c in "dDsSwW":
            found = PERL[self.take().lower()]
            return found.complement() if c.isupper() else found
        if c and c in "pP":
            self.take()
            name = self.until("}") if self.took("{") else self.take()
            found = property_set(name.removeprefix("^"))
            return found.complement() if (c == "P") != name.startswith("^") else found
        return None

    def brackets(self) -> CharSet:
        negated, found = self.took("^"), CharSet(())
        first = True
        while first or not self.took("]"):
            first = False
            if self.took("[:"):
                name = self.until(":]")
                item = posix(name.removeprefix("^"))
                item = item.complement() if name.startswith("^") else item
            elif self.took("\\") and (item := self.named_set()):
                pass
            else:
                low = high = self.escaped() if self.text[self.at - 1] == "\\" else self.take()
                if self.peek() == "-" and self.peek(2) != "-]":
                    self.take()
                    high = self.escaped() if self.took("\\") else self.take()
                    if high < low:
                        raise self.fail(f"the range {low}-{high} is empty")
                item = CharSet(((ord(low), ord(high)),))
            found = found | item
        found = found.folded() if "i" in self.flags else found
        return found.complement() if negated else found


class Regex:
    """A compiled pattern.

    >>> Regex("(a|b)+c?").fullmatch("abbac"), Regex("a*").longest("baaac", 1)
    (True, 4)
    """

    def __init__(self, pattern: str):
        self.pattern = pattern
        self.states: list[tuple] = []
        self.start = (self._build(_Parser(pattern).whole(), self._add(("match",))),)
        self._memo: dict[tuple, tuple[bool, tuple[int, ...]]] = {}
        self._size = 0  # of the memo

    def _add(self, state: tuple) -> int:
        if len(self.states) >= STATES:
            raise ShapeError(f"the pattern {self.pattern[:50]!r} is too large")
        self.states.append(state)
        return len(self.states) - 1

    def _build(self, tree: Tree, then: int) -> int:
        """The state that does what the tree says and goes on with `then`."""
        kind, what = tree[:2]
        if kind == "set" or kind == "assert":
            return self._add((kind, what, then))
        if kind == "all":
            for part in reversed(what):
                then = self._build(part, then)
            return then
        if kind == "any":
            return self._add(("split", tuple([self._build(part, then) for part in what])))
        least, most = tree[2:]
        entry = then
        if most is None:
            loop = self._add(())
            body = self._build(what, loop)
            self.states[loop] = ("split", (body, then))
            entry, least = (body, least - 1) if least else (loop, 0)
        else:
            for _ in range(most - least):
                entry = self._add(("split", (self._build(what, entry), then)))
        for _ in range(least):
            entry = self._build(what, entry)
        return entry

    def _step(self, at: tuple[int, ...], before: str, after: str) -> tuple[bool, tuple[int, ...]]:
        """Whether a match may end here, and the states after the next character."""
        key = (at, before, after)
        found = self._memo.get(key)
        if found is None:
            if self._size >= MEMO:
                self._memo.clear()
                self._size = 0
            found = self._memo[key] = self._walk(at, before, after)
            self._size += len(at) + len(found[1]) + 8
        return found

    def _walk(self, at: tuple[int, ...], before: str, after: str) -> tuple[bool, tuple[int, ...]]:
        seen, todo, matched, following = set(at), list(at), False, []
        while todo:
            kind, *rest = self.states[todo.pop()]
            if kind == "match":
                matched = True
            elif kind == "set":
                if after and after in rest[0]:
                    following.append(rest[1])
                continue
            elif kind == "split" or kind == "assert" and _holds(rest[0], before, after):
                for s in rest[0] if kind == "split" else rest[1:]:
                    if s not in seen:
                        seen.add(s)
                        todo.append(s)
        return matched, tuple(sorted(set(following)))

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""
        at, before = self.start, ""
        for c in text:
            _, at = self._step(at, before, c)
            if not at:
                return False
            before = c
        return self._step(at, before, "")[0]

    def longest(self, text: str, start: int) -> int | None:
        """Where the longest match that begins at `start` ends, None where none does."""
        at, end = self.start, None
        for i in range(start, len(text) + 1):
            matched, at = self._step(at, text[i - 1 : i] if i else "", text[i : i + 1])
            end = i if matched else end
            if not at:
                break
        return end

    def search(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Where the leftmost match from `start` on begins and ends, the longest of those."""
        for i in range(start, len(text) + 1):
            if (end := self.longest(text, i)) is not None:
                return i, end
        return None


def _holds(assertion: str, before: str, after: str) -> bool:
    if assertion == "begin":
        return not before
    if assertion == "end":
        return not after
    if assertion == "line begin":
        return before in ("", "\n")
    if assertion == "line end":
        return after in ("", "\n")
    edge = (bool(before) and before in _WORD) != (bool(after) and after in _WORD)
    return edge == (assertion == "word")


compiled = functools.lru_cache(maxsize=64)(Regex)
