"""Choice of images of a data set and of captions by a plan, and the estimate of the cost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from pathlib import Path

import pytest

from core.batches import Item, Pass
from core.types import EDIT_TYPES, CounterfactualCaption, CounterfactualCaptions, Edit, EditType
from services.batches.caption_selection import new_words, select_captions
from services.batches.estimate import Estimate, images_at_most
from services.batches.item_selection import ItemSelection
from services.batches.plan_file import BatchPlan, plan_from_text, settings_of

BARE = """
[data]
root = "images"
layout = "imagefolder"
[task]
kind = "classification"
[make]
profile = "demo"
settings = { "counterfactuals.captions" = 32 }
"""


def plan_of(text: str) -> BatchPlan:
    return plan_from_text(BARE + text, Path("small.toml"))


WEATHERS = ("rainy", "sunny", "foggy")
PICTURES = [
    Item(f"{label}/{number}.png", label, attributes={"weather": WEATHERS[number % 3]})
    for label, many in (("bird", 40), ("boat", 40), ("car", 3))
    for number in range(many)
]


def keys_of(text: str, items: list[Item] = PICTURES) -> list[str]:
    return [item.key for item in ItemSelection(items, plan_of("[choose]\n" + text).choose)]


def report_of(text: str, items: list[Item] = PICTURES) -> tuple[str, ...]:
    found = ItemSelection(items, plan_of("[choose]\n" + text).choose)
    assert all(item in items for item in found)
    return found.report


def test_without_a_choice_all_items_are_taken_as_they_come() -> None:
    assert keys_of("") == [item.key for item in PICTURES]
    assert report_of("") == ()


@pytest.mark.parametrize("text", ["a_class = 5", "number = 20", "share = 0.4", "a_class = 10\nnumber = 12"])
def test_the_same_items_are_drawn_in_whatever_order_they_come(text: str) -> None:
    drawn = keys_of(text + "\nseed = 3")
    for fate in range(5):
        shuffled = random.Random(fate).sample(PICTURES, len(PICTURES))
        again = keys_of(text + "\nseed = 3", shuffled)
        assert set(again) == set(drawn) and len(again) == len(drawn)
        assert again == [item.key for item in shuffled if item.key in set(drawn)], "in the order in which they come"
    assert set(keys_of(text + "\nseed = 4")) != set(drawn), "another seed draws others"


def test_so_many_of_each_class_are_drawn_whatever_else_is_in_the_set() -> None:
    drawn = keys_of("a_class = 5")
    assert Counter(key.partition("/")[0] for key in drawn) == {"bird": 5, "boat": 5, "car": 3}
    birds = [key for key in drawn if key.startswith("bird")]
    assert birds == keys_of("a_class = 5", [item for item in PICTURES if item.label == "bird"])
    assert set(birds) < set(keys_of('a_class = 9\nclasses = ["bird"]')), "more of them are the same ones and others"


@pytest.mark.slow
def test_every_item_has_the_same_chance() -> None:
    drawn = Counter(key for seed in range(300) for key in keys_of(f"number = 10\nseed = {seed}"))
    expected = 300 * 10 / len(PICTURES)  # 36, with a standard deviation of 5.6
    assert set(drawn) == {item.key for item in PICTURES}
    assert max(abs(number - expected) for number in drawn.values()) < 5 * 5.6


def test_a_share_takes_each_item_by_itself() -> None:
    many = [Item(f"{number}") for number in range(20_000)]
    taken = keys_of("share = 0.3", many)
    assert abs(len(taken) - 6_000) < 5 * 65, "the standard deviation is 65"
    assert keys_of("share = 0.3", many[:500]) == [key for key in taken if int(key) < 500]
    assert keys_of("share = 1", many) == [item.key for item in many]


def test_classes_attributes_and_keys_all_have_to_fit() -> None:
    text = (
        'classes = ["bird", "car"]\nattributes = { weather = ["rainy", "foggy"] }\nkeys = ["bird/0.png", "bird/1.png"]'
    )
    assert keys_of(text) == ["bird/0.png"]
    assert keys_of('attributes = { city = ["ulm"] }') == []


def test_a_number_of_all_is_of_those_that_were_drawn_of_each_class() -> None:
    drawn = keys_of("a_class = 2\nnumber = 4")
    assert len(drawn) == 4 and set(drawn) < set(keys_of("a_class = 2"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('classes = ["brid", "bird"]', "Without an item: 1 class of choose.classes: brid; there are bird, car, boat."),
        ("a_class = 5", "choose.a_class is 5, and 1 class has fewer items that fit the plan: car (3)."),
        (
            'a_class = 2\nclasses = ["car", "bird"]\nattributes = { weather = ["foggy"] }',
            "choose.a_class is 2, and 1 class has fewer items that fit the plan: car (1).",
        ),
        (
            'keys = ["bird/0.png", "bird/99.png", "x"]',
            "Not in the data set: 2 keys of choose.keys: bird/99.png, x.",
        ),
        ("number = 100", "choose.number is 100, and 83 items fit the plan."),
        (
            'attributes = { weather = ["rainy", "snowy"] }',
            "No item has choose.attributes.weather = snowy; there are sunny, rainy, foggy.",
        ),
    ],
)
def test_what_was_not_there_is_told(text: str, said: str) -> None:
    assert report_of(text) == (said,)


def test_it_is_told_that_nothing_fits_and_why() -> None:
    first, *_, last = report_of('classes = ["a", "b", "c", "d", "e", "f", "g"]\na_class = 1')
    assert first.startswith("Without an item: 7 classes of choose.classes: a, b, c, d, e and 2 more; there are ")
    assert last == "No item is taken: of 83 items in the data set none fits the plan."
    unlabelled = [Item("1"), Item("2")]
    first, last = report_of("a_class = 1", unlabelled)
    assert first == "Left out, since choose.a_class needs a class and they have no label: 2 items."
    assert last == "No item is taken: of 2 items in the data set none fits the plan."


# Captions

VOCABULARY: dict[EditType, tuple[str, ...]] = {
    "weather": ("rainy", "snowy", "foggy", "stormy"),
    "time of day": ("at night", "at dusk", "at dawn"),
    "attribute": ("red car", "blue car", "green car"),
}


def caption(*edits: tuple[EditType, str], used: bool = True) -> CounterfactualCaption:
    return CounterfactualCaption("a text", tuple(Edit("gray car", new, kind) for kind, new in edits), used)


Sources = dict[str, CounterfactualCaptions]


def chance_sources(fate: random.Random, most: int, captions: int, edits: int = 1) -> Sources:
    """Return random sources with different numbers of captions. Some edit types are rare."""

    def one() -> CounterfactualCaption:
        kinds = fate.sample(sorted(VOCABULARY), fate.randint(1, edits))
        return caption(*((kind, fate.choice(VOCABULARY[kind])) for kind in kinds), used=fate.random() < 0.9)

    return {
        f"source {number}": CounterfactualCaptions(tuple(one() for _ in range(fate.randint(0, captions))))
        for number in range(fate.randint(1, most))
    }


def drawn_of(sources: Sources, chosen: Mapping[str, tuple[int, ...]]) -> list[CounterfactualCaption]:
    return [sources[key].items[place] for key, places in chosen.items() for place in places]


def counted_types(captions: list[CounterfactualCaption]) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for one in captions:
        for edit in one.edits:
            counts[edit.edit_type] += 1 / len(one.edits)  # type: ignore[assignment]
    return dict(counts)


def counted_words(captions: list[CounterfactualCaption]) -> Counter[str]:
    return Counter(word for one in captions for word in {word for edit in one.edits for word in new_words(edit)})


def distance(captions: list[CounterfactualCaption], wished: Mapping[str, float]) -> float:
    """Return the distance between the captions of each type and the requested shares: the sum of squared
    differences.
    """
    counts = counted_types(captions)
    return sum((counts.get(kind, 0) - wished.get(kind, 0) * len(captions)) ** 2 for kind in EDIT_TYPES)


def test_words_are_those_that_an_edit_brings_in() -> None:
    assert new_words(Edit("a gray car", "a red car", "attribute")) == {"red"}
    assert new_words(Edit("sunny", "Rainy and foggy", "weather")) == {"rainy", "foggy"}
    assert new_words(Edit("red car", "car red", "attribute")) == {"car red"}, "no word is new: it counts as a whole"


def test_without_wishes_the_first_captions_of_each_source_are_drawn() -> None:
    sources = {"a": CounterfactualCaptions(tuple(caption(("weather", "rainy")) for _ in range(4)))}
    sources["b"] = CounterfactualCaptions((caption(("weather", "rainy"), used=False), caption(("weather", "foggy"))))
    sources["c"] = CounterfactualCaptions(())
    shared = select_captions(sources.items(), plan_of("[edits]\ncaptions_a_source = 2"))
    assert shared.chosen == {"a": (0, 1), "b": (1,)}
    report = shared.report
    assert (report.sources, report.sources_without, report.offered, report.captions) == (3, 1, 6, 3)
    assert report.left_out == {
        "not ticked": 1,
        "another edit type": 0,
        "enough of this source": 2,
        "a word too often": 0,
    }
    assert select_captions(sources.items(), plan_of("")).chosen == {"a": (0, 1, 2, 3), "b": (1,)}
    assert report.sentences()[0] == "The plan chooses 3 of 6 captions, from 3 source images."


def test_without_wishes_types_are_drawn_as_evenly_as_sources_offer_them() -> None:
    """A recipe may write all captions of one type before those of the next."""
    kinds: tuple[EditType, ...] = ("attribute", "background", "weather", "time of day")
    written = CounterfactualCaptions(tuple(caption((kind, "new")) for kind in kinds for _ in range(2)))
    sources = {f"{number}": written for number in range(10)}
    report = select_captions(sources.items(), plan_of("[edits]\ncaptions_a_source = 2")).report
    assert {share.edit_type: share.captions for share in report.shares if share.captions} == dict.fromkeys(kinds, 5)


def test_reconstructions_are_drawn_too() -> None:
    sources = {"a": CounterfactualCaptions((CounterfactualCaption("as it is", ()),))}
    assert select_captions(sources.items(), plan_of("")).chosen == {"a": (0,)}
    assert select_captions(sources.items(), plan_of("[edits]\ntypes = { weather = 1 }")).chosen == {}


WISHES: tuple[dict[str, float], ...] = (
    {"weather": 0.5, "time of day": 0.5},
    {"weather": 0.7, "time of day": 0.2, "attribute": 0.1},
    {"attribute": 1.0},
)


@pytest.mark.parametrize("wished", WISHES)
@pytest.mark.parametrize("edits", [1, 2])
def test_as_many_as_may_be_are_drawn_in_shares_as_near_as_they_can_be(wished: dict[str, float], edits: int) -> None:
    """Compare with all possible choices."""
    types = ", ".join(f'"{kind}" = {share}' for kind, share in wished.items())
    plan = plan_of(f"[edits]\ntypes = {{ {types} }}\ncaptions_a_source = 2")
    exact = 0
    for seed in range(40):
        sources = chance_sources(random.Random(seed), 5, 4, edits)
        shared = select_captions(sources.items(), plan)
        drawn = drawn_of(sources, shared.chosen)

        def offers(captions: CounterfactualCaptions) -> Iterator[tuple[CounterfactualCaption, ...]]:
            fitting = [
                one for one in captions.items if one.used and all(edit.edit_type in wished for edit in one.edits)
            ]
            return combinations(fitting, min(2, len(fitting)))

        ways = [sum(way, ()) for way in product(*(tuple(offers(captions)) for captions in sources.values()))]
        assert len(drawn) == len(ways[0]), "the number comes first"
        best = min(distance(list(way), wished) for way in ways)
        # Exchanging one caption at a time does not always find the best choice, but one at most one caption away.
        assert distance(drawn, wished) <= best + 2 + 1e-6
        exact += distance(drawn, wished) <= best + 1e-6
        reached = {share.edit_type: share.captions for share in shared.report.shares if share.captions}
        assert reached == pytest.approx(counted_types(drawn))
    assert exact >= 36, "and mostly they do"


def test_shares_that_can_be_reached_are_reached() -> None:
    sources = {
        f"{number}": CounterfactualCaptions(
            tuple(caption((kind, words[number % len(words)])) for kind, words in VOCABULARY.items() for _ in range(3))
        )
        for number in range(500)
    }
    plan = plan_of('[edits]\ntypes = { weather = 5, "time of day" = 3, attribute = 2 }\ncaptions_a_source = 3')
    report = select_captions(sources.items(), plan).report
    assert report.captions == 1500
    assert {share.edit_type: share.captions for share in report.shares} == {
        "weather": 750,
        "time of day": 450,
        "attribute": 300,
    }
    assert report.sentences()[1] == (
        "Edit types: attribute 20.0%, wished 20.0%; weather 50.0%, wished 50.0%; time of day 30.0%, wished 30.0%."
    )


@pytest.mark.parametrize("edits", ["", 'types = { weather = 0.6, "time of day" = 0.2, attribute = 0.2 }'])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.12, 0.3, 1.0])
@pytest.mark.parametrize("at_once", [1, 3])
def test_no_word_is_in_too_many(edits: str, share: float, at_once: int) -> None:
    plan = plan_of(f"[edits]\n{edits}\nmost_share_of_a_word = {share}\ncaptions_a_source = 3")
    for seed in range(12):
        sources = chance_sources(random.Random(seed), 60, 6, at_once)
        shared = select_captions(sources.items(), plan)
        drawn = drawn_of(sources, shared.chosen)
        words = counted_words(drawn)
        assert all(number <= max(1, share * len(drawn) + 1e-6) for number in words.values())
        assert dict(shared.report.words) == words, "the report lists ten, and there are no more"
        assert all(len(places) <= 3 for places in shared.chosen.values())
        offered = any(one.used for captions in sources.values() for one in captions.items)
        assert bool(drawn) == offered, "one caption may have any word"


def test_not_every_car_turns_red() -> None:
    """If enough other captions exist, the limit does not reduce the number of chosen captions."""
    fate = random.Random(1)
    colours = ["red"] * 6 + ["blue", "green", "white", "black", "silver"]
    sources = {
        f"{number}": CounterfactualCaptions(
            tuple(caption(("attribute", f"{colour} car")) for colour in fate.sample(colours, 6))
        )
        for number in range(300)
    }
    plan = plan_of("[edits]\nmost_share_of_a_word = 0.2\ncaptions_a_source = 1")
    drawn = drawn_of(sources, select_captions(sources.items(), plan).chosen)
    assert len(drawn) == 300 and max(counted_words(drawn).values()) <= 60
    free = drawn_of(sources, select_captions(sources.items(), plan_of("[edits]\ncaptions_a_source = 1")).chosen)
    assert counted_words(free)["red"] > 100, "without the limit many would be"


def test_sources_with_a_choice_make_up_for_those_without() -> None:
    """Every second source has captions of one type only."""
    one = CounterfactualCaptions((caption(("weather", "rainy")),) * 3)
    both = CounterfactualCaptions((*one.items, *((caption(("time of day", "at night")),) * 3)))
    sources = {f"{number}": both if number % 2 else one for number in range(2000)}
    for share, reached in ((0.5, 2000), (0.25, 1000), (0.9, 2000)):
        wished = f'types = {{ weather = {1 - share}, "time of day" = {share} }}'
        report = select_captions(sources.items(), plan_of(f"[edits]\n{wished}\ncaptions_a_source = 2")).report
        counts = {one.edit_type: one.captions for one in report.shares}
        assert report.captions == 4000 and counts == {"weather": 4000 - reached, "time of day": reached}


def test_under_a_limit_words_are_drawn_evenly() -> None:
    colours = CounterfactualCaptions(
        tuple(caption(("attribute", f"{colour} car")) for colour in ("red", "blue", "green", "white", "black"))
    )
    plan = plan_of("[edits]\nmost_share_of_a_word = 0.5\ncaptions_a_source = 1")
    report = select_captions(((f"{number}", colours) for number in range(300)), plan).report
    assert dict(report.words) == dict.fromkeys(("red", "blue", "green", "white", "black"), 60)


def test_a_limit_that_too_few_words_can_keep_says_which_one_they_could() -> None:
    sources = {
        f"{number}": CounterfactualCaptions((caption(("weather", VOCABULARY["weather"][number % 4])),))
        for number in range(100)
    }
    tight = select_captions(sources.items(), plan_of("[edits]\nmost_share_of_a_word = 0.2"))
    assert tight.report.captions == 4 and set(dict(tight.report.words).values()) == {1}
    assert tight.report.left_out["a word too often"] == 96
    assert "set edits.most_share_of_a_word to at least 0.25" in tight.report.sentences()[-1]
    assert select_captions(sources.items(), plan_of("[edits]\nmost_share_of_a_word = 0.25")).report.captions == 100


def test_where_words_run_out_every_source_has_a_caption_before_any_has_two() -> None:
    rare = {
        f"rare {number}": CounterfactualCaptions(
            tuple(caption(("weather", f"{word}{number}")) for word in VOCABULARY["weather"])
        )
        for number in range(20)
    }
    common = {f"common {number}": CounterfactualCaptions((caption(("weather", "rainy")),) * 4) for number in range(20)}
    shared = select_captions((rare | common).items(), plan_of("[edits]\nmost_share_of_a_word = 0.2"))
    assert shared.report.captions == 100 and dict(shared.report.words)["rainy"] == 20
    assert {len(shared.chosen[key]) for key in common} == {1} and {len(shared.chosen[key]) for key in rare} == {4}


def test_the_order_of_the_sources_changes_nothing_and_the_seed_does() -> None:
    text = '[edits]\ntypes = { weather = 0.5, "time of day" = 0.3, attribute = 0.2 }\nmost_share_of_a_word = 0.15\n'
    plan = plan_of(text + "captions_a_source = 2")
    sources = chance_sources(random.Random(3), 200, 6, edits=2)
    first = select_captions(sources.items(), plan)
    for seed in range(5):
        shuffled = random.Random(seed).sample(sorted(sources.items()), len(sources))
        again = select_captions(shuffled, plan)
        assert again.chosen == first.chosen and again.report == first.report
    other = plan.model_copy(update={"make": plan.make.model_copy(update={"seed": 1})})
    assert select_captions(sources.items(), other).chosen != first.chosen


# Estimates


def test_an_estimate_is_in_numbers_and_words() -> None:
    """The paper's ImageNet-1K: 96 hours for 125,000 test cases on one GPU."""
    seconds: dict[Pass, float] = {"captions": 2.0, "language": 4.0, "images": 1.564}
    found = Estimate(25_000, 125_000, seconds, 480_000, price_an_hour=1.0, currency="USD")
    assert found.hours == pytest.approx((25_000 * 6 + 125_000 * 1.564) / 3600)
    assert found.bytes == 60e9 and found.money == pytest.approx(found.hours)
    assert found.words() == (
        "Images: at most 125,000 test cases from 25,000 source images.",
        "Time: about 3 days 23 h with 1 worker (captions 13 h 53 min; language 27 h 47 min; images 2 days 6 h).",
        "Disk: about 60 GB.",
        "Money: about 95.97 USD at 1.00 USD an hour, 0.00077 USD a test case.",
    )
    shared = Estimate(25_000, 125_000, seconds, 480_000, workers=4, price_an_hour=4.0)
    assert shared.hours == pytest.approx((25_000 * 6 + 125_000 * 1.564) / 3600 / 4)
    assert shared.money == pytest.approx(found.money), "a quarter of the time at four times the price"


def test_what_was_not_measured_cannot_be_told() -> None:
    nothing = Estimate(10, 20, {}, price_an_hour=2.0)
    assert (nothing.hours, nothing.hours_known, nothing.bytes, nothing.money) == (None,) * 4
    assert nothing.words()[1:] == (
        "Time: cannot tell; none of this was done yet with these models and settings.",
        "Disk: cannot tell.",
        "Money: cannot tell; an hour is 2.00.",
    )
    half = Estimate(10, 20, {"captions": 3.0, "images": 6.0})
    assert half.hours is None and half.hours_known == pytest.approx(150 / 3600)
    assert half.words()[1] == "Time: more than 2 min with 1 worker (captions 30 s; images 2 min); cannot tell language."
    assert not any("Money" in line for line in half.words()), "nobody asked what it costs"


def test_nothing_left_to_do_takes_no_time_and_unknown_numbers_stay_unknown() -> None:
    done = Estimate(0, 0, {}, price_an_hour=1.0)
    assert done.hours == 0 and done.money == 0 and done.bytes == 0
    plan = plan_of("")
    every = plan.make.model_copy(update={"settings": {"counterfactuals.combinations": "all"}})
    plan = plan.model_copy(update={"make": every})
    assert images_at_most(plan, settings_of(plan), 10) is None
    unknown = Estimate(10, None, {"captions": 1.0, "language": 1.0, "images": 1.0}, 1.0)
    assert unknown.hours is None and unknown.bytes is None
    assert unknown.words()[0].startswith("Images: cannot tell; ")
    bounded = plan.model_copy(update={"edits": plan.edits.model_copy(update={"captions_a_source": 3})})
    assert images_at_most(bounded, settings_of(bounded), 10) == 30
