"""Decoders are made one at a time, whatever threads ask for them."""

import os
import subprocess
import sys
from pathlib import Path

from engine.decoding import decoder
from engine.runtimes.records import End, Order

TOGETHER = """
import sys, threading
from engine.decoding import decoder
from engine.runtimes.records import Order
from msgspec import ValidationError
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(4)
made = []
def go():
    barrier.wait()
    made.append(decoder(Order))
threads = [threading.Thread(target=go) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(set(map(id, made))) == 1 and len(made) == 4
"""


def test_a_type_has_one_decoder():
    assert decoder(Order) is decoder(Order)
    assert decoder(End) is not decoder(Order)


def test_threads_that_ask_at_once_get_the_same_one_and_the_process_lives():
    root = str(Path(__file__).parents[2])
    for _ in range(3):
        command = [sys.executable, "-c", TOGETHER]
        subprocess.run(command, check=True, timeout=60, env={**os.environ, "PYTHONPATH": root})
