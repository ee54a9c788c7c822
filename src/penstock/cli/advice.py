"""What the library advises a program to do, in the words of the command line."""

from __future__ import annotations

import re

from penstock.model.errors import PenstockError, SessionExpired

WORDS = (
    (re.compile(r"create_tube\('([^']*)'\) makes it"), r"`penstock create \1` makes it, `penstock tubes` lists others"),
    (re.compile(r"\bif_not_exists=True\b"), "--if-not-exists"),
    (re.compile(r"\bforce=True\b"), "--force"),
    (re.compile(r"\bon_conflict="), "--on-conflict"),
    (re.compile(r"\bidentify\(\) needs the UUID of a session, as text or 16 bytes"), "--session takes a UUID"),
)


def advised(error: PenstockError) -> str:
    """The text of an error, with the next step.

    >>> from penstock.model.errors import TubeNotFound
    >>> advised(TubeNotFound("there is no tube 'a'; create_tube('a') makes it"))
    "there is no tube 'a'; `penstock create a` makes it, `penstock tubes` lists others"
    """
    text = str(error)
    for pattern, words in WORDS:
        text = pattern.sub(words, text)
    if isinstance(error, SessionExpired):
        text += "; what it held is back in the tube, take it again"
    return text
