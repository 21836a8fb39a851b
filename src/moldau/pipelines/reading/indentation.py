"""Which line of a YAML file is indented wrongly.

YAML's parser reports a wrong line late: if the first entry of a block is indented too little, it stops at the second
entry, which may be ten lines below. This module looks at the indentation of the lines alone. At the first line that
fits no open block, the unfitting line, one line has to be moved: this one, or the first or last line of an open block.
The wrong line is the one with the best move. Each criterion decides among the moves that are equal by those before it:

1. After the move, most of the following lines fit.
2. It is the move by the fewest spaces.
3. It leads from an odd column to an even one, not the other way.
4. After it, most blocks are indented by the usual step of the file.
5. It leads to the column in which most lines begin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from moldau.pipelines.reading.block_lines import BlockLine, block_lines

FOLLOWING_LINES_MAX: Final = 100
"""How many lines after the unfitting line are checked for whether they fit after a move."""
LINES_BETWEEN_MAX: Final = 1000
"""A line further above than this is not considered."""


class WrongLine(NamedTuple):
    """A line with wrong indentation, and the indentations that would fit: none if it only lacks its ':'."""

    line: int
    indentation: int
    fitting: tuple[int, ...] = ()


class _Block(NamedTuple):
    """Lines that begin in one column: keys, items, or lines of a text after | or >."""

    column: int
    first: BlockLine
    last: BlockLine
    is_list: bool = False
    is_text: bool = False


_Nesting = tuple[_Block, ...]


class _Move(NamedTuple):
    """A line and by how many spaces it could be moved. The best move is the greatest: the five criteria come first."""

    fits_until: int
    """Index of the first line that does not fit after the move."""
    minus_spaces: int
    neatness: int
    """1 for a move from an odd column to an even one, -1 for the reverse, else 0."""
    regular_steps: int
    """The number of blocks indented by the usual step, minus the number of others."""
    column_gain: int
    """The number of lines in the new column, minus those in the old one."""
    spaces: int
    line: BlockLine

    @property
    def column(self) -> int:
        return self.line.column + self.spaces


def find_wrong_line(text: str, suspects: Collection[int]) -> WrongLine | None:
    """Return the line to fix, if indentation stopped the parser at one of the `suspects`, line numbers from 1. None if
    the first unfitting line is no suspect."""
    lines = list(block_lines(text))
    nestings: list[_Nesting] = [()]
    for at, line in enumerate(lines):
        nesting = _enter(nestings[-1], lines[at - 1] if at else None, line)
        if line.number in suspects and (without_colon := _line_without_colon(lines, at, nestings[-1])):
            return WrongLine(without_colon.number, without_colon.content_column)
        if nesting is None:
            return _MoveSearch(lines, nestings).wrong_line() if line.number in suspects else None
        nestings.append(nesting)
    return None


def _line_without_colon(lines: Sequence[BlockLine], at: int, nesting: _Nesting) -> BlockLine | None:
    """Return the line at index `at` or the one above, if it is among keys without being one."""
    if at == 0 or (nesting and nesting[-1].is_text):
        return None
    line, above = lines[at], lines[at - 1]
    if line.is_plain:
        return line if line.column in {block.column for block in nesting} else None
    is_first = above.is_item or at == 1 or lines[at - 2].opens_block
    is_words = above.value_kind == "words" and not above.is_key
    return above if is_first and is_words and not line.is_item and above.content_column == line.column else None


class _MoveSearch:
    """Searches for the line whose move makes the unfitting line fit best."""

    def __init__(self, lines: Sequence[BlockLine], nestings: Sequence[_Nesting]) -> None:
        """`nestings` has the open blocks before each line, up to the unfitting line."""
        self.lines = lines
        self.nestings = nestings
        self.unfitting_at = len(nestings) - 1
        self.unfitting = lines[self.unfitting_at]
        self.usual_step = _usual_step(lines)
        self.lines_per_column = Counter(line.column for line in lines)
        regularities = [self._regularity(after, line) for line, after in zip(lines, nestings[1:], strict=False)]
        self.regular_steps = list(accumulate(regularities, initial=0))
        """The sum before each line, up to the unfitting line."""

    def wrong_line(self) -> WrongLine | None:
        moves = [move for move in self._moves() if move.fits_until > self.unfitting_at]
        if not moves:
            return None
        best = max(moves)
        # The last criterion chooses a line, but is too weak to choose among the columns of that line.
        equal = {move.column for move in moves if move.line == best.line and move[:4] == best[:4]}
        fitting = self._likely(equal) if best.line == self.unfitting else equal
        return WrongLine(best.line.number, best.line.column, tuple(sorted(fitting)))

    def _moves(self) -> Iterator[_Move]:
        """Yield moves of the unfitting line to an open block, and moves of the first or last line of an open block to
        the unfitting line's column."""
        target = self.unfitting.column
        for block in self.nestings[-1]:
            if block.column != target:
                yield self._move(self.unfitting_at, block.column - target)
        ends = {each.number for block in self.nestings[-1] for each in (block.first, block.last)}
        for at in range(max(0, self.unfitting_at - LINES_BETWEEN_MAX), self.unfitting_at):
            if self.lines[at].number in ends:
                for column in {*self.lines[at].columns} - {target}:
                    yield self._move(at, target - column)

    def _move(self, at: int, spaces: int) -> _Move:
        """Return how well the lines fit when the line at index `at` is moved."""
        nesting, regular_steps = self.nestings[at], self.regular_steps[at]
        previous = self.lines[at - 1] if at else None
        end = min(len(self.lines), self.unfitting_at + FOLLOWING_LINES_MAX)
        fits_until = at
        while fits_until < end:
            line = self.lines[fits_until].moved(spaces if fits_until == at else 0)
            next_nesting = _enter(nesting, previous, line) if line.column >= 0 else None
            if next_nesting is None:
                break
            nesting, previous = next_nesting, line
            regular_steps += self._regularity(nesting, line)
            fits_until += 1
        line = self.lines[at]
        new_column = line.column + spaces
        return _Move(
            fits_until,
            minus_spaces=-abs(spaces),
            neatness=line.column % 2 - new_column % 2,
            regular_steps=regular_steps,
            column_gain=self.lines_per_column[new_column] - self.lines_per_column[line.column],
            spaces=spaces,
            line=line,
        )

    def _regularity(self, nesting: _Nesting, line: BlockLine) -> int:
        """Return 1 if the line begins a block at the usual step, -1 if at another, or if a key or item would become
        part of a text, 0 for other lines. `nesting` has the open blocks after the line."""
        if line.is_plain:
            return 0
        if nesting[-1].is_text:
            return -1
        at = next(number for number, block in enumerate(nesting) if block.column == line.column)
        if line.is_item and not nesting[at].is_list:
            return -1  # a list that is not indented at all
        if at == 0 or nesting[at].first != line:
            return 0
        return 1 if nesting[at].column - nesting[at - 1].column == self.usual_step else -1

    def _likely(self, columns: set[int]) -> set[int]:
        """Prefer blocks whose last line, like the unfitting one, opens (or does not open) a block."""
        opens_block = self.unfitting.opens_block
        alike = {block.column for block in self.nestings[-1] if block.last.opens_block == opens_block}
        return alike & columns or columns


def _usual_step(lines: Sequence[BlockLine]) -> int | None:
    """Return by how many spaces most blocks are indented. A step of 0 or less counts only if there is no other."""
    steps = Counter(below.column - line.columns[-1] for line, below in pairwise(lines) if line.opens_block)
    return max(steps, key=lambda step: (step > 0, steps[step]), default=None)


def _enter(nesting: _Nesting, previous: BlockLine | None, line: BlockLine) -> _Nesting | None:
    """Return the open blocks after the line, from the outermost to the innermost, or None if it fits no block.
    `nesting` has those before it, and `previous` is the line above it."""
    if previous is None or not nesting:
        return () if line.is_plain else _begin(line)
    if nesting[-1].is_text:
        if line.column > nesting[-2].column:
            return _enter_text(nesting, line)
        nesting = nesting[:-1]
    elif previous.value_kind == "a text below" and line.column > nesting[-1].column:
        return (*nesting, _Block(line.column, line, line, is_text=True))
    if previous.opens_block and not line.is_plain and line.column > nesting[-1].column:
        return nesting + _begin(line)
    still_open = tuple(block for block in nesting if block.column <= line.column)
    if not still_open:
        return None
    block = still_open[-1]
    if line.is_plain:
        # A text without quotes may continue on this line.
        return nesting if still_open == nesting and line.column > block.column else None
    if block.column != line.column or (block.is_list and not line.is_item):
        return None
    if line.is_item and not (block.is_list or block.last.is_item or (block.last == previous and previous.opens_block)):
        return None
    return (*still_open[:-1], block._replace(last=line), *_begin(line)[1:])


def _enter_text(nesting: _Nesting, line: BlockLine) -> _Nesting | None:
    text = nesting[-1]
    if line.column < text.column:
        return None
    return (*nesting[:-1], text._replace(last=line)) if line.column == text.column else nesting


def _begin(line: BlockLine) -> _Nesting:
    """Return a block for each column of the line: lists, except the last one of a line with a key."""
    last = len(line.columns) - 1
    return tuple(
        _Block(column, line, line, is_list=line.is_item and not (line.is_key and number == last))
        for number, column in enumerate(line.columns)
    )
