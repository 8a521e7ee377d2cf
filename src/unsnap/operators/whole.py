"""What a part of a picture must know of the whole: answers that were found once, in a sample of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Answer = TypeVar("Answer")
Answers = Mapping[str, Sequence[Any]]
"""By the name of the question, in the order in which it was asked; tensors and numbers, so that they can travel"""


class Whole:
    """Questions about a whole picture: how noisy is it, how bright, has it come far enough?

    A method that is run on tiles would find another answer in each, and tiles would not fit together. So it asks here:
    without `answers` each is computed and kept in `found`; with them, they are what it is told, in the same order, the
    last one as often as it is asked for.

    >>> survey = Whole()
    >>> survey.ask("noise", lambda: 0.1)
    0.1
    >>> Whole(survey.found).ask("noise", lambda: 0.3)
    0.1
    """

    def __init__(self, answers: Answers | None = None) -> None:
        self.found: dict[str, list[Any]] = {}
        self._answers = answers
        self._asked: dict[str, int] = {}

    def told(self, name: str) -> Any:
        """The next answer, or None if there is none yet."""
        known = () if self._answers is None else self._answers.get(name, ())
        place = self._asked.get(name, 0)
        self._asked[name] = place + 1
        return known[min(place, len(known) - 1)] if known else None

    def note(self, name: str, answer: Any) -> None:
        """Keep an answer for the parts."""
        self.found.setdefault(name, []).append(answer)

    def ask(self, name: str, compute: Callable[[], Answer]) -> Answer:
        """What is known, or else what is computed now, which is then known."""
        known = self.told(name)
        if known is not None:
            found: Answer = known
            return found
        answer = compute()
        self.note(name, answer)
        return answer
