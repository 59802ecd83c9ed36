"""What all tests share: no network, and a Chromium for those that need one. Other fixtures live beside their tests."""

from __future__ import annotations

import os

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub, which reads it once


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """For playwright's `executable_path`. Without Chromium the test is skipped, or fails on a build server (CI set)."""
    from tests.chromium import ADVICE, find_chromium

    path = find_chromium()
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(ADVICE)
        pytest.skip(ADVICE)
    return path
