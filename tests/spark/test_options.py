"""Options of the format. No session is needed to check them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructField, StructType, TimestampType
from tests.support import postgres

import penstock
from penstock import EngineUnavailable, UsageError
from penstock.model import ops
from penstock.spark import claims, events, reading, schemas, stores
from penstock.spark.format import PenstockSource
from penstock.spark.options import Options, resolved
from penstock.spark.place import Place
from penstock.spark.reading import Range, Reader, ranges

ROOT = Path(__file__).parents[2]
KINDS = {
    "bigint": LongType,
    "string": StringType,
    "binary": BinaryType,
    "double": DoubleType,
    "timestamp": TimestampType,
}


def reader(schema=None, **options):
    """A reader as Spark makes it: options are texts with names in small letters."""
    given = {"url": "tasks.db", "tube": "jobs", **options}
    source = PenstockSource({name.lower(): str(value) for name, value in given.items()})
    return source.reader(structure(schema or source.schema()))


def structure(text):
    """A schema of plain columns; Spark reads such texts only where it runs."""
    parts = [part.split() for part in text.split(",")]
    return StructType([StructField(name, KINDS[kind]()) for name, kind in parts])


def refused(words, **options):
    with pytest.raises(UsageError, match=words):
        reader(**options)


def test_what_is_missing_or_unknown_is_named():
    refused(r'needs .option\("tube"', tube="")
    refused(r'needs .option\("url"', url="")
    refused("no option 'colour' here; there are url, tube, feed, columns", colour="red")
    refused("no option 'path' here", path="/somewhere")
    refused("no option 'fromseq' here", fromSeq=1)
    refused("feed must be one of tasks, events, results, got 'jobs'", feed="jobs")


def test_wrong_values_are_named_with_the_rule():
    refused("numPartitions must be a whole number of at least 1, got '0'", numPartitions=0)
    refused("numPartitions must be a whole number of at least 1, got 'many'", numPartitions="many")
    refused("no state 'asleep'; there are ready, taken, delayed, buried, done", states="ready,asleep")
    refused("feed 'tasks' has no column 'colour'; it has seq, id", columns="id,colour")
    refused("since must be a date such as 2026-01-31 .* got 'yesterday'", since="yesterday")
    refused("until must be a date", until="2026-13-01")
    refused("feed 'results' has tasks that are done or buried, not 'ready'", feed="results", states="ready")
    refused("fromSeq must be a whole number", feed="events", fromSeq=-1)


def test_a_schema_may_leave_columns_out_but_not_change_them():
    assert reader("seq bigint, data string")._scan.columns == ("seq", "data")
    refused("column 'id' is string, not bigint; cast", schema="id bigint")
    refused("feed 'events' has no column 'id'", schema="id string", feed="events")


def test_columns_are_pruned_in_the_order_that_was_asked_for():
    assert PenstockSource({"columns": "state, id"}).schema() == "state string, id string"


def test_dates_are_in_utc_unless_they_say_otherwise():
    noon = 1_769_860_800_000_000
    assert reader(since="2026-01-31T12:00:00")._scan.since == noon
    assert reader(since="2026-01-31T13:00:00+01:00")._scan.since == noon
    assert reader(until="2026-01-31")._scan.until == noon - 12 * 3600 * 1_000_000


def test_events_of_all_tubes_can_be_asked_for():
    assert reader(feed="events", tube="")._scan.tube is None
    assert reader(feed="events", fromSeq=5, toSeq=9)._scan[3:5] == (5, 9)


def test_the_results_are_what_ended():
    scan = reader(feed="results")._scan
    assert (scan.what, scan.states, scan.by_end) == ("tasks", ("done", "buried"), True)
    assert list(schemas.RESULTS) == list(scan.columns)


@pytest.mark.parametrize("url", ["postgresql://me:secret@host/db", "postgresql://me@host/db?password=secret"])
def test_a_password_among_the_options_is_refused_and_not_repeated(url):
    with pytest.raises(UsageError, match="env:NAME, file:PATH") as error:
        reader(url=url)
    assert "secret" not in str(error.value)


def test_a_url_can_come_from_the_environment_or_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("QUEUE", "postgresql://me:secret@host/db")
    assert resolved("env:QUEUE") == "postgresql://me:secret@host/db"
    (tmp_path / "url").write_text("tasks.db\n")
    assert resolved(f"file:{tmp_path / 'url'}") == "tasks.db"
    with pytest.raises(UsageError, match="NOWHERE is not set here; executors need it"):
        resolved("env:NOWHERE")
    with pytest.raises(UsageError, match="cannot be read here"):
        resolved("file:nowhere/url")


def test_what_is_sent_to_executors_holds_no_secret(monkeypatch):
    monkeypatch.setenv("QUEUE", "postgresql://me:secret@host/db")
    assert b"secret" not in pickle.dumps(reader(url="env:QUEUE"))


def test_a_queue_in_memory_is_refused():
    refused("in the memory of one process", url="memory:x")


def test_a_file_is_refused_on_another_machine(tmp_path, monkeypatch):
    penstock.connect(tmp_path / "tasks.db").close()
    place = Place(Options({"url": str(tmp_path / "tasks.db")}))
    assert place.store() is place.store()
    monkeypatch.setattr(stores, "machine", lambda: "elsewhere 1")
    with pytest.raises(UsageError, match="SQLite needs all executors on the machine of the driver; use PostgreSQL"):
        place.store()
    stores.close_all()


def test_a_wrong_name_makes_no_file(tmp_path):
    place = Place(Options({"url": str(tmp_path / "taks.db")}))
    for use in (place.store, place.borrowed):
        with pytest.raises(EngineUnavailable, match=r"there is no file .*taks.db; `penstock create TUBE --url"):
            use()
    assert list(tmp_path.iterdir()) == []


def test_the_parameters_of_the_last_query_count():
    url = postgres.lent_place()
    more = f"{url}{'&' if '?' in url else '?'}pool=3"
    for given in (url, more, url):
        place = Place(Options({"url": given}))
        assert place.store().execute(ops.ListTubes()) == []
    stores.store(more)
    stores.make_room(url)
    penstock.connect(url).close()
    stores.close_all()
    postgres.give_back(url)


def test_a_queue_cannot_be_overwritten():
    with pytest.raises(UsageError, match=r'mode\("append"\)'):
        PenstockSource({"url": "tasks.db", "tube": "jobs"}).writer(structure("data string"), overwrite=True)


def test_ranges_cover_every_seq_once():
    assert [part.value for part in ranges(5, 5, 4)] == [(4, 5)]
    assert [part.value for part in ranges(1, 100)] == [(0, 100)]
    assert len(ranges(1, 1_000_000)) == 8
    parts = ranges(1, 1_000_003, 7)
    assert [part.lo for part in parts[1:]] == [part.hi for part in parts[:-1]]
    assert (parts[0].lo, parts[-1].hi) == (0, 1_000_003)


def test_a_partition_of_none_reads_nothing():
    assert list(reader().read(InputPartition(None))) == []
    assert isinstance(reader(), Reader) and Range(1, 2).hi == 2


def test_no_filter_is_pushed():
    assert "pushFilters" not in vars(Reader)


def test_every_option_is_in_the_docs():
    page = (ROOT / "docs" / "spark.md").read_text()
    names = {*reading.KNOWN["events"], *claims.KNOWN, *events.KNOWN, "jobId", "onConflict", "stageBytes", "sinkId"}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
