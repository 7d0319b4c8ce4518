"""Whatever stands in a user's string, the artefact's own reader gives back that string."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from plan_samples import LLAMA_OPTION, sample_plan, setting
from real_tools import compose_config, lay_out, need, quadlet_service, run, systemd_commands
from ruamel.yaml import YAML

from qwendeploy.documents import Plan
from qwendeploy.documents.files import dump_document, read_plan
from qwendeploy.errors import DataError
from qwendeploy.rendering import KINDS, launch_of, render

NASTY = (
    " ",
    "'",
    '"',
    "\\",
    "$",
    "${HOME}",
    "$(id)",
    "$$",
    "`id`",
    "%n",
    "%%",
    "%",
    "\n",
    "\r\n",
    "\t",
    "#",
    ";",
    "&&",
    "|",
    "!",
    "*",
    "~",
    "{{x}}",
    "{%x%}",
    "[",
    "]",
    ": ",
    "- ",
    ",",
    "=",
    "<",
    ">",
    "é",
    "漢字",
    "\U0001f600",
    "\u2028",
    "\x85",
    "\ufeff",
    "\x1b[31m",
    "\x7f",
    "yes",
    "null",
    "1e3",
    "--",
    "-x",
)

strings = st.one_of(
    st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=4)), max_size=6).map("".join),
    st.text(max_size=20),
).map(lambda text: "".join(c for c in text if c != "\x00" and not 0xD800 <= ord(c) <= 0xDFFF))


@dataclass(frozen=True)
class Hostile:
    """The strings that a user types or a document carries."""

    checkpoint: str
    served: str
    flag: str
    variable: str
    note: str

    def plan(self) -> Plan:
        return sample_plan(
            checkpoint=self.checkpoint,
            served_model_name=self.served,
            extra_flags=(setting("--chat-template", self.flag),),
            env=(setting("SOME_VARIABLE", self.variable),),
            plan_id=self.note,
            headlines=(self.note,),
            reasons=(self.note,),
        )


def _path(text: str) -> str:
    return "/" + "".join(c for c in text if c.isprintable() and c != ":")


hostile = st.builds(
    Hostile,
    checkpoint=st.one_of(
        strings.filter(lambda text: text and not text.startswith(("/", "./", "../", "~"))),
        strings.map(_path),
    ),
    served=strings.filter(lambda text: text.strip()),
    flag=strings,
    variable=strings,
    note=strings,
)

WORST = Hostile(
    checkpoint="/srv/m o'd\"e,l/$HOME/%n/`id`/é",
    served="$(touch x) `id` %n \\ ' \" \n \U0001f600 ${A:-b} $$ {{ x }}",
    flag="-- -x",
    variable="a b\nc=$d %h \"q\" 'r' \\n #e",
    note="x */ \n# EOF\nExecStart=/bin/false \\",
)
DASHES = Hostile(checkpoint="-x", served="--y", flag="", variable="", note="-")

hostile_values = settings(
    max_examples=int(os.environ.get("HOSTILE_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def intended(plan: Plan) -> list[str]:
    return list(launch_of(plan).arguments("0.0.0.0", 8000))


def laid_out(plan: Plan, kind: str) -> Path:
    return lay_out(render(plan, kind), Path(tempfile.mkdtemp()))


def argument_vector(script: Path, program: str, record: Path) -> tuple[list[str], dict[str, str]]:
    """Run the script with a program that only records its arguments and environment."""
    folder = script.parent / "bin"
    folder.mkdir()
    fake = folder / program
    fake.write_text(
        "#!/usr/bin/python3\nimport json, os, sys\n"
        f"json.dump([sys.argv[1:], dict(os.environ)], open({str(record)!r}, 'w'))\n"
    )
    fake.chmod(0o755)
    done = run(
        need("bash"),
        str(script),
        env={"PATH": f"{folder}:{os.environ['PATH']}", "HF_HOME": str(script.parent / "hub")},
        cwd=script.parent,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    arguments, environment = json.loads(record.read_text())
    return arguments, environment


@given(hostile)
@example(WORST)
@example(DASHES)
@hostile_values
def test_docker_script(values: Hostile) -> None:
    plan = values.plan()
    place = laid_out(plan, "docker")

    words, _ = argument_vector(place / "run.sh", "docker", place / "record.json")

    image = words.index("vllm/vllm-openai:v0.22.0")
    assert words[image + 1 :] == intended(plan)
    assert f"SOME_VARIABLE={values.variable}" in words[:image]
    assert f"org.qwendeploy.plan={values.note}" in words[:image]
    assert not (place / "x").exists()


@given(hostile)
@example(WORST)
@example(DASHES)
@hostile_values
def test_venv_script(values: Hostile) -> None:
    plan = values.plan()
    place = laid_out(plan, "vllm")

    words, environment = argument_vector(place / "serve.sh", "vllm", place / "record.json")

    assert words == ["serve", *launch_of(plan).arguments("127.0.0.1", 8000)]
    assert environment["SOME_VARIABLE"] == values.variable
    assert environment["VLLM_API_KEY"] == "a-key-for-tests"
    assert "a-key-for-tests" not in " ".join(words)


@given(hostile)
@example(WORST)
@example(DASHES)
@hostile_values
def test_compose_file(values: Hostile) -> None:
    plan = values.plan()

    service = compose_config(laid_out(plan, "compose"))["services"]["engine"]

    # `config` prints what it read as a compose file again, so a dollar is doubled
    assert [word.replace("$$", "$") for word in service["command"]] == intended(plan)
    assert service["environment"]["SOME_VARIABLE"].replace("$$", "$") == values.variable
    mounts = [mount["source"].replace("$$", "$") for mount in service["volumes"]]
    for path in launch_of(plan).local_paths:
        assert str(Path(path)) in mounts or path in mounts


@given(hostile)
@example(WORST)
@example(DASHES)
@hostile_values
def test_systemd_unit(values: Hostile) -> None:
    plan = values.plan()
    unit = laid_out(plan, "systemd") / "qwendeploy.service"

    commands = systemd_commands(unit)

    start = next(words for words in commands if "--detach" not in words and "run" in words)
    image = start.index("vllm/vllm-openai:v0.22.0")
    assert start[image + 1 :] == intended(plan)
    assert f"SOME_VARIABLE={values.variable}" in start[:image]
    assert len(commands) == 4


@given(hostile)
@example(WORST)
@example(DASHES)
@hostile_values
def test_quadlet(values: Hostile) -> None:
    # podman's --mount has no way to write these two
    plain = re.sub(r"[\",]", "", values.checkpoint)
    plan = replace(values, checkpoint=plain or "x").plan()
    if any("\x80" <= char <= "\x9f" for text in astuple(values) for char in text):
        with pytest.raises(DataError, match="control character"):
            render(plan, "quadlet")
        return
    place = laid_out(plan, "quadlet")

    service = quadlet_service(place).replace("/usr/bin/podman", "/bin/true")

    unit = place / "made.service"
    unit.write_text(service, encoding="utf-8")
    start = next(words for words in systemd_commands(unit) if words[1:2] == ["run"])
    image = start.index("docker.io/vllm/vllm-openai:v0.22.0")
    assert start[image + 1 :] == intended(plan)
    assert f"SOME_VARIABLE={values.variable}" in start[:image]
    said = " ".join(start[:image])
    for path in launch_of(plan).local_paths:
        assert f"type=bind,source={path},destination={path},ro=true" in said


@given(hostile)
@example(WORST)
@example(DASHES)
@hostile_values
def test_manifest(values: Hostile) -> None:
    plan = values.plan()
    text = render(plan, "kubernetes")["kubernetes.yaml"][0]

    _, deployment, _ = YAML(typ="safe", pure=True).load_all(text)

    container = deployment["spec"]["template"]["spec"]["containers"][0]
    # the kubelet turns $$ into a dollar that starts no $(NAME)
    assert [word.replace("$$", "$") for word in container["args"]] == intended(plan)
    variable = next(item for item in container["env"] if item["name"] == "SOME_VARIABLE")
    assert variable["value"].replace("$$", "$") == values.variable


@given(hostile)
@example(WORST)
@hostile_values
def test_plan_file(values: Hostile) -> None:
    plan = values.plan()
    place = Path(tempfile.mkdtemp()) / "plan.yaml"
    place.write_text(dump_document(plan), encoding="utf-8", newline="")

    assert read_plan(place) == plan


@given(strings)
@hostile_values
def test_llama_server_script(value: str) -> None:
    plan = sample_plan(**LLAMA_OPTION, extra_flags=(setting("--chat-template", value),))
    place = laid_out(plan, "llama-server")

    words, _ = argument_vector(place / "llama-server.sh", "llama-server", place / "record.json")

    assert words == list(launch_of(plan).arguments("127.0.0.1", 8000))


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS.values() if "vllm" in kind.engines])
def test_scripts_and_secrets_have_their_modes(kind: str) -> None:
    for name, (_, mode) in render(sample_plan(), kind).items():
        assert mode == (0o755 if name.endswith(".sh") else 0o644)
        assert not mode & stat.S_IWOTH
