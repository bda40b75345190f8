"""Server-sent events: any stream, cut anywhere, gives the same events."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clients.sse import Event, EventParser


def events_of(*chunks: bytes) -> list[Event]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [Event("message", b"a")]),
        (b"data:a\r\n\r\ndata: b\r\r", [Event("message", b"a"), Event("message", b"b")]),
        (b"event: error\ndata: {}\n\n", [Event("error", b"{}")]),
        (b"data: 1\ndata: 2\n\n", [Event("message", b"1\n2")]),
        (b": keep-alive\n\n: ping\n\ndata: x\n\n", [Event("message", b"x")]),
        (b"event: only a name\n\ndata: x\n\n", [Event("message", b"x")]),
        (b"id: 7\nretry: 10\nunknown\ndata: x\n\n", [Event("message", b"x")]),
        (b"\xef\xbb\xbfdata: x\n\n", [Event("message", b"x")]),
        (b"data\n\n", [Event("message", b"")]),
        (b"data:  two spaces\n\n", [Event("message", b" two spaces")]),
        (b"data: half an event", []),
        (b"data: no end\n", []),
        (b"", []),
    ],
)
def test_events_of_a_stream(stream, expected):
    assert events_of(stream) == expected


LINES = st.sampled_from([b"data: a", b"data:", b"event: e", b": c", b"", b"", b"data: \xc3\xa9", b"x"])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.lists(st.integers(0, 200), max_size=8))
def test_the_cut_of_the_pieces_makes_no_difference(lines, cuts):
    stream = b"".join(line + end for line, end in lines)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in pairwise(places)]

    assert events_of(*chunks) == events_of(stream)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(data):
    assert all(isinstance(event, Event) for event in events_of(data))


def test_a_line_in_many_small_pieces_is_joined_once():
    chunks = [b"data: ", *[b"x"] * 200_000, b"\n\n"]

    assert events_of(*chunks) == [Event("message", b"x" * 200_000)]


def test_a_line_end_of_two_bytes_cut_in_two_is_one_line_end():
    assert events_of(b"data: 1\r", b"\ndata: 2\r", b"\n\r", b"\n") == [Event("message", b"1\n2")]
