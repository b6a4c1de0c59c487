"""A job and its driver, which tests let do what they like."""

from __future__ import annotations

import pytest

from tests.control.machine.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def running(world: World) -> World:
    world.start()
    return world
