"""A process that votes until it is killed: `python -m tests.support.voting_process WORKSPACE STUDY WORKER...`, a thread
a worker.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time

from storage.studies.studies import Studies
from storage.workspace import Workspace


def annotator(studies: Studies, study_id: str, worker: str, lock: threading.Lock) -> None:
    """Vote without end; a line for each thing that was acknowledged."""
    number = 0
    while True:
        assignment = studies.assignments.claim(study_id, worker, "item")
        if assignment is None:
            time.sleep(0.02)
            continue
        number += 1
        answer = random.choice(("yes", "no"))
        studies.assignments.submit(assignment.public, worker, {"valid": answer}, "", 1.0, f"{os.getpid()}-{number}")
        with lock:
            print("saved", assignment.public, answer, flush=True)
        if number % 10 == 0:
            back = studies.assignments.undo(study_id, worker)
            if back is not None:
                with lock:
                    print("undone", back.public, "-", flush=True)
        # A look at the next image: of processes that write without a gap, SQLite lets one wait until it gives up.
        time.sleep(random.random() * 0.02)


def victim(folder: str, study_id: str, *workers: str) -> None:
    lock = threading.Lock()
    with Workspace(folder) as workspace:
        threads = [
            threading.Thread(target=annotator, args=(workspace.studies, study_id, worker, lock)) for worker in workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    victim(*sys.argv[1:])
