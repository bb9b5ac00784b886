from __future__ import annotations

import re

import pytest

import attention
from experiments.config.check import HEAD_SIZE
from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.settings import plugins
from experiments.settings.conf_files import conf_folders, yaml_file
from experiments.settings.variant import keys_read_by, mixes_heads, schema
from tests.fixtures.plugins import LOUD, LOUD_YAML, write_files

KERNEL = "def attend(problem):\n    return problem.value\n"


def test_what_a_folder_adds_is_found_and_the_arguments_bring_it_to_another_process(loud):
    assert plugins.arguments() == [] and "loud" not in attention.mechanisms()
    assert plugins.take(["RUN", f"plugins={loud}", "heads=2"]) == ["RUN", "heads=2"]
    assert "loud" in attention.mechanisms()
    assert attention.build("loud", 24, 2, gain=3.0).gain == 3.0
    assert set(schema("loud").model_fields) >= {"hidden_size", "heads", "gain"}
    assert yaml_file("variant", "loud") == loud / "conf/variant/loud.yaml"
    arguments = plugins.arguments()
    assert arguments == [f"plugins={loud}"]
    plugins.add(arguments)
    assert plugins.arguments() == arguments and conf_folders()[1:] == [loud / "conf"]


def test_a_width_of_a_variant_that_is_too_small_is_named_by_its_own_key(tmp_path, unplugged):
    wide = "\nclass Attention(multi_head.Attention):\n    def __init__(self, width: int) -> None:\n        pass\n"
    settings = f"name: wide\nwidth: {HEAD_SIZE}\n"
    plugins.add([f"plugins={write_files(tmp_path, {'attention/wide.py': wide, 'conf/variant/wide.yaml': settings})}"])
    said = f"variant.width = 0: must be at least 1; it is {HEAD_SIZE}"
    with pytest.raises(Mistake, match=rf"^heads = 1000: .*\n{re.escape(said)}$"):
        compose(["variant=wide", "heads=1000"])


def test_a_folder_of_yaml_alone_follows_its_flag(tmp_path, unplugged):
    folder = write_files(tmp_path / "conf", {"variant/mine.yaml": "name: mine\n"})
    assert plugins.take(["--config-dir", str(folder), "-m"]) == ["-m"]
    assert plugins.arguments() == [f"--config-dir={folder}"] and plugins.code_folders() == ()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"attention/multi_head.py": LOUD}, "mine/attention/multi_head.py: attn itself has attention/multi_head"),
        ({"attention/kernels/cuda.py": ""}, "attn itself has attention/kernels/cuda"),
        ({"conf/variant/multi_head.yaml": ""}, "multi_head.yaml: attn itself has conf/variant/multi_head.yaml"),
        ({"conf/config.yaml": ""}, "config.yaml: attn itself has conf/config.yaml"),
        ({"conf/variant/loud.yaml": "name: multi_head"}, "loud.yaml: name = 'multi_head': must be 'loud'"),
        ({"conf/variant/loud.yaml": ""}, "loud.yaml: name is missing\n  the file must contain name: loud"),
        ({"conf/variant/loud.yaml": "gain: 2"}, "loud.yaml: name is missing"),
        ({"conf/variant/loud.yaml": "name: [loud"}, "loud.yaml: line 1: while parsing a flow sequence"),
        ({"conf/variant/loud.yaml": LOUD_YAML + "gain: 2\n"}, "loud.yaml: line 10: the key gain is given twice"),
        ({"conf/data/mine.yaml": "kind: [text"}, "mine.yaml: line 1: while parsing a flow sequence"),
        ({"conf/data/mine.yaml": "3"}, "mine.yaml: must be a mapping, KEY: VALUE"),
        ({"conf/data/mine.yaml": "[text]"}, "mine.yaml: must be a mapping, KEY: VALUE"),
        ({"conf/data/mine.yaml": "defaults: text"}, "mine.yaml: defaults = 'text': must be a list, such as [default]"),
        (
            {"conf/task/mine.yaml": "epochs: 1\ntask:\n  name: mine\n"},
            "mine/conf/task/mine.yaml: a file with the key task must begin with the line # @package _global_",
        ),
        ({"conf/variants/loud.yaml": LOUD_YAML}, "variants is not a group (did you mean variant?)"),
        (
            {"attention/layers/mine.py": ""},
            "attention/layers/ is not a folder to which files can be added\n  there are:",
        ),
        (
            {"experiments/model/layers/max_norm.py": ""},
            "experiments/model/layers/ is not a folder to which files can be added\n  in the project itself, it is",
        ),
        ({"attention/loud.py": "def f(:\n"}, "mine/attention/loud.py, line 1: invalid syntax"),
        (
            {"attention/loud.py": "import re\nfrom __future__ import annotations\n"},
            "mine/attention/loud.py, line 2: from __future__ imports must occur at the beginning of the file",
        ),
        ({"README.md": ""}, "adds nothing"),
        ({"conf/variant/loud.yml": LOUD_YAML}, "mine/conf/variant/loud.yml: the name must end in .yaml"),
        ({"attention/kernels/auto.py": KERNEL}, "kernels/auto.py: backend=auto chooses a kernel"),
        (
            {"attention/kernels/mine.py": KERNEL.replace("attend", "atend")},
            "mine/attention/kernels/mine.py: has no function attend(problem)",
        ),
        (
            {"attention/kernels/mine.py": KERNEL + "def refusal():\n    return None\n"},
            "mine/attention/kernels/mine.py, line 3: refusal must take one argument, the problem",
        ),
        (
            {"attention/kernels/mine.py": KERNEL.replace("problem", "problem, hook")},
            "mine/attention/kernels/mine.py, line 1: attend must take one argument, the problem",
        ),
    ],
)
def test_what_can_not_be_added_is_named_and_nothing_is(tmp_path, unplugged, files, message):
    folder = write_files(tmp_path / "mine", files)
    with pytest.raises(Mistake, match=re.escape(message)):
        plugins.take([f"plugins={folder}"])
    assert plugins.arguments() == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plugins=nowhere"], "plugins=nowhere: there is no folder 'nowhere'"),
        (["plugins="], "plugins=: there is no folder ''"),
        (["--config-dir"], "--config-dir=: there is no folder ''"),
        (["plugins=a", "plugins=b"], "plugins is given twice: a and b"),
    ],
)
def test_words_that_name_no_folder_are_refused(words, message, unplugged):
    with pytest.raises(Mistake, match=re.escape(message)):
        plugins.take(words)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("gain: float", "gain", "{file}: argument gain of Attention.__init__ has no annotation"),
        (
            "gain: float",
            "gain: tuple[int]",
            "{file}: gain: tuple[int] must consist of "
            "int, float, Real, bool, str, list[...], Sequence[...], Literal[...]",
        ),
        ("class Attention", "class Loud", "there is no class Attention in {file}"),
        (
            "Attention(multi_head.Attention)",
            "Attention",
            "{file}: the class Attention must be a subclass of AttentionLayer (attention/layers/attention_layer.py)",
        ),
    ],
)
def test_a_class_that_can_not_be_read_is_named_with_its_file(loud, right, wrong, said):
    file = loud / "attention/loud.py"
    file.write_text(LOUD.replace(right, wrong))
    plugins.add([f"plugins={loud}"])
    with pytest.raises(Mistake, match=f"^{re.escape(said.format(file=file))}$"):
        schema("loud")


def test_an_argument_that_only_its_name_gives_is_a_setting_too(loud):
    (loud / "attention/loud.py").write_text(LOUD.replace("gain: float", "*, gain: float"))
    plugins.add([f"plugins={loud}"])
    assert compose(["variant=loud", "variant.gain=3"]).variant["gain"] == 3.0


def test_a_variant_without_a_yaml_and_defaults_that_there_are_not_are_named_with_their_file(loud):
    write_files(loud, {"conf/variant/soft.yaml": "defaults: [lood]\nname: soft\nmodule: loud\n"})
    (loud / "conf/variant/loud.yaml").rename(loud / "conf/variant/lod.yaml")
    (loud / "conf/variant/lod.yaml").write_text(LOUD_YAML.replace("name: loud", "name: lod\nmodule: loud"))
    plugins.add([f"plugins={loud}"])
    lacking = f"there is no variant 'loud'\n  {loud}/attention/loud.py also needs a file conf/variant/loud.yaml"
    defaults = f"{loud}/conf/variant/soft.yaml: defaults: there is no variant 'lood' (did you mean lod?)"
    for words, said in (("variant=loud", lacking), ("variant=soft", defaults)):
        with pytest.raises(Mistake, match=f"^{re.escape(said)}"):
            compose([words])


@pytest.mark.parametrize(
    ("imports", "base", "may_mix"),
    [
        ("from attention import multi_head", "multi_head.Attention", False),
        ("from attention import talking_heads", "talking_heads.Attention", True),
        # what these are, only the interpreter knows
        ("from attention import multi_head as plain", "plain.Attention", True),
        ("from attention.talking_heads import Attention as Talking", "Talking", True),
    ],
)
def test_a_variant_may_mix_heads_unless_its_source_says_no(loud, imports, base, may_mix):
    source = LOUD.replace("class Attention(multi_head.Attention)", f"class Attention({base})")
    (loud / "attention/loud.py").write_text(f"{imports}\n{source}")
    plugins.add([f"plugins={loud}"])
    assert mixes_heads("loud") == may_mix


def test_the_keys_that_a_variant_reads_are_those_of_the_files_that_it_begins_with_too(tmp_path, unplugged):
    files = {"low.yaml": "name: low\nwide: ${times:2,${key_size}}\n", "high.yaml": "defaults: [low]\nname: high\n"}
    plugins.add([f"--config-dir={write_files(tmp_path, {f'variant/{name}': text for name, text in files.items()})}"])
    assert keys_read_by("high") == {"key_size"}
    assert not {"key_size", "value_size"} & keys_read_by("general_bilinear")


def test_kinds_that_have_been_listed_are_not_added_to(tmp_path, unplugged):
    import experiments.settings.run  # noqa: F401

    folder = write_files(tmp_path / "mine", {"experiments/objectives/kinds/skip.py": ""})
    with pytest.raises(Mistake, match="experiments/objectives/kinds/ has been listed already"):
        plugins.use_plugins(folder)
