"""nginx and Caddy in front of a studio, with the configurations of docs/serving.md."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.server_process import ROOT, free_port

KINDS = ("nginx", "caddy")
DOCS = ROOT / "docs" / "serving.md"
START_SECONDS = 60
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {server}
}}
"""
CADDY = """
{{
    admin off
    auto_https off
}}
{server}
"""


def program(kind: str) -> str | None:
    """Return the path of nginx or Caddy, or None. Debian installs nginx where only root searches."""
    return shutil.which(kind) or shutil.which(kind, path="/usr/sbin:/usr/local/sbin")


def configuration(kind: str, heading: str) -> str:
    """Return the configuration in docs/serving.md under this heading."""
    part = DOCS.read_text(encoding="utf-8").split(f"\n### {heading}\n", 1)[1].split("\n### ", 1)[0]
    found = re.search(rf"```{kind}\n(.*?)```", part, re.DOTALL)
    assert found is not None, f"no configuration of {kind} under {heading!r}"
    return found[1]


@contextmanager
def proxy_before(studio: str, kind: str, server: str, folder: Path) -> Iterator[str]:
    """Run nginx or Caddy with the configuration `server` in front of the studio at `studio`. Yield the proxy's address.

    Only the addresses and https in the configuration are changed.
    """
    port, found = free_port(), program(kind)
    assert found is not None
    server = server.replace("127.0.0.1:7860", studio.removeprefix("http://").strip("/"))
    if kind == "nginx":
        server = re.sub(r"(?m)^ *ssl_.*\n", "", server).replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
        text, command = (
            NGINX,
            [found, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "proxy.conf")],
        )
    else:
        server = re.sub(r"(?m)^\S+ \{", f"http://127.0.0.1:{port} {{", server, count=1)
        text, command = CADDY, [found, "run", "--adapter", "caddyfile", "--config", str(folder / "proxy.conf")]
    (folder / "proxy.conf").write_text(text.format(folder=folder, server=server), encoding="utf-8")
    log = folder / "log"
    with log.open("ab") as out:
        own = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        process = subprocess.Popen(command, stdout=out, stderr=out, env=own, cwd=folder)
    try:
        end = time.monotonic() + START_SECONDS
        while not _listens(port):
            assert process.poll() is None and time.monotonic() < end, f"{kind} did not start: {log.read_text()}"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
