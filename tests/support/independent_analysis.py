"""Analyse a study without the studio's code: read the exported answers.csv, and print figures as JSON.

`python tests/support/independent_analysis.py answers.csv --votes 5 --consensus 4 --min-seen 8 --min-right 0.75`
analyses a study of one yes-no question whose "yes" means valid. The script applies the rules for control items, counted
votes and consensus itself. The statistics come from scipy, krippendorff and crowd-kit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from typing import Any

import krippendorff
import numpy as np
import pandas as pd
from crowdkit.aggregation import DawidSkene
from scipy.stats import binomtest


def excluded_workers(answers: pd.DataFrame, min_seen: int, min_right: float) -> list[str]:
    """Return the workers who had, at any time, at least `min_seen` control items and a smaller share right than
    `min_right`.
    """
    out = []
    for worker, rows in answers[answers["kind"] == "control"].groupby("worker"):
        right = (rows.sort_values("submitted")["answer"] == rows.sort_values("submitted")["expected"]).cumsum()
        seen = np.arange(1, len(rows) + 1)
        if ((seen >= min_seen) & (right.to_numpy() < min_right * seen)).any():
            out.append(str(worker))
    return sorted(out)


def validity(votes: pd.DataFrame, needed: int, consensus: int) -> dict[str, Any]:
    """Return the number and share of valid images among those with a consensus, with Wilson's interval. Also return
    the worst and best share that the images without a consensus allow.
    """
    valid = invalid = discarded = waiting = 0
    for _, rows in votes.groupby("item"):
        yes, no = (rows["answer"] == "yes").sum(), (rows["answer"] == "no").sum()
        if len(rows) < needed:
            waiting += 1
        elif yes >= consensus:
            valid += 1
        elif no >= consensus:
            invalid += 1
        else:
            discarded += 1
    n = valid + invalid
    interval = binomtest(valid, n).proportion_ci(method="wilson") if n else None
    return {
        "valid": valid,
        "n": n,
        "rate": valid / n if n else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "discarded": discarded,
        "waiting": waiting,
        "worst": valid / (n + discarded) if n else None,
        "best": (valid + discarded) / (n + discarded) if n else None,
    }


def agreement(votes: pd.DataFrame) -> dict[str, float]:
    """Return raw agreement, Krippendorff's alpha and Gwet's AC1, computed from tables of images and workers."""
    table = votes.assign(code=(votes["answer"] == "yes").astype(float)).pivot(
        index="worker", columns="item", values="code"
    )
    pairs = []
    for item in table.columns:
        codes = table[item].dropna().to_numpy()
        if len(codes) > 1:
            pairs.append(np.mean([a == b for a, b in itertools.combinations(codes, 2)]))
    raw = float(np.mean(pairs))
    share = float(table.mean(axis=0).mean())
    chance = 2 * share * (1 - share)
    return {
        "raw": raw,
        "alpha": float(krippendorff.alpha(reliability_data=table.to_numpy(), level_of_measurement="nominal")),
        "ac1": (raw - chance) / (1 - chance),
    }


def analysed(answers: pd.DataFrame, needed: int, consensus: int, min_seen: int, min_right: float) -> dict[str, Any]:
    """Return all figures."""
    answers = answers.reset_index(names="order")
    out = excluded_workers(answers, min_seen, min_right)
    on_items = answers[answers["kind"] == "item"].sort_values("order")
    before = on_items.groupby("item").head(needed)
    kept = on_items[~on_items["worker"].isin(out)].groupby("item").head(needed)
    controls = answers[answers["kind"] == "control"]
    complete = kept.groupby("item").filter(lambda rows: len(rows) == needed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DawidSkene().fit_predict(
            complete[["item", "worker", "answer"]].set_axis(["task", "worker", "label"], axis=1)
        )
    return {
        "excluded": out,
        "votes": {"cast": len(on_items), "excluded": int(on_items["worker"].isin(out).sum()), "counted": len(kept)},
        "controls": {"right": int((controls["answer"] == controls["expected"]).sum()), "n": len(controls)},
        "after": validity(kept, needed, consensus),
        "before": validity(before, needed, consensus),
        "by_group": {str(name): validity(rows, needed, consensus) for name, rows in kept.groupby("group")},
        "by_model_right": {
            str(name).lower(): validity(rows, needed, consensus) for name, rows in kept.groupby("model_right")
        },
        "agreement": agreement(kept),
        "dawid_skene_yes": int((model == "yes").sum()),
        "kept": sorted(f"{row.item},{row.worker},{row.answer}" for row in kept.itertuples()),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("answers")
    parser.add_argument("--votes", type=int, default=5)
    parser.add_argument("--consensus", type=int, default=4)
    parser.add_argument("--min-seen", type=int, default=3)
    parser.add_argument("--min-right", type=float, default=0.75)
    options = parser.parse_args()
    answers = pd.read_csv(options.answers)
    print(json.dumps(analysed(answers, options.votes, options.consensus, options.min_seen, options.min_right)))


if __name__ == "__main__":
    main()
