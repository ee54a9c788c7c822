"""Roles whose transactions read one snapshot by default: the queue judges by what is there."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

import penstock


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_the_default_of_a_role_does_not_matter(place, level):
    server = place.split("?")[0]
    schema = place.split("schema=")[1]
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("drop role if exists strict_reader")
        admin.execute("create role strict_reader login superuser")
        admin.execute(sql.SQL("alter role strict_reader set default_transaction_isolation = {}").format(level))
        try:
            url = f"{server.replace('postgres@', 'strict_reader@')}?schema={schema}"
            with penstock.connect(url) as q:
                store = q._engine.store
                with store._group.alone():
                    shown = store._connections.main().execute("show transaction_isolation").fetchone()
                assert shown == ("read committed",)
                with q.transaction() as tx:
                    assert tx.connection.execute("show transaction_isolation").fetchone() == ("read committed",)
        finally:
            admin.execute(sql.SQL("drop owned by strict_reader cascade"))
            admin.execute("drop role strict_reader")
