"""Compute one answer from several votes: the majority, and Dawid and Skene's model as a second opinion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_FLOOR = 1e-10
"""Minimum probability. No probability is 0, so one vote cannot outweigh all others."""


@dataclass(frozen=True)
class DawidSkene:
    """Estimates of Dawid and Skene's model. If they are undefined, they are empty and `words` says why."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Likeliest true answer of each task. Among equally likely answers, the first in the alphabet."""
    probabilities: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Probability of each possible true answer, by task. The probabilities of a task sum to 1."""
    words: str = ""


def majority(answers: Sequence[str]) -> str | None:
    """Return the most frequent answer. None without a vote, and for a tie, which only chance could break."""
    first = Counter(answers).most_common(2)
    if not first or (len(first) == 2 and first[0][1] == first[1][1]):
        return None
    return first[0][0]


def dawid_skene(votes: Sequence[tuple[str, str, str]], rounds: int = 100, tolerance: float = 1e-5) -> DawidSkene:
    """Estimate true answers and each worker's error rates by maximum likelihood, from votes (task, worker, answer).

    The method is EM (Dawid and Skene 1979, Applied Statistics 28, equations 2.3 to 2.5). T_ij is the probability that j
    is the true answer of task i, at first the share of j in the task's votes. e^w_jl is the probability that worker w
    says l if j is true. N^w_jl is the sum of T_ij over the tasks i of which w says l. Two steps take turns. Step M sets
    π_j, the frequency of answer j, to the mean of T_ij over all tasks. It sets e^w_jl to N^w_jl / Σ_l N^w_jl. Step E
    makes T_ij proportional to π_j times the product of e^w_jl over the task's votes.

    EM ends after `rounds` rounds, or earlier if a round raises B / (number of votes) by less than `tolerance`, where
    B = Σ_votes Σ_j T_ij (log π_j + log e^w_jl) - Σ_ij T_ij log T_ij. `DawidSkene()` of crowd-kit 1.4 ends in the same
    way and gives the same answers. If votes tell little (many tasks, workers no better than chance), the answers depend
    on when EM ends. With few votes per worker the error rates are rough. So use the model as a second opinion on the
    majority, never as the result. Without votes, with only one worker or with only one answer, the estimates are empty
    and `words` says why.
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
        """Return the priors [answer] and errors [worker, given answer, true answer] that maximise the likelihood."""
        counts = np.zeros((len(workers), len(answers), len(answers)))
        np.add.at(counts, (at_worker, at_answer), truth[at_task])
        # As in crowd-kit, only answers that a worker gave get the minimum. The others are never used.
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
