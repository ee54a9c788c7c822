"""Commands that put, take and finish tasks."""

from __future__ import annotations

import os
import signal
import uuid

import apsw
import pytest
from tests.cli.shell import PATIENCE, Shell
from tests.support.forks import shared_starter
from tests.support.postgres import until

import penstock


def states(shell: Shell, tube: str = "mail") -> dict[int, str]:
    return {task["id"]: task["state"] for task in shell.inside("tasks", tube, "--json").documents}


@pytest.fixture
def mail(shell: Shell) -> Shell:
    """A tube with three tasks."""
    with penstock.connect(shell.folder / "tasks.db", durability="relaxed") as queue:
        queue.create_tube("mail", max_attempts=3, retry=60).put_many([{"n": number} for number in (1, 2, 3)])
    return shell


def test_a_lease_outlives_the_command_that_took_it_and_another_command_finishes_it(any_shell: Shell):
    shell = any_shell
    assert shell.inside("create", "mail").status == 0
    assert shell.inside("put", "mail", '{"to": "ann"}').out == "1\n"
    taken = shell.run("take", "mail", "--json")
    assert taken.status == 0
    assert taken.document["data"] == {"to": "ann"} and taken.document["state"] == "taken"
    assert states(shell) == {1: "taken"}
    assert shell.inside("take", "mail").status == 1
    acked = shell.run("ack", "mail", "1", "--session", taken.document["session"])
    assert (acked.status, acked.out) == (0, "1  done\n")
    assert states(shell) == {}


def test_a_session_ends_tasks_in_every_way_and_takes_more(any_shell: Shell):
    shell = any_shell
    shell.inside("create", "mail", "--max-attempts", "5", "--retry", "60")
    shell.inside("put", "mail", "--file", "-", "--format", "lines", input=b"a\nb\nc\nd\ne")
    session = shell.inside("take", "mail", "-n", "3", "--json").documents[0]["session"]
    more = shell.inside("take", "mail", "--json", PENSTOCK_SESSION=session).document
    assert (more["id"], more["session"]) == (4, session)
    for words in (
        ["ack", "mail", "1"],
        ["release", "mail", "2", "--delay", "1h"],
        ["fail", "mail", "3", "--error", "no route"],
        ["bury", "mail", "4", "--error", "who?"],
    ):
        assert shell.inside(*words, PENSTOCK_SESSION=session).status == 0, words
    assert states(shell) == {2: "delayed", 3: "delayed", 4: "buried", 5: "ready"}
    found = {task["id"]: task["error"] for task in shell.inside("tasks", "mail", "--json").documents}
    assert found == {2: None, 3: "no route", 4: "who?", 5: None}


def test_what_is_not_finished_within_the_hold_goes_back(any_shell: Shell):
    shell = any_shell
    shell.inside("create", "mail")
    shell.inside("put", "mail", "1")
    assert shell.inside("take", "mail", "--hold", "200ms").status == 0
    again = shell.inside("take", "mail", "--timeout", "30", "--json").document
    assert (again["id"], again["attempt"]) == (1, 2)


def test_the_hold_counts_on_kinds_without_ttr_too(shell: Shell):
    shell.inside("create", "mail", "fifo")
    shell.inside("put", "mail", "1")
    assert shell.inside("take", "mail", "--hold", "200ms").status == 0
    assert shell.inside("take", "mail", "--timeout", "30").status == 0


def test_a_longer_hold_lengthens_a_session_that_is_taken_up_again(mail: Shell):
    session = mail.inside("take", "mail", "--hold", "500", "--json").document["session"]
    mail.inside("take", "mail", "--hold", "1h", "--session", session)
    with penstock.connect(mail.folder / "tasks.db") as queue:
        queue.identify(session)
        assert queue._session.ttl == 3600 * 1_000_000


def test_a_python_program_can_go_on_with_the_session(mail: Shell):
    session = mail.inside("take", "mail", "--json").document["session"]
    with penstock.connect(mail.folder / "tasks.db") as queue:
        queue.identify(session)
        queue.tube("mail").ack(1)
        queue.tube("mail").take()
    # It was the last one there, so its end gave back what it held.
    assert states(mail) == {2: "ready", 3: "ready"}


def test_a_session_that_is_over_or_missing_is_said_so(mail: Shell):
    over = mail.inside("ack", "mail", "1", "--session", str(uuid.uuid4()))
    assert over.status == penstock.SessionExpired.exit_status() == 82
    assert "take it again" in over.err
    assert mail.inside("ack", "mail", "1").status == 64
    assert "--session UUID" in mail.inside("fail", "mail", "1").err
    assert mail.inside("ack", "mail", "1", "--session", "x").err == "penstock: --session takes a UUID\n"


def test_a_task_of_another_session_is_not_ours_to_finish(mail: Shell):
    mail.inside("take", "mail")
    session = mail.inside("take", "mail", "--json").document["session"]
    assert mail.inside("ack", "mail", "1", "--session", session).status == penstock.NotOwner.exit_status()


def test_one_id_that_is_refused_does_not_hold_up_the_others(mail: Shell):
    session = mail.inside("take", "mail", "-n", "2", "--json").documents[0]["session"]
    ran = mail.inside("ack", "mail", "1", "9", "2", "--session", session)
    assert ran.out == "1  done\n2  done\n"
    assert ran.err == "penstock: tube 'mail' has no task with the id 9\n"
    assert ran.status == penstock.TaskNotFound.exit_status()


def test_take_without_a_task_says_so_with_status_1_and_leaves_no_session(shell: Shell):
    shell.inside("create", "mail")
    ran = shell.inside("take", "mail", "--timeout", "10ms")
    assert (ran.status, ran.out) == (1, "")
    assert "no task of tube 'mail'" in ran.err
    assert sessions(shell) == 0


def sessions(shell: Shell) -> int:
    connection = apsw.Connection(str(shell.folder / "tasks.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(int(PATIENCE * 1000))  # the last one that closes a file has it for itself
    with connection:
        ((number,),) = connection.execute("SELECT count(*) FROM penstock_sessions WHERE direct = 0")
    connection.close()
    return number


def test_ctrl_c_ends_a_waiting_take_quietly(shell: Shell, real_shell: Shell):
    shell.inside("create", "mail")
    process = real_shell.start("take", "mail", "--timeout", "forever")
    until(lambda: sessions(shell), "take does not begin")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert sessions(shell) == 0


def test_take_ack_prints_the_data_and_leaves_nothing(mail: Shell):
    assert mail.inside("take", "mail", "-n", "2", "--ack").out == '{"n": 1}\n{"n": 2}\n'
    assert mail.inside("take", "mail", "--ack", "--json").document["data"] == {"n": 3}
    assert states(mail) == {}
    assert mail.inside("take", "mail", "--ack").status == 1


def test_take_ack_of_bytes_prints_them_as_they_are(shell: Shell):
    shell.inside("create", "raw", "--payload", "bytes")
    assert shell.inside("put", "raw", "-", input=b"\x00\xff\n").status == 0
    process = shell.start("take", "raw", "--ack")
    out, _ = process.communicate(timeout=PATIENCE)
    assert out == b"\x00\xff\n"


def test_a_command_acks_with_0_and_fails_with_what_it_said_last(any_shell: Shell):
    shell = any_shell
    shell.inside("create", "mail", "--max-attempts", "3", "--retry", "60")
    shell.inside("put", "mail", '"good"')
    shell.inside("put", "mail", '{"n": 1}', "--key", "k")
    script = 'read -r data; echo "$PENSTOCK_TUBE $PENSTOCK_TASK_ID $PENSTOCK_ATTEMPT $PENSTOCK_KEY $data"; '
    script += 'if [ "$data" != good ]; then echo "bad things" >&2; exit 3; fi'
    ran = shell.run("take", "mail", "-n", "5", "--exec", script)
    assert ran.out == 'mail 1 1  good\nmail 2 1 k {"n": 1}\n'
    assert ran.err.splitlines()[0] == "bad things" and ran.status == penstock.TaskFailed.exit_status()
    (task,) = shell.inside("tasks", "mail", "--json").documents
    assert (task["id"], task["state"], task["error"]) == (2, "delayed", "exit status 3: bad things")


def test_a_command_that_does_not_read_or_is_killed_is_no_problem(mail: Shell):
    ran = mail.run("take", "mail", "-n", "2", "--exec", 'exec 0<&-; [ "$PENSTOCK_TASK_ID" = 1 ] || kill -9 $$')
    assert ran.status == 80
    (failed,) = [task for task in mail.inside("tasks", "mail", "--json").documents if task["error"]]
    assert (failed["id"], failed["error"]) == (2, "ended by signal 9")


def test_a_command_that_outlives_the_lease_is_told_and_the_next_task_is_run(shell: Shell):
    shell.inside("create", "mail", "--ttr", "100ms", "--max-attempts", "1")
    shell.inside("put", "mail", "1")
    shell.inside("put", "mail", "2", "--ttr", "1h")
    # The lease of the first is over once the tube, which others may look at meanwhile, has buried its task.
    look = "penstock tasks mail --state buried | grep -q lost"
    command = f"{shared_starter().function}; [ $PENSTOCK_TASK_ID = 2 ] || until {look}; do :; done"
    ran = shell.run("take", "mail", "-n", "2", "--exec", command)
    assert ran.status == 80 and "task 1 took too long" in ran.err
    assert states(shell) == {1: "buried"}


def test_with_json_the_words_of_the_command_do_not_mix_with_the_documents(mail: Shell):
    ran = mail.run("take", "mail", "--json", "--exec", "cat; echo")
    assert (ran.document["id"], ran.document["state"]) == (1, "done")
    assert ran.err == '{"n":1}\n'.replace(":", ": ")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_and_gives_the_task_back(mail: Shell, number: signal.Signals, status: int):
    process = mail.start("take", "mail", "--exec", "echo begun; exec sleep 600")
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    task = mail.inside("peek", "mail", "1", "--json").document
    assert (task["state"], task["attempt"]) == ("ready", 0)


def test_a_reader_that_goes_away_gets_no_more_and_costs_nothing(mail: Shell):
    read, write = os.pipe()
    os.close(read)
    process = mail.start("take", "mail", "--ack", stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (141, b"")
    assert states(mail) == {1: "ready", 2: "ready", 3: "ready"}


def test_put_takes_every_option(shell: Shell):
    shell.inside("create", "mail", "--id", "required")
    options = ["--pri", "-5", "--ttl", "1h", "--ttr", "90s", "--delay", "2030-01-31T08:00+01:00", "--lane", "ann"]
    options += ["--key", "k", "--id", "order-1", "--max-attempts", "7", "--keep", "1d", "--repeat", "1m"]
    task = shell.inside("put", "mail", "null", *options, "--json").document
    wanted = {"id": "order-1", "pri": -5, "ttl": 3600, "ttr": 90, "lane": "ann", "key": "k", "max_attempts": 7}
    assert {name: task[name] for name in wanted} == wanted
    assert (task["state"], task["ready_at"], task["outcome"]) == ("delayed", "2030-01-31T07:00:00Z", "new")


def test_put_of_a_key_that_is_there_does_what_it_is_told(mail: Shell):
    mail.inside("put", "mail", "1", "--key", "k")
    refused = mail.inside("put", "mail", "2", "--key", "k")
    assert refused.status == penstock.DuplicateKey.exit_status() and "--on-conflict" in refused.err
    ignored = mail.inside("put", "mail", "2", "--key", "k", "--on-conflict", "ignore")
    assert (ignored.status, ignored.out) == (0, "4\n") and "existing" in ignored.err
    assert mail.inside("put", "mail", "2", "--key", "k", "--on-conflict", "replace", "--json").document["data"] == 2


def test_put_reads_stdin_and_text(shell: Shell):
    shell.inside("create", "mail")
    assert (
        shell.inside(
            "put",
            "mail",
            "-",
            input=b'{"a": "\xc3\xa9"}\n',
        ).out
        == "1\n"
    )
    assert shell.inside("put", "mail", "-", "--text", input="é".encode()).out == "2\n"
    assert shell.inside("put", "mail", "{not json", "--text").out == "3\n"
    assert [task["data"] for task in shell.inside("tasks", "mail", "--json").documents] == [
        {"a": "é"},
        "é",
        "{not json",
    ]
    assert shell.inside("put", "mail", "-", input=b"\xff").status == 64
    assert "--text" in shell.inside("put", "mail", "hello").err
    assert shell.inside("put", "mail", "NaN").status == 64
    assert shell.inside("put", "mail", "[" * 100_000).status == 64


def test_put_without_anything_to_put_says_what_it_needs(mail: Shell):
    for words in (["put", "mail"], ["put", "mail", "1", "--file", "x.csv"]):
        ran = mail.inside(*words)
        assert ran.status == 64 and "--file" in ran.err


def test_put_waits_for_room(shell: Shell):
    shell.inside("create", "mail", "--capacity", "1")
    shell.inside("put", "mail", "1")
    assert shell.inside("put", "mail", "2", "--timeout", "10ms").status == penstock.TubeFull.exit_status()
    process = shell.start("put", "mail", "2", "--timeout", "forever")
    with penstock.connect(shell.folder / "tasks.db") as queue:
        queue.tube("mail").take(timeout=PATIENCE).ack()
        out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, b"2\n")


def test_peek_shows_all_there_is(mail: Shell):
    mail.inside("bury", "mail", "2", "--error", "first line\nsecond line")
    ran = mail.inside("peek", "mail", "2")
    assert "reason        asked" in ran.out and "first line\\nsecond line" in ran.out
    both = mail.inside("peek", "mail", "1", "7", "2", "--json")
    assert [task["id"] for task in both.documents] == [1, 2]
    assert both.status == penstock.TaskNotFound.exit_status()


def test_ids_come_back_as_they_were_printed(shell: Shell):
    shell.inside("create", "mail", "--id", "required")
    for name in ("7", '"7"', "order-7", '"two\\nlines"'):
        assert shell.inside("put", "mail", "1", "--id", name).out == f"{name}\n"
        assert shell.inside("peek", "mail", name).out.splitlines()[0].split(None, 1)[1] == name
        assert shell.inside("delete", "mail", name).out == f"{name}  done\n"


def test_buried_tasks_are_kicked_dug_and_plowed(mail: Shell):
    mail.inside("bury", "mail", "1", "2", "3")
    assert mail.inside("kick", "mail").out == "1\n"
    assert mail.inside("dig", "mail", "3", "--delay", "1h").out == "3  delayed\n"
    assert mail.inside("dig", "mail", "3").status == penstock.WrongState.exit_status()
    assert mail.inside("plow", "mail", "--json").document == {"plowed": 1}
    nothing = mail.inside("kick", "mail", "5")
    assert (nothing.status, nothing.out) == (1, "0\n")
    assert states(mail) == {1: "ready", 2: "ready", 3: "delayed"}


def test_cancel_by_id_and_by_key(mail: Shell):
    mail.inside("put", "mail", "4", "--key", "k")
    assert mail.inside("cancel", "mail", "--key", "k").out == "4  done\n"
    assert mail.inside("cancel", "mail", "--key", "k").status == 1
    assert mail.inside("cancel", "mail", "1", "--json").document["reason"] == "cancelled"
    session = mail.inside("take", "mail", "--json").document["session"]
    assert mail.inside("cancel", "mail", "2").out == "2  taken\n"
    assert mail.inside("release", "mail", "2", "--session", session).out == "2  done\n"
