from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_READY: _ClassVar[State]
    STATE_TAKEN: _ClassVar[State]
    STATE_DELAYED: _ClassVar[State]
    STATE_BURIED: _ClassVar[State]
    STATE_DONE: _ClassVar[State]

class OnConflict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_CONFLICT_UNSPECIFIED: _ClassVar[OnConflict]
    ON_CONFLICT_ERROR: _ClassVar[OnConflict]
    ON_CONFLICT_IGNORE: _ClassVar[OnConflict]
    ON_CONFLICT_REPLACE: _ClassVar[OnConflict]
    ON_CONFLICT_RESTART: _ClassVar[OnConflict]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_NEW: _ClassVar[Outcome]
    OUTCOME_EXISTING: _ClassVar[Outcome]
    OUTCOME_REPLACED: _ClassVar[Outcome]
    OUTCOME_RESTARTED: _ClassVar[Outcome]
STATE_UNSPECIFIED: State
STATE_READY: State
STATE_TAKEN: State
STATE_DELAYED: State
STATE_BURIED: State
STATE_DONE: State
ON_CONFLICT_UNSPECIFIED: OnConflict
ON_CONFLICT_ERROR: OnConflict
ON_CONFLICT_IGNORE: OnConflict
ON_CONFLICT_REPLACE: OnConflict
ON_CONFLICT_RESTART: OnConflict
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_NEW: Outcome
OUTCOME_EXISTING: Outcome
OUTCOME_REPLACED: Outcome
OUTCOME_RESTARTED: Outcome

class SessionRequest(_message.Message):
    __slots__ = ("open", "keep_alive")
    class Open(_message.Message):
        __slots__ = ("uuid", "session_ttl_us", "name", "silence_us")
        UUID_FIELD_NUMBER: _ClassVar[int]
        SESSION_TTL_US_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        SILENCE_US_FIELD_NUMBER: _ClassVar[int]
        uuid: str
        session_ttl_us: int
        name: str
        silence_us: int
        def __init__(self, uuid: _Optional[str] = ..., session_ttl_us: _Optional[int] = ..., name: _Optional[str] = ..., silence_us: _Optional[int] = ...) -> None: ...
    class KeepAlive(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    OPEN_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_FIELD_NUMBER: _ClassVar[int]
    open: SessionRequest.Open
    keep_alive: SessionRequest.KeepAlive
    def __init__(self, open: _Optional[_Union[SessionRequest.Open, _Mapping]] = ..., keep_alive: _Optional[_Union[SessionRequest.KeepAlive, _Mapping]] = ...) -> None: ...

class SessionReply(_message.Message):
    __slots__ = ("opened", "kept")
    class Opened(_message.Message):
        __slots__ = ("uuid", "name", "session_ttl_us", "resumed")
        UUID_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        SESSION_TTL_US_FIELD_NUMBER: _ClassVar[int]
        RESUMED_FIELD_NUMBER: _ClassVar[int]
        uuid: str
        name: str
        session_ttl_us: int
        resumed: bool
        def __init__(self, uuid: _Optional[str] = ..., name: _Optional[str] = ..., session_ttl_us: _Optional[int] = ..., resumed: _Optional[bool] = ...) -> None: ...
    class Kept(_message.Message):
        __slots__ = ("cancelled",)
        CANCELLED_FIELD_NUMBER: _ClassVar[int]
        cancelled: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, cancelled: _Optional[_Iterable[int]] = ...) -> None: ...
    OPENED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    opened: SessionReply.Opened
    kept: SessionReply.Kept
    def __init__(self, opened: _Optional[_Union[SessionReply.Opened, _Mapping]] = ..., kept: _Optional[_Union[SessionReply.Kept, _Mapping]] = ...) -> None: ...

class Id(_message.Message):
    __slots__ = ("number", "text", "parts")
    class Parts(_message.Message):
        __slots__ = ("parts",)
        PARTS_FIELD_NUMBER: _ClassVar[int]
        parts: _containers.RepeatedCompositeFieldContainer[Id]
        def __init__(self, parts: _Optional[_Iterable[_Union[Id, _Mapping]]] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    text: str
    parts: Id.Parts
    def __init__(self, number: _Optional[int] = ..., text: _Optional[str] = ..., parts: _Optional[_Union[Id.Parts, _Mapping]] = ...) -> None: ...

class Delay(_message.Message):
    __slots__ = ("length_us", "moment_us")
    LENGTH_US_FIELD_NUMBER: _ClassVar[int]
    MOMENT_US_FIELD_NUMBER: _ClassVar[int]
    length_us: int
    moment_us: int
    def __init__(self, length_us: _Optional[int] = ..., moment_us: _Optional[int] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("id", "state", "reason", "json", "raw", "pri", "lane", "key", "put_id", "attempt", "max_attempts", "ttl_us", "ttr_us", "created_at_us", "ready_at_us", "expires_at_us", "deadline_us", "done_at_us", "purge_at_us", "token", "repeat_us", "cancel_asked", "result", "error", "errors", "failures")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    PRI_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PUT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TTL_US_FIELD_NUMBER: _ClassVar[int]
    TTR_US_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_US_FIELD_NUMBER: _ClassVar[int]
    READY_AT_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_US_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    DONE_AT_US_FIELD_NUMBER: _ClassVar[int]
    PURGE_AT_US_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REPEAT_US_FIELD_NUMBER: _ClassVar[int]
    CANCEL_ASKED_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    id: Id
    state: State
    reason: str
    json: str
    raw: bytes
    pri: int
    lane: str
    key: str
    put_id: str
    attempt: int
    max_attempts: int
    ttl_us: int
    ttr_us: int
    created_at_us: int
    ready_at_us: int
    expires_at_us: int
    deadline_us: int
    done_at_us: int
    purge_at_us: int
    token: int
    repeat_us: int
    cancel_asked: bool
    result: str
    error: str
    errors: _containers.RepeatedScalarFieldContainer[str]
    failures: int
    def __init__(self, id: _Optional[_Union[Id, _Mapping]] = ..., state: _Optional[_Union[State, str]] = ..., reason: _Optional[str] = ..., json: _Optional[str] = ..., raw: _Optional[bytes] = ..., pri: _Optional[int] = ..., lane: _Optional[str] = ..., key: _Optional[str] = ..., put_id: _Optional[str] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., ttl_us: _Optional[int] = ..., ttr_us: _Optional[int] = ..., created_at_us: _Optional[int] = ..., ready_at_us: _Optional[int] = ..., expires_at_us: _Optional[int] = ..., deadline_us: _Optional[int] = ..., done_at_us: _Optional[int] = ..., purge_at_us: _Optional[int] = ..., token: _Optional[int] = ..., repeat_us: _Optional[int] = ..., cancel_asked: _Optional[bool] = ..., result: _Optional[str] = ..., error: _Optional[str] = ..., errors: _Optional[_Iterable[str]] = ..., failures: _Optional[int] = ...) -> None: ...

class Draft(_message.Message):
    __slots__ = ("json", "raw", "pri", "ttl_us", "ttr_us", "delay", "lane", "key", "on_conflict", "put_id", "id", "max_attempts", "keep_us", "repeat_us")
    JSON_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    PRI_FIELD_NUMBER: _ClassVar[int]
    TTL_US_FIELD_NUMBER: _ClassVar[int]
    TTR_US_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ON_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    PUT_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    KEEP_US_FIELD_NUMBER: _ClassVar[int]
    REPEAT_US_FIELD_NUMBER: _ClassVar[int]
    json: str
    raw: bytes
    pri: int
    ttl_us: int
    ttr_us: int
    delay: Delay
    lane: str
    key: str
    on_conflict: OnConflict
    put_id: str
    id: Id
    max_attempts: int
    keep_us: int
    repeat_us: int
    def __init__(self, json: _Optional[str] = ..., raw: _Optional[bytes] = ..., pri: _Optional[int] = ..., ttl_us: _Optional[int] = ..., ttr_us: _Optional[int] = ..., delay: _Optional[_Union[Delay, _Mapping]] = ..., lane: _Optional[str] = ..., key: _Optional[str] = ..., on_conflict: _Optional[_Union[OnConflict, str]] = ..., put_id: _Optional[str] = ..., id: _Optional[_Union[Id, _Mapping]] = ..., max_attempts: _Optional[int] = ..., keep_us: _Optional[int] = ..., repeat_us: _Optional[int] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("tube", "drafts", "timeout_us")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_US_FIELD_NUMBER: _ClassVar[int]
    tube: str
    drafts: _containers.RepeatedCompositeFieldContainer[Draft]
    timeout_us: int
    def __init__(self, tube: _Optional[str] = ..., drafts: _Optional[_Iterable[_Union[Draft, _Mapping]]] = ..., timeout_us: _Optional[int] = ...) -> None: ...

class PutReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PutResult]
    def __init__(self, results: _Optional[_Iterable[_Union[PutResult, _Mapping]]] = ...) -> None: ...

class PutResult(_message.Message):
    __slots__ = ("id", "outcome", "state", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: Id
    outcome: Outcome
    state: State
    error: Error
    def __init__(self, id: _Optional[_Union[Id, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., state: _Optional[_Union[State, str]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class TakeRequest(_message.Message):
    __slots__ = ("tube", "n", "timeout_us", "ttr_us", "lane", "drain")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_US_FIELD_NUMBER: _ClassVar[int]
    TTR_US_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    tube: str
    n: int
    timeout_us: int
    ttr_us: int
    lane: str
    drain: bool
    def __init__(self, tube: _Optional[str] = ..., n: _Optional[int] = ..., timeout_us: _Optional[int] = ..., ttr_us: _Optional[int] = ..., lane: _Optional[str] = ..., drain: _Optional[bool] = ...) -> None: ...

class TakeReply(_message.Message):
    __slots__ = ("tasks", "drained", "number", "ended")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    drained: bool
    number: int
    ended: bool
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., drained: _Optional[bool] = ..., number: _Optional[int] = ..., ended: _Optional[bool] = ...) -> None: ...

class TakeDemand(_message.Message):
    __slots__ = ("tube", "ttr_us", "lane", "drain", "most", "credit", "read")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    TTR_US_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    tube: str
    ttr_us: int
    lane: str
    drain: bool
    most: int
    credit: int
    read: int
    def __init__(self, tube: _Optional[str] = ..., ttr_us: _Optional[int] = ..., lane: _Optional[str] = ..., drain: _Optional[bool] = ..., most: _Optional[int] = ..., credit: _Optional[int] = ..., read: _Optional[int] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "token")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    id: Id
    token: int
    def __init__(self, id: _Optional[_Union[Id, _Mapping]] = ..., token: _Optional[int] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("tube", "items")
    class Finish(_message.Message):
        __slots__ = ("id", "token", "result", "keep_us")
        ID_FIELD_NUMBER: _ClassVar[int]
        TOKEN_FIELD_NUMBER: _ClassVar[int]
        RESULT_FIELD_NUMBER: _ClassVar[int]
        KEEP_US_FIELD_NUMBER: _ClassVar[int]
        id: Id
        token: int
        result: str
        keep_us: int
        def __init__(self, id: _Optional[_Union[Id, _Mapping]] = ..., token: _Optional[int] = ..., result: _Optional[str] = ..., keep_us: _Optional[int] = ...) -> None: ...
    TUBE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    tube: str
    items: _containers.RepeatedCompositeFieldContainer[AckRequest.Finish]
    def __init__(self, tube: _Optional[str] = ..., items: _Optional[_Iterable[_Union[AckRequest.Finish, _Mapping]]] = ...) -> None: ...

class AckReply(_message.Message):
    __slots__ = ("done", "refused")
    class Refused(_message.Message):
        __slots__ = ("index", "error")
        INDEX_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        index: int
        error: Error
        def __init__(self, index: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...
    DONE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    done: int
    refused: _containers.RepeatedCompositeFieldContainer[AckReply.Refused]
    def __init__(self, done: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[AckReply.Refused, _Mapping]]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("tube", "lease", "delay", "pri", "ttl_us", "json", "raw", "refund")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    PRI_FIELD_NUMBER: _ClassVar[int]
    TTL_US_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    REFUND_FIELD_NUMBER: _ClassVar[int]
    tube: str
    lease: Lease
    delay: Delay
    pri: int
    ttl_us: int
    json: str
    raw: bytes
    refund: bool
    def __init__(self, tube: _Optional[str] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., delay: _Optional[_Union[Delay, _Mapping]] = ..., pri: _Optional[int] = ..., ttl_us: _Optional[int] = ..., json: _Optional[str] = ..., raw: _Optional[bytes] = ..., refund: _Optional[bool] = ...) -> None: ...

class BuryRequest(_message.Message):
    __slots__ = ("tube", "lease", "error")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    tube: str
    lease: Lease
    error: str
    def __init__(self, tube: _Optional[str] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("tube", "lease", "error", "delay", "abort")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    tube: str
    lease: Lease
    error: str
    delay: Delay
    abort: bool
    def __init__(self, tube: _Optional[str] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., error: _Optional[str] = ..., delay: _Optional[_Union[Delay, _Mapping]] = ..., abort: _Optional[bool] = ...) -> None: ...

class TouchRequest(_message.Message):
    __slots__ = ("tube", "lease", "by_us")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    BY_US_FIELD_NUMBER: _ClassVar[int]
    tube: str
    lease: Lease
    by_us: int
    def __init__(self, tube: _Optional[str] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., by_us: _Optional[int] = ...) -> None: ...

class TaskName(_message.Message):
    __slots__ = ("tube", "id")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    tube: str
    id: Id
    def __init__(self, tube: _Optional[str] = ..., id: _Optional[_Union[Id, _Mapping]] = ...) -> None: ...

class KickRequest(_message.Message):
    __slots__ = ("tube", "n", "all", "delay", "ttl_us")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    TTL_US_FIELD_NUMBER: _ClassVar[int]
    tube: str
    n: int
    all: bool
    delay: Delay
    ttl_us: int
    def __init__(self, tube: _Optional[str] = ..., n: _Optional[int] = ..., all: _Optional[bool] = ..., delay: _Optional[_Union[Delay, _Mapping]] = ..., ttl_us: _Optional[int] = ...) -> None: ...

class DigRequest(_message.Message):
    __slots__ = ("tube", "id", "delay", "ttl_us")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    TTL_US_FIELD_NUMBER: _ClassVar[int]
    tube: str
    id: Id
    delay: Delay
    ttl_us: int
    def __init__(self, tube: _Optional[str] = ..., id: _Optional[_Union[Id, _Mapping]] = ..., delay: _Optional[_Union[Delay, _Mapping]] = ..., ttl_us: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("tube", "id", "key")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    tube: str
    id: Id
    key: str
    def __init__(self, tube: _Optional[str] = ..., id: _Optional[_Union[Id, _Mapping]] = ..., key: _Optional[str] = ...) -> None: ...

class CancelReply(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class RestartRequest(_message.Message):
    __slots__ = ("tube", "id", "delay")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    tube: str
    id: Id
    delay: Delay
    def __init__(self, tube: _Optional[str] = ..., id: _Optional[_Union[Id, _Mapping]] = ..., delay: _Optional[_Union[Delay, _Mapping]] = ...) -> None: ...

class AddRetriesRequest(_message.Message):
    __slots__ = ("tube", "n")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    tube: str
    n: int
    def __init__(self, tube: _Optional[str] = ..., n: _Optional[int] = ...) -> None: ...

class WaitRequest(_message.Message):
    __slots__ = ("tube", "id", "timeout_us")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_US_FIELD_NUMBER: _ClassVar[int]
    tube: str
    id: Id
    timeout_us: int
    def __init__(self, tube: _Optional[str] = ..., id: _Optional[_Union[Id, _Mapping]] = ..., timeout_us: _Optional[int] = ...) -> None: ...

class ResultReply(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: str
    def __init__(self, result: _Optional[str] = ...) -> None: ...

class Count(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class TubeName(_message.Message):
    __slots__ = ("tube",)
    TUBE_FIELD_NUMBER: _ClassVar[int]
    tube: str
    def __init__(self, tube: _Optional[str] = ...) -> None: ...

class Tube(_message.Message):
    __slots__ = ("name", "kind", "temporary", "paused", "options")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    temporary: bool
    paused: bool
    options: TubeOptions
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., temporary: _Optional[bool] = ..., paused: _Optional[bool] = ..., options: _Optional[_Union[TubeOptions, _Mapping]] = ...) -> None: ...

class TubeOptions(_message.Message):
    __slots__ = ("ttl_us", "ttl_derived", "ttr_us", "pri", "capacity", "max_attempts", "retry", "keep_us", "keep_failed_us", "concurrency", "lane_concurrency", "lane_rate", "lane_burst", "lane_order", "lane_pick", "payload", "max_payload", "history", "history_data", "id")
    TTL_US_FIELD_NUMBER: _ClassVar[int]
    TTL_DERIVED_FIELD_NUMBER: _ClassVar[int]
    TTR_US_FIELD_NUMBER: _ClassVar[int]
    PRI_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    KEEP_US_FIELD_NUMBER: _ClassVar[int]
    KEEP_FAILED_US_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    LANE_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    LANE_RATE_FIELD_NUMBER: _ClassVar[int]
    LANE_BURST_FIELD_NUMBER: _ClassVar[int]
    LANE_ORDER_FIELD_NUMBER: _ClassVar[int]
    LANE_PICK_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    MAX_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    HISTORY_DATA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ttl_us: int
    ttl_derived: bool
    ttr_us: int
    pri: int
    capacity: int
    max_attempts: int
    retry: Retry
    keep_us: int
    keep_failed_us: int
    concurrency: int
    lane_concurrency: int
    lane_rate: float
    lane_burst: int
    lane_order: str
    lane_pick: str
    payload: str
    max_payload: int
    history: bool
    history_data: bool
    id: str
    def __init__(self, ttl_us: _Optional[int] = ..., ttl_derived: _Optional[bool] = ..., ttr_us: _Optional[int] = ..., pri: _Optional[int] = ..., capacity: _Optional[int] = ..., max_attempts: _Optional[int] = ..., retry: _Optional[_Union[Retry, _Mapping]] = ..., keep_us: _Optional[int] = ..., keep_failed_us: _Optional[int] = ..., concurrency: _Optional[int] = ..., lane_concurrency: _Optional[int] = ..., lane_rate: _Optional[float] = ..., lane_burst: _Optional[int] = ..., lane_order: _Optional[str] = ..., lane_pick: _Optional[str] = ..., payload: _Optional[str] = ..., max_payload: _Optional[int] = ..., history: _Optional[bool] = ..., history_data: _Optional[bool] = ..., id: _Optional[str] = ...) -> None: ...

class Retry(_message.Message):
    __slots__ = ("delays_us", "exponential")
    class Exponential(_message.Message):
        __slots__ = ("base_us", "factor", "max_us", "jitter")
        BASE_US_FIELD_NUMBER: _ClassVar[int]
        FACTOR_FIELD_NUMBER: _ClassVar[int]
        MAX_US_FIELD_NUMBER: _ClassVar[int]
        JITTER_FIELD_NUMBER: _ClassVar[int]
        base_us: int
        factor: float
        max_us: int
        jitter: float
        def __init__(self, base_us: _Optional[int] = ..., factor: _Optional[float] = ..., max_us: _Optional[int] = ..., jitter: _Optional[float] = ...) -> None: ...
    DELAYS_US_FIELD_NUMBER: _ClassVar[int]
    EXPONENTIAL_FIELD_NUMBER: _ClassVar[int]
    delays_us: _containers.RepeatedScalarFieldContainer[int]
    exponential: Retry.Exponential
    def __init__(self, delays_us: _Optional[_Iterable[int]] = ..., exponential: _Optional[_Union[Retry.Exponential, _Mapping]] = ...) -> None: ...

class CreateTubeRequest(_message.Message):
    __slots__ = ("name", "kind", "if_not_exists", "temporary", "options")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    if_not_exists: bool
    temporary: bool
    options: TubeOptions
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., if_not_exists: _Optional[bool] = ..., temporary: _Optional[bool] = ..., options: _Optional[_Union[TubeOptions, _Mapping]] = ...) -> None: ...

class ListTubesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTubesReply(_message.Message):
    __slots__ = ("tubes",)
    TUBES_FIELD_NUMBER: _ClassVar[int]
    tubes: _containers.RepeatedCompositeFieldContainer[Tube]
    def __init__(self, tubes: _Optional[_Iterable[_Union[Tube, _Mapping]]] = ...) -> None: ...

class AlterTubeRequest(_message.Message):
    __slots__ = ("tube", "options", "unset")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    tube: str
    options: TubeOptions
    unset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tube: _Optional[str] = ..., options: _Optional[_Union[TubeOptions, _Mapping]] = ..., unset: _Optional[_Iterable[str]] = ...) -> None: ...

class DropTubeRequest(_message.Message):
    __slots__ = ("tube", "force")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    tube: str
    force: bool
    def __init__(self, tube: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DropTubeReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("tube", "resume")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    tube: str
    resume: bool
    def __init__(self, tube: _Optional[str] = ..., resume: _Optional[bool] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("tube", "state", "limit", "after")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    tube: str
    state: State
    limit: int
    after: Id
    def __init__(self, tube: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., limit: _Optional[int] = ..., after: _Optional[_Union[Id, _Mapping]] = ...) -> None: ...

class ListTasksReply(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ...) -> None: ...

class StatisticsRequest(_message.Message):
    __slots__ = ("tube",)
    TUBE_FIELD_NUMBER: _ClassVar[int]
    tube: str
    def __init__(self, tube: _Optional[str] = ...) -> None: ...

class StatisticsReply(_message.Message):
    __slots__ = ("tubes",)
    class TubesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: StatisticsReply.Counters
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[StatisticsReply.Counters, _Mapping]] = ...) -> None: ...
    class Counters(_message.Message):
        __slots__ = ("tasks", "calls")
        class TasksEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        class CallsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        TASKS_FIELD_NUMBER: _ClassVar[int]
        CALLS_FIELD_NUMBER: _ClassVar[int]
        tasks: _containers.ScalarMap[str, int]
        calls: _containers.ScalarMap[str, int]
        def __init__(self, tasks: _Optional[_Mapping[str, int]] = ..., calls: _Optional[_Mapping[str, int]] = ...) -> None: ...
    TUBES_FIELD_NUMBER: _ClassVar[int]
    tubes: _containers.MessageMap[str, StatisticsReply.Counters]
    def __init__(self, tubes: _Optional[_Mapping[str, StatisticsReply.Counters]] = ...) -> None: ...

class LaneLimits(_message.Message):
    __slots__ = ("concurrency", "rate", "burst", "paused")
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    concurrency: int
    rate: float
    burst: int
    paused: bool
    def __init__(self, concurrency: _Optional[int] = ..., rate: _Optional[float] = ..., burst: _Optional[int] = ..., paused: _Optional[bool] = ...) -> None: ...

class LanesRequest(_message.Message):
    __slots__ = ("tube", "limit", "after")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    tube: str
    limit: int
    after: str
    def __init__(self, tube: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class LanesReply(_message.Message):
    __slots__ = ("lanes",)
    class Lane(_message.Message):
        __slots__ = ("name", "ready", "taken", "limits", "next_at_us")
        NAME_FIELD_NUMBER: _ClassVar[int]
        READY_FIELD_NUMBER: _ClassVar[int]
        TAKEN_FIELD_NUMBER: _ClassVar[int]
        LIMITS_FIELD_NUMBER: _ClassVar[int]
        NEXT_AT_US_FIELD_NUMBER: _ClassVar[int]
        name: str
        ready: int
        taken: int
        limits: LaneLimits
        next_at_us: int
        def __init__(self, name: _Optional[str] = ..., ready: _Optional[int] = ..., taken: _Optional[int] = ..., limits: _Optional[_Union[LaneLimits, _Mapping]] = ..., next_at_us: _Optional[int] = ...) -> None: ...
    LANES_FIELD_NUMBER: _ClassVar[int]
    lanes: _containers.RepeatedCompositeFieldContainer[LanesReply.Lane]
    def __init__(self, lanes: _Optional[_Iterable[_Union[LanesReply.Lane, _Mapping]]] = ...) -> None: ...

class ConfigureLaneRequest(_message.Message):
    __slots__ = ("tube", "lane", "concurrency", "rate", "burst", "paused", "unset")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    tube: str
    lane: str
    concurrency: int
    rate: float
    burst: int
    paused: bool
    unset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tube: _Optional[str] = ..., lane: _Optional[str] = ..., concurrency: _Optional[int] = ..., rate: _Optional[float] = ..., burst: _Optional[int] = ..., paused: _Optional[bool] = ..., unset: _Optional[_Iterable[str]] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("tube", "after", "limit")
    TUBE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    tube: str
    after: int
    limit: int
    def __init__(self, tube: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class HistoryReply(_message.Message):
    __slots__ = ("events",)
    class Event(_message.Message):
        __slots__ = ("seq", "at_us", "tube", "task_id", "event", "from_state", "to_state", "reason", "attempt", "pri", "lane", "key", "worker", "error_class", "error", "ready_at_us", "taken_at_us", "delay_us", "json", "raw")
        SEQ_FIELD_NUMBER: _ClassVar[int]
        AT_US_FIELD_NUMBER: _ClassVar[int]
        TUBE_FIELD_NUMBER: _ClassVar[int]
        TASK_ID_FIELD_NUMBER: _ClassVar[int]
        EVENT_FIELD_NUMBER: _ClassVar[int]
        FROM_STATE_FIELD_NUMBER: _ClassVar[int]
        TO_STATE_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        ATTEMPT_FIELD_NUMBER: _ClassVar[int]
        PRI_FIELD_NUMBER: _ClassVar[int]
        LANE_FIELD_NUMBER: _ClassVar[int]
        KEY_FIELD_NUMBER: _ClassVar[int]
        WORKER_FIELD_NUMBER: _ClassVar[int]
        ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        READY_AT_US_FIELD_NUMBER: _ClassVar[int]
        TAKEN_AT_US_FIELD_NUMBER: _ClassVar[int]
        DELAY_US_FIELD_NUMBER: _ClassVar[int]
        JSON_FIELD_NUMBER: _ClassVar[int]
        RAW_FIELD_NUMBER: _ClassVar[int]
        seq: int
        at_us: int
        tube: str
        task_id: Id
        event: str
        from_state: State
        to_state: State
        reason: str
        attempt: int
        pri: int
        lane: str
        key: str
        worker: str
        error_class: str
        error: str
        ready_at_us: int
        taken_at_us: int
        delay_us: int
        json: str
        raw: bytes
        def __init__(self, seq: _Optional[int] = ..., at_us: _Optional[int] = ..., tube: _Optional[str] = ..., task_id: _Optional[_Union[Id, _Mapping]] = ..., event: _Optional[str] = ..., from_state: _Optional[_Union[State, str]] = ..., to_state: _Optional[_Union[State, str]] = ..., reason: _Optional[str] = ..., attempt: _Optional[int] = ..., pri: _Optional[int] = ..., lane: _Optional[str] = ..., key: _Optional[str] = ..., worker: _Optional[str] = ..., error_class: _Optional[str] = ..., error: _Optional[str] = ..., ready_at_us: _Optional[int] = ..., taken_at_us: _Optional[int] = ..., delay_us: _Optional[int] = ..., json: _Optional[str] = ..., raw: _Optional[bytes] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[HistoryReply.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[HistoryReply.Event, _Mapping]]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "outcome", "owner", "now", "task", "results")
    class Item(_message.Message):
        __slots__ = ("error",)
        ERROR_FIELD_NUMBER: _ClassVar[int]
        error: Error
        def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    outcome: str
    owner: str
    now: str
    task: Task
    results: _containers.RepeatedCompositeFieldContainer[Error.Item]
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., outcome: _Optional[str] = ..., owner: _Optional[str] = ..., now: _Optional[str] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., results: _Optional[_Iterable[_Union[Error.Item, _Mapping]]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("number", "seen", "kind", "failed", "payload")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    number: int
    seen: int
    kind: str
    failed: bool
    payload: bytes
    def __init__(self, number: _Optional[int] = ..., seen: _Optional[int] = ..., kind: _Optional[str] = ..., failed: _Optional[bool] = ..., payload: _Optional[bytes] = ...) -> None: ...
