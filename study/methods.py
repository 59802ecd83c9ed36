"""The methods paragraph: protocol, every exclusion and the results, ready to paste into a paper."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from core.figures import chosen_percent, percent
from core.studies import Question, Rules
from core.study_report import Agreement, Measure, QuestionResult, Slice, StudyReport
from core.words import count_of
from study.rule_changes import as_announced_words


def paragraph(report: StudyReport) -> str:
    """The whole as one paragraph of English sentences; a study that is not closed is called preliminary."""
    sentences = [
        *_protocol(report),
        *([] if _brought(report) else [*_people(report.study.rules), *_training(report)]),
        *_controls(report),
        *_collected(report),
        *_results(report),
        *_adjudicated(report),
    ]
    if report.study.state != "closed":
        sentences.append(f"These figures are preliminary: the study is {_state(report)}.")
    return " ".join(sentences)


def _state(report: StudyReport) -> str:
    return {"draft": "a draft", "running": "still running", "paused": "paused"}[report.study.state]


def _brought(report: StudyReport) -> bool:
    """Whether all votes came in a file: then nothing is known of how they were collected."""
    return bool(report.votes_imported) and report.votes_imported == report.votes_cast


def _protocol(report: StudyReport) -> list[str]:
    rules = report.study.rules
    asked = [question for question in rules.questions if not question.follows]
    sentences = [
        f"{count_of(report.items, 'image')} {_were(report.items)} to be judged by {count_of(rules.votes, 'worker')} "
        f"each, on {count_of(len(asked), 'question')}: {_and([_described(question) for question in asked])}.",
        *_who_they_were(report),
    ]
    follow = [question for question in rules.questions if question.follows]
    if follow:
        sentences.append(
            f"{count_of(len(follow), 'more question')} {_were(len(follow))} asked only after a certain answer: "
            f"{_and([_described(question) for question in follow])}."
        )
    scales = any(question.kind == "scale" for question in rules.questions)
    if rules.votes > 1:
        sentences.append(
            f"A question of an image counted if at least {rules.consensus} of its {rules.votes} answers were equal, "
            f"and was discarded otherwise{'; ratings are reported by their mean over all of them' if scales else ''}."
        )
    if not _brought(report):
        sentences += _shown(report)
    sentences += _manner(report)
    if rules.version >= 1 and not report.votes_imported:
        sentences.append("The rules were fixed before the first vote.")
    if report.changes:
        sentences.append("The rules were changed after the start:")
        sentences += [change.words for change in report.changes]
    return sentences


def _who_they_were(report: StudyReport) -> list[str]:
    if _brought(report):
        return []
    had = report.conditions
    if had.linked:
        sentence = (
            "Anybody who had the link could join under a made-up name without saying who they are: workers are "
            "different names, and it is not known that they are different people."
        )
        if had.panelled:
            sentence += " This was so for a time; at other times the link took only people whom a panel named."
    elif had.panelled:
        sentence = "The link of the study took only people whom a panel named, each as one worker under a made-up name."
    else:
        sentence = "Only who was given a personal code by the study lead could take part."
    pairs = [_and(names) for names in had.same_browser]
    if pairs:
        sentence += f" From one and the same browser voted {'; '.join(pairs)}."
    most = report.study.rules.most_items
    return [sentence, *([f"Nobody was given more than {count_of(most, 'image')} to judge."] if most else [])]


def _shown(report: StudyReport) -> list[str]:
    rules, had, images = report.study.rules, report.conditions, report.items
    sentences = []
    drawn = "the side was drawn at random for every assignment and recorded"
    if not had.with_source:
        without = "; none of them had one" if rules.show_source and images else ""
        sentences.append(f"The generated image was shown without its source{without}.")
    elif had.with_source == images:
        sentences.append(f"Source and generated image were shown side by side; {drawn}.")
    else:
        sentences.append(
            f"{count_of(had.with_source, 'image')} of {images:,} {_were(had.with_source)} shown side by side with "
            f"{'its' if had.with_source == 1 else 'their'} source; {drawn}. The others had no source and were shown "
            "alone."
        )
    if had.with_captions and had.with_captions == images:
        sentences.append("Both captions were shown with the changed words marked.")
    elif had.with_captions:
        sentences.append(
            f"Both captions were shown, with the changed words marked, for {count_of(had.with_captions, 'image')} of "
            f"{images:,}; the others had none."
        )
    elif rules.show_captions and images:
        sentences.append("No captions were shown, as the images had none.")
    return sentences


def _manner(report: StudyReport) -> list[str]:
    """How the votes were collected, as far as that is known: of votes from a file it is not."""
    here = (
        "no answer was pre-selected, the order of the images was random for every worker, and no worker saw the "
        "answers of others"
    )
    imported = report.votes_imported
    if not imported:
        return [f"{here[0].upper()}{here[1:]}."]
    all_of_them = _brought(report)
    came = (
        "All votes were" if all_of_them else f"{count_of(imported, 'vote')} of {report.votes_cast:,} {_were(imported)}"
    )
    sentence = f"{came} collected elsewhere and brought in from a file; how is to be reported from there."
    return [sentence] if all_of_them else [sentence, f"For the others, {here}."]


def _described(question: Question) -> str:
    if question.kind == "scale":
        ends = f", from {question.low} to {question.high}" if question.low and question.high else ""
        answers = f"1 to 5{ends}"
    elif question.kind == "text":
        answers = "free text"
    else:
        answers = ", ".join(question.answers())
    only = f"; only of images that show “{question.only_with}”" if question.only_with else ""
    return f"“{question.text.replace('{label}', '[class]')}” ({answers}{only})"


def _people(rules: Rules) -> list[str]:
    required = rules.eligibility
    approved = f"an approval rate above {chosen_percent(required.min_approval)}"
    if not required.min_finished and not required.min_approval:
        sentence = "Anybody who was invited could take part"
    elif not required.min_finished:
        sentence = f"Workers with a record needed {approved}"
    elif not required.min_approval:
        sentence = f"Workers needed at least {required.min_finished} finished assignments"
    else:
        sentence = f"Workers needed {approved} over at least {required.min_finished} finished assignments"
    if required.quiz and required.min_finished:
        sentence += (
            f"; a quiz of {count_of(required.quiz, 'item')}, of which {chosen_percent(required.quiz_pass)} had to be "
            "right, stood in for a shorter record"
        )
    return [f"{sentence}."]


def _training(report: StudyReport) -> list[str]:
    """The training, where there was one. A study of fewer training items than were asked for gives all that it has."""
    number = min(report.study.rules.training, report.study.training)
    if not number:
        return []
    return [
        f"Before all else, every worker answered {count_of(number, 'training item')} with a known answer and "
        "was told after "
        f"each whether the answer was right, what is right and why; {'its' if number == 1 else 'their'} answers count "
        "for nothing here, and no control or quiz item showed them the same pictures again."
    ]


def _controls(report: StudyReport) -> list[str]:
    policy = report.study.rules.controls
    if not policy.share and not report.controls.n:
        return ["There were no control items."]
    had = report.conditions
    shown = f" ({_count(had.controls_shown, had.shown)} of what was answered)" if had.shown else ""
    sentences = []
    if not _brought(report):
        sentences.append(
            f"{chosen_percent(policy.share)} of what a worker was shown were to be control items with a known "
            f"answer{shown}; a worker with fewer than {chosen_percent(policy.min_right)} of them right, after at least "
            f"{policy.min_seen}, was excluded by rule with all votes, and other workers were asked for replacement "
            "votes."
        )
    if report.controls.value is not None:
        sentences.append(
            f"Of all answers to control items, {_count(report.controls.count, report.controls.n)} were right."
        )
    return sentences


def _collected(report: StudyReport) -> list[str]:
    if not report.votes_cast or report.first is None or report.last is None:
        return ["No vote has been collected."]
    voted = [worker for worker in report.workers if worker.votes]
    sentences = [
        f"{_when(report.first, report.last)}, {count_of(len(voted), 'worker')} cast "
        f"{count_of(report.votes_cast, 'vote')} on these images."
    ]
    if report.exclusions:
        votes = {worker.worker: worker.votes for worker in report.workers}
        listed = [
            f"{exclusion.worker} ({'by rule' if exclusion.by == 'rule' else 'by the study lead'}: "
            f"{exclusion.reason.strip().rstrip('.') or 'no reason given'}; "
            f"{count_of(votes.get(exclusion.worker, 0), 'vote')})"
            for exclusion in report.exclusions
        ]
        sentences.append(
            f"{count_of(len(listed), 'worker')} {_were(len(listed))} excluded with "
            f"{count_of(report.votes_excluded, 'vote')}: {'; '.join(listed)}."
        )
    else:
        sentences.append("No worker was excluded.")
    unjudged = [worker for worker in report.workers if worker.counted and not worker.judged]
    if unjudged:
        sentences.append(
            f"{count_of(len(unjudged), 'worker')} with "
            f"{count_of(sum(worker.counted for worker in unjudged), 'counted vote')} "
            f"{_were(len(unjudged))} not judged, as they had seen fewer than "
            f"{count_of(report.study.rules.controls.min_seen, 'control item')}."
        )
    if report.votes_surplus:
        sentences.append(
            f"{count_of(report.votes_surplus, 'vote')} beyond the first {report.study.rules.votes} of an image "
            f"{_were(report.votes_surplus)} left out."
        )
    sentences.append(
        f"{count_of(report.votes_counted, 'vote')} {_were(report.votes_counted)} counted; {report.complete} of "
        f"{count_of(report.items, 'image')} {'has' if report.complete == 1 else 'have'} all {report.study.rules.votes}."
    )
    return sentences


def _results(report: StudyReport) -> list[str]:
    if not report.votes_counted:
        return []
    sentences = []
    telling = [result for result in report.questions if result.question.valid]
    if len(telling) > 1:
        sentences.append(
            "An image is valid if every question on validity that it was asked has a consensus on a valid answer, and "
            f"invalid if one has a consensus on another. {_rate('Of all images', report.images, report.images_before)}"
        )
    if report.as_announced is not None:
        sentences.append(as_announced_words(report.as_announced, report.first_rules))
    for result in report.questions:
        sentences.append(_result(result, len(report.questions) > 1, report.study.rules.consensus))
    if telling:
        sentences.append(
            "Intervals on shares of images are 95 % Wilson intervals with the image as the unit; the bounds take all "
            "discarded images for invalid, then for valid. They count which images were drawn, and no errors that "
            "workers share: an image that fools most of them is found valid, however many vote on it."
        )
    if report.exclusions:
        sentences.append("“Before exclusions” takes the first votes of every image, whoever cast them.")
    return sentences


def _result(result: QuestionResult, several: bool, consensus: int) -> str:
    name = f"“{result.question.id}”" if several else "Result"
    if result.question.kind == "text":
        return f"{name}: {count_of(len(result.remarks), 'answer')} in free text."
    parts = []
    if result.question.valid:
        parts.append(_rate(name, result.after, result.before))
        if result.votes.value is not None:
            parts.append(f"Valid by single votes: {result.votes.words}.")
        if result.second.dawid_skene.value is not None:
            parts.append(result.second.words)
    else:
        given = [f"{answer.share.count} on “{answer.answer}”" for answer in result.answers if answer.share.count]
        agreed = result.after.items - result.after.discarded - result.after.short - result.after.waiting
        on = f" ({', '.join(given)})" if given else ""
        if result.question.kind == "scale":  # reported by its mean, from all votes: nothing is discarded
            parts.append(f"{name}: at least {consensus} ratings equal on {count_of(agreed, 'image')}{on}.")
        else:
            parts.append(
                f"{name}: {count_of(agreed, 'image')} with a consensus{on}, {result.after.discarded} discarded "
                "without one."
            )
    if result.mean is not None and result.mean.value is not None:
        parts.append(f"The mean rating was {result.mean.words}.")
    parts.append(_agreement(result.agreement))
    return " ".join(parts)


def _rate(name: str, after: Slice, before: Slice) -> str:
    sentence = f"{name}: "
    if after.rate.value is None:
        sentence += f"the share of valid images is {after.rate.words}"
    else:
        sentence += f"valid {after.rate.words}"
    lost = []
    if after.discarded:
        lost.append(f"{count_of(after.discarded, 'image')} discarded without a consensus")
    if after.short:
        lost.append(f"{count_of(after.short, 'image')} left with too few votes")
    if after.waiting:
        lost.append(f"{count_of(after.waiting, 'image')} waiting for votes")
    sentence += f"; {_and(lost)}" if lost else "; no image discarded"
    if after.bounds.missing and after.bounds.worst is not None and after.bounds.best is not None:
        sentence += f"; bounds {percent(after.bounds.worst)} to {percent(after.bounds.best)}"
    if (before.rate.count, before.rate.n, before.discarded) != (after.rate.count, after.rate.n, after.discarded):
        sentence += f"; before exclusions {before.rate.words}, {before.discarded} discarded"
    return f"{sentence}."


def _agreement(found: Agreement) -> str:
    if found.raw.value is None:
        return f"Agreement is {found.raw.words}."
    measures = [
        f"raw agreement {_figure(found.raw)}",
        f"Krippendorff's alpha {_figure(found.alpha)}",
        f"Gwet's AC1 {_figure(found.ac1)}",
        f"Fleiss' kappa {_figure(found.fleiss)}",
    ]
    if found.ordinal is not None:
        measures.insert(2, f"ordinal alpha {_figure(found.ordinal)}")
    common = f"; {percent(found.prevalence)} of votes are “{found.frequent}”" if found.prevalence is not None else ""
    return (
        f"Agreement: {', '.join(measures)} ({count_of(found.raw.n_items, 'image')}, {found.raw.raters:.3g} "
        f"votes each on average{common})."
    )


def _adjudicated(report: StudyReport) -> list[str]:
    apart = report.images_adjudicated
    results = [result for result in report.questions if result.adjudicated is not None]
    if apart is None or not results:
        return []
    shares = [f"“{r.question.id}” {r.adjudicated.rate.words}" for r in results if r.adjudicated and r.question.valid]
    sentence = "Where the workers found no consensus, one person also decided; this is not part of the results above"
    return [f"{sentence}. With it: {_and(shares)}." if shares else f"{sentence}."]


def _figure(measure: Measure) -> str:
    return measure.words if measure.value is not None else f"undefined ({measure.words.removeprefix('undefined: ')})"


def _when(first: datetime, last: datetime) -> str:
    start, end = (f"{day.day} {day:%B %Y}" for day in (first, last))
    return f"On {start}" if start == end else f"From {start} to {end}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _count(count: int, n: int) -> str:
    return f"{count:,} of {n:,} ({percent(count / n)})"


def _and(parts: Sequence[str]) -> str:
    """A list in a sentence: "a, b and c"."""
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else "".join(parts)
