"""Starts a small Ray cluster on this machine (two nodes, each with a CPU) to try batches on it: `make cluster`."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
from pathlib import Path


def main() -> None:
    """Run the cluster until Ctrl-C."""
    # Ray reads these when it is imported: it listens on 127.0.0.1 only, asks for a token, and sends no statistics.
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        # Written to ~/.ray/auth_token unless the file exists. Programs of this account find it there.
        command = [str(Path(sysconfig.get_path("scripts")) / "ray"), "get-auth-token", "--generate"]
        subprocess.run(command, capture_output=True, check=True)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        print(
            "Two nodes are up, with a CPU each. They listen on this machine only, and ask for a token. Use them:\n"
            f"  python -m pipeline batch run PLAN.toml --ray {cluster.address}\nCtrl-C ends them.",
            flush=True,
        )
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    except KeyboardInterrupt:
        pass
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
