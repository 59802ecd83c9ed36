"""A process that votes on a study: `python -m tests.support.study_annotator WORKSPACE STUDY WORKER SEED`.

It waits for a line of input before it begins, so that several can begin at once.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping

from storage.workspace import Workspace

YES: Mapping[str, str] = {"valid": "yes"}


def annotator(folder: str, study_id: str, worker: str, seed: str) -> None:
    """Vote until no item is left. Sometimes leave an item, undo an answer, or send it twice. Print the number of
    claims.
    """
    fate = random.Random(f"{seed} {worker}")
    claims = 0
    with Workspace(folder) as workspace:
        studies = workspace.studies
        print("ready", flush=True)
        sys.stdin.readline()
        while True:
            assignment = studies.assignments.claim(study_id, worker, "item")
            claims += 1
            if assignment is None:
                if (
                    not studies.assignments.waiting(study_id, worker)
                    and studies.assignments.progress(study_id, worker)[1] == 0
                ):
                    break
                time.sleep(0.05)
                continue
            chance, key = fate.random(), f"{claims}"
            if chance < 0.04:
                studies.assignments.release(study_id, worker)
                continue
            studies.assignments.submit(assignment.public, worker, YES, "", 1.0, key)
            if chance < 0.08:
                assert studies.assignments.submit(assignment.public, worker, YES, "", 1.0, key) == "again"
            elif chance < 0.12:
                assert studies.assignments.undo(study_id, worker) is not None
        print(claims, flush=True)


if __name__ == "__main__":
    annotator(*sys.argv[1:])
