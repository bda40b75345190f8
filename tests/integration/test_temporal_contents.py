"""What the workers on Temporal share: contents in a file or in PostgreSQL, which may be away, or nowhere."""

import asyncio
import os
import stat

import pytest
from postgres_here import postgres  # noqa: F401

pytest.importorskip("temporalio", reason="no Temporal SDK: pip install 'policy-lang[temporal]'")

from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverRetrieveContext, StorageDriverStoreContext

from engine.core.canonical import content_ref
from engine.run.errors import RunError
from engine.runtimes.temporal import contents
from engine.runtimes.temporal.contents import Known, large, opened


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "contents.db")
    return request.getfixturevalue("postgres").create(f"contents_{os.getpid()}_{abs(hash(tmp_path))}")


def texts(count):
    made = [f'{{"n":{n}}}' for n in range(count)]
    return {content_ref(text.encode()): text for text in made}


def test_what_one_worker_keeps_the_others_find(where):
    first, second, known = opened(where), opened(where), texts(1_200)

    async def main():
        await Known(first).put(known)
        await Known(second).put(dict(list(known.items())[:3]))  # again, by somebody else
        assert await Known(second).get([*known, "nothing"]) == known

    asyncio.run(main())
    first.close()
    second.close()


def test_payloads_that_are_too_large_are_kept_and_found(where):
    shared = opened(where)
    (driver,) = large(shared).drivers
    payloads = [Payload(metadata={"encoding": b"json/plain"}, data=b"\x00" * n) for n in (10, 3_000_000, 10)]

    async def main():
        claims = await driver.store(StorageDriverStoreContext(), payloads)
        assert await driver.retrieve(StorageDriverRetrieveContext(), claims) == payloads

    asyncio.run(main())
    shared.close()


def test_a_worker_remembers_what_it_has_seen_lately_and_no_more(monkeypatch):
    monkeypatch.setattr(contents, "_CACHED", 40)
    known, alone = texts(10), Known()

    async def main():
        await alone.put(known)
        return await alone.get(known)

    found = asyncio.run(main())
    assert 0 < len(found) < 10
    assert found.items() <= known.items()
    assert list(found) == list(known)[-len(found) :]


def test_a_database_that_was_away_is_found_again(postgres):  # noqa: F811
    shared, known = opened(postgres.create(f"away_{os.getpid()}")), texts(3)
    shared.put({ref: text.encode() for ref, text in known.items()})
    postgres.kill()
    with pytest.raises(Exception, match=r"connection|terminat"):
        shared.get(list(known))
    postgres.start()
    assert {ref: data.decode() for ref, data in shared.get(list(known)).items()} == known
    shared.close()


def test_a_file_of_contents_is_for_its_owner_only(tmp_path):
    path = tmp_path / "contents.db"
    opened(str(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("{tmp}/no/such/place.db", "{tmp}/no/such/place.db: contents cannot be kept there (no such file or directory)"),
        ("{tmp}", "{tmp}: contents cannot be kept there (unable to open database file)"),
        ("{tmp}/text", "{tmp}/text: contents cannot be kept there (file is not a database)"),
        ("postgresql://me:secret@127.0.0.1:1/x", "contents at 127.0.0.1:1/x: connection failed"),
    ],
)
def test_where_nothing_can_be_kept_is_told(tmp_path, place, said):
    (tmp_path / "text").write_text("This is no database. " * 100)
    with pytest.raises(RunError) as told:
        opened(place.format(tmp=tmp_path))
    assert said.format(tmp=tmp_path) in str(told.value)
    assert "secret" not in str(told.value)
