"""Who may take may end and prolong what is its own, and nothing else. [rule 25]"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from tests.support.grpcs import Client, Stream
from tests.support.servers import Running

import penstock
from penstock import State
from penstock.model.errors import AccessDenied, LeaseLost
from penstock.server import logins
from penstock.server.auth import new_token
from penstock.wire import status
from penstock.wire._generated import penstock_pb2 as pb

SCHEMES = ["penstock", "grpc"]


@pytest.fixture(scope="module")
def one_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Callable[..., str]]]:
    """A store and a server of it with logins, for all tests of this file; answers a URL for a login."""
    folder = tmp_path_factory.mktemp("own")
    store = f"{folder}/tasks.db"
    given = {"putter": "put", "taker": "take", "boss": "admin"}
    tokens = {name: new_token() for name in given}
    entries = {
        name: logins.new_entry(name, [logins.new_right([role], ["mail"])], tokens[name]) for name, role in given.items()
    }
    logins.write_entries(f"{folder}/logins.toml", entries)
    with Running(store, logins=f"{folder}/logins.toml", grpc_port=0) as running:

        def url(name: str, scheme: str) -> str:
            port = running.server.port("port" if scheme == "penstock" else "grpc_port")
            return f"{scheme}://{name}:{tokens[name]}@127.0.0.1:{port}"

        yield store, url


@pytest.fixture
def served(one_served: tuple[str, Callable[..., str]]) -> Callable[..., str]:
    """The URL of a login, for a tube `mail` that is empty."""
    store, url = one_served
    with penstock.connect(store, durability="relaxed") as queue:
        queue.create_tube("mail", if_not_exists=True).drop(force=True)
        queue.create_tube("mail")
    return url


@pytest.fixture(scope="module")
def queues(one_served: tuple[str, Callable[..., str]]) -> Iterator[dict[tuple[str, str], Any]]:
    """Connections, by login and scheme."""
    made: dict[tuple[str, str], Any] = {}
    yield made
    for queue in made.values():
        queue.close()


@pytest.fixture(params=SCHEMES)
def mail(served: Callable[..., str], queues: dict[tuple[str, str], Any], request: Any) -> Callable[[str], Any]:
    """The tube, by login."""

    def tube(name: str) -> Any:
        if (name, request.param) not in queues:
            queues[name, request.param] = penstock.connect(served(name, request.param))
        return queues[name, request.param].tube("mail")

    return tube


def test_a_taker_buries_and_touches_what_it_holds_by_id(mail: Any) -> None:
    one, two = mail("putter").put_many([1, 2], ttr=60)
    mail("taker").take_many(2)
    deadline = mail("taker").touch(one.id, 10).deadline
    assert deadline is not None
    assert mail("taker").bury(one.id).state == State.BURIED
    assert mail("taker").ack(two.id).state == State.DONE


@pytest.mark.parametrize("verb", ["bury", "touch"])
@pytest.mark.parametrize("state", ["ready", "delayed", "buried", "taken by another", "absent"])
def test_a_taker_does_nothing_to_what_it_does_not_hold(mail: Any, verb: str, state: str) -> None:
    id = 77 if state == "absent" else mail("putter").put(1, ttl=60, delay=50 if state == "delayed" else None).id
    if state == "buried":
        mail("boss").bury(id)
    if state == "taken by another":
        mail("boss").take()
    taker = mail("taker")
    call = (lambda: taker.bury(id)) if verb == "bury" else (lambda: taker.touch(id, 10))
    before = None if state == "absent" else mail("boss").peek(id)
    with pytest.raises(AccessDenied, match=f"'taker' may not {verb} what its session does not hold on tube 'mail'"):
        call()
    if before is not None:
        after = mail("boss").peek(id)
        assert (after.state, after.expires_at) == (before.state, before.expires_at)


def test_a_lease_that_was_lost_is_told_as_ever(mail: Any) -> None:
    mail("putter").put(1)
    task = mail("taker").take()
    mail("boss").snatch(task.id)
    with pytest.raises(LeaseLost):
        task.bury()


@pytest.mark.parametrize("verb", ["bury", "touch"])
def test_an_admin_may_do_so_to_any(mail: Any, verb: str) -> None:
    id = mail("putter").put(1, ttl=60).id
    before = mail("boss").peek(id)
    if verb == "bury":
        assert mail("boss").bury(id).state == State.BURIED
    else:
        assert mail("boss").touch(id, 10).expires_at > before.expires_at


def test_calls_of_grpc_have_the_same_rule(served: Callable[..., str]) -> None:
    who, _, address = served("taker", "grpc").removeprefix("grpc://").rpartition("@")
    login = (("authorization", f"Bearer {who}"),)
    with penstock.connect(served("putter", "penstock")) as q:
        held, waits = q.tube("mail").put_many([1, 2])
    with Client(address) as client:
        stream = Stream(client.stub, metadata=login)
        metadata = (*login, *stream.metadata)
        [task] = client.call("Take", pb.TakeRequest(tube="mail"), metadata=metadata).tasks
        assert task.id.number == held.id

        def bury(id: int) -> Any:
            request = pb.BuryRequest(tube="mail", lease=pb.Lease(id=pb.Id(number=id)))
            return client.call("Bury", request, metadata=metadata)

        with pytest.raises(grpc.RpcError) as refused:
            bury(waits.id)
        assert isinstance(status.error_of(refused.value), AccessDenied)
        assert bury(held.id).state == pb.STATE_BURIED
        stream.close()
