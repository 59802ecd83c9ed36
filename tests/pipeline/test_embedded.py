"""The run inside an image file: it is read back unchanged, and a damaged or invented run is refused in one sentence."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.errors import UserError
from core.images import image_sha
from core.lineage import Lineage, TestCase, UnreadSettings
from core.model_sections import Weights
from core.png import XMP_KEYWORD, read_texts, with_texts
from core.run_record import RunRecord
from core.settings import ConditioningSettings, Settings
from core.types import (
    Alternative,
    Alternatives,
    Caption,
    Check,
    CounterfactualCaption,
    CounterfactualCaptions,
    Edit,
    EditType,
    Keyword,
    KeywordAlternatives,
    Keywords,
    StageValue,
    Task,
    Trace,
)
from pipeline.methods.controlnet import CONTROL_IMAGE, ControlNetSettings
from pipeline.models.weight_hashes import weights_hash
from pipeline.profiles.profile import load_profile
from pipeline.run_files import embedded
from pipeline.run_files.embedded import KEYWORD, read_run_in, require_run_in, with_run
from pipeline.run_files.provenance import digital_source_type, made_with, parameters
from pipeline.run_files.webui import MadeWith
from tests.support.cases import LINEAGE

NASTY = "<script>alert('x')</script> \"&amp; 鳥 😀 \\ \n, Steps: 9"
KIND: EditType = "attribute"
EDITED = CounterfactualCaption("A red bird.", (Edit("blue", "red", KIND),))
TRACE = Trace("model", "llama", "say", NASTY, {"temperature": 0.2}, 7, 2, 1.5)


def noise(mode: str = "RGB", size: tuple[int, int] = (40, 24), spread: int = 60) -> Image.Image:
    return Image.effect_noise(size, spread).convert(mode)


SOURCE, DRAWN, CONTROL = noise(), noise(), noise("L")
MASK = Image.new("L", (40, 24), 3)
RUN = RunRecord(
    id="0123456789abcdef",
    name=NASTY,
    profile="demo",
    task=Task("segmentation", protected=("road", "vehicle")),
    settings=Settings().model_dump(mode="json"),
    values={
        "caption": StageValue(Caption("A blue bird."), Trace("person"), "k1"),
        "keywords": StageValue(Keywords((Keyword("blue", KIND), Keyword("day", "time of day", False))), TRACE, "k2"),
        "alternatives": StageValue(
            Alternatives((KeywordAlternatives("blue", KIND, (Alternative("red"), Alternative("green", False))),)),
            TRACE,
            "k3",
        ),
        "counterfactuals": StageValue(CounterfactualCaptions((EDITED,)), TRACE, "k4"),
    },
    prompts={"keywords": "$task $caption " + NASTY},
    sample="street",
    notes=("The image was turned upright.",),
    mask_classes={3: "road", 4: NASTY},
)
CASE = TestCase(
    image=DRAWN,
    lineage=Lineage(
        counterfactual=EDITED,
        seed=2**31 - 1,
        method="controlnet",
        model="owner/sd + owner/canny",
        prompt="A red bird. road",
        negative_prompt="blur, text",
        settings=ControlNetSettings(),
        seconds=3.25,
        task=Task("classification", label="bird"),
    ),
    artifacts={CONTROL_IMAGE: CONTROL},
    checks=(Check("edit shows", False, 0.5, "It does not."),),
)


def encoded(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


MADE_WITH = MadeWith("DDIMScheduler", {"owner/sd": "0123456789abcdef" * 4, "owner/canny": "fedcba9876543210" * 4})


def saved(**changes: Any) -> bytes:
    given: dict[str, Any] = {"run": RUN, "case": CASE, "source": SOURCE, "mask": MASK, "made_with": MADE_WITH}
    return with_run(encoded(DRAWN), **{**given, **changes})


def test_everything_comes_back_as_it_was() -> None:
    data = saved()
    held = require_run_in(data)
    assert held.run == RUN
    assert held.case is not None and held.lost == "" and held.source is not None and held.mask is not None
    assert replace(held.case, image=DRAWN, artifacts=CASE.artifacts) == CASE
    for there, made in ((held.case.image, DRAWN), (held.case.artifacts[CONTROL_IMAGE], CONTROL), (held.source, SOURCE)):
        assert (there.mode, there.size, there.tobytes()) == (made.mode, made.size, made.tobytes())
    assert held.mask.mode == "L" and held.mask.tobytes() == MASK.tobytes()
    assert held.source_sha == image_sha(SOURCE)
    assert Image.open(io.BytesIO(data)).tobytes() == DRAWN.tobytes()
    assert saved() == data


def test_a_picture_that_is_too_large_stays_behind_and_the_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LARGEST_PICTURE", 1000)
    data = saved(source=noise(size=(90, 60)))
    record = json.loads(read_texts(data, [KEYWORD])[KEYWORD])
    assert record["pictures"]["source"]["carried"] is False and record["pictures"]["mask"]["carried"] is True
    assert len(data) < len(encoded(DRAWN)) + 12_000
    without = saved(source=noise(size=(90, 60)), mask=None)
    held = require_run_in(without)
    assert held.source is None and held.run.values == RUN.values


def test_other_programs_find_the_settings_and_that_a_machine_drew_it() -> None:
    texts = read_texts(saved(), ["parameters", XMP_KEYWORD])
    assert texts["parameters"] == (
        "A red bird. road\nNegative prompt: blur, text\n"
        "Steps: 20, Sampler: DDIM, CFG scale: 4.0, Seed: 2147483647, Size: 856x512, "
        "Model hash: 0123456789, Model: sd, "
        'ControlNet 0: "Module: canny, Model: canny [fedcba98], Weight: 1.0, Threshold A: 40, Threshold B: 100", '
        + re.search(r"Version: DILLEMA Studio [\d.]+$", texts["parameters"])[0]  # type: ignore[index]
    )
    packet = ElementTree.fromstring(texts[XMP_KEYWORD].split("?>", 1)[1].rsplit("<?", 1)[0])
    (description,) = packet.iter("{http://www.w3.org/1999/02/22-rdf-syntax-ns#}Description")
    term = description.get("{http://iptc.org/std/Iptc4xmpExt/2008-02-29/}DigitalSourceType")
    assert term == "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
    assert digital_source_type("keeps the subject").endswith("/compositeWithTrainedAlgorithmicMedia")


def test_a_text_that_looks_like_fields_stays_one_field() -> None:
    text = parameters(replace(LINEAGE, model='a, "b": c'), (8, 8))
    assert text == 'p\nSeed: 1, Size: 8x8, Model: "a, \\"b\\": c", Version: DILLEMA Studio'


@pytest.mark.parametrize(
    ("title", "named"),
    [
        ("demo/weights/stable-diffusion", "stable-diffusion"),
        ("/home/somebody/private/model.safetensors", "model"),
        ("C:\\models\\model v1.5.ckpt", "model v1.5"),
        ("owner/sd-v1-5/", "sd-v1-5"),
    ],
)
def test_models_are_called_what_their_file_is_called(title: str, named: str) -> None:
    lineage = replace(CASE.lineage, model=f"{title} + {title}")
    text = parameters(lineage, (8, 8), MadeWith("KarrasVeScheduler"))
    assert f"Model: {named}, " in text and "Sampler: KarrasVeScheduler" in text
    assert "somebody" not in text and "hash" not in text


def test_the_demo_says_its_sampler_and_the_hashes_of_its_weights() -> None:
    profile = load_profile("demo")
    known = made_with(profile, "controlnet", ControlNetSettings())
    assert known.scheduler.endswith("Scheduler")
    folder = profile.generator.local()
    assert folder is not None
    unet = (folder / "unet" / "diffusion_pytorch_model.safetensors").read_bytes()
    assert known.hashes[profile.generator.title] == hashlib.sha256(unet).hexdigest()
    assert all(re.fullmatch(r"[0-9a-f]{64}", sha) for sha in known.hashes.values()) and len(known.hashes) == 2
    depth = ControlNetSettings(conditioning=ConditioningSettings(kind="depth"))
    assert set(made_with(load_profile("paper"), "controlnet", depth).hashes.values()) == {""}, (
        "nothing is fetched for it"
    )


def test_the_hubs_cache_is_asked_for_the_hash_and_another_file_is_another_hash(
    tmp_path: Path,
) -> None:
    blob = tmp_path / "blobs" / ("5a" * 32)
    blob.parent.mkdir()
    blob.write_bytes(b"weights")
    link = tmp_path / "diffusion_pytorch_model.safetensors"
    link.symlink_to(blob)
    assert weights_hash(Weights(path=str(tmp_path))) == "5a" * 32
    link.unlink()
    link.write_bytes(b"weights")
    first = weights_hash(Weights(path=str(tmp_path)))
    link.write_bytes(b"other weights")
    assert first == hashlib.sha256(b"weights").hexdigest() != weights_hash(Weights(path=str(tmp_path)))


def test_a_file_without_a_run_says_so() -> None:
    assert read_run_in(encoded(DRAWN)) is None
    assert read_run_in(b"dear reader") is None
    foreign = with_texts(encoded(DRAWN), {"parameters": NASTY, "Comment": "hello"})
    with pytest.raises(UserError, match=r"^There is no run in this file\."):
        require_run_in(foreign)
    with pytest.raises(UserError, match=r"^The file is not an image;"):
        require_run_in(b"dear reader")


def test_a_picture_that_was_painted_over_is_left_out() -> None:
    texts = read_texts(saved(), [KEYWORD, f"{KEYWORD}-source", f"{KEYWORD}-artifact-0"])
    held = require_run_in(with_texts(encoded(noise()), texts))
    assert held.case is None and "changed after it was saved" in held.lost
    assert held.run == RUN and held.source is not None


def test_settings_that_are_not_known_leave_the_picture_out() -> None:
    odd = UnreadSettings(recorded={"steps": "many", "conditioning": {}})
    held = require_run_in(saved(case=replace(CASE, lineage=replace(CASE.lineage, settings=odd))))
    assert held.case is None and "settings that are not known" in held.lost


def test_a_picture_of_a_method_that_is_not_known_here_comes_back_with_what_it_says() -> None:
    settings = UnreadSettings(recorded={"cross_replace": 0.8})
    lineage = replace(CASE.lineage, method="inversion", settings=settings, recipe="dillema")
    grey = Image.new("L", DRAWN.size, 7)
    given = replace(CASE, lineage=lineage, artifacts={"inversion": CONTROL, "edited region": grey})
    case = require_run_in(saved(case=given)).case
    assert case is not None and case.lineage == lineage and list(case.artifacts) == ["inversion", "edited region"]
    assert (case.artifacts["edited region"].mode, case.artifacts["edited region"].tobytes()) == ("L", grey.tobytes())
    with pytest.raises(ValueError, match="9 artifacts"):
        saved(case=replace(given, artifacts={str(number): grey for number in range(9)}))


def test_a_picture_without_an_artifact_of_its_method_is_left_out() -> None:
    held = require_run_in(saved(case=replace(CASE, artifacts={})))
    assert held.case is None and "does not carry the picture's control image" in held.lost


def change(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(record: dict[str, Any]) -> None:
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = to

    return apply


def deep(record: dict[str, Any]) -> None:
    record["run"]["settings"] = {}
    for _ in range(400):
        record["run"]["settings"] = {"a": record["run"]["settings"]}


@pytest.mark.parametrize(
    "spoil",
    [
        change("run", to=3),
        change("run", to=None),
        change("run", "task", to={"kind": "driving"}),
        change("run", "values", to=[]),
        change("run", "values", "caption", "value", "text", to=["A bird."]),
        change("run", "values", "generation", to={}),
        change("run", "values", "keywords", "trace", "attempts", to=10**30),
        change("run", "values", "keywords", "trace", "attempts", to=-1),
        change("run", "prompts", to={"nothing": "x"}),
        change("run", "name", to="half \ud800"),
        change("run", "settings", to={"steps": float("inf")}),
        change("run", "mask_classes", to={"900": "road"}),
        change("run", "mask_classes", to={"0": "road"}),
        change("run", "id", to={"$ne": 1}),
        change("image", "lineage", "seed", to="7"),
        change("image", "lineage", "seed", to=-1),
        change("image", "lineage", "seconds", to="long"),
        change("image", "lineage", "model", to={"a": 1}),
        change("image", "lineage", "counterfactual", to={"text": 1}),
        change("image", "review", to="accepted"),
        change("image", "review", to={"verdict": "open"}),
        change("image", "review", to={"verdict": "rejected", "reason": 7}),
        change("image", "review", to={"verdict": "rejected", "reason": "x" * 1001}),
        change("image", "lineage", "settings", to=["a"]),
        change("image", "lineage", "recipe", to=3),
        change("image", "lineage", to=None),
        change("pictures", to=[]),
        change("pictures", "artifacts", to={"x" * 61: {"sha256": "0", "carried": True}}),
        change("pictures", "artifacts", to={str(n): {"sha256": "0", "carried": False} for n in range(9)}),
        change("pictures", "source", "sha256", to=["0"]),
        change("pictures", "source", "sha256", to="0" * 64),
        change("format", to="one"),
        change("format", to=None),
    ],
)
def test_a_record_that_was_changed_is_refused_in_a_sentence(spoil: Callable[[dict[str, Any]], None]) -> None:
    data = saved()
    record = json.loads(read_texts(data, [KEYWORD])[KEYWORD])
    spoil(record)
    with pytest.raises(UserError, match=r"^The run in this file is damaged or was changed by hand[^.]*\.$"):
        read_run_in(with_texts(data, {KEYWORD: json.dumps(record)}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{half", "damaged or was changed"),
        ("[]", "damaged or was changed"),
        ("[" * 100_000, "damaged or was changed"),
        ("9" * 10_000, "damaged or was changed"),
        ('{"format": 1}', "never released"),
        ('{"format": 2}', "damaged or was changed"),
        ('{"format": 3}', "newer version"),
        (json.dumps({"format": 1, "run": "x" * 1_000_000}), "far larger"),
    ],
)
def test_broken_records_are_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as told:
        read_run_in(with_texts(saved(), {KEYWORD: text}))
    assert str(told.value).count(".") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "picture",
    [
        lambda: b"not base64!",
        lambda: base64.b64encode(b"no picture"),
        lambda: base64.b64encode(encoded(noise())),
        lambda: base64.b64encode(encoded(Image.new("1", (20_000, 20_000)))),
    ],
    ids=["no base64", "no picture", "another picture", "a bomb"],
)
def test_pictures_inside_are_checked(picture: Callable[[], bytes]) -> None:
    with pytest.raises(UserError, match="damaged or was changed"):
        read_run_in(with_texts(saved(), {f"{KEYWORD}-source": picture().decode()}))


def test_a_mask_of_another_size_or_mode_is_refused() -> None:
    for mask in (Image.new("L", (20, 12), 3), Image.new("RGB", (40, 24), (3, 3, 3))):
        with pytest.raises(UserError, match="damaged or was changed"):
            read_run_in(saved(mask=mask))
