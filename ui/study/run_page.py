"""The page on which a study that has started is run: progress, invitations, pause, extend, close, votes, rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from core.panel import Panel, written_questions
from core.studies import Question, Rules, Study, Worker
from core.study_report import further_people_words
from core.words import count_of
from services.studies.life_cycle import NewCodes
from services.studies.templates import task_of
from ui.explore.parts import acts, bar, button, facts, head_table, more_line, muted, notice, pill, small, value_row
from ui.frame import page
from ui.markup import Child, Html, el
from ui.study.fields import card, field, number_input, text_input, wrong
from ui.study.frame import study_head
from ui.study.items_form import Recipes, draw_form, files_form
from ui.study.questions_form import KINDS
from ui.study.setup import dialogs
from ui.study.words import text_of_question, when

SHOWN = 60
"""Workers of earlier studies that are listed."""
SCRIPT = "study-votes.js"


def run_page(
    study: Study,
    here: int,
    others: Sequence[Worker],
    history: Sequence[tuple[Rules, datetime]],
    models: Sequence[str],
    recipes: Recipes,
    signed_in: bool,
    panel: Panel,
    further_people: int,
) -> str:
    """The whole document. `here` counts who is in the study, `others` are workers of other studies, the best first;
    at least `further_people` more have to join before every image can get all its votes."""
    goes_on = study.state in ("running", "paused")
    content = el(
        "div",
        el(
            "div",
            progress_part(study, further_people),
            _invite(study, here, others, panel)
            if goes_on
            else card(None, "Invitations", muted("The study is closed: nobody can be invited any more.")),
            _panel(panel) if goes_on else None,
            class_="column",
        ),
        el(
            "div",
            _extend(study, models, recipes) if goes_on else None,
            votes_card() if goes_on else None,
            _rules(history, study),
            class_="column",
        ),
        class_="run-page",
        id="run",
        data_study=study.id,
        data_watch=study.state == "running",
    )
    return page(
        f"{study.name}: invite and run",
        study_head(study, "run", *actions(study, away=True)),
        content,
        dialogs(),
        signed_in=signed_in,
        scripts=("study-acts.js", SCRIPT),
    )


def actions(study: Study, away: bool = False) -> tuple[Html, ...]:
    """The buttons that change the state of a study; with `away` also the one that archives it."""
    pause = button("Pause …", data_act="pause-study", id="pause") if study.state == "running" else None
    resume = button("Go on …", look="p", data_act="resume-study", id="resume") if study.state == "paused" else None
    close = button("Close …", data_act="close-study", id="close") if study.state in ("running", "paused") else None
    archive = (
        button("Take out of the archive …", look="s q", data_act="unarchive-study", id="unarchive")
        if study.archived
        else button("Archive …", look="s q", data_act="archive-study", id="archive")
    )
    return tuple(
        made
        for made in (pause, None if study.archived else resume, close, archive if away else None)
        if made is not None
    )


def progress_part(study: Study, further_people: int) -> Html:
    """How many votes are in, and how many more people they take."""
    share = study.votes / study.needed if study.needed else 0.0
    missing = max(0, study.needed - study.votes)
    none = "No vote counts yet." if study.workers else "Waiting for the first vote."
    now = {
        "running": "Votes come in." if study.votes else none,
        "paused": "Paused: nobody gets an image, no vote is taken.",
        "closed": "Closed: no vote is taken any more.",
    }.get(study.state, "")
    if study.state == "running" and not missing:
        now = "Every image has all its votes. Close the study, or ask for more."
    return card(
        None,
        "Progress",
        el(
            "div",
            bar(share, "votes given"),
            el("b", f"{100 * share:.0f} %" if share < 1 else "100 %"),
            class_="progress-line",
        ),
        muted(
            f"{study.votes:,} of {study.needed:,} votes that count, {missing:,} missing; "
            f"{count_of(study.workers, 'annotator')}. {now}"
        ),
        notice(further_people_words(further_people)) if further_people and study.state != "closed" else None,
        id="part-progress",
    )


def _invite(study: Study, here: int, others: Sequence[Worker], panel: Panel) -> Html:
    """The open link, and personal codes."""
    # As Prolific fills it in; other sites have other signs for it.
    named = f"?{panel.parameter}={{{{%{panel.parameter}%}}}}" if panel.parameter else ""
    if study.link:
        link: Child = el(
            "div",
            _link(f"{named}#join={study.link}", id="link"),
            acts(
                button("Copy the link", look="p s", data_copy_from="#link", id="copy-link"),
                button("End the invitation …", look="s", data_act="end-invitation", id="link-off"),
            ),
            class_="stack",
        )
    else:
        link = acts(button("Open the invitation …", look="s", data_act="open-invitation", id="link-on"))
    codes = el(
        "div",
        field(
            "codes",
            "Number of people",
            number_input("codes", 5, data_no_save=True),
            {},
        ),
        button("Make the codes …", look="s", data_act="make-codes", id="make-codes"),
        class_="line-end",
    )
    return card(
        None,
        "Invite annotators",
        el("h3", "An open link", pill("on", "ok") if study.link else pill("off")),
        small(
            f"It takes those whom {panel.parameter} names, each as one worker under a made-up name."
            if panel.parameter
            else "Whoever has it can take part under a made-up name."
        ),
        link,
        el("h3", "Personal codes"),
        small("Each code is one worker; nobody can vote twice with it."),
        codes,
        el("div", id="part-codes"),
        _others(others),
        small(f"{here:,} can take part now. Who has lost a code gets another one on the page Workers.")
        if here
        else None,
        el(
            "p",
            "The address must be one that they can reach: see the notes on serving.",
            class_="wrong-address notice",
            id="here-only",
            hidden=True,
        ),
    )


def _link(end: str, **attributes: str) -> Html:
    """An address below the annotators' page; a script puts the one in front by which this browser reaches it."""
    return el("output", class_="link-text", data_annotate=end, hidden=True, **attributes)


def _others(workers: Sequence[Worker]) -> Html | None:
    """Workers of other studies, to be ticked."""
    if not workers:
        return None
    chips = [
        el(
            "label",
            el("input", type="checkbox", name="known-worker", value=worker.id, data_no_save=True),
            worker.id,
            el("small", _record(worker)),
            class_="chip pick",
        )
        for worker in workers[:SHOWN]
    ]
    more = f"and {len(workers) - SHOWN:,} more with less of a record" if len(workers) > SHOWN else ""
    return el(
        "div",
        el("h3", "Workers of your other studies"),
        el("div", chips, el("span", more, class_="mut small") if more else None, class_="chips"),
        wrong("workers", {}),
        acts(button("Add those who are ticked …", look="s", data_act="enrol-workers", id="enrol")),
        class_="stack",
    )


def _record(worker: Worker) -> str:
    if worker.approval is None:
        return "no record yet"
    return f"{100 * worker.approval:.4g} % of {worker.finished:,} approved"


def codes_part(made: NewCodes) -> Html:
    """New codes, shown once; prints as a list that can be cut up."""
    lines = [value_row(el("b", new.worker), el("code", new.code), _link(f"#code={new.code}")) for new in made.codes]
    return el(
        "div",
        el("p", "These codes are shown this once: print or copy them now.", class_="notice"),
        el("h3", made.study.name, class_="only-print"),
        head_table(("worker", "code", "link"), lines, class_="codes", id="codes-table"),
        acts(
            button("Print", look="s", data_print=True, id="print-codes"),
            button("Copy the list", look="s", data_copy_table="#codes-table", id="copy-codes"),
        ),
        id="part-codes",
        class_="stack made-codes",
    )


def _panel(panel: Panel) -> Html:
    """How people of a panel are known, sent back, and asked of themselves."""

    def line(name: str, title: str, value: str, example: str, hint: str) -> Html:
        return field(name, title, text_input(name, value, placeholder=example, data_no_save=True), {}, hint)

    asked = el(
        "textarea",
        written_questions(panel),
        name="questions",
        id="f-questions",
        rows=3,
        placeholder="How old are you? | under 30 | 30 to 60 | over 60",
        data_no_save=True,
    )
    questions = "One a line, its answers after it, parted by |. Asked once, never required, kept apart from the votes."
    return card(
        None,
        "People of a panel",
        line(
            "parameter",
            "Parameter that names the participant",
            panel.parameter,
            "PROLIFIC_PID",
            "Then the link takes only whom it names, and each id is one worker. It is written as Prolific wants it.",
        ),
        line("code", "Completion code", panel.code, "C1A2B3C4", "Shown to who has judged all their images."),
        line(
            "address",
            "Address to go back to",
            panel.address,
            "https://app.prolific.com/submissions/complete?cc=C1A2B3C4",
            "{participant} in it becomes the id.",
        ),
        field("questions", "Questions about the person", asked, {}, questions),
        acts(button("Save …", look="s", data_act="set-panel", id="set-panel")),
        lead="For Prolific and sites like it. Who did how much is in the export “Payment”.",
    )


def _extend(study: Study, models: Sequence[str], recipes: Recipes) -> Html:
    rules = study.rules
    votes = el(
        "div",
        field("more.votes", "Votes an image", number_input("more.votes", rules.votes, data_no_save=True), {}),
        field("more.consensus", "Consensus", number_input("more.consensus", rules.consensus, data_no_save=True), {}),
        button("Ask for more …", look="s", data_act="ask-for-votes", id="more-votes"),
        class_="line-end fields-line",
    )
    return card(
        None,
        "Extend",
        el("h3", "More votes"),
        votes,
        el("h3", "More images"),
        draw_form(models, recipes, task_of(rules.template), "Add them …"),
        files_form(study),
        lead="The study goes on with more; what was judged stays.",
    )


def _rules(history: Sequence[tuple[Rules, datetime]], study: Study) -> Html:
    """The frozen rules as they are, and their versions."""
    rules = study.rules
    wanted, policy = rules.eligibility, rules.controls
    known = [
        ("Votes", f"{rules.votes} of different workers an image, consensus {rules.consensus}"),
        ("A person judges", f"{rules.most_items:,} images at most" if rules.most_items else "as many as there are"),
        (
            "Shown",
            ", ".join(
                [
                    "the image",
                    *(["the source image, side drawn"] if rules.show_source else []),
                    *(["both captions"] if rules.show_captions else []),
                ]
            ),
        ),
        (
            "Images",
            f"{study.items:,}, {study.controls:,} control items, {study.quiz:,} quiz items"
            + (f", {study.training:,} training items" if study.training else ""),
        ),
        (
            "Control items",
            f"{100 * policy.share:.4g} % of what is shown; from {policy.min_seen} on, below "
            f"{100 * policy.min_right:.4g} % right excludes"
            if policy.share
            else "none",
        ),
        (
            "Who may vote",
            f"approval above {100 * wanted.min_approval:.4g} % of at least {wanted.min_finished} decided assignments"
            if wanted.min_finished or wanted.min_approval
            else "everybody",
        ),
        (
            "Quiz",
            f"{wanted.quiz} questions, {100 * wanted.quiz_pass:.4g} % right, in place of a record"
            if wanted.quiz
            else "none",
        ),
        (
            "Training",
            f"{count_of(rules.training, 'image')} with feedback, of everybody, before all else"
            if rules.training
            else "none",
        ),
        ("An image is held", f"{rules.lease_minutes:g} minutes"),
        ("Seed", str(rules.seed)),
    ]
    versions = [
        el("li", f"version {held.version}, {when(moment)}: {held.votes} votes, consensus {held.consensus}")
        for held, moment in history
    ]
    return card(
        None,
        f"Rules, version {rules.version}",
        el("ol", [_question(question) for question in rules.questions], class_="asked"),
        facts(known),
        more_line(
            "Instructions and consent",
            el("pre", rules.instructions or "(none)"),
            el("pre", rules.consent or "(none)"),
            data_keep="texts",
        ),
        el("h3", "Versions") if len(versions) > 1 else None,
        el("ul", versions, class_="mut small versions"),
        acts(
            button("New draft with these rules", look="s", data_like=study.id, id="again"),
            button("Copy with its images", look="s", data_like=study.id, data_images=True, id="copy-study"),
        ),
    )


def _question(question: Question) -> Html:
    summary = [KINDS[question.kind]]
    if question.valid:
        summary.append(f"valid: {', '.join(question.valid)}")
    if question.only_with:
        summary.append(f"only with {question.only_with}")
    if question.follows:
        summary.append(f"after {question.follows} = {question.follows_answer}")
    return el("li", text_of_question(question), " ", el("small", " · ".join(summary), class_="mut"))


def votes_card(heading: str = "Bring votes from Mechanical Turk") -> Html:
    """The part of a running study's page that takes a result file."""
    return card(
        None,
        heading,
        small(
            "A result file (CSV) as Mechanical Turk gives it, or one that a study here exported. Its images have to be "
            "images of this study, under their item names or the names of the files that they came from. Workers keep "
            "their names, with “imported-” before them."
        ),
        el("input", type="file", id="votes-file", accept=".csv", aria_label="Result file of Mechanical Turk"),
        el("p", "", id="votes-note", role="status"),
        el("p", "", class_="wrong", id="votes-problem", role="alert"),
        el("div", button("Bring them in", look="p s", id="votes-go"), class_="field", id="votes-ready", hidden=True),
        id="part-votes",
    )
