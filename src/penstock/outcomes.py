"""What a handler raises to end its task in another way than by failing."""

from __future__ import annotations

from penstock import payload
from penstock.calls import DelayArgument


class Outcome(Exception):
    """The root of what a handler may raise on purpose."""


class Abort(Outcome):
    """This task can never succeed: bury it, whatever attempts are left. Also when it is the cause of another error.

    >>> raise Abort("there is no such user")
    Traceback (most recent call last):
    penstock.outcomes.Abort: there is no such user
    """


class Release(Outcome):
    """Give the task back, to be taken again after `delay`; no failure is counted, the attempt is.

    >>> Release(30).delay
    30
    """

    def __init__(self, delay: DelayArgument | None = None) -> None:
        super().__init__(f"to be taken again after {delay}" if delay else "to be taken again")
        self.delay = delay


class Bury(Outcome):
    """Set the task aside for a person to look at.

    >>> Bury("an address that needs a look").reason
    'an address that needs a look'
    """

    def __init__(self, reason: str | BaseException | None = None) -> None:
        super().__init__(reason or "buried by its handler")
        self.reason = reason

    @property
    def text(self) -> str | None:
        """The reason as it is stored."""
        known = self.reason is None or isinstance(self.reason, str | BaseException)
        return payload.error_text(self.reason if known else str(self.reason))


class Cancelled(Exception):
    """Raised by run.check(): the task was cancelled, its lease is lost, or its time is over."""


def abort_in(error: BaseException) -> Abort | None:
    """The Abort that an error is, or that caused it: `raise X from Abort(..)` however often, also in groups."""
    found = [error]
    for one in found:  # grows as it is read
        if isinstance(one, Abort):
            return one
        more = [one.__cause__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]
        found += [other for other in more if other is not None and not any(other is known for known in found)]
    return None


def alone(error: BaseException) -> BaseException:
    """The one error of a group, as a task group makes of what is raised in it; any other error is itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
