"""Whose turn it is: so many computations at a time, and people take turns, however many each has asked for."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Ticket:
    """A place in the queue; `who` is the person."""

    who: str
    number: int


class Turns:
    """A queue for `workers` computations at a time; next is whoever has waited longest since his last turn.

    >>> turns = Turns(1)
    >>> first, again, other = turns.ask("a"), turns.ask("a"), turns.ask("b")
    >>> turns.ahead(first), turns.ahead(again), turns.ahead(other)
    (0, 2, 1)
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._lock = threading.Lock()
        self._clock = 0
        self._served: dict[str, int] = {}
        self._waiting: list[Ticket] = []
        self._running: list[Ticket] = []

    def ask(self, who: str) -> Ticket:
        with self._lock:
            self._clock += 1
            ticket = Ticket(who, self._clock)
            self._waiting.append(ticket)
            self._admit()
            return ticket

    def ahead(self, ticket: Ticket) -> int:
        """How many computations end or begin before this one may; 0: it is running."""
        with self._lock:
            if ticket in self._running:
                return 0
            return 1 + self._order().index(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Done, or no longer wanted."""
        with self._lock:
            for tickets in (self._waiting, self._running):
                if ticket in tickets:
                    tickets.remove(ticket)
            self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.workers:
            ticket = self._order()[0]
            self._waiting.remove(ticket)
            self._running.append(ticket)
            self._clock += 1
            self._served[ticket.who] = self._clock

    def _order(self) -> list[Ticket]:
        """The waiting as they would be served: one for each person in turn."""
        served, left, order = dict(self._served), list(self._waiting), []
        clock = self._clock
        while left:
            ticket = min(left, key=lambda t: (served.get(t.who, 0), t.number))
            left.remove(ticket)
            order.append(ticket)
            clock += 1
            served[ticket.who] = clock
        return order
