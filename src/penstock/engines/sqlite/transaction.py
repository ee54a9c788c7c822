"""All tubes and sessions of a SQLite store inside one transaction.

The object outlives its transactions: what it has loaded stays true as long as no other connection writes,
and SQLite tells when one did. Temporary tubes live in a second file that is never synced; its transaction is
begun when the first of them is touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from penstock.engines.sqlite.adopted import AdoptedTube
from penstock.engines.sqlite.adoption import adoption
from penstock.engines.sqlite.database import Database, Row
from penstock.engines.sqlite.head import Head
from penstock.engines.sqlite.spool import FileSpool
from penstock.engines.sqlite.statements import named, render
from penstock.engines.sqlite.tube import SqliteTube
from penstock.engines.transaction import Holder, Transaction
from penstock.model.errors import TubeNotFound, UsageError
from penstock.model.ledger import Note
from penstock.model.session import Session
from penstock.model.task import HistoryRow
from penstock.model.tube import Adoption, TubeConfig

SQL = named("store.sql")
TOKEN_BLOCK = 4096
NEVER = 1 << 63


class SqliteTransaction(Transaction):
    def __init__(self, main: Database, temporary: Callable[[], Database | None]) -> None:
        super().__init__()
        self.main = main
        self.spool = FileSpool(main.path)
        self._open_temporary = temporary
        self._temporary: Database | None = None
        self._temporary_begun = False
        self._temporary_version = -1
        self._main_first = False
        self._out_of_reach: set[str] = set()
        """Temporary tubes whose file this transaction cannot touch."""
        self._version = -1
        self._registry = -1
        self._tubes: dict[str, SqliteTube] = {}
        self._sessions: dict[str, Holder] | None = None
        self.first_end: int = 0
        """No session ends before this moment, a lower bound: thousands of them are not looked at for every change."""
        self.dirty: dict[int, SqliteTube] = {}
        self._used: dict[int, SqliteTube] = {}
        """What was dirty until it was written back."""

    # -- begin and end -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a transaction; forget what another connection may have changed."""
        self.main.execute("BEGIN IMMEDIATE")
        self.announced, self.touched, self.ended = [], set(), set()
        self._main_first = False
        if self.main.connection.data_version() != self._version:
            self.refresh()

    def joined(self) -> None:
        """A transaction has been started, by us or by the caller on its own connection."""
        self.announced, self.touched, self.ended = [], set(), set()
        self._main_first = False
        version = self.main.connection.data_version()
        if version != self._version:
            self.refresh()

    def refresh(self) -> None:
        """Load anew what may have changed."""
        self._sessions = None
        self.first_end = 0
        for tube in self._tubes.values():
            tube.forget()
        registry = self.main.value("SELECT registry FROM penstock_store")
        if registry != self._registry:
            self._load_tubes()
            self._registry = registry
        if any(tube.config.adopted for tube in self._tubes.values()):
            self.take_edits()

    def commit(self) -> None:
        self.flush()
        if self._temporary_begun:
            self._commit_temporary()
        if not self._main_first:
            self.main.execute("COMMIT")
        self._version = self.main.connection.data_version()
        self._temporary_begun = False

    def finish(self) -> bool:
        """A signal came during commit(). If a part is committed the rest is, too; answers whether all is by now."""
        began = [self.main] if self._temporary is None or not self._temporary_begun else [self._temporary, self.main]
        still = [database for database in began if database.connection.in_transaction]
        if len(still) == len(began):
            return False
        for database in still:
            database.execute("COMMIT")
        self._temporary_begun = False
        self.forget()
        return True

    def _commit_temporary(self) -> None:
        """Two files are not committed at once; who is killed in between must leave nothing that hurts the others."""
        assert self._temporary is not None
        if self._main_first:
            self.main.execute("COMMIT")
        self._temporary.execute("COMMIT")
        self._temporary_version = self._temporary.connection.data_version()

    def flush(self) -> None:
        """Write back the small rows of the tubes that were used."""
        for tube in self.dirty.values():
            tube.flush()
        self._used, self.dirty = self.dirty, {}

    def rollback(self) -> None:
        """Undo everything, and trust nothing that was loaded."""
        for database in (self._temporary, self.main):
            if database is not None and database.connection.in_transaction:
                database.execute("ROLLBACK")
        self._temporary_begun = False
        self.forget()

    def end_reading(self) -> None:
        """Leave a transaction in which nothing was written."""
        self.dirty = {}
        for database in (self._temporary if self._temporary_begun else None, self.main):
            if database is not None:
                database.execute("ROLLBACK")
        self._temporary_begun = False

    def forget(self) -> None:
        self.dirty = {}
        self._version = self._registry = self._temporary_version = -1
        self._tubes = {}
        self._sessions = None
        self.first_end = 0

    def close(self) -> None:
        if self._temporary is not None:
            self._temporary.close()
        self.main.close()

    def disown(self) -> None:
        if self._temporary is not None:
            self._temporary.disown()
        self.main.disown()

    def renew_temporary(self, now: int) -> None:
        """A run begins: make the tables of temporary tubes again if their file was lost."""
        for tube in self._tubes.values():
            if not tube.config.temporary:
                continue
            if not self._temporary_begun:
                self._begin_temporary()
            if tube.database.value(tube.sql["find_table"]) is None:
                self.create_tables(tube.database, tube.number, tube.config)
                # Ids are never given twice, and the last one is lost: go on from where no count can have come.
                tube.head.seq = now

    def next_due(self) -> int | None:
        """The earliest bound among the tubes that this transaction looked at: another process may have set it."""
        first = None
        for tube in self._used.values():
            moment = None if tube._head is None else tube._head.next_due
            if moment is not None and (first is None or moment < first):
                first = moment
        return first

    # -- tubes -------------------------------------------------------------------------------------

    def _load_tubes(self) -> None:
        old = {tube.number: tube for tube in self._tubes.values()}
        self._tubes = {}
        self._out_of_reach = set()
        for number, name, text in self.main.rows(SQL["load_tubes"]):
            config = TubeConfig.from_json(json.loads(text))
            known = old.get(number)
            if config.temporary and not self._has_temporary():
                self._out_of_reach.add(name)
            else:
                self._tubes[name] = known if known and known.config == config else self._make(number, config)

    def _make(self, number: int, config: TubeConfig) -> SqliteTube:
        if config.adopted is not None:
            return AdoptedTube(self, self.main, number, config)
        return SqliteTube(self, self._database(config), number, config)

    def _database(self, config: TubeConfig) -> Database:
        if not config.temporary:
            return self.main
        self._has_temporary()
        assert self._temporary is not None
        return self._temporary

    def _has_temporary(self) -> bool:
        """Open the file of temporary tubes if that can be done here."""
        if self._temporary is None:
            self._temporary = self._open_temporary()
        return self._temporary is not None

    def tube(self, name: str) -> SqliteTube:
        tube = self._tubes.get(name)
        if tube is None and name in self._out_of_reach:
            raise UsageError(f"tube {name!r} is temporary: it has a file of its own, which is out of reach here")
        if tube is None:
            raise TubeNotFound(f"there is no tube {name!r}; create_tube({name!r}) makes it")
        if tube.config.temporary and not self._temporary_begun:
            self._begin_temporary()
        return tube

    def _begin_temporary(self) -> None:
        assert self._temporary is not None
        self._temporary.execute("BEGIN" if self.main.connection.readonly("main") else "BEGIN IMMEDIATE")
        self._temporary_begun = True
        if self._temporary.connection.data_version() != self._temporary_version:
            for tube in self._tubes.values():
                if tube.config.temporary:
                    tube.forget()

    def has_tube(self, name: str) -> bool:
        return name in self._tubes

    def tube_names(self) -> list[str]:
        return list(self._tubes)

    def create_tube(self, config: TubeConfig) -> None:
        number = self.main.value(SQL["insert_tube"], (config.name, json.dumps(config.to_json())))
        database = self._database(config)
        if config.temporary and not self._temporary_begun:
            self._begin_temporary()
        self.create_tables(database, number, config)
        self._tubes[config.name] = self._make(number, config)
        self._registered()

    def create_tables(self, database: Database, number: int, config: TubeConfig) -> None:
        """A tube's table, its indexes and its head."""
        sql = render(number, config)
        if config.temporary:  # somebody may have been killed between the commits of the two files
            database.execute(sql["drop_if_exists"])
        for name, text in sql.items():
            if name.startswith("create") and (
                config.features.lanes or name not in ("create_waiting_index", "create_slot_index")
            ):
                database.execute(text)
        database.execute(sql["insert_head"], (Head.fresh(),))

    def _registered(self) -> None:
        self.main.execute(SQL["bump_registry"])
        self._registry += 1

    def configure_tube(self, config: TubeConfig, now: int) -> None:
        old = self.tube(config.name)
        old.flush()
        self.dirty.pop(old.number, None)
        self.main.execute(SQL["update_tube"], (json.dumps(config.to_json()), old.number))
        tube = self._tubes[config.name] = self._make(old.number, config)
        if config.features.lanes and config.limits_differ(old.config):
            for name in ("waiting", "ready"):
                tube.database.execute(tube.sql[f"drop_{name}_index"])
                tube.database.execute(tube.sql[f"create_{name}_index"])
            if config.lane_pick == "turns" != old.config.lane_pick:
                tube.database.execute(tube.sql["places_by_seq"])
                tube.head.turn = max(tube.head.turn, tube.head.seq)
            tube.lane_table.refresh_all(now)
        if config.pri != old.config.pri:
            tube.head.mixed_pri = 1
        self._registered()

    def drop_tube(self, name: str) -> None:
        tube = self.tube(name)
        self._main_first = self._main_first or tube.config.temporary
        tube.drop()
        self.dirty.pop(tube.number, None)
        tube.database.execute(SQL["delete_lanes"], (tube.number,))
        self.main.execute(SQL["delete_tube"], (tube.number,))
        del self._tubes[name]
        self._registered()

    def adopt(self, asked: Adoption, now: int) -> TubeConfig:
        config = adoption(self.main, asked)
        assert config.adopted is not None
        for tube in self._adopted().values():
            if tube.table == config.adopted["table"]:
                raise UsageError(f"table {tube.table!r} is adopted already, by tube {tube.config.name!r}")
        self.main.execute("SAVEPOINT adopt")
        number = self.main.value(SQL["insert_tube"], (config.name, json.dumps(config.to_json())))
        try:
            tube = AdoptedTube(self, self.main, number, config)
            tube.install(now)
        except BaseException:
            self.dirty.pop(number, None)
            self.main.execute("ROLLBACK TO adopt")
            raise
        finally:
            self.main.execute("RELEASE adopt")
        self._tubes[config.name] = tube
        self._registered()
        return config

    def _adopted(self) -> dict[int, AdoptedTube]:
        return {tube.number: tube for tube in self._tubes.values() if isinstance(tube, AdoptedTube)}

    def take_edits(self) -> None:
        """Take rows of adopted tables into account that somebody has changed by hand."""
        tubes = self._adopted()
        if not tubes:
            return
        for tube in tubes.values():
            tube.look()
        # What a trigger of the user's does about our own writes waits for the next time, lest this never ends.
        last = self.main.value(SQL["last_edit"])
        if last is None or self.main.connection.readonly("main"):
            return
        while rows := self.main.rows(SQL["pending_edits"], (last,)):
            for number, edited in tubes.items():
                row_ids = [json.loads(row_id) for _, tube, row_id in rows if tube == number]
                if row_ids and not edited.broken:
                    edited.reconcile(row_ids, self.now())
                    self.emptied(edited.config.name)
            self.main.execute(SQL["delete_edits"], (rows[-1][0],))

    def settle_sessions(self, now: int) -> None:
        # What a session holds in a tube that is out of reach could not be given back.
        if self.first_end <= now and not self._out_of_reach:
            super().settle_sessions(now)
            self.first_end = self.next_session_end() or NEVER

    now: Callable[[], int]
    """The store's clock, set by the store."""

    def token_block(self, least: int) -> tuple[int, int]:
        """Tokens that no other tube and no other process will give."""
        self._main_first = self._main_first or self._temporary_begun
        start = self.main.value("SELECT token FROM penstock_store")
        end = start + max(TOKEN_BLOCK, least)
        self.main.execute(SQL["save_token"], (end,))
        return start, end

    # -- sessions ----------------------------------------------------------------------------------

    @property
    def _holders(self) -> dict[str, Holder]:
        if self._sessions is None:
            self._sessions = {}
            for number, uuid, name, ttl, direct, expires_at, attached in self.main.rows(SQL["load_sessions"]):
                session = Session(uuid, name, ttl, bool(direct))
                self._sessions[uuid] = Holder(number, session, expires_at, attached)
            self.first_end = self.next_session_end() or NEVER
        return self._sessions

    def holders(self) -> Iterable[Holder]:
        return list(self._holders.values())

    def holder(self, uuid: str) -> Holder | None:
        return self._holders.get(uuid)

    def save_holder(self, session: Session, expires_at: int, attached: int) -> Holder:
        values = (session.uuid, session.name, session.ttl, session.direct, expires_at, attached)
        number = self.main.value(SQL["save_session"], values)
        holder = Holder(number, session, expires_at, attached)
        self._holders[session.uuid] = holder
        self.first_end = min(self.first_end, expires_at)
        return holder

    def forget_holder(self, holder: Holder) -> None:
        self.main.execute(SQL["delete_session"], (holder.number,))
        self._holders.pop(holder.session.uuid, None)

    def next_session_end(self) -> int | None:
        return min((h.expires_at for h in self._holders.values()), default=None)

    def holder_name(self, number: int | None) -> str | None:
        return next((h.session.name for h in self._holders.values() if h.number == number), None)

    # -- history and ledgers -----------------------------------------------------------------------

    def history(self, tube: str | None, after: int, limit: int, upto: int) -> list[HistoryRow]:
        if tube is None:
            rows = self.main.rows(SQL["events"], (after, upto, limit))
        else:
            rows = self.main.rows(SQL["events_of_tube"], (after, upto, tube, limit))
        composite = {name for name, tube in self._tubes.items() if len((tube.config.adopted or {}).get("key", ())) > 1}
        return [self._event(row, row[2] in composite) for row in rows]

    @staticmethod
    def _event(row: Row, composite: bool) -> HistoryRow:
        """An event; the id of a composite key was stored as a JSON array."""
        event = HistoryRow(*row)
        return event._replace(task_id=tuple(json.loads(str(event.task_id)))) if composite else event

    def forget_history(self, upto: int) -> int:
        self.main.execute(SQL["forget_events"], (upto,))
        return self.main.connection.changes()

    def marks(self, tube: str | None, after: int, upto: int, every: int, limit: int) -> list[int]:
        if not every:
            rows = self.main.rows(SQL["last_event"], (after, upto, tube, tube))
        elif tube is None:
            rows = self.main.rows(SQL["marks"], (after, upto, every * limit, every))
        else:
            rows = self.main.rows(SQL["marks_of_tube"], (after, upto, tube, every * limit, every))
        return [seq for (seq,) in rows]

    def written(self, ledger: str, first: int, last: int) -> int | None:
        if first <= self._floor(ledger):
            return first
        found: int | None = self.main.value(SQL["written"], (ledger, first, last))
        return found

    def _floor(self, ledger: str) -> int:
        floor = self.main.value(SQL["trimmed"], (ledger,))
        return -1 if floor is None else int(floor)

    def write_notes(self, ledger: str, first: int, notes: Sequence[str]) -> None:
        rows = [(ledger, number, note) for number, note in enumerate(notes, first)]
        self.main.connection.executemany(SQL["write_note"], rows)

    def notes(self, ledger: str, after: int, upto: int, limit: int) -> list[Note]:
        return [Note(*row) for row in self.main.rows(SQL["notes"], (ledger, after, upto, limit))]

    def last_notes(self, ledger: str, limit: int) -> list[Note]:
        return [Note(*row) for row in self.main.rows(SQL["last_notes"], (ledger, limit))]

    def trim_notes(self, ledger: str, upto: int) -> int:
        self.main.execute(SQL["save_trim"], (ledger, upto))
        self.main.execute(SQL["delete_notes"], (ledger, upto))
        return self.main.connection.changes()

    def ledgers(self, prefix: str, after: str, limit: int) -> list[str]:
        # From name to name: the notes between them are never looked at.
        found: list[str] = []
        name = self.main.value(SQL["next_ledger" if after >= prefix else "first_ledger"], (max(after, prefix),))
        while name is not None and name.startswith(prefix) and len(found) < limit:
            found.append(name)
            name = self.main.value(SQL["next_ledger"], (name,))
        return found
