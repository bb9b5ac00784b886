"""Write the page of all settings, from the code that checks them and the YAML files with their defaults.

    python scripts/write_settings.py [docs/settings.md]

The meaning of a setting is the comment beside it, in `experiments/settings/` or the file of a kind, or else in `conf/`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.config.expressions import MISSING, in_words  # noqa: E402
from experiments.config.groups import options  # noqa: E402
from experiments.record.dotted import leaves  # noqa: E402
from experiments.settings.conf_files import CONF  # noqa: E402
from experiments.settings.finetuning import Benchmark, FinetuningSettings  # noqa: E402
from experiments.settings.group import LARGEST_SIZE, Group  # noqa: E402
from experiments.settings.run import Settings  # noqa: E402
from experiments.settings.variant import module_of, schema  # noqa: E402

HEAD = """# Every setting

This page lists every setting with its range, its default and its meaning. This command prints the settings of a run
with their values:

```bash
attn train variant=talking_heads heads=24 --cfg job --resolve
```

Write a setting as `key=value`, with a dot between a group and its key: `optimizer.weight_decay=0.1`. `optimizer=adamw`
chooses an option of a group. A key that does not exist, or a value outside of its range, is refused before anything
starts; the message names the nearest valid word.

In the tables below, "as `heads`" means that the default is the value of `heads`, and "hidden_size // heads" that it is
computed from these settings. Sizes, such as widths and numbers of heads, are at most 2^20. The options of some groups
are of several kinds; each kind has settings of its own. `python scripts/write_settings.py` makes this page.
"""
# groups whose keys depend on the chosen kind
KINDS = ("objective", "data", "tokenizer", "optimizer", "schedule")
FIELD = re.compile(r"^ {4}(\w+): [^#]*?(?:# (.*))?$")
KEY = re.compile(r"^ *(\w+):[^#]*# (.*)$")
# settings of the attention layer that several variants have
COMMON = {
    "hidden_size": "width of the residual stream",
    "heads": "heads, if the numbers of key, softmax and value heads agree",
    "key_size": "width of queries and keys per head",
    "value_size": "width of values per head",
    "scaled": "logits are divided by the square root of their width",
    "linear_bias": "the linear maps have biases",
    "dropout": "dropout of the attention weights",
    "backend": "attention kernel",
    "dynamic": "parts computed from x (x2l, x2w) or the memory (m2l, m2w), added to P_l or P_w; for the learning rate "
    "see optimizers.md",
    "start": "start of the parameters that mix or reweigh heads; the other value makes the layer start as multi-head "
    "attention",
}


def page() -> str:
    """The whole page."""
    plain = [name for name in Settings.model_fields if name not in {*KINDS, "variant", "model", "trainer", "logger"}]
    top = raw("config")
    # what an option sets beside its group, such as the learning rate of the default optimizer
    for group, option in (item for entry in top["defaults"] if isinstance(entry, dict) for item in entry.items()):
        path = CONF / group / f"{option}.yaml"
        beside = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
        top |= {key: value for key, value in beside.items() if group in beside and key in plain}
    parts = [HEAD, "## The main settings\n", table(Settings, plain, top, CONF / "config.yaml")]
    parts += ["## `variant`: the attention\n", variants()]
    parts += ["## `model`: the layers around the attention\n", presets("model", "bert")]
    parts.append(table(group_class("model"), None, raw("model/bert"), CONF / "model" / "bert.yaml", "model."))
    for name in KINDS:
        parts += [f"## `{name}`\n", presets(name), *kinds(name, members(Settings, name))]
    for name, option in (("trainer", "default"), ("logger", "default")):
        parts.append(f"## `{name}`\n")
        path = CONF / name / f"{option}.yaml"
        parts.append(table(group_class(name), None, raw(f"{name}/{option}"), path, f"{name}."))
    parts += [EXPERIMENT, experiments(), FINETUNING, finetuning()]
    return "\n".join(parts)


EXPERIMENT = """## `experiment`: several settings at once

`experiment=NAME` applies the settings of `conf/experiment/NAME.yaml`; those on the command line come after it. The
budgets of the papers' tables use these options, and [clusters](clusters.md) shows a file of your own.
"""
FINETUNING = """## Fine-tuning

`attn finetune RUN task=NAME` takes the settings below. It also takes `max_steps`, `precision`, `backend`, `seed`,
`runs`, `cache`, and the groups `optimizer`, `schedule`, `trainer` and `logger`, as described above, with three other
defaults: `max_steps=null`, `optimizer=adamw` and `trainer.evaluate_every=2000`. All other settings are those of the
pretrained run.

If `length` is not set, windows are as long as the sequences of the pretrained run. `dropout=0.1` sets the dropout of
the model and of its attention weights; if it is not set, that of the pretrained run applies.
"""


def finetuning() -> str:
    """The tables of `attn finetune` and its tasks."""
    own = ["pretrained", "checkpoint", "epochs", "batch_size", "learning_rate", "length"]
    tables = [table(FinetuningSettings, own, raw("finetune"), CONF / "finetune.yaml")]
    return "\n".join([*tables, "### `task`\n", presets("task"), *kinds("task", get_args(get_args(Benchmark)[0]))])


def members(model: type[Group], field: str) -> tuple[type[Group], ...]:
    """The classes in the union of a field's type, one for each kind."""
    return get_args(model.model_fields[field].annotation)


def group_class(name: str) -> type[Group]:
    """The class of a group without kinds."""
    found = Settings.model_fields[name].annotation
    assert inspect.isclass(found)
    return found


def raw(name: str) -> dict[str, Any]:
    """The group in a file of conf/, on top of the files of the group that its defaults list names.

    A file that also sets keys outside its group has the group under its name.
    """
    path = CONF / f"{name}.yaml"
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    if name in ("config", "finetune"):
        return tree
    parents = tree.pop("defaults", ())
    group: dict[str, Any] = tree.get(path.parent.name, tree)
    for parent in parents:
        if isinstance(parent, str) and "@" not in parent and parent != "_self_":
            group = raw(f"{path.parent.name}/{parent}") | group
    return group


def chosen(group: str) -> str | None:
    """The option of a group that a run has by default."""
    return next(
        (entry[group] for entry in raw("config")["defaults"] if isinstance(entry, dict) and group in entry), None
    )


def experiments() -> str:
    """The options of `experiment`: what each is for, and the settings that it changes."""
    rows = []
    for option in options("experiment"):
        text = (CONF / "experiment" / f"{option}.yaml").read_text(encoding="utf-8")
        purpose = " ".join(line[2:] for line in text.splitlines() if line.startswith("# ") and "@package" not in line)
        tree = yaml.safe_load(text)
        chosen = [f"{group.split('/')[1]}={name}" for entry in tree.pop("defaults") for group, name in entry.items()]
        changed = [f"{key}={value}" for key, value in leaves(tree)]
        rows.append((f"`{option}`", sentence(purpose), f"`{' '.join([*chosen, *changed])}`"))
    return markdown(("option", "what it is for", "what it sets"), rows)


def presets(group: str, basis: str | None = None) -> str:
    """The sentence that lists the options of a group."""
    names = ", ".join(f"`{option}`{' (the default)' * (option == chosen(group))}" for option in options(group))
    also = f" The table has the defaults of `{basis}`, on which the others are based." if basis else ""
    return f"Choose one with `{group}=NAME`: {names}.{also}\n"


def kinds(group: str, classes: Iterable[type[Group]]) -> Iterator[str]:
    """The kinds of a group, and a table of their settings with the defaults of each, or of one of its options."""
    of_kinds: dict[str, Kind] = {}
    for model in classes:
        names = get_args(model.model_fields["kind"].annotation)
        of_kind = [option for option in options(group) if raw(f"{group}/{option}").get("kind") in names]
        usual = chosen(group)
        basis = usual if usual in of_kind else next((option for option in of_kind if option in names), of_kind[0])
        comments = yaml_comments(CONF / group / f"{basis}.yaml") | source_comments(model)
        title = ", ".join(f"`{name}`" for name in names)
        fields = [field for field in model.model_fields if field != "kind"]
        if {*of_kind} == {*names}:
            of_kinds |= {f"`{name}`": Kind(model, fields, raw(f"{group}/{name}"), comments) for name in names}
        else:
            of_kinds[title] = Kind(model, fields, raw(f"{group}/{basis}"), comments)
        says = (inspect.getdoc(model) or "").splitlines()[0]
        listed = ", ".join(f"`{option}`{' (whose defaults the table has)' * (option == basis)}" for option in of_kind)
        yield f"* {title}: {says}{f' Options: {listed}.' * (set(of_kind) != set(names))}"
    yield ""
    yield merged(of_kinds, f"{group}.", "kinds")


def variants() -> str:
    """One table with the keys of all variants."""
    of_variants = {}
    for option in options("variant"):
        tree = raw(f"variant/{option}")
        comments = yaml_comments(CONF / "variant" / f"{option}.yaml") | COMMON
        model = schema(module_of(tree))
        fields = [field for field in model.model_fields if field not in ("name", "module")]
        of_variants[f"`{option}`"] = Kind(model, fields, tree, comments)
    text = (
        "[Every variant with its equation](variants.md). If the default of a key is another setting, "
        "change that setting: `heads=24`."
    )
    return f"{text}\n\n" + merged(of_variants, "variant.", "variants")


class Kind(NamedTuple):
    """One of the kinds of a group, or a variant."""

    model: type[Group]
    fields: list[str]  # its settings
    values: dict[str, Any]  # the defaults
    comments: dict[str, str]  # the meanings


def merged(kinds: dict[str, Kind], prefix: str, heading: str) -> str:
    """One table with the settings of several kinds; a setting of the same type and meaning has one row."""
    defaults: dict[tuple[str, str, str], dict[str, str]] = {}
    known = {field: meaning for kind in kinds.values() for field, meaning in kind.comments.items()}
    for field in dict.fromkeys(field for kind in kinds.values() for field in kind.fields):
        for name, kind in kinds.items():
            if field in kind.fields:
                meaning = sentence(kind.comments.get(field) or known.get(field, ""))
                of_row = defaults.setdefault((field, allowed(kind.model, field), meaning), {})
                of_row[name] = default(kind.values.get(field))
    rows = [
        (f"`{prefix}{field}`", types, by_name(of_row), having(list(of_row), list(kinds)), meaning)
        for (field, types, meaning), of_row in defaults.items()
    ]
    return markdown(("setting", "type and range", "default", heading, "meaning"), rows)


def by_name(defaults: dict[str, str]) -> str:
    """The most common default, and the others with the names that have them."""
    names: dict[str, list[str]] = {}
    for name, value in defaults.items():
        names.setdefault(value, []).append(name)
    usual = max(names, key=lambda value: len(names[value]))
    return "; ".join([usual, *(f"{value} ({', '.join(names[value])})" for value in names if value != usual)])


def having(names: list[str], of: list[str]) -> str:
    """The names; if most of all names are among them, those that are not."""
    lacking = [name for name in of if name not in names]
    if not lacking:
        return "all"
    return f"all but {', '.join(lacking)}" if len(names) > len(lacking) else ", ".join(names)


def table(model: type[Group], fields: list[str] | None, values: dict[str, Any], path: Path, prefix: str = "") -> str:
    """The table of a class's settings: type and range, default, meaning."""
    comments = yaml_comments(path) | source_comments(model)
    rows = []
    for field in fields or model.model_fields:
        value = default(values.get(field))
        rows.append((f"`{prefix}{field}`", allowed(model, field), value, sentence(comments.get(field, ""))))
    return markdown(("setting", "type and range", "default", "meaning"), rows)


def sentence(text: str) -> str:
    """A comment as a cell of a table; the name of a page in it is a link."""
    return re.sub(r"\b(?:docs/)?(\w+)\.md\b", r"[\1](\1.md)", text.replace("|", "\\|").replace("<", "&lt;"))


def allowed(model: type[Group], field: str) -> str:
    """The type and range of a field, from its JSON schema."""
    schema_of_field = model.model_json_schema()
    return described(schema_of_field["properties"][field], schema_of_field.get("$defs", {}))


def described(node: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A node of a JSON schema in words."""
    if "$ref" in node:
        return described(definitions[node["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in node:
        words = [described(each, definitions) for each in node["anyOf"]]
        return (", " if all(word.startswith("`") for word in words) else " or ").join(words)
    if "const" in node or "enum" in node:
        return ", ".join(f"`{choice}`" for choice in node.get("enum", [node.get("const")]))
    match node.get("type"):
        case "integer" | "number" as kind:
            return ("whole number" if kind == "integer" else "number") + bounds(node)
        case "boolean":
            return "`true`, `false`"
        case "null":
            return "`null`"
        case "array":
            return f"list of: {described(node['items'], definitions)}"
        case "object":
            return "a text for each name"
        case _:
            return "text"


def bounds(node: dict[str, Any]) -> str:
    """The range of a number."""
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    # the page gives the limit of all sizes once
    limits = {sign: node[key] for key, sign in signs.items() if node.get(key, LARGEST_SIZE) != LARGEST_SIZE}
    return "".join(f", {sign} {'2^32' if limit == 2**32 else f'{limit:g}'}" for sign, limit in limits.items())


def default(value: Any) -> str:
    """A value of a YAML file as text, with references to other settings by name."""
    if value == "???":
        return MISSING
    if isinstance(value, str) and "${" in value:
        return re.sub(r"^as (.*)$", r"as `\1`", in_words(value))
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{'null' if value is None else str(value).lower() if isinstance(value, bool) else value}`"


def source_comments(model: type[Group]) -> dict[str, str]:
    """The comments beside or above the fields of a class and of its base classes, by field."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if not (inspect.isclass(each) and issubclass(each, Group) and each is not Group):
            continue
        above: list[str] = []
        for line in inspect.getsource(each).splitlines():
            if match := FIELD.match(line):
                comment = match[2] or " ".join(above)
                found |= {match[1]: comment} if comment else {}
            above = [*above, line.strip(" #")] if line.startswith("    # ") else []
    return found


def yaml_comments(path: Path) -> dict[str, str]:
    """The comments at the ends of the lines of a file of conf/, by their keys."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {match[1]: match[2] for match in map(KEY.match, lines) if match}


def markdown(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "settings.md"
    target.write_text(page(), encoding="utf-8")
