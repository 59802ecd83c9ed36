"""Find Chromium for the browser tests. `python -m tests.support.chromium` installs it if there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Names of Chromium's programs. The first has no window. It starts faster, and playwright uses it by default."""
PACKAGES = ("chromium-headless-shell", "chromium")
"""Debian's packages. The second is for releases without the first."""
ADVICE = (
    "There is no Chromium for the browser tests: install it (Debian: apt-get install chromium), "
    "or name one in the environment variable CHROMIUM."
)
_DOWNLOAD_SECONDS = 600


def find_chromium() -> str | None:
    """Return the path of a Chromium that runs: $CHROMIUM, the system's, or playwright's. None if there is none."""
    candidates = [os.environ.get("CHROMIUM"), *(shutil.which(name) for name in NAMES)]
    return next((path for path in candidates if path and _runs(path)), None) or _of_playwright()


def _runs(path: str) -> bool:
    # Ubuntu's chromium-browser may be a script that only says that it wants snap.
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=120, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _of_playwright() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() and _runs(path) else None


def install_chromium() -> str | None:
    """Install Debian's package where allowed, or else playwright's download. Return the path, or None."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _quietly(["apt-get", "-qq", "update"], environment)
        for package in PACKAGES:
            _quietly(["apt-get", "-qq", "install", "--yes", "--no-install-recommends", package], environment)
            if path := find_chromium():
                return path
    _quietly([sys.executable, "-m", "playwright", "install", "chromium"], dict(os.environ))
    return find_chromium()


def _quietly(command: list[str], environment: dict[str, str]) -> None:
    # Only the presence of Chromium afterwards counts, so a mirror that cannot be reached is no failure.
    try:
        subprocess.run(command, env=environment, capture_output=True, timeout=_DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        print(f"Gave up on `{' '.join(command)}` after {_DOWNLOAD_SECONDS // 60} minutes.", file=sys.stderr)


def main() -> int:
    """Return 0 if Chromium runs. Otherwise print advice, and return 1 on a build server, where no test may be
    skipped.
    """
    if find_chromium():
        return 0
    print("Installing Chromium for the browser tests: about 300 MB, a minute or two.", flush=True)
    if install_chromium():
        return 0
    print(ADVICE, file=sys.stderr)
    if os.environ.get("CI"):
        return 1
    print("The browser tests are skipped.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
