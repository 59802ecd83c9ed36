"""Judgements of generated images by a vision-language model. Only the latest judgement of an image counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlite_utils import Database as Db

from core.image_filter import ImageFilter
from core.judgements import IN_EVERY_JUDGEMENT, JudgeCost, Judgement, JudgeReply, ToJudge
from core.types import to_plain
from storage.curation import entry_sets
from storage.curation.entry_sets import Bits
from storage.curation.selection import Selection
from storage.engine.database import Repository, read, write
from storage.engine.queries import first_column, first_value, insert_row, records
from storage.engine.rows import now, pack, record_of, unpack_value

_TO_JUDGE = """
SELECT catalogue.id AS entry, catalogue.image, catalogue.source, test_cases.task, test_cases.seed,
    json_extract(test_cases.counterfactual, '$.edits') AS edits
FROM json_each(?) AS wanted JOIN catalogue ON catalogue.id = wanted.value
    JOIN test_cases ON test_cases.id = catalogue.test_case
WHERE catalogue.source IS NOT NULL ORDER BY wanted.key
"""


def _open(db: Db, image_filter: ImageFilter) -> Bits:
    selection = Selection(db, image_filter)
    return selection.whole & ~selection.having(f"check:{IN_EVERY_JUDGEMENT}") & ~selection.having("imported")


class Judgements(Repository):
    @write
    def save(self, db: Db, judge: str, questions: str, judgements: Mapping[int, Judgement]) -> None:
        """Save judgements by catalogue number. `questions` is a hash of the texts sent to the model `judge`. An earlier
        judgement of an image no longer counts, but stays.
        """
        for entry, one in judgements.items():
            row = {"entry": entry, "judge": judge, "questions": questions, "seconds": one.seconds, "tokens": one.tokens}
            checks = pack([to_plain(check) for check in one.checks])
            replies = pack({name: to_plain(reply) for name, reply in one.replies.items()})
            insert_row(db, "judgements", {**row, "checks": checks, "replies": replies, "created": now()})

    @read
    def count_open(self, db: Db, image_filter: ImageFilter) -> int:
        """Count the generated images that match a filter and have no judgement by a model."""
        return entry_sets.size(_open(db, image_filter))

    @read
    def entries(self, db: Db, image_filter: ImageFilter, again: bool = False) -> list[int]:
        """Return the catalogue numbers of generated images that match a filter and have no judgement, newest first.
        With `again`, include the images that were judged in this workspace.
        """
        bits = _open(db, image_filter)
        if again:
            selection, judged = Selection(db, image_filter), first_column(db, "SELECT DISTINCT entry FROM judgements")
            bits = bits | (selection.whole & entry_sets.of_entries(judged, selection.chunks))
        return entry_sets.entries_of(bits).tolist()[::-1]

    @read
    def to_judge(self, db: Db, entries: Sequence[int]) -> list[ToJudge]:
        """Return the facts that a judging model needs about these images, in order. Skip images without a source."""
        return list(records(db, ToJudge, _TO_JUDGE, [pack(list(entries))]))

    @read
    def replies(self, db: Db, entry: int) -> dict[str, JudgeReply]:
        """Return the questions and replies of an image's latest judgement, by check."""
        replies = first_value(db, "SELECT replies FROM latest_judgements WHERE entry = ?", [entry])
        return unpack_value(dict[str, JudgeReply], replies or "{}")

    @read
    def cost(self, db: Db, judge: str) -> JudgeCost:
        """Return the mean cost of an image with this judging model."""
        columns = "count(*) AS images, avg(seconds) AS seconds, avg(tokens) AS tokens"
        return record_of(JudgeCost, next(db.query(f"SELECT {columns} FROM judgements WHERE judge = ?", [judge])))
