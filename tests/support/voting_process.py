"""A process that votes until it is killed, with a thread for each worker: `python -m tests.support.voting_process
WORKSPACE STUDY WORKER...`.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable

from core.stored_studies import VoteRefused
from storage.studies.studies import Studies
from storage.workspace import Workspace


def annotator(studies: Studies, study_id: str, worker: str, tell: Callable[[str, str, str], object]) -> None:
    """Vote until the study has all its votes. After each acknowledgement, report "saved" or "undone", the assignment
    and the answer.
    """
    number = 0
    while True:
        assignment = studies.assignments.claim(study_id, worker, "item")
        if assignment is None:
            study = studies.get(study_id)
            if study.votes == study.needed:
                return
            time.sleep(0.02)
            continue
        number += 1
        answer, key = random.choice(("yes", "no")), f"{os.getpid()}-{number}"
        try:
            studies.assignments.submit(assignment.public, worker, {"valid": answer}, "", 1.0, key)
        except VoteRefused:  # the lease expired, and others have voted on the item since
            continue
        tell("saved", assignment.public, answer)
        if number % 10 == 0:
            back = studies.assignments.undo(study_id, worker)
            if back is not None:
                tell("undone", back.public, "-")
        # Pause as if looking at the next image. If processes write without a pause, SQLite may let one wait too long.
        time.sleep(random.random() * 0.02)


def victim(folder: str, study_id: str, *workers: str) -> None:
    lock = threading.Lock()

    def tell(*words: str) -> None:
        with lock:
            print(*words, flush=True)

    with Workspace(folder) as workspace:
        threads = [
            threading.Thread(target=annotator, args=(workspace.studies, study_id, worker, tell)) for worker in workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    victim(*sys.argv[1:])
