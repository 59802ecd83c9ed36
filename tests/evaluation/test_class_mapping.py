"""The shipped tables of classes against independent sources, and the mapping of labels to a model's classes."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest
from timm.data import ImageNetInfo
from torchvision.datasets import Cityscapes
from torchvision.models import get_model_weights
from torchvision.models.segmentation import DeepLabV3_ResNet50_Weights

from core.class_tables import (
    ADE20K,
    CITYSCAPES,
    CITYSCAPES_IDS,
    FOLDER,
    IMAGENET,
    SHIFT,
    VOC,
    above,
    all_above,
    class_table,
    kinds_of,
    meanings,
    names_of_id,
    recognised,
    train_ids,
    word_meanings,
)
from core.errors import UserError
from evaluation.class_mapping import (
    ClassMap,
    MappedLabel,
    OwnLine,
    OwnMapping,
    map_classes,
    read_mapping,
    report_of,
)
from pipeline.conditioning import COLOURS

pytestmark = pytest.mark.slow  # timm and torchvision are loaded

INFO = ImageNetInfo()
TORCHVISION = tuple(get_model_weights("resnet50").DEFAULT.meta["categories"])
TIMM = tuple(INFO.index_to_description(number) for number in range(1000))
TIMM_SHORT = tuple(name.split(",")[0] for name in TIMM)
"""Class names as the studio's adapter of timm reports them. Two classes are called crane, and two maillot."""
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def names(title: str) -> tuple[str, ...]:
    """Return the class names of a table, in the order of models."""
    return tuple(one.name for one in class_table(title).classes)


def classes_of(mapping: ClassMap) -> dict[str, tuple[str, ...]]:
    """Return the names of the mapped classes of each mapped label."""
    return {one.label: tuple(mapping.classes[n] for n in one.classes) for one in mapping.labels if one.classes}


def rule_of(label: str, classes: tuple[str, ...]) -> tuple[tuple[int, ...], str | None]:
    """Return the mapped classes of one label, and the rule that mapped it."""
    (one,) = map_classes([label], classes).labels
    return one.classes, one.rule


def test_imagenet_is_that_of_timm_and_of_torchvision() -> None:
    rows = class_table(IMAGENET).classes
    assert [one.number for one in rows] == list(range(1000))
    assert [one.wordnet for one in rows] == INFO.label_names()
    assert tuple(one.name for one in rows) == TORCHVISION
    for row, lemmas in zip(rows, TIMM, strict=True):
        assert tuple(name for name in row.names if name in lemmas.split(", ")) == tuple(lemmas.split(", "))


def test_what_is_above_imagenet_has_the_names_that_timm_gives_it_and_ends_at_one_top() -> None:
    compared = 0
    for wordnet in above():
        assert "n00001740" in all_above(wordnet), f"{wordnet} is below nothing"
        if wordnet in INFO._lemmas and not wordnet.startswith("n0000"):
            assert ", ".join(dict.fromkeys(names_of_id(wordnet))).casefold().endswith(INFO._lemmas[wordnet].casefold())
            compared += 1
    assert len(above()) == 1860 and compared > 1500


@pytest.mark.parametrize(
    ("word", "numbers"),
    [
        ("bird", [*range(7, 25), *range(80, 101), *range(127, 147)]),
        ("dog", range(151, 269)),
        ("cat", range(281, 288)),
        ("bear", range(294, 298)),
        ("snake", range(52, 69)),
        ("spider", range(72, 78)),
        ("elephant", [385, 386]),
        ("bicycle", [444, 671]),
        ("airplane", [404]),
        ("truck", [555, 569, 656, 675, 717, 734, 864, 867]),
        ("coffee", [967]),
    ],
)
def test_superclasses_are_the_known_ranges_of_the_challenge(word: str, numbers: list[int]) -> None:
    for classes in (TORCHVISION, TIMM, TIMM_SHORT, tuple(INFO.label_names())):
        assert rule_of(word, classes) == (tuple(numbers), "superclass")
    assert meanings()[word][0].order == 1


def test_cityscapes_is_that_of_torchvision() -> None:
    theirs = {one.id: one for one in Cityscapes.classes}
    ours = class_table(CITYSCAPES_IDS).classes
    assert len(ours) == 35 and {one.number: (one.name, one.group) for one in ours} == {
        number: (one.name, one.category) for number, one in theirs.items()
    }
    assert train_ids() == {one.id: one.train_id for one in Cityscapes.classes if 0 <= one.train_id < 255}
    assert class_table(CITYSCAPES).names == {
        one.train_id: one.name for one in Cityscapes.classes if 0 <= one.train_id < 255
    }
    assert list(class_table(CITYSCAPES).names) == list(range(19))


def test_voc_shift_and_ade20k() -> None:
    assert ("__background__", *names(VOC)[1:]) == tuple(DeepLabV3_ResNet50_Weights.DEFAULT.meta["categories"])
    assert len(names(VOC)) == 21
    assert class_table(SHIFT).names[4] == "pedestrian" and list(class_table(SHIFT).names) == list(range(23))
    rows = class_table(ADE20K).classes
    assert [one.number for one in rows] == list(range(1, 151)) and len(set(names(ADE20K))) == 150
    every = {name for one in rows for name in one.names}
    assert set(COLOURS) - {"traffic sign"} <= every, "what a ControlNet for ADE20K knows are its classes"
    assert (names(ADE20K)[0], names(ADE20K)[12], names(ADE20K)[20], names(ADE20K)[149]) == (
        *("wall", "person", "car"),
        "flag",
    )


def test_kinds_of_scenes_are_those_of_cityscapes_groups() -> None:
    of_group = {one.name for one in class_table(CITYSCAPES).classes if one.group == "vehicle"}
    assert of_group <= kinds_of("vehicle")
    assert {one.name for one in class_table(CITYSCAPES).classes if one.group == "human"} <= kinds_of("human")


def test_tables_are_recognised_by_their_names_in_their_order() -> None:
    for title in (IMAGENET, CITYSCAPES, CITYSCAPES_IDS, ADE20K, VOC, SHIFT):
        assert recognised(names(title))[0] == title
    assert {recognised(of)[0] for of in (TORCHVISION, TIMM, TIMM_SHORT, tuple(INFO.label_names()))} == {IMAGENET}
    assert recognised(names(VOC)[1:])[0] == VOC
    assert recognised(TORCHVISION[::-1])[1][0] == class_table(IMAGENET).classes[999]
    assert recognised(["tench", "goldfish"])[0] == "", "two words may mean something else"
    assert recognised(CIFAR10)[0] == "" and recognised([])[0] == ""


def test_labels_are_found_by_name_id_number_and_superclass() -> None:
    assert rule_of("house finch", TORCHVISION) == ((12,), "name")
    assert rule_of("goldfinch, Carduelis carduelis", TORCHVISION) == ((11,), "name")
    assert rule_of("Carduelis_carduelis", TORCHVISION) == ((11,), "one of its names")
    assert rule_of("Man_eating SHARK", TIMM) == ((2,), "one of its names")
    assert rule_of("house finches", TORCHVISION) == ((12,), "singular or plural")
    assert rule_of("n01531178", TORCHVISION) == ((11,), "WordNet id")
    assert len(rule_of("n01503061", TORCHVISION)[0]) == 59
    assert rule_of("11", TORCHVISION) == ((11,), "number")
    assert rule_of("7", ("0", "7")) == ((1,), "name"), "a name goes before a number"
    assert rule_of("n02084071", ("bird", "domestic dog")) == ((1,), "WordNet id")
    assert rule_of("bird", ("goldfinch", "airliner"))[0] == (), "two names are not known for ImageNet's"


def test_a_name_of_two_classes_is_told_and_not_guessed() -> None:
    (crane,) = map_classes(["crane"], TIMM_SHORT).unmapped
    assert crane.note == "can mean lifting device (crane); wading bird (crane)"
    assert crane.picks == ("n03126707", "crane bird"), "two classes of the model have the name"
    assert rule_of("n02012849", TIMM_SHORT) == ((134,), "WordNet id")
    (twice,) = map_classes(["bolt"], ["bolt", "bolt"]).unmapped
    assert twice.note == "several classes of the model by the same name: bolt (0), bolt (1)"
    mapping = map_classes(["cat", "house finch"], TORCHVISION)
    assert [one.doubtful for one in mapping.labels] == [True, False]
    assert mapping.labels[0].note == "taken as true cat, not kat, cat-o'-nine-tails, Caterpillar, big cat"
    assert "Check whether these labels mean what the table says: cat." in report_of(mapping).summary


def test_cifar_on_imagenet_and_what_is_unmapped_is_told_with_suggestions() -> None:
    mapping = map_classes([*CIFAR10, "goldfnch"], TORCHVISION)
    assert [one.label for one in mapping.unmapped] == ["deer", "goldfnch"]
    report = report_of(mapping)
    assert report.summary.startswith("9 of 11 labels are mapped: 9 by superclass.")
    assert "Not mapped, and so not compared: deer, goldfnch." in report.summary
    assert report.unmapped[1].suggestions[0] == "goldfinch"
    assert len(report.left_over) == 1000 - len({number for one in mapping.labels for number in one.classes})
    assert report.unmapped[1].note == "no class of the model fits"
    (horse,) = [one for one in report.mapped if one.label == "horse"]
    assert (horse.classes, horse.rule, horse.marked) == (("sorrel",), "superclass", True)
    assert horse.note.endswith("; the model knows 1 of its 29 kinds in WordNet")


def test_street_scenes_of_one_data_set_on_a_model_of_another() -> None:
    mapping = map_classes(names(SHIFT), names(CITYSCAPES), "segmentation")
    found = classes_of(mapping)
    assert found["vehicle"] == ("car", "truck", "bus", "train", "motorcycle", "bicycle")
    assert found["pedestrian"] == ("person", "rider") and found["sky"] == ("sky",)
    assert {one.label for one in mapping.unmapped} >= {"water", "bridge", "unlabeled"}
    assert "road line + road" in mapping.group_names and report_of(mapping).together == ("road line + road",)
    back = map_classes(names(CITYSCAPES), names(SHIFT), "segmentation")
    assert "car + truck + bus + train + motorcycle + bicycle" in back.group_names
    assert not map_classes(["car"], names(SHIFT)).labels[0].classes, "a classifier that says vehicle does not say car"
    assert classes_of(map_classes(names(VOC), names(CITYSCAPES), "segmentation"))["motorbike"] == ("motorcycle",)


def test_a_kind_that_another_label_has_by_name_is_not_taken_from_it() -> None:
    both = classes_of(map_classes(["building", "house"], names(ADE20K), "segmentation"))
    assert both == {"building": ("building", "skyscraper", "hovel", "tower"), "house": ("house",)}


NAMED = {
    "kite": ("kite",),  # the bird
    "mouse": ("mouse",),  # the computer mouse
    "possum": ("koala",),
    "hedgehog": ("porcupine",),
    "crane": ("crane", "crane bird"),
    "bank": ("piggy bank",),
    "spring": ("geyser",),
    "bike": ("moped", "bicycle"),
    "plant": ("lumbermill", "flora"),
}
"""Labels that were mapped to a wrong class of ImageNet, with the names of the classes that the word means there."""
OTHERS = (
    "maillot cardigan boxer nail bow screen pitcher ram robin goldfinch seal ray pool tank hen ear fly cup castle iron"
).split()


@pytest.mark.parametrize("label", [*NAMED, *OTHERS, "mice", "Cranes"])
def test_a_word_of_several_meanings_is_ambiguous_until_a_person_says_which(label: str) -> None:
    for classes in (TORCHVISION, TIMM, TIMM_SHORT, tuple(INFO.label_names())):
        mapping = map_classes([label], classes)
        (row,) = report_of(mapping).unmapped
        assert not row.classes and row.note.startswith("can mean ") and row.suggestions
        assert (
            f"1 label can mean several things, not compared until you say which: {label}." in report_of(mapping).summary
        )
    if label in NAMED:
        assert report_of(map_classes([label], TORCHVISION)).unmapped[0].suggestions == NAMED[label]


def test_what_is_suggested_for_any_ambiguous_word_is_what_a_file_may_say() -> None:
    ambiguous = 0
    for word, known in word_meanings().items():
        (one,) = map_classes([word], TORCHVISION).labels
        if not one.picks:
            continue
        ambiguous += 1
        expected = {n for own in known for n in classes_below(own.wordnet)}
        for pick in one.picks:
            own = OwnMapping("a.csv", (OwnLine(word, pick, "line 2"),))
            (picked,) = map_classes([word], TORCHVISION, own=own).labels
            assert picked.classes and set(picked.classes) <= expected, (word, pick)
    assert ambiguous > 450


def classes_below(ids: tuple[str, ...]) -> set[int]:
    """Return the numbers of ImageNet's classes at or below these WordNet ids in timm's tree."""
    return {n for n, own in enumerate(INFO.label_names()) if all_above(own) & set(ids)}


def test_no_word_of_several_meanings_is_taken_without_a_mark() -> None:
    for word, known in word_meanings().items():
        (one,) = map_classes([word], TORCHVISION).labels
        if len(known) > 1 and one.classes:
            assert one.doubtful and one.note.startswith("taken as "), word
            top, rest = max(own.tagged for own in known), sum(own.tagged for own in known)
            assert top >= 0.9 * rest > 0, word


def test_a_table_is_also_a_dining_table_and_a_superclass_of_which_little_is_known_is_marked() -> None:
    (table,) = map_classes(["table"], TORCHVISION).labels
    assert {TORCHVISION[n] for n in table.classes} == {"desk", "dining table", "pool table"}
    assert table.doubtful
    (airplane, bird, person) = map_classes(["airplane", "spider", "person"], TORCHVISION).labels
    assert airplane.doubtful and airplane.note == "the model knows 1 of its 15 kinds in WordNet"
    assert not person.classes and person.note == "the model knows only 3 of its 402 kinds in WordNet"
    assert bird.classes


@dataclass(frozen=True)
class Count:
    """Number of a data set's labels by result: right, of these marked as doubtful, ambiguous, without a class, and
    wrong.
    """

    right: int
    marked: int
    ambiguous: int
    unfit: int
    wrong: int


ALONE = {
    "COCO": Count(43, 21, 8, 29, 0),
    "CIFAR-10": Count(9, 8, 0, 1, 0),
    "CIFAR-100": Count(53, 26, 19, 28, 0),
    "Pascal VOC": Count(15, 14, 0, 5, 0),
    "Cityscapes": Count(10, 7, 0, 9, 0),
    "BDD100K": Count(7, 5, 1, 5, 0),
    "the drawn world": Count(6, 3, 4, 0, 0),
}
"""Expected counts if each label is mapped alone, without its data set."""
TOGETHER = {
    "COCO": Count(55, 14, 0, 25, 0),
    "CIFAR-10": Count(9, 4, 0, 1, 0),
    "CIFAR-100": Count(70, 21, 0, 30, 0),
    "Pascal VOC": Count(18, 8, 0, 2, 0),
    "Cityscapes": Count(11, 3, 0, 8, 0),
    "BDD100K": Count(10, 3, 0, 3, 0),
    "the drawn world": Count(8, 2, 0, 2, 0),
}
"""Expected counts if all labels of a data set are mapped together, so that the other labels show the meaning."""


def vocabulary(title: str) -> dict[str, frozenset[str]]:
    """Return the labels of a data set, each with the WordNet ids of its meaning."""
    with (FOLDER / "vocabularies.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    return {row["label"]: frozenset(row["wordnet"].split()) for row in rows if row["set"] == title}


@pytest.mark.parametrize("title", ALONE)
def test_labels_of_well_known_data_sets_are_right_or_told_and_never_wrong(title: str) -> None:
    truth = vocabulary(title)
    alone = [map_classes([label], TORCHVISION).labels[0] for label in truth]
    assert counted(alone, truth) == ALONE[title]
    together = map_classes(list(truth), TORCHVISION)
    assert counted(together.labels, truth) == TOGETHER[title]
    assert not any(one.is_ambiguous for one in together.labels)


def counted(labels: Iterable[MappedLabel], truth: Mapping[str, frozenset[str]]) -> Count:
    """Count mapped labels by result, given the true WordNet ids of each label."""
    kinds = Counter(kind_of(one, classes_below(tuple(truth[one.label]))) for one in labels)
    return Count(kinds["right"] + kinds["marked"], kinds["marked"], kinds["ambiguous"], kinds["unfit"], kinds["wrong"])


def kind_of(one: MappedLabel, right: set[int]) -> str:
    """Return the result for a label whose right classes are known: right, marked, wrong, ambiguous or unfit."""
    if one.classes:
        return "wrong" if not set(one.classes) <= right else "marked" if one.doubtful else "right"
    return "ambiguous" if one.note.startswith("can mean") else "unfit"


def test_the_data_set_tells_what_its_word_means() -> None:
    coco, cifar = list(vocabulary("COCO")), list(vocabulary("CIFAR-100"))
    found = {one.label: one for one in map_classes(coco, TORCHVISION).labels}
    assert [TORCHVISION[n] for n in found["mouse"].classes] == ["mouse"] and found["mouse"].rule == "data set"
    assert found["mouse"].note == "as COCO means it: mouse, computer mouse"
    assert not found["kite"].classes and found["kite"].note.startswith(
        "COCO means kite: plaything, and the model has no"
    )
    found = {one.label: one for one in map_classes(cifar, TORCHVISION).labels}
    assert not found["mouse"].classes and not found["possum"].classes
    assert [TORCHVISION[n] for n in found["tank"].classes] == ["tank"]
    few = map_classes(["mouse"], TORCHVISION, beside=coco)
    assert few.labels[0].rule == "data set", "a filter leaves one label, and the others still tell the data set"
    assert not map_classes(["mouse", "orange", "couch", "clock", "bed"], TORCHVISION).labels[0].classes, (
        "COCO and CIFAR-100 have all of these and mean different things by one"
    )
    kite = map_classes(["kite", "banana", "orange", "umbrella", "toaster"], TORCHVISION).labels[0]
    assert not kite.classes, "COCO's is a toy, ImageNet's a bird"


def test_a_model_and_a_data_set_that_mean_different_things_by_a_name() -> None:
    coco, cifar = list(vocabulary("COCO")), tuple(vocabulary("CIFAR-100"))
    found = {one.label: one for one in map_classes(coco, cifar).labels}
    assert not found["mouse"].classes
    assert found["mouse"].note == "the data set means mouse, computer mouse, the model mouse: rodent"
    assert cifar[found["clock"].classes[0]] == "clock"


@pytest.mark.parametrize("classes", [TORCHVISION, TIMM, tuple(INFO.label_names())])
def test_imagenet_on_itself(classes: tuple[str, ...]) -> None:
    labels = map_classes(classes, TORCHVISION).labels
    wrong = [one.label for number, one in enumerate(labels) if one.classes != (number,)]
    twice = {TORCHVISION: ["Cardigan", "cardigan"], TIMM: ["crane", "crane"]}
    assert wrong == twice.get(classes, []), "two classes by one name"
    assert all(not labels[number].classes for number, name in enumerate(classes) if name in wrong)


CSV = b'label,model class\nbird,goldfinch\nbird,n01514859\nbird,7\ncoffee,"espresso"\nmug,\nnobody,cup\n\n'
TOML = b'[labels]\nbird = ["goldfinch", "n01514859", 7]\ncoffee = "espresso"\nmug = []\nnobody = "cup"\n'


@pytest.mark.parametrize(
    ("data", "name"), [(CSV, "mine.csv"), (CSV.replace(b",", b";"), "mine.csv"), (TOML, "mine.toml")]
)
def test_a_file_of_ones_own_has_the_last_word(data: bytes, name: str) -> None:
    mapping = map_classes(["bird", "Coffee", "mug", "espresso"], TORCHVISION, own=read_mapping(data, name))
    assert [(one.classes, one.rule) for one in mapping.labels] == [
        ((7, 8, 11), "file"),
        ((967,), "file"),
        ((), "file"),
        ((967,), "name"),
    ]
    assert mapping.labels[1].label == "Coffee" and mapping.unmapped[0].note == f"left out by {name}"
    assert mapping.unused == ("nobody",) and "does not have: nobody." in report_of(mapping).summary


def test_a_file_may_name_a_superclass() -> None:
    own = read_mapping(b"label,model class\npet,dog\npet,cat\n", "pets.csv")
    assert len(map_classes(["pet"], TORCHVISION, own=own).labels[0].classes) == 118 + 7


@pytest.mark.parametrize(
    ("data", "name", "told"),
    [
        (
            b"label,model class\nbird,goldfnch\n",
            "a.csv",
            "a.csv, line 2: the model has no class “goldfnch”; near are gold",
        ),
        (b"label,model class\nbird,crane\n", "a.csv", "a.csv, line 2: “crane” may mean several classes of the model"),
        (b"label,model class\n\nbird,1000\n", "a.csv", "a.csv, line 3: the model has no class “1000”"),
        (b"label,model class\nbird,a,b\n", "a.csv", "a.csv, line 2: the line has 3 cells, not 2. Put names"),
        (b"label,model class\n,tench\n", "a.csv", "a.csv, line 2: the label is empty. Fill it in, or delete the line."),
        (b"name,class\nbird,hen\n", "a.csv", "a.csv, line 1: it has to name the columns “label” and “model class”."),
        (b'label,model class\nbird,"hen\n', "a.csv", "it is no line of a CSV file"),
        (b"label,model class\n", "a.csv", "a.csv maps no label: add a line for each label."),
        (b"", "a.csv", "a.csv, line 1: it has to name"),
        (b"\xff\xfe\x00", "a.csv", "a.csv is no text in UTF-8"),
        (b"x" * 1_000_001, "a.csv", "a file of classes may have at most 1,000,000."),
        (b"labels = 3", "a.toml", "a.toml has no table [labels]"),
        (b"[labels\n", "a.toml", "a.toml is no TOML file"),
        (
            b"[labels]\nbird = [1.5]\n",
            "a.toml",
            "a.toml, label “bird”: a class is a name in quotes or a number, not 1.5.",
        ),
        (b"[labels]\nbird = -1\n", "a.toml", "a.toml, label “bird”: the model has no class “-1”"),
        (b"a=" + b"[" * 5000, "a.toml", "a.toml is no TOML file"),
    ],
)
def test_a_wrong_line_of_a_file_is_one_sentence(data: bytes, name: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        map_classes(["bird"], TIMM_SHORT, own=read_mapping(data, name))
    assert told in str(error.value) and len(str(error.value)) < 300


def test_one_class_no_label_and_no_class() -> None:
    one = map_classes(["bird"], ["bird"])
    assert one.labels[0].classes == (0,) and not one.left_over and one.groups == ((0,),)
    none = map_classes([], ["bird"])
    assert none.left_over == (0,) and none.label_of_class.tolist() == [-1] and none.groups == ()
    assert report_of(none).summary.startswith("0 of 0 labels are mapped.")
    assert map_classes(["bird"], []).unmapped[0].label == "bird"
