"""The process that makes the UMAP map: `python -m services.curation.umap_process ROWS COUNT DIMENSIONS SEED TARGET`.

The process prints its progress. The file TARGET appears only when it is complete.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

NEIGHBOURS, CLOSENESS = 15, 0.1


def main(arguments: list[str]) -> int:
    """Make the map and return the exit code. `arguments` are those of the command line."""
    rows_path, count, dimensions, seed, target = arguments
    os.nice(10)
    print("loading", flush=True)
    import umap

    rows = np.memmap(rows_path, np.dtype("<f2"), "r", shape=(int(count), int(dimensions)))
    model = umap.UMAP(
        n_neighbors=NEIGHBOURS, min_dist=CLOSENESS, metric="cosine", random_state=int(seed), n_jobs=1, verbose=True
    )
    places = np.asarray(model.fit_transform(np.asarray(rows, np.float32)), np.float32)
    scratch = Path(target).with_suffix(f".{os.getpid()}.tmp")
    with open(scratch, "wb") as file:
        np.save(file, places)
    os.replace(scratch, target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
