"""The worlds that engines are held to come to the same with our own driver and on the engine in memory."""

import asyncio

import pytest
from engine_worlds import NAMES, WorldServer, by_driver, came, pairs, reference, world

import policy_lang
from engine.testing.recorded import check_trace


@pytest.mark.parametrize("name", NAMES)
def test_a_world_comes_to_the_same_with_the_driver_and_in_memory(name, tmp_path):
    with WorldServer(name, delay=0.01) as server:
        driver = asyncio.run(asyncio.wait_for(by_driver(name, server, "run", tmp_path), 30))
        assert server.repeated() == 0
        assert not server.ledger.problems
    here = world(name)
    assert driver.result.status == here.status
    assert came(driver, here.together) == reference(name, "run")
    if not here.agents:
        check_trace(policy_lang.loads(here.policy), pairs(driver)).assert_all()
