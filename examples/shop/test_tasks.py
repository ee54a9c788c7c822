"""Tests of the shop with penstock.testing: no worker, no waiting. Run `pytest` in the folder above."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.testing import assert_not_put, assert_put, drain, inline
from shop import outside
from shop.tasks import Order, best_sellers, charge, confirm, q

TEA = Order(1, "ann@a.example", "tea", 450, "4000-0001")
STOLEN = Order(2, "cat@a.example", "tea", 450, "stolen")


@pytest.fixture
def post(monkeypatch):
    """The mails that would have been sent."""
    mails = []

    async def send(to, text):
        mails.append((to, text))

    monkeypatch.setattr(outside, "send", send)
    return mails


@pytest.fixture
def bank(monkeypatch):
    """A bank that is down as often as it is told to be."""
    outages = []

    def debit(card, cents):
        if outages:
            raise outages.pop()

    monkeypatch.setattr(outside, "debit", debit)
    return outages


def test_a_handler_is_a_function():
    assert charge(TEA) == "tea"
    assert_put(q, confirm, {"to": "ann@a.example"}, lane="a.example", count=1)


def test_an_order_is_charged_and_confirmed(post):
    charge.put(TEA)
    assert drain(q).ok == 2
    assert post == [("ann@a.example", "your tea is on its way")]
    assert_put(q, charge, TEA, state="done", result="tea")


def test_a_refused_card_is_not_tried_again(post):
    charge.put(STOLEN)
    (error,) = drain(q).errors
    assert str(error) == "order 2"
    assert_put(q, charge, STOLEN, state="buried", reason="aborted", attempt=1)
    assert post == [("cat@a.example", "order 2: the card is blocked")]


def test_a_bank_that_is_down_is_asked_again_in_a_while(bank, post, penstock_clock):
    bank += [outside.BankDown("no answer")] * 2
    charge.put(TEA)
    start = penstock_clock.now()
    ran = drain(q, clock=penstock_clock, horizon=60)
    assert [run.ended for run in ran] == ["fail", "fail", "ack", "ack"]
    assert penstock_clock.now() - start == 31_000_000
    assert len(post) == 1


def test_a_bank_that_stays_down_leaves_the_order_to_a_person(bank, post):
    bank += [outside.BankDown("no answer")] * 10
    charge.put(TEA)
    assert drain(q, horizon=timedelta(hours=1)).trouble == 4
    (order,) = assert_put(q, charge, state="buried", reason="no_attempts")
    assert "BankDown: no answer" in order.error
    assert_not_put(q, confirm)


def test_customers_see_at_once_what_workers_will_do(post):
    with inline(q):
        charge.put(TEA)
        assert len(post) == 1
        with pytest.raises(Exception, match="order 2"):
            charge.put(STOLEN)


def test_the_day_is_closed_in_the_evening(post):
    charge.put_many(
        [TEA, Order(3, "bob@b.example", "cup", 300, "4000-0002"), Order(4, "eve@b.example", "tea", 450, "5")]
    )
    drain(q, horizon=timedelta(days=2))
    assert_put(q, best_sellers, result={"tea": 2, "cup": 1})
