"""JSON-RPC messages with and without the version member; the peer's bookkeeping."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.wire.jsonrpc import Fault, Message, Notification, Peer, Request, Response, parse
from stagedoor.wire.shapes import UnknownMessage

RAW = msgspec.Raw
TABLE: list[tuple[bytes, Message]] = [
    (b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1}}', Request(1, "a", RAW(b'{"x":1}'))),
    (b'{"id":"s","method":"a"}', Request("s", "a", RAW(b"{}"))),
    (b'{"id":null,"method":"a"}', Request(None, "a", RAW(b"{}"))),
    (b'{"method":"a","params":[1]}', Notification("a", RAW(b"[1]"))),
    (b'{"id":0,"result":null}', Response(0, RAW(b"null"))),
    (b'{"id":0,"result":{"a":"\\ud83d"}}', Response(0, RAW('{"a":"\ufffd"}'.encode()))),
    (b'{"id":0,"error":{"code":-1,"message":"no"}}', Response(0, fault=Fault(-1, "no"))),
    (b'{"id":0,"result":{},"error":null}', Response(0, RAW(b"{}"))),
    (b'{"id":0}', Response(0, fault=Fault(-32603, "the answer has neither a result nor an error"))),
    (b'{"id":0,"error":null}', Response(0, fault=Fault(-32603, "the answer has neither a result nor an error"))),
]


@pytest.mark.parametrize(("message", "parsed"), TABLE)
def test_parse(message: bytes, parsed: Message) -> None:
    assert parse(message) == parsed


@pytest.mark.parametrize(
    "message", [b"", b"x", b"[]", b"{}", b'{"id":null}', b'{"method":7}', b'{"id":{},"method":"a"}']
)
def test_unrecognized(message: bytes) -> None:
    parsed = parse(message)
    assert isinstance(parsed, UnknownMessage)
    assert parsed.raw == message


@given(st.binary(max_size=120))
def test_nothing_raises(message: bytes) -> None:
    parse(message)


def test_a_peer_numbers_its_calls_and_matches_the_answers() -> None:
    peer = Peer()
    assert (peer.call("a", {"x": 1}), peer.call("b")) == (0, 1)
    peer.notify("n")
    peer.answer("q", {"ok": True})
    peer.refuse(7, -32601, "no such method")
    assert peer.outgoing() == [
        b'{"jsonrpc":"2.0","id":0,"method":"a","params":{"x":1}}',
        b'{"jsonrpc":"2.0","id":1,"method":"b","params":{}}',
        b'{"jsonrpc":"2.0","method":"n"}',
        b'{"jsonrpc":"2.0","id":"q","result":{"ok":true}}',
        b'{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no such method"}}',
    ]
    assert peer.outgoing() == []
    assert peer.settle(Response(1, RAW(b"{}"))) == "b"
    assert peer.settle(Response(1, RAW(b"{}"))) is None
    assert peer.abandoned() == {0: "a"}
    assert peer.abandoned() == {}


def test_a_peer_without_the_version_member() -> None:
    peer = Peer(version=False)
    peer.call("a")
    assert peer.outgoing() == [b'{"id":0,"method":"a","params":{}}']
