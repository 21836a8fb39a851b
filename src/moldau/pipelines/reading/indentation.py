"""Which line of a YAML file is indented wrongly.

YAML's parser notices late: a first line that is indented too little shows when the second follows, and that of a block
of ten lines at the eleventh. Here the lines are read again for their indentation alone. At the line that no open block
takes, one line has to be moved: this one, or the first or last of an open block. It is the one after whose move most of
the following lines fit; of several, the one that is moved by the fewest spaces to where the others are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from moldau.pipelines.reading.block_lines import BlockLine, block_lines

FOLLOWING_LINES_MAX: Final = 100
"""So many lines are asked whether they fit after a move."""
LINES_BETWEEN_MAX: Final = 1000
"""A line that is further above than this is not suspected."""


class Culprit(NamedTuple):
    """A line that is indented wrongly, and by how many spaces it would fit: none if it only lacks its ':'."""

    line: int
    indentation: int
    fitting: tuple[int, ...] = ()


class _Block(NamedTuple):
    """Lines that begin in one column: keys, items, or those of a text after | or >."""

    column: int
    first: BlockLine
    last: BlockLine
    is_list: bool = False
    is_text: bool = False


_Nesting = tuple[_Block, ...]


class _Move(NamedTuple):
    """A line and by how many spaces it could be moved. The greatest is the best."""

    fits_until: int
    """The first line that does not fit then."""
    few_spaces: int
    is_neater: int
    """Whether it comes from an odd column to an even one."""
    even_steps: int
    """How many blocks are indented by as much as most, less those that are not."""
    usual: int
    """How many more lines begin in the new column than in the old one."""
    spaces: int
    line: BlockLine

    @property
    def column(self) -> int:
        return self.line.column + self.spaces


def find_culprit(text: str, suspects: Collection[int]) -> Culprit | None:
    """The line to mend, if indentation is what stopped the parser at one of these lines, counted from 1."""
    lines = list(block_lines(text))
    nestings: list[_Nesting] = [()]
    for at, line in enumerate(lines):
        entered = _entered(nestings[-1], lines[at - 1] if at else None, line)
        if line.number in suspects and (keyless := _keyless(lines, at, nestings[-1])):
            return Culprit(keyless.number, keyless.content)
        if entered is None:
            return _Misfit(lines, nestings).to_move() if line.number in suspects else None
        nestings.append(entered)
    return None


def _keyless(lines: Sequence[BlockLine], at: int, nesting: _Nesting) -> BlockLine | None:
    """The line at this index or the one above, if it stands among keys without being one."""
    if at == 0 or (nesting and nesting[-1].is_text):
        return None
    line, above = lines[at], lines[at - 1]
    if line.is_plain:
        return line if line.column in {block.column for block in nesting} else None
    is_first = above.is_item or at == 1 or lines[at - 2].opens
    is_words = above.holds == "words" and not above.is_key
    return above if is_first and is_words and not line.is_item and above.content == line.column else None


class _Misfit:
    """The first line that fits none of the blocks open before it, and what could be moved instead of it or with it."""

    def __init__(self, lines: Sequence[BlockLine], nestings: Sequence[_Nesting]) -> None:
        """Nestings are the open blocks before each line, up to this one."""
        self.lines = lines
        self.nestings = nestings
        self.at = len(nestings) - 1
        self.line = lines[self.at]
        self.usual_step = _usual_step(lines)
        self.usual = Counter(line.column for line in lines)
        begun = [self._evenness(after, line) for line, after in zip(lines, nestings[1:], strict=False)]
        self.even_steps = list(accumulate(begun, initial=0))

    def to_move(self) -> Culprit | None:
        moves = [move for move in self._moves() if move.fits_until > self.at]
        if not moves:
            return None
        best = max(moves)
        equal = {move.column for move in moves if move.line == best.line and move[:4] == best[:4]}
        fitting = self._likely(equal) if best.line == self.line else equal
        return Culprit(best.line.number, best.line.column, tuple(sorted(fitting)))

    def _moves(self) -> Iterator[_Move]:
        """The line itself to an open block, or one that began or ended such a block to this line."""
        for block in self.nestings[-1]:
            if block.column != self.line.column:
                yield self._move(self.at, block.column - self.line.column)
        others = {each.number for block in self.nestings[-1] for each in (block.first, block.last)}
        for at in range(max(0, self.at - LINES_BETWEEN_MAX), self.at):
            if self.lines[at].number in others:
                for column in {*self.lines[at].columns} - {self.line.column}:
                    yield self._move(at, self.line.column - column)

    def _move(self, at: int, spaces: int) -> _Move:
        """How well the lines fit when the one at this index is moved."""
        nesting, even_steps = self.nestings[at], self.even_steps[at]
        previous = self.lines[at - 1] if at else None
        end = min(len(self.lines), self.at + FOLLOWING_LINES_MAX)
        fits_until = at
        while fits_until < end:
            line = self.lines[fits_until].moved(spaces if fits_until == at else 0)
            entered = _entered(nesting, previous, line) if line.column >= 0 else None
            if entered is None:
                break
            nesting, previous = entered, line
            even_steps += self._evenness(nesting, line)
            fits_until += 1
        moved = self.lines[at]
        column = moved.column + spaces
        usual = self.usual[column] - self.usual[moved.column]
        return _Move(fits_until, -abs(spaces), moved.column % 2 - column % 2, even_steps, usual, spaces, moved)

    def _evenness(self, nesting: _Nesting, line: BlockLine) -> int:
        """1 if the line has begun a block by the usual step, -1 if by another, or if it looks misplaced in a text."""
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
        """Of the columns in which the line fits, those of blocks with such lines: with others below them, or not."""
        like = {block.column for block in self.nestings[-1] if block.last.opens == self.line.opens} & columns
        return like or columns


def _usual_step(lines: Sequence[BlockLine]) -> int | None:
    steps = Counter(below.column - line.columns[-1] for line, below in pairwise(lines) if line.opens)
    return max(steps, key=lambda step: (step > 0, steps[step]), default=None)


def _entered(nesting: _Nesting, previous: BlockLine | None, line: BlockLine) -> _Nesting | None:
    """The open blocks with the line in one of them; None if it fits none."""
    if previous is None or not nesting:
        return () if line.is_plain else _begun(line)
    if nesting[-1].is_text:
        if line.column > nesting[-2].column:
            return _entered_text(nesting, line)
        nesting = nesting[:-1]
    elif previous.holds == "a text below" and line.column > nesting[-1].column:
        return (*nesting, _Block(line.column, line, line, is_text=True))
    if previous.opens and not line.is_plain and line.column > nesting[-1].column:
        return nesting + _begun(line)
    kept = tuple(block for block in nesting if block.column <= line.column)
    if not kept:
        return None
    block = kept[-1]
    if line.is_plain:
        return nesting if kept == nesting and line.column > block.column else None  # a text without quotes goes on
    if block.column != line.column or (block.is_list and not line.is_item):
        return None
    if line.is_item and not (block.is_list or block.last.is_item or (block.last == previous and previous.opens)):
        return None
    return (*kept[:-1], block._replace(last=line), *_begun(line)[1:])


def _entered_text(nesting: _Nesting, line: BlockLine) -> _Nesting | None:
    text = nesting[-1]
    if line.column < text.column:
        return None
    return (*nesting[:-1], text._replace(last=line)) if line.column == text.column else nesting


def _begun(line: BlockLine) -> _Nesting:
    """A block for each column: lists, but for the last of a line with a key."""
    last = len(line.columns) - 1
    return tuple(
        _Block(column, line, line, is_list=line.is_item and not (line.is_key and number == last))
        for number, column in enumerate(line.columns)
    )
