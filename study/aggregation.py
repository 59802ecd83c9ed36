"""One answer from several votes: the majority, and Dawid and Skene's model as a second opinion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_FLOOR = 1e-10
"""Minimum probability. None is zero, so that one vote cannot outweigh everything else."""


@dataclass(frozen=True)
class DawidSkene:
    """Estimates of Dawid and Skene's model. Empty, with words, if it is undefined."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """The likeliest true answer of every task. Among equally likely ones, the first in the alphabet."""
    probabilities: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Probability of each true answer by task; sums to 1."""
    words: str = ""


def majority(answers: Sequence[str]) -> str | None:
    """Return the most frequent answer; None without a vote and for a tie, which only chance could break."""
    first = Counter(answers).most_common(2)
    if not first or (len(first) == 2 and first[0][1] == first[1][1]):
        return None
    return first[0][0]


def dawid_skene(votes: Sequence[tuple[str, str, str]], rounds: int = 100, tolerance: float = 1e-5) -> DawidSkene:
    """Maximum likelihood of true answers and of every worker's error rates, from (task, worker, answer).

    EM starts with the shares of the votes of each task. M: π_j = mean over tasks of T_ij; e^w_jl = Σ_i T_ij [worker w
    says l of task i] / Σ_i,l of the same. E: T_ij proportional to π_j Π_votes e^w_jl. (Dawid and Skene 1979, Applied
    Statistics 28, equations 2.3 to 2.5.) It ends as crowd-kit 1.4's `DawidSkene()` does, so that both give the same
    answers: when Σ_votes Σ_j T_ij (log π_j + log e^w_jl) - Σ_ij T_ij log T_ij a vote grows by less than `tolerance`, or
    after `rounds`. With uninformative votes (many tasks, workers no better than chance) the answers would keep
    changing: no end is right, so it is the one that can be checked elsewhere.

    With few votes per worker the error rates are rough: a second opinion on the majority, never the result. Empty, with
    words, without votes, with one worker, or if all votes are equal.
    """
    workers = sorted({worker for _, worker, _ in votes})
    answers = sorted({answer for _, _, answer in votes})
    if not votes:
        return DawidSkene(words="undefined: no vote counts yet")
    if len(workers) < 2:
        return DawidSkene(words="undefined: with one worker there is nobody to compare with")
    if len(answers) < 2:
        return DawidSkene(words="undefined: all votes agree")
    import numpy as np

    tasks = list(dict.fromkeys(task for task, _, _ in votes))
    places = [{name: i for i, name in enumerate(names)} for names in (tasks, workers, answers)]
    at_task, at_worker, at_answer = (np.array([places[i][vote[i]] for vote in votes]) for i in range(3))
    truth = np.zeros((len(tasks), len(answers)))
    np.add.at(truth, (at_task, at_answer), 1.0)
    truth /= truth.sum(axis=1, keepdims=True)

    def maximised() -> tuple[np.ndarray, np.ndarray]:
        """Return the priors [answer] and errors [worker, given answer, true answer] that fit `truth` best."""
        counts = np.zeros((len(workers), len(answers), len(answers)))
        np.add.at(counts, (at_worker, at_answer), truth[at_task])
        # Only answers that a worker gave get the floor, as in crowd-kit: others are never divided by.
        was_given = np.zeros((len(workers), len(answers), 1), dtype=bool)
        was_given[at_worker, at_answer] = True
        counts = np.where(was_given, np.maximum(counts, _FLOOR), 0.0)
        return np.maximum(truth.mean(axis=0), _FLOOR), counts / counts.sum(axis=1, keepdims=True)

    bound, done, converged = -np.inf, 0, False
    priors, errors = maximised()
    while done < rounds and not converged:
        done += 1
        logs = np.tile(np.log(priors), (len(tasks), 1))
        np.add.at(logs, at_task, np.log(errors[at_worker, at_answer]))
        highest = logs.max(axis=1, keepdims=True)
        truth = np.exp(logs - highest)
        truth /= truth.sum(axis=1, keepdims=True)
        priors, errors = maximised()
        fit = (truth[at_task] * (np.log(priors) + np.log(errors[at_worker, at_answer]))).sum()
        clipped = np.maximum(truth, _FLOOR)
        reached = float(fit - (clipped * np.log(clipped)).sum()) / len(votes)
        converged, bound = reached - bound < tolerance, reached
    best = truth.argmax(axis=1)
    return DawidSkene(
        {task: answers[int(best[i])] for i, task in enumerate(tasks)},
        {task: dict(zip(answers, map(float, truth[i]), strict=True)) for i, task in enumerate(tasks)},
        f"settled after {done} rounds" if converged else f"not settled after {done} rounds: take it with care",
    )
