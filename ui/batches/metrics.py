"""The figures of batches as Prometheus reads them (text format 0.0.4). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from services.batches.service import BatchStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HELP = {
    "dillema_batches_at_work": ("gauge", "Batches that a process works on now."),
    "dillema_batch_work": ("gauge", "Pieces of work of a batch, by pass and state."),
    "dillema_batch_worker_seconds_total": ("counter", "Seconds of workers that a pass of a batch has taken."),
    "dillema_batch_images_reviewed": ("gauge", "Images of a batch that people have accepted or rejected."),
    "dillema_batch_cost": (
        "gauge",
        "What the hours of work have cost so far, by the clock, in the currency of the plan.",
    ),
}
Sample = tuple[Mapping[str, object], float]


def metrics_text(views: Sequence[BatchStatus]) -> str:
    """All metrics of all batches; what is not known has no sample."""
    samples: Mapping[str, Sequence[Sample]] = {
        "dillema_batches_at_work": [({}, float(sum(view.state in ("running", "stopping") for view in views)))],
        "dillema_batch_work": list(_work(views)),
        "dillema_batch_worker_seconds_total": list(_seconds(views)),
        "dillema_batch_images_reviewed": list(_reviewed(views)),
        "dillema_batch_cost": [
            ({**_names(view), "currency": view.currency}, view.cost) for view in views if view.cost is not None
        ],
    }
    return "".join(_metric(name, samples[name]) for name in _HELP)


def _work(views: Sequence[BatchStatus]) -> Iterator[Sample]:
    for view in views:
        for one in view.passes:
            for state, counted in one.counts.items():
                yield {**_names(view), "pass": one.stage, "state": state}, float(counted.number)


def _seconds(views: Sequence[BatchStatus]) -> Iterator[Sample]:
    for view in views:
        for one in view.passes:
            yield {**_names(view), "pass": one.stage}, sum(counted.seconds for counted in one.counts.values())


def _reviewed(views: Sequence[BatchStatus]) -> Iterator[Sample]:
    for view in views:
        yield {**_names(view), "verdict": "accepted"}, float(view.accepted)
        yield {**_names(view), "verdict": "rejected"}, float(view.rejected)


def _names(view: BatchStatus) -> Mapping[str, object]:
    return {"batch": view.batch.id, "name": view.batch.name}


def _metric(name: str, samples: Sequence[Sample]) -> str:
    kind, said = _HELP[name]
    lines = [f"# HELP {name} {said}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {value:.10g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, object]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
