"""What the shop needs of the world: a bank and a mail server. These pretend."""

from __future__ import annotations

import asyncio


class BankDown(Exception):
    """Nobody answers; later somebody may."""


class CardRefused(Exception):
    """That will not change."""


def debit(card: str, cents: int) -> None:
    """Take money from a card."""
    if card == "stolen":
        raise CardRefused("the card is blocked")


async def send(to: str, text: str) -> None:
    """Send a mail."""
    await asyncio.sleep(0)
    print(f"mail to {to}: {text}", flush=True)
