"""Places that tests share."""

from __future__ import annotations

from tests.support import postgres

import penstock


def test_a_place_that_was_given_back_has_nothing_of_the_last_test_in_its_url():
    url = postgres.lent_place()
    penstock.connect(url).close()
    postgres.give_back(f"{url}&options=-csearch_path%3Dnowhere")
    again = postgres.lent_place()
    assert again == url
    postgres.give_back(again)
