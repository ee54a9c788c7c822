"""The work of the shop: `penstock worker shop.tasks:q`."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TypedDict

import penstock
from shop import outside

q = penstock.connect(os.environ.get("PENSTOCK_URL", "shop.db"))


@dataclass
class Order:
    number: int
    customer: str
    item: str
    cents: int
    card: str


class Mail(TypedDict):
    to: str
    text: str


@q.handler("orders", max_attempts=4, retry=[1, 30, 600], attempt_limit=20, keep=86400)
def charge(order: Order) -> str:
    """A sync function: it is called in a thread. A bank that does not answer is asked again later."""
    try:
        outside.debit(order.card, order.cents)
    except outside.CardRefused as error:
        confirm.put(Mail(to=order.customer, text=f"order {order.number}: {error}"), lane=_domain(order))
        raise penstock.Abort(f"order {order.number}") from error  # asking again is of no use
    confirm.put(Mail(to=order.customer, text=f"your {order.item} is on its way"), lane=_domain(order))
    return order.item


def _domain(order: Order) -> str:
    return order.customer.partition("@")[2]


@q.handler("mails", lane_concurrency=1, retry=penstock.Exponential(base=2, max=3600, jitter=0.1))
async def confirm(mail: Mail) -> None:
    """An async function: it is called in the worker's loop. Each mail server gets one mail at a time."""
    await outside.send(mail["to"], mail["text"])


@q.periodic("closing", cron="0 20 * * 1-6", tz="Europe/Berlin", missed="skip")
def close_day(data: None) -> None:
    """Every evening but Sunday's, whatever number of workers there are."""
    orders = q.tube("orders").tasks("done", limit=100_000)
    best_sellers.put([order.result for order in orders])


@q.handler("statistics", process=True, keep=7 * 86400)
def best_sellers(items: list[str]) -> dict[str, int]:
    """What keeps a core busy has a process of its own. This one could do with less."""
    return dict(Counter(items).most_common(3))
