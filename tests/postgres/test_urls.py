"""URLs of PostgreSQL: what they may say, and what is told of those that are wrong."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest
from tests.support import postgres

import penstock
from penstock import UsageError
from penstock.engines.postgres.place import Place

SECRET = "hunter2"
MALFORMED = [
    f"postgresql://u:{SECRET}%zz@host/shop",
    f"postgresql://u:{SECRET}%00@host/shop",
    f"postgresql://u:{SECRET}@[::1/shop",
    f"postgresql://u:{SECRET}@[::1]x/shop",
    f"postgresql://u:a/{SECRET}@host/shop",
    f"postgresql://u:{SECRET}/x?y=1@host/shop",
    f"postgresql://u:a@{SECRET}@host/shop",
    f"postgresql://host/shop?password={SECRET}%zz",
    f"postgresql://host/shop?password={SECRET}=",
    f"postgresql://host/shop?{SECRET}",
    "postgresql://[::1/shop",
    "postgresql://host:port/shop",
    "postgresql:shop",
    "postgres:/shop",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_url_is_refused_without_quoting_it(url):
    with pytest.raises(UsageError, match=r"^this is not a URL of PostgreSQL: .*postgresql://user@host/database$") as it:
        penstock.connect(url)
    assert SECRET not in str(it.value)
    assert it.value.__suppress_context__ or it.value.__context__ is None


def test_a_parameter_that_nobody_knows_is_named():
    with pytest.raises(UsageError) as caught:
        penstock.connect("postgresql://host/shop?notify=off&foo=1")
    assert str(caught.value) == (
        "the URL has a parameter that neither Penstock nor libpq knows: 'foo'; "
        "Penstock's are schema, notify, prepare, pool and patience"
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://", {}),
        ("postgresql:///shop", {"dbname": "shop"}),
        ("postgresql://u@h/shop?pool=2", {"user": "u", "host": "h", "dbname": "shop"}),
        ("postgres://u:p%2F%40?#x@h/s", {"user": "u", "password": "p/@?#x", "host": "h", "dbname": "s"}),
        ("postgresql://h?application_name=a+b", {"host": "h", "application_name": "a+b"}),
        ("postgresql://a:1,[::1]:2,c/s?&schema=x&", {"host": "a,::1,c", "port": "1,2,", "dbname": "s"}),
        ("postgresql://%2Ftmp/s", {"host": "/tmp", "dbname": "s"}),
        ("postgresql:///s?host=/tmp&port=7", {"host": "/tmp", "port": "7", "dbname": "s"}),
    ],
)
def test_what_is_not_ours_reaches_the_driver_as_libpq_reads_it(url, expected):
    assert psycopg.conninfo.conninfo_to_dict(Place.parse(url).conninfo) == expected


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://u:secret@h:1/shop?schema=x", "postgresql://u@h:1/shop"),
        ("postgresql://a:1,[::1]:2,c/s?password=secret", "postgresql://a:1,[::1]:2,c/s"),
        ("postgresql:///s%20t?host=/tmp", "postgresql://%2Ftmp/s%20t"),
    ],
)
def test_an_address_is_the_url_without_the_password(url, address):
    assert Place.parse(url).address == address
    again = Place.parse(address)
    assert again.address == address and again.name == Place.parse(url)._replace(schema="penstock").name


@pytest.mark.parametrize("scheme", ["POSTGRESQL", "Postgres"])
def test_capitals_in_the_scheme_do_not_matter(warm, scheme):
    with penstock.connect(warm) as q, penstock.connect(warm.replace("postgresql", scheme)) as same:
        assert repr(q) == repr(same)


def test_engines_without_a_server_are_found_by_capitals_too(tmp_path):
    with penstock.connect(f"SQLite:///{tmp_path}/tasks.db") as q, penstock.connect("Memory:") as memory:
        assert "tasks.db" in repr(q) and "memory" in repr(memory)
    assert (tmp_path / "tasks.db").exists()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_the_driver_of_sqlalchemy_is_left_out(driver):
    with pytest.raises(UsageError) as caught:
        penstock.connect(f"postgresql+{driver}://u@h/shop")
    assert str(caught.value) == f"leave out `+{driver}`: postgresql://user@host/database"


def test_an_engine_that_there_is_not_is_told_of_all_that_there_are():
    with pytest.raises(UsageError) as caught:
        penstock.connect(f"mysql://u:{SECRET}@h/shop")
    assert str(caught.value) == (
        "no engine for mysql:// URLs; "
        "there are a file name, sqlite:///path, postgresql://user@host/database, penstock://host:port, "
        "grpc://host:port and memory:"
    )


def test_no_file_is_made_for_a_url_that_is_refused(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in ("postgresql:shop", "postgres:shop", "POSTGRESQL:/shop", "mysql://h/shop"):
        with pytest.raises(UsageError):
            penstock.connect(url)
    assert os.listdir() == []


@pytest.mark.parametrize("schema", ["public", "information_schema"])
def test_schemas_of_others_are_refused(schema):
    with pytest.raises(UsageError, match=f"for Penstock alone.*'{schema}'"):
        Place.parse(f"postgresql://h/shop?schema={schema}")


def test_a_pool_is_a_whole_number():
    with pytest.raises(UsageError, match=r"pool= in the URL must be a whole number, got '1\.5'"):
        Place.parse("postgresql://h/shop?pool=1.5")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"pool": "1"}, {}, "pool=1"),
        ({}, {"pool": "1"}, "pool=8"),
        ({"patience": "0.5"}, {"patience": "1"}, "patience=0.5"),
        ({"notify": "off", "prepare": "off"}, {}, "notify=off, prepare=off"),
    ],
)
def test_a_store_that_is_open_with_other_parameters_is_not_shared(warm, first, second, told):
    one, two = ("".join([warm, *(f"&{name}={value}" for name, value in it.items())]) for it in (first, second))
    with penstock.connect(one):
        penstock.connect(one).close()
        with pytest.raises(UsageError) as caught:
            penstock.connect(two)
        ending = f"is open in this process with {told}; use the same URL or close it first"
        assert str(caught.value) == f"{Place.parse(warm).name} {ending}"
    penstock.connect(two).close()


def test_ways_to_write_the_same_parameters_lead_to_one_store():
    url = postgres.lent_place()
    with penstock.connect(url) as q, penstock.connect(f"{url}&pool=8&patience=10.0&notify=TRUE&prepare=1") as same:
        assert q._engine.store is same._engine.store
    postgres.give_back(url)
