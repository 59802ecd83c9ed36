"""What a lead looks at first: how much is in, what to mind, and the four figures of a study in tiles. Pure."""

from __future__ import annotations

from study.agreement import Agreement
from study.intervals import percent
from study.report_types import Report
from ui.study.words import count, ends, figure, same_share, share, why
from ui.views.markup import Child, Html, el
from ui.views.parts import bar, notice


def progress(report: Report) -> Html:
    """How much is in, and how it came in."""
    needed = report.items * report.study.rules.votes
    words = [
        el("b", f"{report.votes_counted:,} of {needed:,} votes"),
        f" count · {report.complete:,} of {count(report.items, 'image')} complete",
    ]
    if report.votes_excluded:
        words.append(f" · {count(report.votes_excluded, 'vote')} of excluded workers left out")
    if report.votes_surplus:
        words.append(f" · {count(report.votes_surplus, 'vote')} beyond the first {report.study.rules.votes} left out")
    return el(
        "div",
        bar(report.votes_counted / needed if needed else 0.0),
        el("span", words, class_="small"),
        class_="r-progress",
        id="part-progress",
    )


def notes(report: Report) -> Html | None:
    """What a reader has to know before they trust a figure."""
    if not report.notes:
        return None
    return el("div", [notice(text) for text in report.notes], class_="notes", id="part-notes")


def tiles(report: Report) -> Html:
    """The four figures that a lead looks at first."""
    return el(
        "div",
        _validity(report),
        _discarded(report),
        _agreement_tile(report.agreement),
        _excluded(report),
        class_="r-tiles",
        id="part-tiles",
    )


def _tile(title: str, said: str, *lines: Child, name: str) -> Html:
    return el(
        "section",
        el("h2", title),
        el("p", said, class_="figure"),
        [el("p", line, class_="mut") for line in lines if line],
        class_="card figure-tile",
        id=f"tile-{name}",
    )


def _validity(report: Report) -> Html:
    rate, before, apart = report.images.rate, report.images_before, report.images_adjudicated
    if not any(result.question.valid for result in report.questions):
        return _tile("Valid images", "not asked", "no question asks whether an image is valid", name="valid")
    if rate.value is None:
        return _tile("Valid images", "no figure yet", why(rate.words), name="valid")
    lines: list[Child] = [ends(report.images)]
    if same_share(report.images, before):
        lines.append("the same before exclusions" if report.exclusions else "")
    else:
        lines.append(f"before exclusions {share(before)}, n = {before.rate.n}")
    if apart is not None:
        lines.append(f"with your adjudications {share(apart)}, n = {apart.rate.n}, not part of the result")
    return _tile("Valid images", percent(rate.value), *lines, name="valid")


def _discarded(report: Report) -> Html:
    part = report.images
    lines: list[Child] = []
    if part.bounds.missing and part.bounds.worst is not None and part.bounds.best is not None:
        lines.append(
            f"worst {percent(part.bounds.worst)}, best {percent(part.bounds.best)} if all of them were counted"
        )
    elif part.rate.n:
        lines.append("every image with all its votes has a consensus")
    if part.short:
        lines.append(f"{count(part.short, 'image')} of them with too few votes")
    if part.waiting:
        lines.append(f"{count(part.waiting, 'image')} still {'waits' if part.waiting == 1 else 'wait'} for votes")
    return _tile("No consensus", f"{part.discarded + part.short:,}", *lines, name="discarded")


def _agreement_tile(found: Agreement) -> Html:
    if found.ac1.value is None:
        return _tile("Agreement", "no figure yet", found.words, name="agreement")
    measures = [f"raw {found.raw.words}", f"alpha {figure(found.alpha.words)}"]
    if found.ordinal is not None:
        measures.append(f"ordinal alpha {figure(found.ordinal.words)}")
    reason = ""
    if found.prevalence is not None and found.alpha.value is not None and found.ac1.value - found.alpha.value > 0.1:
        reason = f"{percent(found.prevalence)} of votes are “{found.frequent}”: alpha is low by construction"
    return _tile("Agreement", f"AC1 {found.ac1.words}", " · ".join(measures), reason, name="agreement")


def _excluded(report: Report) -> Html:
    total = sum(1 for worker in report.workers if worker.votes or worker.exclusion or worker.controls.n)
    out = len(report.exclusions)
    rule = sum(exclusion.by == "rule" for exclusion in report.exclusions)
    lines: list[Child] = []
    if out:
        lines.append(f"workers · {count(report.votes_excluded, 'vote')} left out")
        if rule < out:
            lines.append(f"{rule} by the control rule, {out - rule} by a person")
    elif total:
        lines.append("workers: nobody was excluded")
    else:
        lines.append("nobody has voted yet")
    if report.controls.value is not None:
        lines.append(f"{percent(report.controls.value)} of {count(report.controls.n, 'control answer')} right")
    elif report.study.rules.controls.share:
        lines.append("no control item was answered yet")
    else:
        lines.append("this study has no control items")
    return _tile("Excluded by controls" if rule == out else "Excluded", f"{out} of {total}", *lines, name="excluded")
