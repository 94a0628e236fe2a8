"""Fixtures that more than one folder of tests needs."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import beam_memory, durations, passed
from tests.chromium import PROGRAM, Chromium

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


# A loaded machine is no failure; and what decides whether a change lands must not be chance.
settings.register_profile(
    "dptrees",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dptrees")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--renew-durations", action="store_true", help="measure tests, for tests/durations.json"
    )
    for name, what in (("record-passed", "writes"), ("without", "leaves out")):
        parser.addoption(f"--{name}", type=Path, metavar="FILE", help=f"{what} tests that passed")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(durations.Tiers(config), "tiers")
    if config.getoption("renew_durations"):
        config.pluginmanager.register(durations.Measuring(config), "measuring")
    if (path := config.getoption("record_passed")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(passed.Recording(path), "recording")
    if path := config.getoption("without"):
        config.pluginmanager.register(passed.Without(path, config), "without")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup`` a process starts an engine once, for all tests of it."""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.distribution import ByWhatIsStarted

    return ByWhatIsStarted(config, log)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the project; tests that need it skip where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no folder ../shared/data with real data beside the project")
    return SHARED_DATA


@pytest.fixture(autouse=True, scope="session")
def beam_remembers() -> Iterator[None]:
    """Beam, where tests have imported it, looks up what it has found before."""
    with pytest.MonkeyPatch.context() as patch:
        if "apache_beam" in sys.modules:
            beam_memory.remember(patch)
        yield


@pytest.fixture(autouse=True, scope="session")
def frozen_modules() -> None:
    """What importing and collecting has made stays; the collector need not look at it again.

    It looks at the rest more seldom than by default, which took a twentieth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser; where one is required, its absence fails."""
    if PROGRAM is None:
        assert os.environ.get("DPTREES_REQUIRE_BROWSER") != "1", "there is no chromium"
        pytest.skip("no chromium here")
    started = Chromium(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()
