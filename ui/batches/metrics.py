"""The figures of batches in Prometheus text format 0.0.4. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.batches.service import BatchStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, object], float]


def metrics_text(views: Sequence[BatchStatus]) -> str:
    """Return all metrics of all batches. Unknown values have no sample."""
    passes = [(view, one) for view in views for one in view.passes]
    at_work = float(sum(view.state in ("running", "stopping") for view in views))
    work: list[Sample] = [
        ({**_names(view), "pass": one.stage, "state": state}, counted.number)
        for view, one in passes
        for state, counted in one.counts.items()
    ]
    seconds: list[Sample] = [
        ({**_names(view), "pass": one.stage}, sum(counted.seconds for counted in one.counts.values()))
        for view, one in passes
    ]
    reviewed: list[Sample] = [
        ({**_names(view), "verdict": verdict}, number)
        for view in views
        for verdict, number in (("accepted", view.accepted), ("rejected", view.rejected))
    ]
    priced = [({**_names(view), "currency": view.currency}, view.cost) for view in views if view.cost is not None]
    costs = "What the hours of work have cost so far, by the clock, in the currency of the plan."
    return (
        _metric("batches_at_work", "gauge", "Batches that a process works on now.", [({}, at_work)])
        + _metric("batch_work", "gauge", "Pieces of work of a batch, by pass and state.", work)
        + _metric(
            "batch_worker_seconds_total", "counter", "Seconds of workers that a pass of a batch has taken.", seconds
        )
        + _metric(
            "batch_images_reviewed", "gauge", "Images of a batch that people have accepted or rejected.", reviewed
        )
        + _metric("batch_cost", "gauge", costs, priced)
    )


def _names(view: BatchStatus) -> Mapping[str, object]:
    return {"batch": view.batch.id, "name": view.batch.name}


def _metric(name: str, kind: str, description: str, samples: Sequence[Sample]) -> str:
    name = f"dillema_{name}"
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {value:.10g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, object]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
